"""Timers: a page of them, and one."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence

from msgspec.structs import asdict

from broker.query import NotFound, QueryRefused, Searchable
from broker.scheduled.timer.listing import KeptScan, TimerListing, timer_status
from broker.scheduled.timer.timers import Timers
from proxy.operate.lookups.parameters import check_names, time_span
from proxy.operate.lookups.timer_lookup import TimerLookup, TimerState
from proxy.operate.views.waiting import TimerAnswer, TimersAnswer

LIST_PARAMETERS = ("topic", "from", "to", "limit", "cursor")
SHOW_PARAMETERS = ("id", "topic")
LIMIT_MAX = 1_000
"""Timers of one page: more would take the loop's thread too long."""
_SLOTS_AT_ONCE, _STEP_SLOTS = 4_096, 64
_CURSOR = re.compile(r"(\d{1,18})-(\d{1,18})")


def search(
    timers: Timers, given: Mapping[str, str], *, limit: int, now_ms: int, kept: KeptScan | None = None
) -> Generator[None, None, TimersAnswer]:
    """`GET /api/timers`: all timers together, and a page of them, in steps of bounded work.

    Raises:
        QueryRefused: A parameter makes no sense.
    """
    check_names(given, LIST_PARAMETERS)
    begin_ms, end_ms = time_span(given, now_ms, span_is_age=False)
    after = _CURSOR.fullmatch(given.get("cursor", "0-0"))
    if after is None:
        raise QueryRefused(f"invalid cursor {given['cursor']!r}; use the cursor returned by the previous page")
    listing = TimerListing(
        timers,
        topic=given.get("topic"),
        begin_ms=begin_ms,
        end_ms=end_ms,
        after=(int(after[1]), int(after[2])) if "cursor" in given else None,
        limit=min(limit, LIMIT_MAX),
        kept=kept,
    )
    yield from listing.steps()
    return TimersAnswer(
        **asdict(timer_status(timers)),
        timers=listing.found,
        cursor=None if listing.after is None else f"{listing.after[0]}-{listing.after[1]}",
    )


def show(
    store: Searchable, given: Mapping[str, str], *, broker_name: str, now_ms: int
) -> Generator[None, None, TimerAnswer]:
    """`GET /api/timers/show`: one timer, whatever became of it, in steps of bounded work.

    Raises:
        QueryRefused: It is not named, or its handle is another broker's.
        NotFound: No record of it is left.
    """
    check_names(given, SHOW_PARAMETERS)
    if not given.get("id"):
        raise QueryRefused("pass the timer's id: its UNIQ_KEY, its handle, or the id of a loop")
    lookup = TimerLookup(store, given["id"], given.get("topic"), broker_name=broker_name)
    yield from lookup.steps()
    if lookup.state is TimerState.UNKNOWN:
        raise NotFound(f"timer {lookup.unique_key} does not exist, or its records were deleted")
    return lookup.answer(now_ms=now_ms)


def due_counts(timers: Timers, ends_ms: Sequence[int]) -> Generator[None, None, list[int]]:
    """Count pending timers by due time, in steps of bounded work; a timer beyond the wheel counts at its far end.

    Args:
        timers: Whose.
        ends_ms: Ends of the ranges, ascending, ms since the epoch; the last range has no end.
    """
    table = timers.table
    wheel, place, looked_at = table.wheel, 0, 0
    counts = [0] * (len(ends_ms) + 1)
    # Those whose slot was read wait in memory, and are the next ones.
    counts[0] = table.coming.count
    slot_ms, end_ms = table.next_ms, table.next_ms + wheel.round_ms
    if timers.parts.is_fresh or timers.entering.queue is None:
        return counts
    while slot_ms < end_ms and sum(counts) < timers.pending:
        slot_ms = wheel.next_used(slot_ms, min(end_ms, slot_ms + _SLOTS_AT_ONCE * wheel.precision_ms))
        while place < len(ends_ms) and slot_ms >= ends_ms[place]:
            place += 1
        counts[place] += timers.parts.in_slot(slot_ms)
        slot_ms += wheel.precision_ms
        looked_at += 1
        if not looked_at % _STEP_SLOTS:
            yield
    return counts
