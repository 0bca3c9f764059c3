"""Rows of differences: what comes in comes out, exactly, and an idle queue costs next to nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lag.journal.columns import QUEUE_COLUMNS, QUEUES, SCHEDULED, Key, queue_sample, scheduled_sample
from lag.journal.rows import TEXTS_MAX, RowDecoder, RowEncoder
from lag.samples import QueueSample, ScheduledSample
from tests.unit.lag.samples import NOW_MS, fleet, keys, queue_samples, scheduled_samples

Rows = list[tuple[Key, QueueSample]]


def encoded(encoder: RowEncoder, rows: Rows, base_ms: int = NOW_MS) -> bytes:
    """Return a section of these rows."""
    encoder.begin(base_ms)
    for key, sample in rows:
        encoder.add(key, sample.time_ms, sample)
    return encoder.end()


def decoded(decoder: RowDecoder, data: bytes, base_ms: int = NOW_MS) -> Rows:
    """Return the rows of a section."""
    return [(key, queue_sample(time_ms, row)) for key, time_ms, row in decoder.rows(data, base_ms)]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.tuples(keys, queue_samples), max_size=8), max_size=5))
def test_any_rows_come_back_exactly(sections: list[Rows]) -> None:
    """In any order, queues missing, repeated and new ones in between, clocks going back."""
    encoder, decoder = RowEncoder(QUEUES), RowDecoder(QUEUES)
    for rows in sections:
        assert decoded(decoder, encoded(encoder, rows)) == rows


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(scheduled_samples, max_size=8), max_size=5))
def test_any_waiting_comes_back_exactly(sections: list[list[ScheduledSample]]) -> None:
    """Likewise of what waits by its own time."""
    encoder, decoder = RowEncoder(SCHEDULED), RowDecoder(SCHEDULED)
    for samples in sections:
        encoder.begin(NOW_MS)
        for each in samples:
            encoder.add((each.kind, each.topic, each.level), each.time_ms, each)
        found = [scheduled_sample(*parts) for parts in decoder.rows(encoder.end(), NOW_MS)]
        assert found == samples


@settings(deadline=None)
@given(st.binary(max_size=60))
@example(b"\x01")
def test_bytes_that_nobody_wrote_raise_nothing_but_value_error(data: bytes) -> None:
    """A right sum over nonsense is a damage that the reader names."""
    rows: list[object] = []
    try:
        rows.extend(RowDecoder(QUEUES).rows(data, NOW_MS))
    except ValueError:
        return
    assert len(rows) <= 8 * len(data)


def test_queue_without_change_costs_under_a_byte() -> None:
    """Alone among those that move, and whatever the clock does meanwhile."""
    encoder = RowEncoder(QUEUES)
    first, second, third = fleet(1, 1000, 3)
    moved = {key for (key, before), (_, after) in zip(second, third, strict=True) if before.end != after.end}
    assert 200 < len(moved) < 400
    encoded(encoder, first)
    encoded(encoder, second)
    without = RowEncoder(QUEUES)
    for rows in (first, second):
        encoded(without, [each for each in rows if each[0] in moved])
    moving = len(encoded(without, [each for each in third if each[0] in moved]))
    assert len(encoded(encoder, third)) - moving < 1000 - len(moved)


def test_thousand_queues_of_which_a_third_moves_cost_ten_bytes_each() -> None:
    """The mean over a snapshot."""
    encoder = RowEncoder(QUEUES)
    sizes = [len(encoded(encoder, rows, rows[0][1].time_ms)) for rows in fleet(2, 1000, 6)]
    assert max(sizes[1:]) <= 10 * 1000


def test_change_in_the_same_values_names_them_once() -> None:
    """A queue that moves steadily has no mask, but for the first time."""
    encoder = RowEncoder(QUEUES)
    key = ("group", "topic", 0)
    sizes = []
    for number in range(4):
        sample = QueueSample(time_ms=NOW_MS, end=number, committed=number, asked_ms=NOW_MS - number, paused=True)
        sizes.append(len(encoded(encoder, [(key, sample)])))
    assert sizes[2] < sizes[1] < sizes[0]
    assert sizes[3] == sizes[2]


def test_texts_beyond_those_that_are_remembered_are_written_out() -> None:
    """The memory of both ends is bounded."""
    encoder, decoder = RowEncoder(QUEUES), RowDecoder(QUEUES)
    sample = QueueSample(time_ms=NOW_MS)
    rows = [(("g", "t", 0), replace(sample, held_key=f"key-{number % (TEXTS_MAX + 9)}")) for number in range(5000)]
    assert decoded(decoder, encoded(encoder, rows)) == rows


def test_row_like_the_one_before_is_the_same_object() -> None:
    """So that whoever adds rows up sees at once that nothing changed."""
    encoder, decoder = RowEncoder(QUEUES), RowDecoder(QUEUES)
    sample = QueueSample(time_ms=NOW_MS, end=5)
    rows = [(("g", "t", 0), replace(sample, time_ms=NOW_MS + number)) for number in range(2)]
    (_, _, one), (_, _, other) = decoder.rows(encoded(encoder, rows), NOW_MS)
    assert one is other
    assert one[QUEUE_COLUMNS.index("end")] == 5


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
def test_share_that_is_none_is_a_bug_of_the_writer(wrong: float) -> None:
    """It is asserted before it is written."""
    with pytest.raises(AssertionError):
        encoded(RowEncoder(QUEUES), [(("g", "t", 0), QueueSample(time_ms=NOW_MS, matched=wrong))])
