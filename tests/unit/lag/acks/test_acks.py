"""Batches of an ack log: they come back exactly, and samples are fair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lag.acks.acks import AckBatch, Outcome, decode, encode, is_sampled, sample

NOW_MS = 1_770_000_000_000

_moments = st.integers(NOW_MS - 10_000, NOW_MS + 10_000)
_messages = st.tuples(
    st.integers(0, 1 << 50), _moments, st.none() | _moments, _moments, st.integers(0, 99), st.sampled_from(Outcome)
)
batches = st.builds(
    lambda topic, queue, rows: AckBatch(topic, queue, *(list(column) for column in zip(*rows, strict=True))),
    st.text(max_size=9),
    st.integers(0, 99),
    st.lists(_messages, min_size=1, max_size=9),
)


def batch(first: int, count: int = 10) -> AckBatch:
    """Return messages in order, each of which was handed out at once."""
    span = range(first, first + count)
    stored = [NOW_MS + 10 * offset for offset in span]
    handed = [each + 2 for each in stored]
    ended = [each + 9 for each in stored]
    return AckBatch("t", 1, list(span), stored, list(handed), ended, [1] * count, [Outcome.SUCCEEDED] * count)


@given(batches)
def test_any_batch_comes_back(made: AckBatch) -> None:
    """Column by column, null where it was null."""
    assert decode(encode(made)) == made


@given(st.binary(max_size=60))
def test_bytes_that_nobody_wrote_raise_nothing_but_value_error(data: bytes) -> None:
    """A right sum over nonsense is a damage that the reader names."""
    try:
        decode(data)
    except ValueError:
        return
    assert data[0] == 1


def test_message_of_a_steady_queue_takes_few_bytes() -> None:
    """Six, of which none is for its name."""
    assert len(encode(batch(10**9, 1000))) <= 6 * 1000 + 30


@pytest.mark.parametrize("one_in", [1, 2, 10, 100])
def test_sample_is_of_the_size_asked_for_and_always_the_same(one_in: int) -> None:
    """Whatever the batches; evenly, so that no rhythm of the producers is taken for the whole."""
    taken = [offset for offset in range(100_000) if is_sampled(offset, one_in)]
    assert abs(len(taken) - 100_000 / one_in) <= 0.1 * 100_000 / one_in
    for rest in range(4):
        assert one_in == 1 or len([each for each in taken if each % 4 == rest]) > len(taken) / 6
    assert sample(batch(0, 1000), one_in).offsets == [each for each in taken if each < 1000]
