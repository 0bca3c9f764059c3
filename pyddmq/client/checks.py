"""The node's checks without I/O: what is asked for, what a listener's answer means, and when the next fetch is due.

Answers ride on the next fetch. A fetch that was not answered keeps them, and they go out again over a new connection:
telling a decision twice does no harm. Who fetches is `check_thread`, and `async_transaction_producer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyddmq.client.errors import ClientMisuse
from pyddmq.client.transactions import LocalState, TransactionMessage, judged, remark_of

PAUSE_MS_FIRST = 100
PAUSE_MS_MAX = 5000
CLOSE_SECONDS = 10.0
"""How long a producer that is closed waits for the check that its listener is at."""
_ANSWER_MARGIN_MS = 5000


class Checks:
    """The checks of one producer group.

    Attributes:
        group: The producer group.
        answers: Given and not told yet, for `endTransaction` or the next fetch.
        fetch_timeout_ms, tell_timeout_ms: How long an answer is waited for.

    Args:
        wire: The interface definitions.
        group: As the attribute.
        batch_size: Checks of one fetch at most; another process may ask for those that are left.
        linger_ms: How long a fetch waits at the node.

    Raises:
        ClientMisuse: No group, or a number out of range.
    """

    def __init__(self, wire: Any, group: str, *, batch_size: int, linger_ms: int) -> None:
        if not group:
            raise ClientMisuse("a transaction producer needs the name of its producer group")
        if batch_size <= 0 or linger_ms < 0:
            raise ClientMisuse("check_batch_size must be above 0 and check_linger_ms 0 or above")
        self.answers: list[Any] = []
        self.fetch_timeout_ms = linger_ms + _ANSWER_MARGIN_MS
        self.tell_timeout_ms = _ANSWER_MARGIN_MS
        self._wire = wire
        self.group = group
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._pause_ms = PAUSE_MS_FIRST

    def fetch(self) -> dict[str, object]:
        """Return the arguments of the next `fetchChecks`."""
        request = self._wire.CheckRequest(
            producerGroup=self.group,
            maxBatchSize=self._batch_size,
            maxLingerTime=self._linger_ms,
            answers=list(self.answers) or None,
        )
        return {"request": request}

    def fetched(self, checks: Sequence[Any] | None) -> list[Any]:
        """Take the answer of a fetch: what rode on it was told."""
        self.answers.clear()
        self._pause_ms = PAUSE_MS_FIRST
        return list(checks or ())

    def pause_seconds(self) -> float:
        """Return how long to wait after a fetch that failed; longer each time."""
        pause_ms = self._pause_ms
        self._pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)
        return pause_ms / 1000

    def answered(self, check: Any, answer: object) -> None:
        """Take what a listener answered, or its exception: what that stands for is told."""
        state, remark = state_of(answer)
        self.answers.append(decision_of(self._wire, self.group, check.handle, state, remark, from_check=True))


def state_of(answer: object) -> tuple[LocalState, str]:
    """State that a listener's answer stands for, and a remark when it is none: an exception is an answer, not known."""
    return (LocalState.UNKNOWN, remark_of(answer)) if isinstance(answer, Exception) else judged(answer)


def decision_of(wire: Any, group: str, handle: str, state: LocalState, remark: str, *, from_check: bool) -> Any:
    """Build what is told of a transaction."""
    return wire.EndTransaction(
        producerGroup=group, handle=handle, state=int(state), fromCheck=from_check, remark=remark or None
    )


def checked_message(check: Any) -> TransactionMessage:
    """Message of a TransactionCheck, as thriftpy2 built it."""
    message = check.message
    return TransactionMessage(
        transaction_id=check.transactionId or "",
        topic=message.topic or "",
        body=message.body if message.body is not None else b"",
        key=message.key,
        tags=message.tags,
        properties=message.properties or {},
        queue=-1 if message.partitionId is None else message.partitionId,
        check_times=check.checkTimes or 0,
        born_ms=check.bornTimestamp or 0,
    )
