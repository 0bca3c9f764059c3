"""Errors of files: who may not do what with which file, and what would be right."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.errors import StoreFailed, StoreUnwritable
from conf.file_faults import file_fault
from conf.loader import load
from conf.problems import ConfigError
from conf.secrets import Secret, SecretUnreadable
from proxy.tls.files import TlsFileBad
from proxy.tls.files import _read as read_pem
from upstream.progress.ack_writer import ProgressFailed


def denied(path: Path) -> PermissionError:
    """Make the error that the system gives."""
    return PermissionError(errno.EACCES, "Permission denied", str(path))


def test_denied_file_is_named_with_user_owner_and_mode(tmp_path: Path) -> None:
    """What an operator needs for one `chown` or `chmod`."""
    file = tmp_path / "tokens"
    file.write_text("x")
    file.chmod(0o600)
    text = file_fault(denied(file))
    assert text.startswith("Permission denied: user ")
    assert f"(uid {os.geteuid()})" in text
    assert f"may not read {file} (of user " in text
    assert "mode 0600" in text
    assert text.endswith("grant that permission")


def test_file_that_cannot_be_made_names_its_folder(tmp_path: Path) -> None:
    """The file is not there: its folder is what must be writable."""
    text = file_fault(denied(tmp_path / "lock"), to="write")
    assert f"may not create lock in {tmp_path} (of user " in text
    assert text.endswith("grant write access there")


def test_other_errors_are_what_the_system_says(tmp_path: Path) -> None:
    """A full disk is no question of rights."""
    assert file_fault(OSError(errno.ENOSPC, "No space left on device", str(tmp_path))) == "No space left on device"
    assert file_fault(OSError("odd")) == "odd"


@pytest.mark.parametrize(
    "made",
    [
        lambda error, path: StoreUnwritable(str(path.parent), error),
        lambda error, _: StoreFailed("writing the log", error),
        lambda error, _: ProgressFailed("writing", error),
    ],
)
def test_errors_of_the_store_name_file_and_user(made: Callable[[OSError, Path], Exception], tmp_path: Path) -> None:
    """Log files, state files, and the ack journal."""
    file = tmp_path / "00000000000000000000"
    file.write_text("x")
    text = str(made(denied(file), file))
    assert f"user {_me()} may not " in text
    assert f"{file} (of user {_me()}, mode " in text


def _me() -> str:
    uid = os.geteuid()
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


READERS: dict[str, Callable[[Path], object]] = {
    "configuration": load,
    "secret": lambda path: Secret(file=str(path)).read(),
    "key": lambda path: read_pem("keyFile", str(path)),
}


@pytest.mark.parametrize("what", READERS)
def test_files_of_the_configuration_name_file_and_user(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration itself, and what it names."""
    file = tmp_path / "file"
    file.write_text("x")

    def refuse(*_: object) -> None:
        raise denied(file)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises((ConfigError, SecretUnreadable, TlsFileBad), match=r"user .* \(uid \d+\) may not read .*/file"):
        READERS[what](file)
