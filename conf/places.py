"""Where a key is in a configuration file, as a problem names it."""

from __future__ import annotations

from typing import NamedTuple

from conf.problems import Problem
from conf.yaml_tree import Mapping, Scalar, Sequence, Tree, find, line_of, place_in, plain


class Within(NamedTuple):
    """The last step of a path that leads into a text: line and column, both from 1, of the text itself."""

    line: int
    column: int


class ConfigTextError(ValueError):
    """What is wrong with a text of the configuration, and where in it; raised by validators of options."""

    def __init__(self, text: str, line: int, column: int) -> None:
        super().__init__(text)
        self.line, self.column = line, column


Path = tuple[str | int | Within, ...]
"""Keys, and places in lists, from the top of the file; a place in a text may end it."""


def located(tree: Tree, file: str, path: Path, text: str) -> Problem:
    """Return a problem with the line of the deepest part of a path that the file has; in a text with the column."""
    if not path or not isinstance(path[-1], Within):
        return Problem(file, line_of(tree, path), shown(tree, path), text)
    within, path = path[-1], path[:-1]
    scalar = find(tree, path)
    place = place_in(scalar, within.line, within.column) if isinstance(scalar, Scalar) else None
    if place is None:
        # An escaped text, or one that an anchor brought from elsewhere.
        text = f"line {within.line}, column {within.column} of the text: {text}"
        return Problem(file, line_of(tree, path), shown(tree, path), text)
    line, column = place
    return Problem(file, line, shown(tree, path), text, column)


def shown(tree: Tree, path: Path) -> str:
    """Return a path for people: `groups[permits-audit].topics[permits].maxTps`, indexes where there is no name."""
    text = ""
    at: Tree | None = tree
    for step in path:
        if isinstance(step, int):
            at = at.items[step] if isinstance(at, Sequence) and step < len(at.items) else None
            text += f"[{_name_of(at) or step}]"
        else:
            at = at.entries[str(step)][1] if isinstance(at, Mapping) and step in at.entries else None
            text += f".{step}" if text else str(step)
    return text


def _name_of(entry: Tree | None) -> str | None:
    if isinstance(entry, Mapping):
        for key in ("group", "topic"):
            if key in entry.entries:
                value = plain(entry.entries[key][1])
                return value if isinstance(value, str) else None
    return None
