"""The version of pyddmq: a release's number, or with the commit that it was installed from (`0.3.0+g1a2b3c4d`).

A checkout reads its commit from `.git`, without git. A wheel that is built of a commit between releases has the commit
in a file, which `hatch_build.py` puts into it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

COMMIT_FILE = "commit.txt"
"""Beside this module, in a wheel of a commit between releases."""

_DIGITS = 8


@cache
def product_version() -> str:
    """Return the version of the running pyddmq; "unknown" for a copy of its files."""
    return version_in(Path(__file__).resolve().parent)


def version_in(package: Path) -> str:
    """Return the version of the pyddmq whose package is in this folder."""
    project = package.parent / "pyproject.toml"
    try:
        if (package.parent / ".git").exists() and project.exists():
            found = re.search(r'^version = "(.+)"', project.read_text(encoding="utf-8"), re.MULTILINE)
            number, commit = "unknown" if found is None else found[1], commit_of(package.parent)
        else:
            number, commit = version("pyddmq"), _text(package / COMMIT_FILE)
    except (OSError, PackageNotFoundError):
        return "unknown"
    return f"{number}+g{commit[:_DIGITS]}" if commit else number


def commit_of(checkout: Path) -> str:
    """Return the commit that a checkout, or a worktree, is at; empty without one."""
    git = checkout / ".git"
    if git.is_file():
        git = checkout / _text(git).removeprefix("gitdir:").strip()
    head = _text(git / "HEAD")
    reference = head.removeprefix("ref: ")
    if reference == head:
        return head
    shared = git / _text(git / "commondir")
    found = re.search(rf"^([0-9a-f]+) {re.escape(reference)}$", _text(shared / "packed-refs"), re.MULTILINE)
    return _text(shared / reference) or ("" if found is None else found[1])


def _text(path: Path) -> str:
    """Return a file's text without the blanks around it; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
