"""Finished offsets of a snapshot: packed short, read back as they were, and no further than somebody asks for."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.progress.finished_marks import FinishedMarks, pack
from upstream.progress.tracker import AHEAD_MAX

ROWS = st.one_of(
    st.binary(max_size=200).map(lambda data: bytes(each & 1 for each in data)),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), max_size=10).map(
        lambda runs: b"".join(bytes(zeros) + b"\x01" * ones for zeros, ones in runs)
    ),
)


@given(ROWS, st.integers(0, 300))
@example(b"\x00\x01" * 100, 0)
@example(b"\x01" * 100, 100)
def test_row_is_read_back_as_far_as_it_is_asked_for(row: bytes, length: int) -> None:
    """Run-length or as a bitmap; what lies behind is counted."""
    marks = pack(row)
    marks.check()
    shown, behind = marks.row(length)
    assert len(shown) <= length
    assert shown.rstrip(b"\0") == row[:length].rstrip(b"\0")
    assert behind == row[length:].count(1)


def test_snapshot_of_scattered_acks_takes_a_bit_each() -> None:
    """Every other one of a million offsets costs 125 KB; one run of a million costs bytes."""
    assert len(pack(bytearray(b"\x00\x01" * 500_000)).data) <= 125_000
    assert len(pack(bytearray(b"\x00" + b"\x01" * 1_000_000)).data) <= 16


def test_run_without_finished_ones_moves_those_behind_it() -> None:
    """No writer makes one, and it says what it says."""
    assert FinishedMarks(1, 8, struct.pack("<IIII", 5, 0, 2, 1)).row(8) == (bytes(7) + b"\x01", 0)


@pytest.mark.parametrize(
    ("marks", "why"),
    [
        (FinishedMarks(2, 8, b"\x01\x00"), "bitmap is longer"),
        (FinishedMarks(1, 8, struct.pack("<II", 5, 4)), "runs are longer"),
        (FinishedMarks(3, 8, b""), "unknown form 3"),
        (FinishedMarks(1, AHEAD_MAX + 2, b""), "a span of"),
    ],
)
def test_finished_offsets_beyond_their_span_are_refused(marks: FinishedMarks, why: str) -> None:
    """Before memory is taken for them."""
    with pytest.raises(ValueError, match=why):
        marks.check()


@pytest.mark.parametrize(
    "marks", [FinishedMarks(1, 1 << 30, struct.pack("<II", 1, (1 << 30) - 1)), FinishedMarks(2, 1 << 30, b"\x01")]
)
def test_few_bytes_that_say_a_gigabyte_take_no_more_than_is_asked_for(marks: FinishedMarks) -> None:
    """Neither where they are looked at nor where they are read."""
    tracemalloc.start()
    try:
        marks.check()
        row, behind = marks.row(50)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(row) <= 50
    assert behind > 0
    assert peak < 1 << 20
