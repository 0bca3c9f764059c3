"""docs/mechanisms.md: every file and test that it names exists, and no row says nothing."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.test_docs_promises import _names

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| mechanism", "| ---"))
]


def test_every_row_names_code_and_test_or_says_why_there_is_none() -> None:
    """Where it lives and what shows it; without code the last cell has the reason."""
    assert len(ROWS) > 40
    for row in ROWS:
        assert len(row) == 4, row
        mechanism, code, tests, here = row
        if code == "-":
            assert here, f"{mechanism}: say why"
        else:
            assert "`" in code, mechanism
            assert "::" in tests, mechanism


def test_every_file_and_test_exists() -> None:
    """Each path in backticks is a file, each `path::name` a function or class there, or is assigned."""
    missing = []
    for path, name in re.findall(r"`([a-z]+/[\w/]+\.(?:py|thrift))(?:::(\w+))?`", TEXT):
        if not (ROOT / path).is_file() or (name and name not in _names(ROOT / path)):
            missing.append(f"{path}::{name}")
    assert missing == []
