"""The producer of transactions of an event loop; see `pyddmq.client.transaction_producer`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Self, TypeVar

from pyddmq.client.aio.async_connection import AsyncConnection
from pyddmq.client.aio.async_producer import AsyncProducer
from pyddmq.client.checks import CLOSE_SECONDS, ProducerGroupChecks, run_transaction
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.requests import NodeRequest
from pyddmq.client.sends import OutgoingMessage
from pyddmq.client.settings import TransactionSending
from pyddmq.client.transactions import AsyncTransactionListener, LocalState, TransactionMessage, TransactionResult

T = TypeVar("T")
_CLOSE_STEP_SECONDS = 0.05


class _Failing:
    """A listener as it is awaited: a cancellation of something that it waited for is a failure of its own.

    As one of the task it would end all checks, silently, or the program that sends.
    """

    def __init__(self, listener: AsyncTransactionListener) -> None:
        self._listener = listener

    async def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Run a local transaction."""
        return await _or_failure(self._listener.execute(message, arg))

    async def check(self, message: TransactionMessage) -> LocalState | None:
        """Say what became of one."""
        return await _or_failure(self._listener.check(message))


async def _or_failure(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it raised CancelledError") from error


class AsyncTransactionProducer(TransactionSending[AsyncTransactionListener], AsyncProducer):
    """As `TransactionProducer`, for asyncio: an asynchronous context manager that the tasks of one event loop share.

    `start`, or entering the context, begins to answer the node's checks in a task with a connection of its own.
    Transactions of several tasks are under way together.
    """

    def _begin_checks(
        self, listener: AsyncTransactionListener, checks: Sequence[tuple[AsyncConnection, ProducerGroupChecks]]
    ) -> None:
        self._listener = _Failing(listener)
        self._checks = checks
        self._closing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to answer checks; harmless the second time. Raises ClientMisuse: it belongs to another event loop."""
        loop = self._check_loop()
        if not self._tasks and not self._closing.is_set():
            self._tasks = [
                loop.create_task(each.run(connection, self._listener, self._pause, self._closing.is_set))
                for connection, each in self._checks
            ]

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
        """End the tasks that answer checks, once the ones they are at have been answered, and close all connections.

        Raises:
            ClientMisuse: Called from `check`.
        """
        if asyncio.current_task() in self._tasks:
            raise ClientMisuse("a listener cannot close its own producer; close it from another task")
        self._closing.set()
        late, ends = set(self._tasks), asyncio.get_running_loop().time() + CLOSE_SECONDS
        while late and asyncio.get_running_loop().time() < ends:
            for connection, each in self._checks:
                if each.is_fetching:
                    # Again and again: it may just be about to connect.
                    connection.close()
            _, late = await asyncio.wait(late, timeout=_CLOSE_STEP_SECONDS)
        for task in late:
            task.cancel()
        for connection, _ in self._checks:
            await connection.end()
        await super().close()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until the producer is closed."""
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait([closing], timeout=seconds)
        closing.cancel()
