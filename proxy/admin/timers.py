"""Timers on the admin port: searches with their JSON documents, and the table of the status page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from broker.query import NotFound, QueryRefused, Searchable
from broker.scheduled.recurring.occurrence import parse_id, user_key
from broker.scheduled.timer.listing import ALL_MS, KeptScan, PendingTimer, TimerListing, TimerStatus, timer_status
from broker.scheduled.timer.timers import Timers
from proxy.admin.parameters import check_names
from proxy.admin.tables import Cell, table
from proxy.operate.moments import moment_text, parse_moment
from proxy.operate.text import age
from proxy.operate.timer_lookup import TimerLookup, TimerState

LIST_PARAMETERS = ("topic", "from", "to", "limit", "cursor")
SHOW_PARAMETERS = ("id", "topic")
LIMIT_MAX = 1_000
"""Timers of one page: more would take the loop's thread too long."""
_CURSOR = re.compile(r"(\d{1,18})-(\d{1,18})")

Document = dict[str, Any]


class TimerSearch:
    """`GET /api/timers`: all timers together, and a page of them.

    Raises:
        QueryRefused: A parameter makes no sense.
    """

    def __init__(
        self, timers: Timers, given: Mapping[str, str], limit: int, now_ms: int, kept: KeptScan | None = None
    ) -> None:
        check_names(given, LIST_PARAMETERS)
        self._timers = timers
        self._now_ms = now_ms
        try:
            begin_ms = parse_moment(given["from"], self._now_ms, span_is_age=False) if "from" in given else 0
            end_ms = parse_moment(given["to"], self._now_ms, span_is_age=False) if "to" in given else ALL_MS
        except ValueError as error:
            raise QueryRefused(str(error)) from error
        if begin_ms > end_ms:
            raise QueryRefused("`from` is later than `to`; turn them round")
        after = _CURSOR.fullmatch(given.get("cursor", "0-0"))
        if after is None:
            raise QueryRefused(f"cursor is {given['cursor']!r}; take the one of the page before")
        self._listing = TimerListing(
            timers,
            topic=given.get("topic"),
            begin_ms=begin_ms,
            end_ms=end_ms,
            after=(int(after[1]), int(after[2])) if "cursor" in given else None,
            limit=min(limit, LIMIT_MAX),
            kept=kept,
        )

    def steps(self) -> Iterator[None]:
        """Search; see `TimerListing.steps`."""
        yield from self._listing.steps()

    def document(self) -> Document:
        """Return what was found."""
        after = self._listing.after
        return {
            **_status(timer_status(self._timers), self._now_ms),
            "timers": [_timer(each) for each in self._listing.found],
            "cursor": None if after is None else f"{after[0]}-{after[1]}",
        }


class TimerShow:
    """`GET /api/timers/show`: one timer, whatever became of it.

    Raises:
        QueryRefused: It is not named, or its handle is another broker's.
    """

    def __init__(self, store: Searchable, given: Mapping[str, str], broker_name: str, now_ms: int) -> None:
        check_names(given, SHOW_PARAMETERS)
        if not given.get("id"):
            raise QueryRefused("name a timer with id: its UNIQ_KEY, its handle, or the id of a loop")
        self._now_ms = now_ms
        self._lookup = TimerLookup(store, given["id"], given.get("topic"), broker_name=broker_name)

    def steps(self) -> Iterator[None]:
        """Search; see `TimerLookup.steps`."""
        yield from self._lookup.steps()

    def document(self) -> Document:
        """Return what became of it. Raises NotFound."""
        if self._lookup.state is TimerState.UNKNOWN:
            raise NotFound(f"no record of timer {self._lookup.unique_key} is left, or there was none")
        return {"nowMs": self._now_ms, **self._lookup.document()}


def _status(status: TimerStatus, now_ms: int) -> Document:
    return {
        "nowMs": now_ms,
        "pendingTotal": status.pending,
        "entering": status.entering,
        "refused": status.aside,
        "nextDueMs": status.next_due_ms,
        "lateMs": 0 if status.next_due_ms is None else max(0, now_ms - status.next_due_ms),
        "topics": [{"topic": name, "pending": count} for name, count in status.topics],
        "stages": [
            {
                "stage": each.stage,
                "depth": each.depth,
                "ms": each.us / 1000,
                "count": each.passed,
                "paused": each.paused,
            }
            for each in status.stages
        ],
    }


def _timer(timer: PendingTimer) -> Document:
    return {
        "topic": timer.topic,
        "queue": timer.queue_id,
        "id": timer.unique_key,
        "key": user_key(timer.key),
        "delayId": _delay_id(timer.key),
        "storedMs": timer.stored_ms,
        "dueMs": timer.due_ms,
        "rolls": timer.rolls,
        "refusedBecause": timer.reason,
        "tries": timer.tries,
        "loop": _loop(timer.key),
    }


def _delay_id(keys: str) -> str | None:
    """DDMQ's uniqDelayMsgId of what waits; None where it has none."""
    word = keys.partition(" ")[0]
    return None if parse_id(word) is None else word


def _loop(keys: str) -> Document | None:
    """What the keys of a loop's pending occurrence say of it (docs/loops.md); None of other timers."""
    occurrence = parse_id(keys.partition(" ")[0])
    if occurrence is None or not occurrence.is_loop:
        return None
    return {
        "id": occurrence.first.id,
        "made": occurrence.made,
        "left": occurrence.left,
        "interval": occurrence.interval,
        "expireMs": occurrence.expire_s * 1000,
    }


def timers_table(status: TimerStatus | None, now_ms: int) -> str:
    """Return the section of the status page; nothing while no message ever waited for a moment."""
    if status is None or not status.known:
        return ""
    notes = [f"{status.pending:,} pending"]
    if status.next_due_ms is not None:
        left = (status.next_due_ms - now_ms) / 1000
        when = f"in {age(left)}" if left >= 0 else f"late by {age(-left)}"
        notes.append(f"the next due {moment_text(status.next_due_ms)}, {when}")
    if status.aside:
        notes.append(f"{status.aside:,} refused")
    paused = [each.stage for each in status.stages if each.paused]
    if paused:
        notes.append(f"paused: {', '.join(paused)}")
    rows = [[Cell(name, "k"), Cell(f"{count:,}", "n")] for name, count in status.topics]
    return table("Timers", ("Topic", "#Pending"), rows, "Nothing waits for a moment.", note="; ".join(notes))
