"""The file of the token by which a command says who it is: an option in front of the command, or the environment."""

from __future__ import annotations

from pathlib import Path

_chosen: list[Path] = []
"""What was in front of the command: one for the process, which runs one command."""


def choose_token_file(file: Path | None) -> None:
    """Keep it for the command that follows."""
    _chosen[:] = [] if file is None else [file]


def chosen_token_file() -> Path | None:
    """Return it; None where none was named: the environment says then."""
    return _chosen[0] if _chosen else None
