"""The text beside a committed offset: what is written is read, what is not whole is as none."""

from __future__ import annotations

import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.kafka.commits.metadata import TEXT_MAX, CommitMetadata, Ranges, decode, encode
from upstream.progress.tracker import AttemptFailures


@st.composite
def _ranges(draw: st.DrawFn) -> tuple[int, Ranges]:
    offset = draw(st.integers(0, 1 << 40))
    place, found = offset, []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), max_size=200)):
        found.append((place + gap, place + gap + length))
        place += gap + length
    return offset, found


_FAILURES = st.dictionaries(
    st.integers(0, 9999),
    st.builds(
        AttemptFailures,
        st.integers(0, 99),
        st.integers(0, 99),
        st.integers(0, 99),
        st.sampled_from([0, 1, 2]),
        st.integers(0, 1 << 42),
    ),
    max_size=20,
)


@given(_ranges(), _FAILURES, st.booleans(), st.sampled_from(["", "MdDkIc9dQmaQ_-r4gwZoyg", "GCyuCJkQQh+Eo382sA/k0w"]))
def test_what_is_written_is_read(
    made: tuple[int, Ranges], failed: dict[int, AttemptFailures], clean: bool, topic_id: str
) -> None:
    """All of it where it has room; else the lowest part of the ranges, and it is said."""
    offset, ranges = made
    failures = {offset + distance: failure for distance, failure in failed.items()}
    text, whole = encode(offset, ranges, failures, clean=clean, topic_id=topic_id)
    assert len(text) <= TEXT_MAX
    known = decode(text, offset)
    assert (known.clean, known.foreign, known.cut, known.topic_id) == (clean, False, not whole, topic_id)
    if whole:
        assert (list(known.ranges), dict(known.failures)) == (ranges, failures)
    else:
        assert list(known.ranges) == ranges[: len(known.ranges)]


def test_window_of_twenty_thousand_offsets_has_room_however_it_is_finished() -> None:
    """A bit each: of 20,000 offsets above an unfinished one any half may be finished."""
    drawn = Random(5)
    offsets = [each for each in range(1, 20_000) if drawn.random() < 0.5]
    ranges: list[tuple[int, int]] = []
    for each in offsets:
        if ranges and ranges[-1][1] == each:
            ranges[-1] = (ranges[-1][0], each + 1)
        else:
            ranges.append((each, each + 1))
    text, whole = encode(0, ranges, {}, clean=False)
    assert whole
    assert list(decode(text, 0).ranges) == ranges


def test_what_has_no_room_is_cut_from_above() -> None:
    """Of 100,000 offsets the lowest part is kept; of 10,000 failures, too."""
    drawn = Random(6)
    ranges = [(each, each + 1) for each in range(1, 200_000, 2) if drawn.random() < 0.5]
    failures = {each: AttemptFailures(fails=3, due_wall_ms=1_700_000_000_000 + each) for each in range(0, 20_000, 2)}
    text, whole = encode(0, ranges, failures, clean=False)
    known = decode(text, 0)
    assert not whole
    assert known.cut
    assert TEXT_MAX - 1000 < len(text) <= TEXT_MAX
    assert list(known.ranges) == ranges[: len(known.ranges)]
    assert dict(known.failures) == dict(list(failures.items())[: len(known.failures)])
    assert known.failures


@pytest.mark.parametrize(
    "text",
    [
        "anything",
        "p2;5",
        "p1",
        "p1;6",
        "p1;5;Z",
        "p1;5;c;c",
        "p1;5;I",
        "p1;5;Itopic.1",
        "p1;5;R!!!",
        "p1;5;RAA==",
        "p1;5;R/////////////w==",
        "p1;5;BAAAA",
        "p1;5;FAAAA",
        "p1;5;FAQEBAQkB",
        "p1;5;T0.7",
        "p1;5;T0.-7.0123456789abcdef0123456789abcdef.aa-0",
        "p1;5;T0.7.0123456789abcdef.aa-0",
        "p1;5;" + "x" * 5000,
    ],
)
def test_foreign_text_is_as_none(text: str) -> None:
    """The offset wins, and that it was foreign is said, to be counted."""
    assert decode(text, 5) == CommitMetadata(foreign=True)


@given(st.text(max_size=60), st.integers(0, 100))
def test_no_text_does_harm(tail: str, offset: int) -> None:
    """Whatever somebody committed: a value, no exception, and nothing below the offset."""
    known = decode(f"p1;{offset};{tail}", offset)
    assert all(offset <= start < end for start, end in known.ranges)


def test_no_text_says_nothing() -> None:
    """As a plain consumer commits: neither clean nor foreign."""
    assert decode("", 7) == CommitMetadata()


def test_text_that_has_no_room_is_made_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time takes milliseconds of the loop, for each commit of a partition with a key that is stuck for long."""
    made, compress = list[int](), zlib.compress

    def counted(data: bytes, level: int) -> bytes:
        made.append(len(data))
        return compress(data, level)

    monkeypatch.setattr("upstream.kafka.commits.metadata.zlib.compress", counted)
    random, ranges, end = Random(3), list[tuple[int, int]](), 100
    for _ in range(50_000):
        start = end + random.randrange(1, 4)
        end = start + random.randrange(1, 4)
        ranges.append((start, end))
    text, whole = encode(100, ranges, {}, clean=False)
    assert not whole
    assert TEXT_MAX * 4 // 5 < len(text) <= TEXT_MAX
    assert len(made) <= 5
    kept = decode(text, 100).ranges
    assert list(kept) == ranges[: len(kept)]
