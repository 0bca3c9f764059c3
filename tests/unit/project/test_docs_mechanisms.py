"""docs/mechanisms.md: every file and test that it names exists, and no row says nothing."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.project.test_docs_promises import _names

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| mechanism", "| ---"))
]


MECHANISMS = {
    "Files": (
        "consume queue", "tags code: ", "tags code of the schedule topic", "extension units", "batch units",
        "index file", "`checkpoint`", "`abort`", "JSON files", "`topics.json`", "`consumerOffset.json`",
        "`timermetrics`", "`subscriptionGroup.json`",
    ),
    "Delay levels": ("levels: ", "on put", "deliver loop", "retry topic, dead-letter topic", "dead letters"),
    "Timers": (
        "timer log", "wheel", "`timercheck`", "properties of a timer", "on put", "flow control", "five stages",
        "rolls", "cancel (recall)", "recovery", "gauges and counters", "a timer in a transaction", "retention",
    ),
    "Loops": ("ids", "loop and growing gaps", "missed occurrences", "cancel by any id"),
    "Transactions": (
        "names", "message types of topics", "producer: half", "producer: checks",
        "put of a half", "end of a transaction", "op records",
        "check service", "put-back", "metrics of transactions", "escape",
    ),
    "Order": (
        "selectors", "lockBatchMQ", "quorum lock", "renewal", "orderly consume loop", "bounded retries in place",
        "release of a queue", "rebalance", "thresholds", "POP order", "DDMQ: chains of jobs",
    ),
    "Batches": ("the client's rules", "the broker's side", "inner batches"),
}  # fmt: skip
"""What the page must have a row for: how it begins, by heading."""


def test_no_mechanism_is_left_out() -> None:
    """Each of them has its row, under its heading."""
    parts = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")[1:]}
    missing = [
        f"{heading}: {each}"
        for heading, wanted in MECHANISMS.items()
        for each in wanted
        if f"\n| {each}" not in parts.get(heading, "")
    ]
    assert missing == []


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
