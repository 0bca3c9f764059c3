"""Transactions without I/O: a half, its local transaction and the decision; the node's checks and their answers.

Answers ride on the next fetch. A fetch that was not answered keeps them, and they go out again over a new connection:
sending a decision twice does no harm. A thread runs `ProducerGroupChecks.run` (`check_thread`), or a task
(`async_transaction_producer`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from pyddmq.client.calls import Conversation
from pyddmq.client.errors import ClientError, ClientMisuse, Unreachable
from pyddmq.client.requests import NodeRequest
from pyddmq.client.sends import OutgoingMessage, wire_message
from pyddmq.client.transactions import (
    AsyncTransactionListener,
    LocalState,
    TransactionMessage,
    TransactionResult,
    end_request,
    executed_message,
    half_request,
    judged,
    remark_of,
    transaction_result,
)

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

PAUSE_MS_FIRST = 100
PAUSE_MS_MAX = 5000
CLOSE_SECONDS = 10.0
"""How long a producer that is closed waits for the check that its listener is at."""
_ANSWER_MARGIN_MS = 5000


class ProducerGroupChecks:
    """The checks of one producer group.

    Attributes:
        group: The producer group.
        answers: Given and not sent yet, for `endTransaction` or the next fetch.
        is_fetching: A fetch waits for its answer.

    Args:
        wire: The interface definitions.
        group: As the attribute.
        batch_size: Checks of one fetch at most; another process may ask for those that are left.
        linger_ms: How long a fetch waits at the node.
        on_error: Told of each call that failed.

    Raises:
        ClientMisuse: No group, or a number out of range.
    """

    def __init__(
        self,
        wire: Any,
        group: str,
        *,
        batch_size: int,
        linger_ms: int,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        if not group:
            raise ClientMisuse("a transaction producer needs the name of its producer group")
        if batch_size <= 0 or linger_ms < 0:
            raise ClientMisuse("check_batch_size must be above 0 and check_linger_ms 0 or above")
        self.answers: list[Any] = []
        self.is_fetching = False
        self._on_error = on_error
        self._wire = wire
        self.group = group
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._pause_ms = PAUSE_MS_FIRST

    async def run(
        self,
        connection: Conversation,
        listener: AsyncTransactionListener,
        pause: Callable[[float], Awaitable[object]],
        is_closing: Callable[[], bool],
    ) -> None:
        """Fetch checks, have the listener answer them, and send its answers, until the producer is being closed.

        Args:
            connection: Its own; closed at the end.
            listener: Knows what became of transactions.
            pause: Waits so many seconds, or until then.
            is_closing: Whether it is.
        """
        while not is_closing():
            try:
                checks = await self._fetch(connection)
            except (ClientError, ClientMisuse) as error:
                # Misuse: a file of a token or certificate that is being replaced, and there again soon.
                if is_closing():
                    break
                self._report_error(error)
                await pause(self.pause_seconds())
                continue
            for check in checks:
                self.answered(check, await _answer(listener.check, checked_message(check)))
                if is_closing():
                    # The node asks another process, or this one again, once the lease has passed.
                    break
        # One by one: a fetch might bring new checks that would not be answered.
        for answer in self.answers:
            try:
                await _report(connection, answer)
            except (ClientError, ClientMisuse) as error:
                self._report_error(error)
                break
        connection.close()

    async def _fetch(self, connection: Conversation) -> list[Any]:
        self.is_fetching = True
        try:
            timeout_ms = self._linger_ms + _ANSWER_MARGIN_MS
            return self.fetched(await connection.call("fetchChecks", self.fetch(), timeout_ms))
        finally:
            self.is_fetching = False

    def _report_error(self, error: ClientError | ClientMisuse) -> None:
        if self._on_error is None:
            return
        try:
            self._on_error(error)
        except Exception:
            # It has no caller to go to, and the checks must continue.
            _LOG.exception("on_check_error raised an exception")

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
        """Take the answer of a fetch: the decisions sent with it have arrived."""
        self.answers.clear()
        self._pause_ms = PAUSE_MS_FIRST
        return list(checks or ())

    def pause_seconds(self) -> float:
        """Return how long to wait after a fetch that failed; longer each time."""
        pause_ms = self._pause_ms
        self._pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)
        return pause_ms / 1000

    def answered(self, check: Any, answer: object) -> None:
        """Take what a listener answered, or its exception; the caller says what it is for."""
        state, remark = state_of(answer)
        self.answers.append(decision_of(self._wire, self.group, check.handle, state, remark, from_check=True))


class Submits(Protocol):
    """A producer's way to make a call with its resend policy."""

    def __call__(self, request: NodeRequest[T], /) -> Awaitable[T]:
        """Make it."""


async def run_transaction(
    wire: Any,
    group: str,
    message: OutgoingMessage,
    arg: object,
    timeout_ms: int,
    *,
    listener: AsyncTransactionListener,
    call: Submits,
) -> TransactionResult:
    """Store a half message, run the local transaction, and send its outcome to the node.

    Args:
        wire: The interface definitions.
        group: The producer group.
        message, arg, timeout_ms: As of `TransactionProducer.send_in_transaction`, which also says what is raised.
        listener: Runs the local transaction.
        call: Makes the calls.
    """
    half, attempts = await call(half_request(wire_message(wire, message), group, timeout_ms))
    # The half is stored: whatever the program's own code raises must not look like a failed send.
    state, remark = state_of(await _answer(listener.execute, executed_message(message, half), arg))
    decision = decision_of(wire, group, half.handle or "", state, remark, from_check=False)
    problem = ""
    try:
        await call(end_request(decision, timeout_ms))
    except (ClientError, ClientMisuse) as error:
        # Misuse: the producer was closed meanwhile.
        problem = str(error)
    return transaction_result(half, state, remark, problem, attempts)


async def _answer(listener: Callable[..., Awaitable[object]], *arguments: object) -> object:
    """Return what a listener answers; whatever the program's own code raises is an answer too."""
    try:
        return await listener(*arguments)
    except Exception as error:
        return error


async def _report(connection: Conversation, answer: Any) -> None:
    try:
        await connection.call("endTransaction", {"decision": answer}, _ANSWER_MARGIN_MS)
    except Unreachable:
        # The connection may have been the one that closing interrupted.
        await connection.call("endTransaction", {"decision": answer}, _ANSWER_MARGIN_MS)


def state_of(answer: object) -> tuple[LocalState, str]:
    """State that a listener's answer means, and a remark when it is none: an exception is an answer, not known."""
    return (LocalState.UNKNOWN, remark_of(answer)) if isinstance(answer, Exception) else judged(answer)


def decision_of(wire: Any, group: str, handle: str, state: LocalState, remark: str, *, from_check: bool) -> Any:
    """Build the decision on a transaction."""
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
