"""What undecided and discarded transactions there are, for people and tools, in bounded pieces."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Literal, NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.properties import find_property
from broker.query import QueryRefused, by_unique_key
from broker.transaction.half import Half
from broker.transaction.handles import Handle
from broker.transaction.names import DISCARD_TOPIC, HALF_TOPIC
from broker.transaction.states import Known
from broker.transaction.transactions import Transactions

SCAN_MAX = 2_000
"""Records read for one listing; it ends there and says where the next one begins."""

Standing = Literal["undecided", "discarded", "committed", "rolledBack", "elsewhere"]

_STANDINGS: dict[Known, Standing] = {
    Known.UNDECIDED: "undecided",
    Known.COMMITTED: "committed",
    Known.ROLLED_BACK: "rolledBack",
    Known.ELSEWHERE: "elsewhere",
}


class TransactionRow(NamedTuple):
    """One transaction.

    Attributes:
        state: Where it stands; "elsewhere" is a half that was put again, or over before what is remembered.
        offset: In the half queue, or, discarded, in the discard queue.
        handle: What decides it.
        transaction_id: Its id.
        topic: Where its message is to go.
        queue_id: Which queue there.
        group: Producer group.
        key: KEYS.
        checks: How often its producers were asked.
        out: A producer has a check of it now.
        remark: What a producer said last; "" when nothing.
        born_ms: When its producer made it, by the producer's clock.
        stored_ms: When this record was stored.
        body_bytes: Length of the body as stored.
    """

    state: Standing
    offset: int
    handle: str
    transaction_id: str
    topic: str
    queue_id: int
    group: str
    key: str
    checks: int
    out: bool
    remark: str
    born_ms: int
    stored_ms: int
    body_bytes: int


class TransactionPage(NamedTuple):
    """A piece of a listing; `next_offset` is where the next one begins, None when this was the last."""

    rows: list[TransactionRow]
    next_offset: int | None


def discarded_count(transactions: Transactions) -> int:
    """How many discarded halves there are that were not resumed."""
    queue = transactions.halves.discard_queue()
    if queue is None:
        return 0
    resumed = sum(
        max(0, min(end, queue.max_offset) - max(start, queue.min_offset)) for start, end in transactions.resumed.ranges
    )
    return queue.max_offset - queue.min_offset - resumed


def undecided(
    transactions: Transactions, *, topic: str | None, group: str | None, start: int, count_max: int
) -> TransactionPage:
    """List undecided halves from an offset of the half queue on, the oldest first."""
    states = transactions.halves.states
    offsets = states.waiting(max(start, states.position))
    return _page(transactions, offsets, "undecided", topic=topic, group=group, count_max=count_max)


def discarded(
    transactions: Transactions, *, topic: str | None, group: str | None, start: int, count_max: int
) -> TransactionPage:
    """List discarded halves from an offset of the discard queue on, the oldest first."""
    queue = transactions.halves.discard_queue()
    first, end = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
    offsets = (offset for offset in range(max(start, first), end) if offset not in transactions.resumed)
    return _page(transactions, offsets, "discarded", topic=topic, group=group, count_max=count_max)


def _page(
    transactions: Transactions,
    offsets: Iterator[int],
    state: Standing,
    *,
    topic: str | None,
    group: str | None,
    count_max: int,
) -> TransactionPage:
    halves = transactions.halves
    queue = halves.queue() if state == "undecided" else halves.discard_queue()
    found: list[TransactionRow] = []
    for read, offset in enumerate(offsets):
        if read == SCAN_MAX or len(found) == count_max:
            return TransactionPage(found, offset)
        try:
            half = halves.read_from(queue, offset)
        except (DamagedRecord, RecordGone):
            continue
        if topic in (None, half.topic) and group in (None, half.group):
            found.append(_row(transactions, state, offset, half))
    return TransactionPage(found, None)


def by_id(transactions: Transactions, transaction_id: str) -> Generator[None, None, list[TransactionRow]]:
    """Find the records of a transaction, in steps: of its half, where it was put again, and where it was discarded.

    Raises:
        OSError: The index cannot be read.
    """
    found: list[TransactionRow] = []
    for name in (HALF_TOPIC, DISCARD_TOPIC):
        try:
            query = by_unique_key(transactions.store, name, transaction_id)
        except QueryRefused:
            continue
        yield from query.steps()
        for message in query.found:
            row = _found(transactions, name, message.offset)
            if row is not None:
                found.append(row)
    return found


def _found(transactions: Transactions, name: str, offset: int) -> TransactionRow | None:
    halves = transactions.halves
    discard = name == DISCARD_TOPIC
    if discard and offset in transactions.resumed:
        return None
    try:
        half = halves.read_from(halves.discard_queue() if discard else halves.queue(), offset)
    except (DamagedRecord, RecordGone):
        return None
    known = halves.states.get(offset)
    state: Standing = "discarded" if discard else "elsewhere" if known is None else _STANDINGS[known]
    return _row(transactions, state, offset, half)


def _row(transactions: Transactions, state: Standing, offset: int, half: Half) -> TransactionRow:
    asked = transactions.halves.checks.asked.get(offset) if state == "undecided" else None
    return TransactionRow(
        state=state,
        offset=offset,
        handle=str(Handle(offset, half.physical, half.transaction_id)),
        transaction_id=half.transaction_id,
        topic=half.topic,
        queue_id=half.queue_id,
        group=half.group,
        key=(find_property(half.block, b"KEYS") or b"").decode("utf-8", "replace"),
        checks=half.times if asked is None else max(half.times, asked.times),
        out=asked is not None and asked.out,
        remark="" if asked is None else asked.remark,
        born_ms=half.born_ms,
        stored_ms=half.store_ms,
        body_bytes=len(half.body),
    )
