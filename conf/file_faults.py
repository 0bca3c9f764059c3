"""Why a file cannot be read or written; of a denied one who was denied, by what, and what would be right.

No imports of this project: every room uses it.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path
from typing import Literal

_DENIED = frozenset((errno.EACCES, errno.EPERM))

Operation = Literal["read", "write"]


def file_fault(error: OSError, path: str | os.PathLike[str] | None = None, *, to: Operation = "read") -> str:
    """Return the reason of an error; where access was denied, with file, user and what would be right.

    Args:
        error: Of an operation on the file.
        path: The file where the error does not name it.
        to: What was tried.
    """
    reason = error.strerror or str(error) or type(error).__name__
    name = error.filename if isinstance(error.filename, str) else path
    if error.errno not in _DENIED or name is None:
        return reason
    return f"{reason}: {_denial(Path(name), to)}"


def lowered(reason: str) -> str:
    """Return a reason for the middle of a sentence."""
    return reason[:1].lower() + reason[1:]


def _denial(path: Path, to: Operation) -> str:
    user = f"user {_user(os.geteuid())}"
    for folder in reversed(path.absolute().parents):
        if not os.access(folder, os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            return f"{user} may not enter {_owned(folder)}; grant access to that folder"
    if path.exists():
        return f"{user} may not {to} {_owned(path)}; grant that permission"
    return f"{user} may not create {path.name} in {_owned(path.absolute().parent)}; grant write access there"


def _owned(path: Path) -> str:
    """Name a file with its owner and its mode, as far as they can be seen."""
    try:
        status = path.stat()
    except OSError:
        return str(path)
    return f"{path} (of user {_user(status.st_uid)}, mode {stat.S_IMODE(status.st_mode):04o})"


def _user(uid: int) -> str:
    """Name a user, with its number."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
