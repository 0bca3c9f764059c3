"""Delay levels: what waits in them."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping

from msgspec.structs import replace

from broker.format.numbers import whole_number
from broker.query import NotFound, QueryRefused
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.listing import Places, level_statuses, pending_messages
from broker.views import DelayedMessage
from proxy.operate.lookups.parameters import check_names
from proxy.operate.views.waiting import DelaysAnswer

PARAMETERS = ("level", "topic", "limit", "messages", "cursor")
_PLACE = re.compile(r"(\d{1,3})-(\d{1,18})", re.ASCII)


def search(
    delays: Delays | None, given: Mapping[str, str], *, limit: int, now_ms: int
) -> Generator[None, None, DelaysAnswer]:
    """`GET /api/delays`: the levels, and with `messages=true` what waits in them, in steps of bounded work.

    Raises:
        QueryRefused: A parameter makes no sense.
        NotFound: The level does not exist.
    """
    check_names(given, PARAMETERS)
    asked = given.get("level")
    level = whole_number(asked, 3)
    if asked is not None and level is None:
        raise QueryRefused(f"level must be an integer >= 1, got {asked!r}")
    statuses = [] if delays is None else level_statuses(delays)
    if level is not None:
        statuses = [each for each in statuses if each.level == level]
        if not statuses:
            raise NotFound(f"delay level {level} does not exist; `pyddmq delays list` and /api/delays list all levels")
    answer = DelaysAnswer(now_ms=now_ms, pending_total=sum(each.pending for each in statuses), levels=statuses)
    if given.get("messages") != "true":
        return answer
    begin = _places(given.get("cursor", ""))
    found: list[DelayedMessage] = []
    rest: Places | None = None
    if delays is not None:
        found, rest = yield from pending_messages(
            delays, level=level, topic=given.get("topic"), begin=begin, count_max=limit
        )
    cursor = None if rest is None else ".".join(f"{number}-{offset}" for number, offset in sorted(rest.items()))
    return replace(answer, cut=rest is not None, cursor=cursor, messages=found)


def _places(cursor: str) -> Places:
    """Where a page begins. Raises QueryRefused."""
    pairs = [_PLACE.fullmatch(each) for each in cursor.split(".")] if cursor else []
    if not all(pairs):
        raise QueryRefused(f"invalid cursor {cursor!r}; use the cursor returned by the previous page")
    return {int(pair[1]): int(pair[2]) for pair in pairs if pair is not None}
