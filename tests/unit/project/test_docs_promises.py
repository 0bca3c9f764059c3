"""docs/promises.md: the tests it names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_test_that_the_promises_name_exists() -> None:
    """A promise without its test is none: each `path::name` is a function or class, or is assigned, in that file."""
    text = (ROOT / "docs" / "promises.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 20
    missing = [f"{path}::{name}" for path, name in named if name not in _names(ROOT / path)]
    assert missing == []


def test_every_promise_has_tests() -> None:
    """Each of the seven sections names at least one test."""
    text = (ROOT / "docs" / "promises.md").read_text()
    sections = re.split(r"^## (?=\d\.)", text, flags=re.MULTILINE)[1:]
    assert [section[:2] for section in sections] == [f"{number}." for number in range(1, 8)]
    assert all("::test_" in section for section in sections)


def _names(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names
