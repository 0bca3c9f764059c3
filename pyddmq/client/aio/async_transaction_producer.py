"""The producer of transactions of an event loop; see `pyddmq.client.transaction_producer`."""

from __future__ import annotations

import asyncio
from typing import Any, Self, TypeVar

from pyddmq.client.aio.async_connection import AsyncConnection
from pyddmq.client.aio.async_producer import AsyncProducer
from pyddmq.client.checks import CLOSE_SECONDS, run_transaction
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.requests import NodeRequest
from pyddmq.client.sends import OutgoingMessage
from pyddmq.client.settings import TransactionSending
from pyddmq.client.transactions import AsyncTransactionListener, TransactionResult

T = TypeVar("T")


class AsyncTransactionProducer(TransactionSending[AsyncTransactionListener], AsyncProducer):
    """As `TransactionProducer`, for asyncio: an asynchronous context manager that the tasks of one event loop share.

    `start`, or entering the context, begins to answer the node's checks in a task with a connection of its own.
    Transactions of several tasks are under way together.
    """

    def _begin_checks(self, listener: AsyncTransactionListener) -> None:
        self._listener = listener
        self._check_connection: AsyncConnection = self._new_connection()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to answer checks; harmless the second time. Raises ClientMisuse: it belongs to another event loop."""
        loop = self._check_loop()
        if self._task is None and not self._closing.is_set():
            self._task = loop.create_task(
                self._checks.run(self._check_connection, self._listener, self._pause, self._closing.is_set)
            )

    async def send_in_transaction(
        self, message: OutgoingMessage, arg: Any = None, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Store a half message, run the local transaction, and send its outcome to the node.

        As `TransactionProducer.send_in_transaction`. After a cancellation `check` decides the transaction.

        Args:
            message: What is delivered on commit. A delay begins with the commit.
            arg: Handed to `execute`.
            timeout_ms: In the place of the producer's own.

        Raises:
            Unreachable: No answer; if `sent` is true, the half may be stored: `check` is then called with an id that
                `execute` never saw.
            SendRefused: The node refused the half; `execute` has not run.
            ClientMisuse: The body is not bytes, or the producer is closed.
        """
        self.start()
        timeout_ms = timeout_ms or self._timeout_ms
        return await run_transaction(
            self._idl, self.group, message, arg, timeout_ms, listener=self._listener, call=self._call
        )

    async def _call(self, request: NodeRequest[T]) -> T:
        return await (await self._submit(request))

    async def close(self) -> None:
        """End the task that answers checks, once the one it is at has been answered, and close both connections.

        Raises:
            ClientMisuse: Called from `check`.
        """
        task = self._task
        if task is not None and asyncio.current_task() is task:
            raise ClientMisuse("a listener cannot close its own producer; close it from another task")
        self._closing.set()
        if task is not None:
            if self._checks.is_fetching:
                self._check_connection.close()
            _, late = await asyncio.wait([task], timeout=CLOSE_SECONDS)
            for each in late:
                each.cancel()
        await self._check_connection.end()
        await super().close()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until the producer is closed."""
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait([closing], timeout=seconds)
        closing.cancel()
