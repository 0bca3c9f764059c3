"""Batches of ended messages as payloads of blocks, column by column, and back. No I/O.

Messages of one queue end in nearly the order in which they came, at nearly the same time, so each column is differences
from the row before it, and its varints are together. A batch is of one topic and queue and can be read alone.

Layout: kind (varint), topic (text), queue (varint), count (varint), then the columns, each its length in bytes and its
values: offsets (signed differences), store times (signed differences), first hand-outs (signed, after the store time, +
null), ends (signed, after the first hand-out, or the store time where that is null), deliveries (varints), outcomes
(varints).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from lag.varints import Taker, put_signed, put_text, put_varint

BATCH: Final = 1
ROWS_MAX: Final = 1 << 20
"""Messages of one batch; a reader refuses more before it takes memory for them."""
_SPREAD = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class Outcome(IntEnum):
    """What became of a message; the numbers are written."""

    SUCCEEDED = 1
    DEAD_LETTERED = 2
    SKIPPED = 3
    """An operator, or an expiry by the group's own rules, ended it."""
    SENT_BACK = 4
    """It waits in the group's retry topic, and continues there under another offset."""
    LOST = 5
    """Retention took it."""
    REFUSED = 6
    """Its tags, or the stress flag, rule it out for the group: it was not delivered."""


class AckBatch(NamedTuple):
    """Messages of one queue that ended, in the order of their ends: lists of one length.

    Attributes:
        topic: The topic.
        queue: Number of the queue.
        offsets: Queue offset of each.
        stored_ms: When each was stored, Unix ms.
        handed_ms: When each was first handed out or taken up; null: never, or not by this process.
        ended_ms: When each ended.
        deliveries: How often each was handed out.
        outcomes: What became of each.
    """

    topic: str
    queue: int
    offsets: Sequence[int]
    stored_ms: Sequence[int]
    handed_ms: Sequence[int | None]
    ended_ms: Sequence[int]
    deliveries: Sequence[int]
    outcomes: Sequence[int]


def is_sampled(offset: int, one_in: int) -> bool:
    """Whether the message at an offset is one of those that are recorded.

    By a hash of the offset, so that all nodes and starts take the same messages, and no rhythm of the producers
    matters.

    Args:
        offset: Queue offset.
        one_in: One of so many is taken; 1: all.
    """
    if one_in == 1:
        return True
    mixed = (offset + 1) * _SPREAD & _MASK
    mixed = (mixed ^ mixed >> 32) * _SPREAD & _MASK
    return (mixed >> 32) % one_in == 0


def sample(batch: AckBatch, one_in: int) -> AckBatch:
    """Return those messages of a batch that are recorded."""
    if one_in == 1:
        return batch
    taken = [index for index, offset in enumerate(batch.offsets) if is_sampled(offset, one_in)]
    columns: list[Any] = [[column[index] for index in taken] for column in batch[2:]]
    return AckBatch(batch.topic, batch.queue, *columns)


def encode(batch: AckBatch) -> bytes:
    """Return the payload of a batch, which is not empty."""
    count = len(batch.offsets)
    assert 0 < count <= ROWS_MAX, "a batch has something, and not everything"
    assert all(len(column) == count for column in batch[2:]), "columns are of one length"
    out = bytearray([BATCH])
    put_text(out, batch.topic)
    put_varint(out, batch.queue)
    put_varint(out, count)
    for values in (batch.offsets, batch.stored_ms):
        column = bytearray()
        before = 0
        for value in values:
            put_signed(column, value - before)
            before = value
        _put(out, column)
    handed, ended = bytearray(), bytearray()
    for stored, first, end in zip(batch.stored_ms, batch.handed_ms, batch.ended_ms, strict=True):
        if first is None:
            handed.append(0)
            put_signed(ended, end - stored)
        else:
            after = first - stored
            put_varint(handed, (after << 1 if after >= 0 else (-after << 1) - 1) + 1)
            put_signed(ended, end - first)
    _put(out, handed)
    _put(out, ended)
    for values in (batch.deliveries, batch.outcomes):
        column = bytearray()
        for value in values:
            assert value >= 0, "a count, or an outcome's number"
            put_varint(column, value)
        _put(out, column)
    return bytes(out)


def decode(payload: bytes) -> AckBatch:
    """Return the batch of a payload. Raises ValueError: it is none."""
    taker = Taker(payload)
    if taker.varint() != BATCH:
        raise ValueError("a block of another kind")
    topic, queue, count = taker.text(), taker.varint(), taker.varint()
    if not 0 < count <= ROWS_MAX:
        raise ValueError(f"a batch of {count} messages")
    offsets, stored = (_running(_column(taker), count) for _ in range(2))
    handed_column, ended_column = _column(taker), _column(taker)
    handed: list[int | None] = []
    ended = []
    for each in stored:
        coded = handed_column.varint()
        first = None
        if coded:
            first = each + ((coded - 1) >> 1 if coded & 1 else -(coded >> 1))
        handed.append(first)
        ended.append((each if first is None else first) + ended_column.signed())
    deliveries, outcomes = ([column.varint() for _ in range(count)] for column in (_column(taker), _column(taker)))
    if not {*outcomes} <= {*Outcome} or handed_column.at != handed_column.end or ended_column.at != ended_column.end:
        raise ValueError("columns that no writer makes")
    return AckBatch(topic, queue, offsets, stored, handed, ended, deliveries, outcomes)


def _put(out: bytearray, column: bytearray) -> None:
    put_varint(out, len(column))
    out += column


def _column(taker: Taker) -> Taker:
    return Taker(taker.raw(taker.varint()))


def _running(column: Taker, count: int) -> list[int]:
    found, value = [], 0
    for _ in range(count):
        value += column.signed()
        found.append(value)
    return found
