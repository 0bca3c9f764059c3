"""Delay levels on the admin port: the JSON document, and the table of the status page."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any

from broker.query import NotFound, QueryRefused
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.listing import Places, level_statuses, pending_messages
from proxy.admin.parameters import check_names
from proxy.admin.tables import Cell, table
from proxy.operate.moments import moment_text
from proxy.operate.text import age

PARAMETERS = ("level", "topic", "limit", "messages", "cursor")
_PLACE = re.compile(r"(\d{1,3})-(\d{1,18})", re.ASCII)

Document = dict[str, Any]


def search(
    delays: Delays | None, given: Mapping[str, str], *, limit: int, now_ms: int
) -> Generator[None, None, Document]:
    """`GET /api/delays`: the levels, and with `messages=true` what waits in them, in steps of bounded work.

    Raises:
        QueryRefused: A parameter makes no sense.
        NotFound: There is no such level.
    """
    check_names(given, PARAMETERS)
    asked = given.get("level")
    if asked is not None and not (asked.isascii() and asked.isdigit() and len(asked) < 4):
        raise QueryRefused(f"level={asked} is no number of a level; use 1 and above")
    level = None if asked is None else int(asked)
    statuses = [] if delays is None else level_statuses(delays)
    if level is not None:
        statuses = [each for each in statuses if each.level == level]
        if not statuses:
            raise NotFound(f"there is no delay level {level}; `pyddmq delays list` and /api/delays list all")
    document: Document = {
        "nowMs": now_ms,
        "pendingTotal": sum(each.pending for each in statuses),
        "levels": [
            {
                "level": each.level,
                "delayMs": each.delay_ms,
                "pending": each.pending,
                "refused": each.aside,
                "oldestMs": each.oldest_ms,
                "nextDueMs": each.next_due_ms,
                "lateMs": each.late_ms,
            }
            for each in statuses
        ],
    }
    if given.get("messages") == "true":
        begin = _places(given.get("cursor", ""))
        document |= yield from _messages(delays, limit=limit, level=level, topic=given.get("topic"), begin=begin)
    return document


def _messages(
    delays: Delays | None, *, limit: int, level: int | None, topic: str | None, begin: Places
) -> Generator[None, None, Document]:
    waiting, rest = (
        ([], None)
        if delays is None
        else (yield from pending_messages(delays, level=level, topic=topic, begin=begin, count_max=limit))
    )
    return {
        "cut": rest is not None,
        "cursor": None if rest is None else ".".join(f"{number}-{offset}" for number, offset in sorted(rest.items())),
        "messages": [
            {
                "level": each.level,
                "offset": each.offset,
                "topic": each.topic,
                "queue": each.queue_id,
                "id": each.message_id,
                "key": each.key,
                "storedMs": each.stored_ms,
                "dueMs": each.due_ms,
                "refusedBecause": each.reason,
                "tries": each.tries,
            }
            for each in waiting
        ],
    }


def _places(cursor: str) -> Places:
    """Where a page begins. Raises QueryRefused."""
    pairs = [_PLACE.fullmatch(each) for each in cursor.split(".")] if cursor else []
    if not all(pairs):
        raise QueryRefused(f"cursor is {cursor!r}; take the one of the page before")
    return {int(pair[1]): int(pair[2]) for pair in pairs if pair is not None}


def delays_table(delays: Delays | None, now_ms: int) -> str:
    """Return the section of the status page; nothing while no message was ever delayed."""
    if delays is None or not delays.levels:
        return ""
    rows = [
        [
            Cell(str(each.level), "n"),
            Cell(age(each.delay_ms / 1000), "n"),
            Cell(f"{each.pending:,}", "n"),
            Cell(f"{each.aside:,}", "n late" if each.aside else "n"),
            Cell("" if each.next_due_ms is None else _due(each.next_due_ms, now_ms), "k"),
        ]
        for each in level_statuses(delays)
        if each.pending
    ]
    return table("Delay levels", ("#Level", "#Delay", "#Pending", "#Refused", "Next"), rows, "Nothing is delayed.")


def _due(due_ms: int, now_ms: int) -> str:
    left = (due_ms - now_ms) / 1000
    return f"{moment_text(due_ms)}, in {age(left)}" if left >= 0 else f"{moment_text(due_ms)}, late by {age(-left)}"
