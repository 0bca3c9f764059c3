"""docs/ddmq-faults.md: every fault has a row, and every test named there exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "ddmq-faults.md").read_text(encoding="utf-8")

NUMBERS = range(1, 100)
"""All faults that are known."""

ROW = re.compile(r"^\| W(\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TEXTS = (".py", ".md", ".yaml", ".thrift")
PROOF = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def names_in(path: Path) -> frozenset[str]:
    """Names of the test functions of a file, found without importing it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def test_every_fault_has_one_row() -> None:
    """The page is complete and without doubles."""
    numbers = [int(number) for number, *_ in ROW.findall(PAGE)]
    assert sorted(numbers) == list(NUMBERS)


def test_every_table_line_is_a_whole_row() -> None:
    """No row escapes the other tests by a missing column."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| W")]
    assert len(lines) == len(ROW.findall(PAGE))


@pytest.mark.parametrize("row", ROW.findall(PAGE), ids=lambda row: f"W{row[0]}")
def test_row_names_tests_that_exist(row: tuple[str, str, str, str]) -> None:
    """Each row of a part that is there has a proof, whose tests exist; a reduced fault says what remains."""
    _, _, remedy, proof = row
    if remedy.startswith("not built yet"):
        assert proof == "-"
        return
    named = PROOF.findall(proof)
    assert named
    assert not PROOF.sub("", proof).strip(" ,"), "only tests stand in the last column"
    for file, name in named:
        assert name in names_in(ROOT / file), f"{file} has no test {name}"
    if remedy.startswith("reduced"):
        assert "What remains:" in remedy


def test_faults_that_code_tests_and_pages_cite_have_a_row() -> None:
    """A W.. anywhere in the project can be looked up on this page."""
    rooms = ("actions", "broker", "conf", "proxy", "pyddmq", "upstream", "tests", "docs", "thrift")
    files = [path for room in rooms for path in (ROOT / room).rglob("*.*") if path.suffix in TEXTS]
    cited = {int(number) for path in files for number in re.findall(r"\bW(\d+)\b", path.read_text(encoding="utf-8"))}
    rows = {int(number) for number, *_ in ROW.findall(PAGE)}
    assert not cited - rows
