"""Where a key stands in a configuration file, as a problem names it."""

from __future__ import annotations

from conf.problems import Problem
from conf.yaml_tree import Mapping, Sequence, Tree, line_of, plain

Path = tuple[str | int, ...]
"""Keys, and places in lists, from the top of the file."""


def located(tree: Tree, file: str, path: Path, text: str) -> Problem:
    """Return a problem with the line of the deepest part of a path that the file has."""
    return Problem(file, line_of(tree, path), shown(tree, path), text)


def shown(tree: Tree, path: Path) -> str:
    """Return a path for people: `groups[permits-audit].topics[permits].maxTps`, indexes where there is no name."""
    text = ""
    at: Tree | None = tree
    for step in path:
        if isinstance(step, int):
            at = at.items[step] if isinstance(at, Sequence) and step < len(at.items) else None
            text += f"[{_name_of(at) or step}]"
        else:
            at = at.entries[step][1] if isinstance(at, Mapping) and step in at.entries else None
            text += f".{step}" if text else step
    return text


def _name_of(entry: Tree | None) -> str | None:
    if isinstance(entry, Mapping):
        for key in ("group", "topic"):
            if key in entry.entries:
                value = plain(entry.entries[key][1])
                return value if isinstance(value, str) else None
    return None
