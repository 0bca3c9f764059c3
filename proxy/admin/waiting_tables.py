"""What waits, on the status page: delay levels, timers, undecided transactions."""

from __future__ import annotations

from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.listing import level_statuses
from broker.scheduled.timer.listing import timer_status
from broker.scheduled.timer.timers import Timers
from broker.transaction.transactions import Transactions
from proxy.admin.tables import Cell, table
from proxy.operate.lookups.transactions import counts
from proxy.operate.moments import moment_text
from proxy.operate.text import age


def delays_table(delays: Delays | None, now_ms: int) -> str:
    """Return the section of the status page; nothing while no message was ever delayed."""
    if delays is None or not delays.levels:
        return ""
    rows = [
        [
            Cell(str(each.level), "n"),
            Cell(age((each.delay_ms or 0) / 1000), "n"),
            Cell(f"{each.pending:,}", "n"),
            Cell(f"{each.refused:,}", "n late" if each.refused else "n"),
            Cell("" if each.next_due_ms is None else _due(each.next_due_ms, now_ms), "k"),
        ]
        for each in level_statuses(delays)
        if each.pending
    ]
    return table("Delay levels", ("#Level", "#Delay", "#Pending", "#Refused", "Next"), rows, "Nothing is delayed.")


def _due(due_ms: int, now_ms: int) -> str:
    left = (due_ms - now_ms) / 1000
    return f"{moment_text(due_ms)}, in {age(left)}" if left >= 0 else f"{moment_text(due_ms)}, late by {age(-left)}"


def timers_table(timers: Timers | None, now_ms: int) -> str:
    """Return the section of the status page; nothing while no message ever waited for a moment."""
    if timers is None or timers.entering.queue is None:
        return ""
    status = timer_status(timers)
    notes = [f"{status.pending_total:,} pending"]
    if status.next_due_ms is not None:
        notes.append(f"the next due {_due(status.next_due_ms, now_ms)}")
    if status.refused:
        notes.append(f"{status.refused:,} refused")
    paused = [each.stage for each in status.stages if each.paused]
    if paused:
        notes.append(f"paused: {', '.join(paused)}")
    rows = [[Cell(each.topic, "k"), Cell(f"{each.pending:,}", "n")] for each in status.topics]
    return table("Timers", ("Topic", "#Pending"), rows, "Nothing waits for a moment.", note="; ".join(notes))


def transactions_table(transactions: Transactions | None, now_ms: int) -> str:
    """Return the section of the status page; nothing while there never was a transaction."""
    if transactions is None or transactions.halves.queue() is None:
        return ""
    found = counts(transactions, now_ms=now_ms)
    rows = [[Cell(each.topic), Cell(each.group), Cell(f"{each.count:,}", "n")] for each in found.pending]
    notes = [] if found.oldest_ms is None else [f"the oldest for {age((now_ms - found.oldest_ms) / 1000)}"]
    if found.discarded_total:
        notes.append(f"{found.discarded_total:,} discarded: pyddmq transactions list --state discarded")
    return table(
        "Undecided transactions",
        ("Topic", "Producer group", "#Undecided"),
        rows,
        "Every transaction is decided.",
        note="; ".join(notes),
    )
