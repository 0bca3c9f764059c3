"""Each class of the product has a name of its own: a stack trace and a search lead to one place."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from tests.unit.project.test_house_rules import ROOT, product_files

TWICE = {"Connection"}
"""Public names of the client that `proxy/port` has too."""


def _places(files: Iterable[Path], root: Path) -> dict[str, list[str]]:
    """Return the places of each class name, as `file:line`."""
    places: dict[str, list[str]] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(root).as_posix()}:{node.lineno}")
    return places


def _repeated(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_class_name_is_used_twice() -> None:
    """An accelerator (.pyx) has the name of the class that it replaces, so it does not count."""
    repeated = _repeated(_places(product_files(), ROOT))
    lines = [f"{name}: {', '.join(found)}" for name, found in sorted(repeated.items()) if name not in TWICE]
    assert not lines, "rename all but one of each:\n" + "\n".join(lines)
    assert not TWICE - repeated.keys(), "these names are unique now; remove them from TWICE"


def test_repeated_name_is_found_with_both_places(tmp_path: Path) -> None:
    """Private and nested classes count."""
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("class _Member:\n    pass\n", encoding="utf-8")
    second.write_text("def made():\n    class _Member:\n        pass\n\nclass Group:\n    pass\n", encoding="utf-8")
    assert _repeated(_places([first, second], tmp_path)) == {"_Member": ["first.py:1", "second.py:2"]}
