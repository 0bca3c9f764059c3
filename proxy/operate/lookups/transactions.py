"""Transactions: counts, a page of them, and one."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from broker.format.numbers import whole_number
from broker.query import NotFound
from broker.transaction.transactions import Transactions
from proxy.operate.views.waiting import PendingTransactions, TransactionsAnswer, TransactionSettings

LIMIT_MAX = 1_000
"""Transactions of one page: more would take the loop's thread too long."""
STATES = ("undecided", "discarded")


class TransactionQuery(NamedTuple):
    """What a request asks for.

    Attributes:
        limit: Transactions of one answer.
        state: undecided or discarded.
        topic: Only of this topic.
        group: Only of this producer group.
        start: From this offset on, `next` of the answer before.
        id: This one transaction, by its id or handle, wherever it is.
    """

    limit: int
    state: str = "undecided"
    topic: str | None = None
    group: str | None = None
    start: int = 0
    id: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], *, limit: int) -> TransactionQuery:
        """Read a request's parameters. Raises ValueError with a sentence."""
        state, start = query.get("state", "undecided"), query.get("from", "0")
        if state not in STATES:
            raise ValueError(f"invalid state {state!r}; use undecided or discarded.")
        offset = whole_number(start)
        if offset is None:
            raise ValueError(f"invalid offset from={start!r}; use `next` of the previous page.")
        return cls(limit, state, query.get("topic"), query.get("group"), offset, query.get("id"))


def search(
    transactions: Transactions | None, asked: TransactionQuery, *, now_ms: int
) -> Generator[None, None, TransactionsAnswer]:
    """Return counts and settings, and what is listed, or one transaction, in steps of bounded work.

    Raises:
        NotFound: The transaction does not exist.
        OSError: A file cannot be read.
    """
    answer = counts(transactions, now_ms=now_ms)
    if asked.id is not None:
        found = [] if transactions is None else (yield from transactions.finding(asked.id))
        if not found and transactions is not None:
            raise NotFound(f"transaction {asked.id!r} does not exist, or has already ended")
        return replace(answer, transactions=found)
    if transactions is None or not asked.limit:
        return answer
    listing = transactions.discarded if asked.state == "discarded" else transactions.pending
    count_max = min(asked.limit, LIMIT_MAX)
    page = yield from listing(topic=asked.topic, group=asked.group, cursor=asked.start, count_max=count_max)
    return replace(answer, transactions=page.found, next=page.cursor)


def counts(transactions: Transactions | None, *, now_ms: int) -> TransactionsAnswer:
    """Count them; None before they are open."""
    if transactions is None:
        return TransactionsAnswer(now_ms=now_ms)
    settings = transactions.settings
    return TransactionsAnswer(
        now_ms=now_ms,
        undecided_total=transactions.halves.states.undecided,
        discarded_total=_discarded(transactions),
        oldest_ms=transactions.oldest_ms(),
        pending=by_place(transactions.halves.pending),
        settings=TransactionSettings(
            timeout_ms=settings.timeout_ms,
            interval_ms=settings.interval_ms,
            checks_max=settings.checks_max,
            discard_seconds=settings.age_seconds_max,
        ),
    )


def by_place(pending: Mapping[tuple[str, str], int]) -> list[PendingTransactions]:
    """Return counts by topic and producer group, in their order."""
    return [
        PendingTransactions(topic=topic, group=group, count=count) for (topic, group), count in sorted(pending.items())
    ]


def _discarded(transactions: Transactions) -> int:
    """How many discarded halves there are that were not resumed."""
    queue = transactions.halves.discard_queue()
    if queue is None:
        return 0
    first, end = queue.min_offset, queue.max_offset
    resumed = sum(max(0, min(last, end) - max(start, first)) for start, last in transactions.resumed.ranges)
    return end - first - resumed
