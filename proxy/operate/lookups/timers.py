"""Timers: a page of them, and one."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping

from msgspec.structs import asdict

from broker.query import NotFound, QueryRefused, Searchable
from broker.scheduled.timer.listing import ALL_MS, KeptScan, TimerListing, timer_status
from broker.scheduled.timer.timers import Timers
from proxy.operate.lookups.parameters import check_names
from proxy.operate.lookups.timer_lookup import TimerLookup, TimerState
from proxy.operate.moments import parse_moment
from proxy.operate.views.waiting import TimerAnswer, TimersAnswer

LIST_PARAMETERS = ("topic", "from", "to", "limit", "cursor")
SHOW_PARAMETERS = ("id", "topic")
LIMIT_MAX = 1_000
"""Timers of one page: more would take the loop's thread too long."""
_CURSOR = re.compile(r"(\d{1,18})-(\d{1,18})")


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
        try:
            begin_ms = parse_moment(given["from"], now_ms, span_is_age=False) if "from" in given else 0
            end_ms = parse_moment(given["to"], now_ms, span_is_age=False) if "to" in given else ALL_MS
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

    def steps(self) -> Generator[None, None, None]:
        """Search; see `TimerListing.steps`."""
        yield from self._listing.steps()

    def answer(self) -> TimersAnswer:
        """Return what was found."""
        after = self._listing.after
        return TimersAnswer(
            **asdict(timer_status(self._timers)),
            timers=self._listing.found,
            cursor=None if after is None else f"{after[0]}-{after[1]}",
        )


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

    def steps(self) -> Generator[None, None, None]:
        """Search; see `TimerLookup.steps`."""
        yield from self._lookup.steps()

    def answer(self) -> TimerAnswer:
        """Return what became of it. Raises NotFound."""
        if self._lookup.state is TimerState.UNKNOWN:
            raise NotFound(f"no record of timer {self._lookup.unique_key} is left, or there was none")
        return self._lookup.answer(now_ms=self._now_ms)
