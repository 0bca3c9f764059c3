"""Answers the node's checks in the background: fetches them over a connection of its own, asks the listener, answers.

Answers ride on the next fetch. A fetch that was not answered keeps them, and they go out again over a new connection:
telling a decision twice does no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pyddmq.client.connection import Connection
from pyddmq.client.errors import ClientError, ClientMisuse, Unreachable
from pyddmq.client.transactions import LocalState, TransactionListener, TransactionMessage, judged, remark_of

PAUSE_MS_FIRST = 100
PAUSE_MS_MAX = 5000
_ANSWER_MARGIN_MS = 5000
_CLOSE_STEP_SECONDS = 0.05


class CheckThread:
    """One background thread that answers the checks of a producer group.

    Args:
        connection: Its own; nobody else uses it.
        wire: The interface definitions.
        group: The producer group.
        listener: Knows what became of transactions.
        batch_size: Checks of one fetch at most; another process may ask for those that are left.
        linger_ms: How long a fetch waits at the node.
        on_error: Told of each fetch that failed; called in the thread.
    """

    def __init__(
        self,
        connection: Connection,
        wire: Any,
        *,
        group: str,
        listener: TransactionListener,
        batch_size: int,
        linger_ms: int,
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self._connection = connection
        self._wire = wire
        self._group = group
        self._listener = listener
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._on_error = on_error
        self._closing = threading.Event()
        self._fetching = False
        self._answers: list[Any] = []
        self._thread = threading.Thread(target=self._run, name=f"checks-of-{group}", daemon=True)

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def close(self, timeout_seconds: float) -> bool:
        """Fetch no more, tell what has been answered, and wait for the thread.

        Returns:
            Whether it has ended in time; a listener that is still at work is left alone.

        Raises:
            ClientMisuse: Called by the listener itself.
        """
        if threading.current_thread() is self._thread:
            raise ClientMisuse("a listener cannot close its own producer: close it from another thread")
        self._closing.set()
        for _ in range(max(1, round(timeout_seconds / _CLOSE_STEP_SECONDS))):
            if self._fetching:
                # Again and again: it may just be about to connect.
                self._connection.interrupt()
            self._thread.join(_CLOSE_STEP_SECONDS)
            if not self._thread.is_alive():
                return True
        return False

    def _run(self) -> None:
        pause_ms = PAUSE_MS_FIRST
        while not self._closing.is_set():
            try:
                checks = self._fetch(self._batch_size, self._linger_ms)
            except ClientError as error:
                if self._closing.is_set():
                    break
                if self._on_error is not None:
                    self._on_error(error)
                self._closing.wait(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)
                continue
            pause_ms = PAUSE_MS_FIRST
            for check in checks:
                self._answers.append(self._answer(check))
                if self._closing.is_set():
                    # The node asks another process, or this one again, once the lease has passed.
                    break
        self._tell_rest()

    def _fetch(self, batch_size: int, linger_ms: int) -> list[Any]:
        request = self._wire.CheckRequest(
            producerGroup=self._group,
            maxBatchSize=batch_size,
            maxLingerTime=linger_ms,
            answers=self._answers or None,
        )
        self._fetching = True
        try:
            checks = self._connection.call(
                "fetchChecks", {"request": request}, timeout_ms=linger_ms + _ANSWER_MARGIN_MS
            )
        finally:
            self._fetching = False
        self._answers.clear()
        return list(checks or ())

    def _answer(self, check: Any) -> Any:
        state, remark = LocalState.UNKNOWN, ""
        try:
            state, remark = judged(self._listener.check(checked_message(check)))
        except Exception as error:
            # Whatever the program's own code raises is an answer: not known.
            remark = remark_of(error)
        return self._wire.EndTransaction(
            producerGroup=self._group, handle=check.handle, state=int(state), fromCheck=True, remark=remark or None
        )

    def _tell_rest(self) -> None:
        """Tell the last answers one by one: a fetch might bring new checks that nobody would answer."""
        for answer in self._answers:
            try:
                self._tell(answer)
            except ClientError as error:
                if self._on_error is not None:
                    self._on_error(error)
                break
        self._connection.close()

    def _tell(self, answer: Any) -> None:
        try:
            self._connection.call("endTransaction", {"decision": answer}, timeout_ms=_ANSWER_MARGIN_MS)
        except Unreachable:
            # The connection may have been the one that `close` interrupted.
            self._connection.call("endTransaction", {"decision": answer}, timeout_ms=_ANSWER_MARGIN_MS)


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
