"""The ack journal's bytes: what was written is read back, and whatever else is there is damage or nothing."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.progress import journal_format as form
from upstream.progress.finished_marks import pack
from upstream.progress.tracker import AttemptFailures, FailureKind

I64 = st.integers(min_value=-1, max_value=(1 << 63) - 1)
OFFSET = st.integers(min_value=0, max_value=(1 << 62))
ID = st.integers(min_value=0, max_value=(1 << 32) - 1)
NAME = st.from_regex(r"[%|a-zA-Z0-9_-]{1,30}", fullmatch=True)
MARKS = st.one_of(
    st.binary(max_size=200).map(lambda data: bytes(each & 1 for each in data)),
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=10).map(
        lambda runs: b"".join(bytes(zeros) + b"\x01" * ones for zeros, ones in runs)
    ),
)


@st.composite
def flat_ranges(draw: st.DrawFn) -> list[int]:
    """Ascending, disjoint ranges with small and with enormous gaps."""
    steps = draw(st.lists(st.one_of(st.integers(1, 50), st.integers(1, 1 << 40)), min_size=1, max_size=41))
    edge = draw(st.integers(0, 1 << 50))
    edges = []
    for step in steps:
        edges.append(edge)
        edge += step
    return edges if len(edges) % 2 == 0 else [*edges, edge]


def block_at(number: int, data: bytes, position: int) -> bytes | None:
    """Payload of the block there."""
    found = form.read_block(number, memoryview(data), position)
    return None if found is None else bytes(found)


def decoded(data: bytes) -> list[form.Entry]:
    """All entries of a payload."""
    return list(form.decode(memoryview(data)))


@given(ID, I64, flat_ranges())
def test_acked_of_any_ranges_round_trips(tracker_id: int, fence: int, ranges: list[int]) -> None:
    """Whatever ranges a turn finished are read back; the fence stays with the highest."""
    entries = decoded(form.encode_acked(tracker_id, fence, ranges))
    covered: list[int] = []
    for entry in entries:
        assert isinstance(entry, form.Acked)
        assert entry.tracker_id == tracker_id
        for start, end in zip(entry.ranges[::2], entry.ranges[1::2], strict=True):
            if covered and covered[-1] == start:
                covered[-1] = end
            else:
                covered += (start, end)
    expected: list[int] = []
    for start, end in zip(ranges[::2], ranges[1::2], strict=True):
        if expected and expected[-1] == start:
            expected[-1] = end
        else:
            expected += (start, end)
    assert covered == expected
    last = entries[-1]
    assert isinstance(last, form.Acked)
    assert last.fence == fence


@given(
    st.builds(
        form.TrackerEntry,
        tracker_id=ID,
        group=NAME,
        topic=NAME,
        queue_id=ID,
        watermark=OFFSET,
        fence=I64,
        high_fence=I64,
        file_values=st.lists(OFFSET, max_size=4).map(tuple),
        marks=MARKS.map(pack),
    )
)
def test_tracker_of_any_shape_round_trips(entry: form.TrackerEntry) -> None:
    """A snapshot holds the same finished offsets, run-length or as a bitmap."""
    (back,) = decoded(form.encode_tracker(entry))
    assert isinstance(back, form.TrackerEntry)
    assert back == entry


def test_other_entries_round_trip() -> None:
    """Every kind of entry is read as it was written, one after the other."""
    payload = b"".join(
        [
            form.encode(form.SegmentHeader(form.FORMAT_VERSION, 7)),
            form.encode(form.SnapshotEnd(3)),
            form.encode(form.FailedAttempt(1, 2, FailureKind.TIMEOUT, 3, 1_700_000_000_000)),
            form.encode(form.Dead(4, 5)),
            form.encode(form.Reset(6, 7)),
            form.encode(form.Truncated(8, 9, 10)),
            form.encode(form.Writing(11, 12)),
            form.encode(form.Written()),
            form.encode_scanned("%DLQ%group", 0, 13),
            form.encode_counted(14, 15, 1_700_000_000_000, 16),
        ]
    )
    assert decoded(payload) == [
        form.SegmentHeader(form.FORMAT_VERSION, 7),
        form.SnapshotEnd(3),
        form.FailedAttempt(1, 2, FailureKind.TIMEOUT, 3, 1_700_000_000_000),
        form.Dead(4, 5),
        form.Reset(6, 7),
        form.Truncated(8, 9, 10),
        form.Writing(11, 12),
        form.Written(),
        form.Scanned("%DLQ%group", 0, 13),
        form.Counted(14, 15, 1_700_000_000_000, 16),
    ]


@given(st.binary(max_size=200))
def test_garbage_gives_only_the_damage_error(data: bytes) -> None:
    """Bytes that are no entries raise JournalDamaged and nothing else."""
    try:
        decoded(data)
    except form.JournalDamaged:
        return


@given(st.binary(min_size=1, max_size=64), st.integers(0, 1 << 40), st.integers(0, 64))
def test_block_is_read_where_it_was_written_and_nowhere_else(payload: bytes, number: int, position: int) -> None:
    """The sum has segment and position in it: a recycled file still holds the blocks of its earlier life."""
    data = bytes(position) + form.encode_block(number, position, payload) + payload
    assert block_at(number, data, position) == payload
    assert block_at(number + 1, data, position) is None
    assert block_at(number, b"\0" + data, position + 1) is None


@given(st.binary(min_size=1, max_size=40), st.data())
def test_damaged_block_is_no_block(payload: bytes, data: st.DataObject) -> None:
    """Any bit that is another, and any end that is missing."""
    block = form.encode_block(3, 0, payload) + payload
    assert block_at(3, block, 0) == payload
    bit = data.draw(st.integers(0, 8 * len(block) - 1))
    wrong = bytearray(block)
    wrong[bit // 8] ^= 1 << bit % 8
    assert block_at(3, bytes(wrong), 0) is None
    assert block_at(3, block[: data.draw(st.integers(0, len(block) - 1))], 0) is None


def test_end_of_blocks_is_no_block() -> None:
    """Nor is an empty payload: a row of zeros has no magic, and a block says something."""
    assert block_at(0, form.END_OF_BLOCKS, 0) is None
    assert block_at(0, form.encode_block(0, 0, b""), 0) is None


def test_all_failures_of_an_offset_are_an_entry_for_each_kind_there_was() -> None:
    """With one due time; a kind that never happened says nothing."""
    failure = AttemptFailures().with_count(FailureKind.TIMEOUT, 2, 50).with_count(FailureKind.FAIL, 1, 70)
    assert sorted(decoded(form.encode_failure(1, 9, failure))) == sorted(
        [form.FailedAttempt(1, 9, FailureKind.TIMEOUT, 2, 70), form.FailedAttempt(1, 9, FailureKind.FAIL, 1, 70)]
    )


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (bytes([99]), "99"),
        (form.encode(form.Dead(1, 2))[:-1], "unpack"),
        (struct.pack("<BIqqIH", form.ACKED, 1, -1, form.OFFSET_MAX, 1, 0), "outside of any queue"),
        (struct.pack("<BIqqIH", form.ACKED, 1, -1, -1, 5, 0), "outside of any queue"),
        (struct.pack("<BIHHIqqqBBII", form.TRACKER, 1, 1, 1, 0, -1, -1, -1, 0, 1, 0, 0) + b"gt", "a watermark of -1"),
        (struct.pack("<BIHHIqqqBBII", form.TRACKER, 1, 1, 1, 0, 0, -1, -1, 0, 3, 8, 0) + b"gt", "unknown form 3"),
        (
            struct.pack("<BIHHIqqqBBII", form.TRACKER, 1, 2, 1, 0, 0, -1, -1, 0, 1, 0, 0) + b"..t",
            "not a valid group name",
        ),
        (struct.pack("<BHIq", form.SCANNED, 1, 0, 5) + b"/", "not a valid topic name"),
        (struct.pack("<BIqqq", form.COUNTED, 1, -1, 0, 0), "counts of"),
    ],
)
def test_entry_that_no_writer_makes_is_damage_and_says_what(payload: bytes, why: str) -> None:
    """A right sum over nonsense must neither make ranges of 2**63 offsets nor a file outside of the store."""
    with pytest.raises(form.JournalDamaged, match=why):
        decoded(payload)
