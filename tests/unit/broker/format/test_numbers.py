"""Numbers that stand as text: one reader, with a bound, and what reads records of anybody's by it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.errors import MessageRefused
from broker.format.numbers import DIGITS_MAX, whole_number
from broker.format.wait_properties import wait_of
from broker.retry.puts import COUNTS_NAME, read_counts
from broker.scheduled.delay.levels import DELAY_NAME, WAIT_NAME, DelayLevels, due_ms
from broker.scheduled.timer.names import due_of
from broker.transaction.ops import members_of

ROOT = Path(__file__).parents[4]
NO_NUMBERS = ["", "-", " 1", "1 ", "+1", "1_0", "\u00b2", "\u0661", "9" * (DIGITS_MAX + 1), "9" * 5_000]
FIXED_FORMS = {
    "broker/format/numbers.py": "the reader",
    "conf/sentences.py": "hints about what a configuration says; nothing is read by them",
    "broker/format/record.py": "ten digits of a sum, five of a batch mark",
    "broker/index/state.py": "the fixed digits of a file's name",
    "broker/runtime/names.py": "names of files, which file systems bound",
    "broker/runtime/disks/read_only_disk.py": "names of files, which file systems bound",
    "proxy/cli/output.py": "whether COLUMNS is a number, which rich reads",
    "proxy/services/publishing.py": "addresses that the system gave",
    "actions/http/reply.py": "seconds of a wait; nine digits of it count",
    "actions/http/client.py": "the length of a reply; as a number if it has 18 digits at most",
    "pyddmq/client/codec.py": "an address that the program gave",
}
"""Who looks at digits by itself, and why that is bounded."""


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_is_none(text: str) -> None:
    """As text and as bytes; nothing is raised, whatever its length."""
    assert whole_number(text) is None
    assert whole_number(text.encode()) is None


def test_numbers_of_up_to_eighteen_digits_are_read() -> None:
    """With zeros before them, too; fewer digits where a caller says so; None stays None."""
    assert [whole_number(text) for text in ("0", b"007", "9" * DIGITS_MAX)] == [0, 7, 10**DIGITS_MAX - 1]
    assert [whole_number("123", 3), whole_number("1234", 3), whole_number(None)] == [123, None, None]
    assert 10**DIGITS_MAX * 9 < 2**63


def _block(name: bytes, value: bytes) -> bytes:
    return name + b"\1" + value + b"\2"


LEVELS = DelayLevels("1s 5s")
READERS: dict[str, tuple[Callable[[bytes], Any], Any]] = {
    "delay of a record": (lambda value: due_ms(_block(WAIT_NAME, value), 1_000, LEVELS), None),
    "delay before its time": (lambda value: due_ms(_block(WAIT_NAME, b"-" + value), 1_000, LEVELS), None),
    "level of a record": (lambda value: due_ms(_block(DELAY_NAME, value), 1_000, LEVELS), 2_000),
    "slot of a timer": (lambda value: due_of(_block(b"TIMER_OUT_MS", value), 1_000), None),
    "attempts": (lambda value: tuple(read_counts(_block(COUNTS_NAME, b"%b,1,1" % value), 3)), (3, 0, 0)),
    "decisions": (lambda value: members_of(value, b""), []),
}


@pytest.mark.parametrize("text", [text for text in NO_NUMBERS if text and text.strip() == text])
@pytest.mark.parametrize("reader", READERS)
def test_records_with_such_a_number_are_as_without_it(reader: str, text: str) -> None:
    """They may stand in a store that another broker wrote; they end neither a start nor a delivery."""
    read, nothing = READERS[reader]
    assert read(text.encode()) == nothing


@pytest.mark.parametrize("text", [text for text in NO_NUMBERS if text != ""])
def test_wait_that_is_no_number_is_refused_in_words(text: str) -> None:
    """By the property's name and no more of it than a line can show."""
    with pytest.raises(MessageRefused, match="must be an integer") as refused:
        wait_of({"TIMER_DELAY_SEC": text})
    assert len(str(refused.value)) < 300


def test_digits_are_judged_in_one_place() -> None:
    """Whoever asks a text for digits by itself forgets that they have no end, or that others' digits are digits."""
    judges = {
        str(file.relative_to(ROOT))
        for room in ("broker", "upstream", "proxy", "actions", "conf", "pyddmq")
        for file in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"isdigit", "isdecimal", "isnumeric"}
    }
    assert judges == set(FIXED_FORMS)
