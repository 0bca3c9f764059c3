"""Delay levels on the admin port: the JSON document, and the table of the status page."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.delay.delays import Delays
from broker.delay.listing import level_statuses, pending_messages
from proxy.admin.tables import Cell, table
from proxy.admin.text import age
from proxy.moments import moment_text

Document = dict[str, Any]


def document(delays: Delays | None, *, now_ms: int, level: int | None = None) -> Document | None:
    """Return the levels; None for an unknown level."""
    statuses = [] if delays is None else level_statuses(delays)
    if level is not None:
        statuses = [each for each in statuses if each.level == level]
        if not statuses:
            return None
    return {
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


def messages(
    delays: Delays | None, *, limit: int, level: int | None = None, topic: str | None = None
) -> Generator[None, None, Document]:
    """Find the messages that wait, in steps of bounded work; returns what the document has besides the levels."""
    waiting, cut = (
        ([], False)
        if delays is None
        else (yield from pending_messages(delays, level=level, topic=topic, count_max=limit))
    )
    return {
        "cut": cut,
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
