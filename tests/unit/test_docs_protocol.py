"""docs/protocol.md: the table of client habits names every scripted test, and none that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_habit_of_the_client_libraries_has_its_test() -> None:
    """S1 to S9 have rows, and rows and tests name each other."""
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (S\d(?:, S\d)*) \|.*\|(.*)\|$", page, re.MULTILINE)
    assert {habit for habits, _ in rows for habit in habits.split(", ")} == {f"S{number}" for number in range(1, 10)}
    named = {name for _, tests in rows for name in re.findall(r"`(\w+)`", tests)}
    tree = ast.parse((ROOT / "tests" / "integration" / "test_sdk_behaviours.py").read_text(encoding="utf-8"))
    assert named == {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
