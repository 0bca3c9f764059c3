"""Transactions for people and tools: what is undecided, what was discarded, and one by its id."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.format.properties import find_property
from broker.query import NotFound, by_unique_key
from broker.queues.consume_queue import ConsumeQueue
from broker.transaction.half import Half
from broker.transaction.halves import Halves
from broker.transaction.names import DISCARD_TOPIC, HALF_TOPIC, TransactionHandle, parse_handle
from broker.transaction.states import HalfState
from broker.views import TransactionView

SCAN_MAX = 2_000
"""Records read for one page; it is cut there, and says where to continue."""
HALVES_COUNTED = 100_000
_STEP_HALVES = 1_024
_CHUNK_RECORDS = 32
_CHUNK_OFFSETS = 8_192

_STATES = {
    HalfState.UNDECIDED: "undecided",
    HalfState.COMMITTED: "committed",
    HalfState.ROLLED_BACK: "rolledBack",
    HalfState.ELSEWHERE: "moved",
    None: "decided",
}


class Page(NamedTuple):
    """Some of a list, the oldest first; `cursor` is where to continue, None at the end."""

    found: list[TransactionView]
    cursor: int | None


def pending(
    halves: Halves, *, topic: str | None = None, group: str | None = None, cursor: int = 0, count_max: int = 100
) -> Generator[None, None, Page]:
    """Find undecided halves from an offset of the half queue on, in steps; of a topic or producer group where given."""
    states = halves.states

    places = (max(cursor, states.position), states.end)
    page = _page(halves, halves.queue(), states.waiting, places, names=(topic, group), count_max=count_max)
    return (yield from page)


def next_checks(
    halves: Halves, ends_ms: Sequence[int], *, timeout_ms: int, now_ms: int
) -> Generator[None, None, list[int]]:
    """Count undecided halves by their next check, in steps; of more than HALVES_COUNTED the oldest.

    Args:
        halves: Which.
        ends_ms: Ends of the ranges, ascending, ms since the epoch; the last range has no end.
        timeout_ms: Time from arrival to the first check.
        now_ms: Now.
    """
    now = halves.clock.monotonic()
    ends = [now + (end_ms - now_ms) / 1000 for end_ms in ends_ms]
    counts = [0] * (len(ends) + 1)
    waiting = islice(halves.states.waiting(halves.states.position), HALVES_COUNTED)
    for number, due in enumerate(halves.checks.dues(waiting, timeout_ms / 1000, now), 1):
        counts[bisect_right(ends, due)] += 1
        if number % _STEP_HALVES == 0:
            yield
    return counts


def discarded(
    halves: Halves, *, topic: str | None = None, group: str | None = None, cursor: int = 0, count_max: int = 100
) -> Generator[None, None, Page]:
    """Find discarded halves that were not resumed, from an offset of the discard queue on, in steps."""
    queue = halves.discard_queue()
    if queue is None:
        return Page([], None)

    def lying(start: int, end: int) -> Iterator[int]:
        return (each for each in range(start, end) if each not in halves.resumed)

    places = (max(cursor, queue.min_offset), queue.max_offset)
    return (yield from _page(halves, queue, lying, places, names=(topic, group), count_max=count_max))


def _page(
    halves: Halves,
    queue: ConsumeQueue | None,
    among: Callable[[int, int], Iterator[int]],
    places: tuple[int, int],
    *,
    names: tuple[str | None, str | None],
    count_max: int,
) -> Generator[None, None, Page]:
    """Read the halves that `among` names in [start, end) of the queue."""
    found: list[TransactionView] = []
    read = 0
    for start in range(*places, _CHUNK_OFFSETS):
        for offset in among(start, min(start + _CHUNK_OFFSETS, places[1])):
            if read == SCAN_MAX or len(found) == count_max:
                return Page(found, offset)
            read += 1
            if read % _CHUNK_RECORDS == 0:
                yield
            try:
                half = halves.read_from(queue, offset)
            except (DamagedRecord, RecordGone):
                continue
            if names[0] in (None, half.topic) and names[1] in (None, half.group):
                state = "undecided" if queue is halves.queue() else "discarded"
                found.append(_view(halves, offset, half, state))
        yield
    return Page(found, None)


def finding(halves: Halves, text: str) -> Generator[None, None, list[TransactionView]]:
    """Find the halves of a transaction by its id or a handle, in steps; the newest first, and what became of each.

    Raises:
        OSError: A file cannot be read.
    """
    handle = parse_handle(text)
    found: list[TransactionView] = []
    for name in (HALF_TOPIC, DISCARD_TOPIC):
        try:
            query = by_unique_key(halves.store, name, text if handle is None else handle.transaction_id)
        except NotFound:
            continue
        yield from query.steps()
        queue = halves.queue() if name == HALF_TOPIC else halves.discard_queue()
        for message in query.found:
            try:
                half = halves.read_from(queue, message.offset)
            except (DamagedRecord, RecordGone):
                continue
            if name == HALF_TOPIC:
                state = _STATES[halves.states.get(message.offset)]
            else:
                state = "resumed" if message.offset in halves.resumed else "discarded"
            found.append(_view(halves, message.offset, half, state))
    return sorted(found, key=lambda view: view.physical, reverse=True)


def _view(halves: Halves, offset: int, half: Half, state: str) -> TransactionView:
    asked = halves.checks.asked.get(offset) if state == "undecided" else None
    in_half_queue = state not in ("discarded", "resumed")
    return TransactionView(
        state=state,
        offset=offset,
        handle=str(TransactionHandle(offset, half.physical, half.transaction_id)) if in_half_queue else "",
        id=half.transaction_id,
        topic=half.topic,
        queue=half.queue_id,
        group=half.group,
        key=(find_property(half.block, b"KEYS") or b"").decode("utf-8", "replace"),
        physical=half.physical,
        bytes=len(half.record),
        stored_ms=half.store_ms,
        born_ms=half.born_ms,
        checks=max(half.times, 0 if asked is None else asked.times),
        check_out=asked is not None and asked.out,
        remark=halves.checks.remarks.get(offset, "") if state == "undecided" else "",
    )
