"""What a client has in the store at a time: messages that wait for their moment, and undecided transactions.

A principal may have so many of either (`limits.principals`). The store counts halves by whose they are, also after a
restart, as far as it has looked through them; owners of Kafka's partitions report those that wait there. What waits for
its moment in the store is counted here, from the start on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from broker.scheduled.recurring.occurrence import Occurrence
from broker.transaction.transactions import Transactions
from proxy.limits.meter import Meter
from proxy.limits.quota import AFTER_MS, LimitExceeded, Quota
from proxy.port.connection import Connection
from proxy.services.kafka.halves import KafkaHalves
from proxy.services.message_rules import Refusal
from pyddmq.codes import ResultCode

AFTER_MS_MAX = 2_000_000_000
_OPEN_CODES = (ResultCode.FAIL_UNKNOWN, ResultCode.FAIL_TIMEOUT)
"""With these it is not known whether a message is stored."""


def check_pending(connection: Connection, count: int, now_ms: int) -> None:
    """Check that so many more messages of a client may wait for their moment. Raises Refusal."""
    quota = connection.quota
    meter = None if quota is None else quota.principal
    if quota is None or meter is None or meter.pending_max is None:
        return
    if meter.pending.count(now_ms) + count <= meter.pending_max:
        return
    next_ms = meter.pending.next_ms()
    after_ms = AFTER_MS if next_ms is None else min(max(1, next_ms - now_ms), AFTER_MS_MAX)
    _refuse(quota, LimitExceeded(meter, "pendingTimers", after_ms), count)


def note_pending(connection: Connection, dues_ms: Iterable[int], name: str = "") -> None:
    """Count messages of a client that wait until then, ms since the epoch; one that can be cancelled has a name."""
    meter = _principal(connection)
    if meter is not None and meter.pending_max is not None:
        for due_ms in dues_ms:
            meter.pending.add(due_ms, name)


def take_back_pending(connection: Connection, dues_ms: Iterable[int], refusal: Refusal, name: str = "") -> None:
    """Count messages that were to wait no more, where their refusal says that they are not stored."""
    meter = _principal(connection)
    if meter is not None and meter.pending_max is not None and refusal.code not in _OPEN_CODES:
        for due_ms in dues_ms:
            meter.pending.end(due_ms, name)


def last_due_ms(occurrence: Occurrence) -> int:
    """Return when a delayed message, or the last occurrence of a loop, is due, ms since the epoch."""
    first = occurrence.first
    last = first.later(first.missed(first.expire_s) - 1) if first.is_loop else None
    return (last or first).at_s * 1000


def end_pending(connection: Connection, occurrence: Occurrence) -> None:
    """Count one of a client's waiting messages no more: it is cancelled."""
    meter = _principal(connection)
    if meter is not None and meter.pending_max is not None:
        meter.pending.end(last_due_ms(occurrence), occurrence.first.id)


class HalfCount:
    """One half that a client sends, counted until its answer.

    Raises Refusal: it has as many undecided ones as it may.
    """

    def __init__(self, connection: Connection, transactions: Transactions, kafka: KafkaHalves) -> None:
        self._meter: Meter | None = None
        quota = connection.quota
        meter = None if quota is None else quota.principal
        if quota is None or meter is None or meter.halves_max is None:
            return
        if transactions.halves.owned[meter.name] + kafka.undecided_of(meter.name) + meter.halves >= meter.halves_max:
            _refuse(quota, LimitExceeded(meter, "openTransactions", AFTER_MS), 1)
        meter.halves += 1
        self._meter = meter

    def end(self) -> None:
        """It is answered, or was not taken: from here on the store counts it. Harmless twice."""
        if self._meter is not None:
            self._meter.halves -= 1
            self._meter = None


def _principal(connection: Connection) -> Meter | None:
    return None if connection.quota is None else connection.quota.principal


def _refuse(quota: Quota, over: LimitExceeded, count: int) -> NoReturn:
    quota.refused(over, count)
    raise Refusal(ResultCode.FAIL_REFUSED_BY_RATE_LIMITER, over.text, after_ms=over.after_ms)
