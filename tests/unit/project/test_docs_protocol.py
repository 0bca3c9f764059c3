"""docs/protocol.md: the table of client habits names every scripted test, and none that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_habit_of_the_client_libraries_has_its_test() -> None:
    """S1 to S9 have rows, and rows and tests name each other."""
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (S\d(?:, S\d)*) \|.*\|(.*)\|$", page, re.MULTILINE)
    assert {habit for habits, _ in rows for habit in habits.split(", ")} == {f"S{number}" for number in range(1, 10)}
    named = {name for _, tests in rows for name in re.findall(r"`(\w+)`", tests)}
    scripts = ("integration/proxy/services/test_sdk_behaviours.py", "simulation/test_sdk_node_lists.py")
    trees = [ast.parse((ROOT / "tests" / script).read_text(encoding="utf-8")) for script in scripts]
    assert named == {
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
