"""Transactions on the admin port: the JSON documents, and the table of the status page."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple

from broker.transaction.listing import HalfView
from broker.transaction.transactions import Transactions
from proxy.admin.tables import Cell, table
from proxy.operate.text import age

Document = dict[str, Any]

LIMIT_MAX = 1_000
"""Transactions of one page: more would take the loop's thread too long."""
STATES = ("undecided", "discarded")
_STATES = {"rolled back": "rolledBack"}


class Asked(NamedTuple):
    """What a request asks for.

    Attributes:
        limit: Transactions of one answer.
        state: undecided or discarded.
        topic: Only of this topic.
        group: Only of this producer group.
        start: From this offset on, `next` of the answer before.
        id: This one transaction, by its id or handle, wherever it stands.
    """

    limit: int
    state: str = "undecided"
    topic: str | None = None
    group: str | None = None
    start: int = 0
    id: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], *, limit: int) -> Asked:
        """Read a request's parameters. Raises ValueError with a sentence."""
        state, start = query.get("state", "undecided"), query.get("from", "0")
        if state not in STATES:
            raise ValueError(f"state={state} is none; use undecided or discarded.")
        if not (start.isascii() and start.isdigit() and len(start) < 19):
            raise ValueError(f"from={start} is no offset; use `next` of the answer before.")
        return cls(limit, state, query.get("topic"), query.get("group"), int(start), query.get("id"))


def document(transactions: Transactions | None, asked: Asked, *, now_ms: int) -> Generator[None, None, Document]:
    """Return counts and settings, and what is listed, in steps of bounded work; `one` finds a single transaction."""
    found = _counts(transactions, now_ms)
    found["transactions"], found["next"] = [], None
    if transactions is not None and asked.limit and asked.id is None:
        listing = transactions.discarded if asked.state == "discarded" else transactions.pending
        count_max = min(asked.limit, LIMIT_MAX)
        page = yield from listing(topic=asked.topic, group=asked.group, cursor=asked.start, count_max=count_max)
        found["transactions"] = [row_document(row) for row in page.found]
        found["next"] = page.cursor
    return found


def one(transactions: Transactions, transaction_id: str) -> Iterator[list[Document]]:
    """Find a transaction in steps of bounded work; each yields what is found so far. Raises OSError."""
    steps = transactions.finding(transaction_id)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            yield [row_document(row) for row in end.value]
            return
        yield []


def _counts(transactions: Transactions | None, now_ms: int) -> Document:
    if transactions is None:
        return {"nowMs": now_ms, "undecidedTotal": 0, "discardedTotal": 0, "oldestMs": None, "pending": []}
    settings = transactions.settings
    return {
        "nowMs": now_ms,
        "undecidedTotal": transactions.halves.states.undecided,
        "discardedTotal": discarded_count(transactions),
        "oldestMs": transactions.oldest_ms(),
        "pending": [
            {"topic": topic, "group": group, "count": count}
            for (topic, group), count in sorted(transactions.halves.pending.items())
        ],
        "settings": {
            "timeoutMs": settings.timeout_ms,
            "intervalMs": settings.interval_ms,
            "checksMax": settings.checks_max,
            "discardSeconds": settings.age_seconds_max,
        },
    }


def discarded_count(transactions: Transactions) -> int:
    """How many discarded halves there are that were not resumed."""
    queue = transactions.halves.discard_queue()
    if queue is None:
        return 0
    first, end = queue.min_offset, queue.max_offset
    resumed = sum(max(0, min(last, end) - max(start, first)) for start, last in transactions.resumed.ranges)
    return end - first - resumed


def row_document(row: HalfView) -> Document:
    """Return one transaction."""
    return {
        "state": _STATES.get(row.state, row.state),
        "id": row.transaction_id,
        "handle": row.handle,
        "offset": row.offset,
        "topic": row.topic,
        "queue": row.queue_id,
        "group": row.group,
        "key": row.key,
        "checks": row.times,
        "checkOut": row.checking,
        "remark": row.remark,
        "bornMs": row.born_ms,
        "storedMs": row.stored_ms,
        "bytes": row.size,
    }


def transactions_table(transactions: Transactions | None, now_ms: int) -> str:
    """Return the section of the status page; nothing while there never was a transaction."""
    if transactions is None or transactions.halves.queue() is None:
        return ""
    rows = [
        [Cell(topic), Cell(group), Cell(f"{count:,}", "n")]
        for (topic, group), count in sorted(transactions.halves.pending.items())
    ]
    oldest = transactions.oldest_ms()
    notes = [] if oldest is None else [f"the oldest for {age((now_ms - oldest) / 1000)}"]
    given_up = discarded_count(transactions)
    if given_up:
        notes.append(f"{given_up:,} discarded: pyddmq transactions list --state discarded")
    return table(
        "Undecided transactions",
        ("Topic", "Producer group", "#Undecided"),
        rows,
        "Every transaction is decided.",
        note="; ".join(notes),
    )
