"""What waits: delays, timers, transactions; the records in these answers are `broker.views`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from broker.views import DelayedMessage, DelayLevelView, TimerStatus, TimerView, TransactionView, View


class DelaysAnswer(View, frozen=True, kw_only=True):
    """What waits in the delay levels.

    Attributes:
        now_ms: Now, by the node's wall clock.
        pending_total: Messages of all these levels that are not delivered.
        levels: By number.
        cut: Whether there are more messages than requested, or than are read for a page; absent, like the later fields,
            unless messages were requested.
        cursor: Where the next page begins; null after the last one.
        messages: Those due first at the front.
    """

    now_ms: int
    pending_total: int
    levels: Sequence[DelayLevelView]
    cut: bool | UnsetType = UNSET
    cursor: str | UnsetType | None = UNSET
    messages: Sequence[DelayedMessage] | UnsetType = UNSET


class TimersAnswer(TimerStatus, frozen=True, kw_only=True):
    """All timers together, and a page of them.

    Attributes:
        timers: Those due first at the front.
        cursor: Where the next page begins; null after the last one.
    """

    timers: Sequence[TimerView] = ()
    cursor: str | None = None


class TimerDelivery(View, frozen=True, kw_only=True):
    """The message of a timer that was delivered.

    Attributes:
        queue: Its queue.
        offset: Its offset.
        store_ms: When it was delivered.
    """

    queue: int
    offset: int
    store_ms: int


class TimerAnswer(View, frozen=True, kw_only=True):
    """What became of one timer.

    Attributes:
        now_ms: Now, by the node's wall clock.
        id: Its id (UNIQ_KEY).
        topic: Its topic.
        state: `pending`, `delivered`, `cancelled` or `rescheduled`.
        text: A sentence that says what became of it.
        key: Its key; null without one, or if its record was deleted.
        stored_ms: When it was stored; null if its record was deleted.
        due_ms: When it is due; null when that is not known.
        new_id: Its id since it was rescheduled; null when it was not.
        handle: Its recall handle; null if its record was deleted.
        delivered: The message; null when it was not delivered.
    """

    now_ms: int
    id: str
    topic: str
    state: str
    text: str
    key: str | None
    stored_ms: int | None
    due_ms: int | None
    new_id: str | None
    handle: str | None
    delivered: TimerDelivery | None


class PendingTransactions(View, frozen=True, kw_only=True):
    """Undecided transactions of one topic and producer group.

    Attributes:
        topic: Topic that their messages go to.
        group: Producer group.
        count: How many.
    """

    topic: str
    group: str
    count: int


class TransactionSettings(View, frozen=True, kw_only=True):
    """When transactions are checked (docs/transactions.md).

    Attributes:
        timeout_ms: Age of the first check, in ms.
        interval_ms: Milliseconds between two checks.
        checks_max: Checks after which it is discarded.
        discard_seconds: Age after which it is discarded.
    """

    timeout_ms: int
    interval_ms: int
    checks_max: int
    discard_seconds: float


class TransactionsAnswer(View, frozen=True, kw_only=True):
    """Transactions, counted, and a page of them.

    Attributes:
        now_ms: Now, by the node's wall clock.
        undecided_total: How many are undecided.
        discarded_total: How many were discarded and not resumed.
        oldest_ms: When the oldest undecided one was stored; null without one.
        pending: Undecided ones by topic and producer group.
        settings: When transactions are checked; absent until the store is open, and for a store that no node has open.
        transactions: The oldest first; for a requested one the newest record first.
        next: Where the next page begins; null after the last one.
    """

    now_ms: int
    undecided_total: int = 0
    discarded_total: int = 0
    oldest_ms: int | None = None
    pending: Sequence[PendingTransactions] = ()
    settings: TransactionSettings | UnsetType = UNSET
    transactions: Sequence[TransactionView] = ()
    next: int | None = None
