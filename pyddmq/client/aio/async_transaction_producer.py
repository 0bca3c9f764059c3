"""The producer of transactions of an event loop; see `pyddmq.client.transaction_producer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self, TypeVar

from pyddmq.client.aio.async_connection import AsyncConnection
from pyddmq.client.aio.async_producer import AsyncProducer
from pyddmq.client.checks import CLOSE_SECONDS, Checks, run_transaction
from pyddmq.client.codec import WireProtocol
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.requests import Request
from pyddmq.client.sends import IN_FLIGHT_MAX, OutgoingMessage
from pyddmq.client.tls import Tls
from pyddmq.client.tokens import Token
from pyddmq.client.transactions import AsyncTransactionListener, TransactionResult

T = TypeVar("T")


class AsyncTransactionProducer(AsyncProducer):
    """As `TransactionProducer`, for asyncio: an asynchronous context manager that the tasks of one event loop share.

    `start`, or entering the context, begins to answer the node's checks in a task with a connection of its own.
    Transactions of several tasks are under way together.
    """

    _service = "TransactionProducerService"

    def __init__(
        self,
        address: str,
        group: str,
        listener: AsyncTransactionListener,
        *,
        timeout_ms: int = 5000,
        resends: int = 1,
        resend_pause_ms: int = 50,
        protocol: WireProtocol = "binary",
        tls: Tls | None = None,
        token: Token | None = None,
        on_resend: Callable[[Exception], None] | None = None,
        deduplicate: bool = True,
        patience_ms: int = 0,
        in_flight_max: int = IN_FLIGHT_MAX,
        check_batch_size: int = 16,
        check_linger_ms: int = 15_000,
        on_check_error: Callable[[Exception], None] | None = None,
    ) -> None:
        """Set up; `start` begins to answer checks, the first send opens the other connection.

        Args:
            address: As for `AsyncProducer`, like those up to `in_flight_max`.
            group: As for `TransactionProducer`, like the last three.
            listener: Runs local transactions and knows what became of them.
            timeout_ms: How long the node may take for a half, and for a decision.
            resends: How often a half is sent again, and a decision that was not answered.
            resend_pause_ms: Wait before each.
            protocol: "binary" or "compact".
            tls: For an address by TLS: the CA, and what the client shows.
            token: Who this is, for nodes with rules: a token, or the path of its file. Left out: PYDDMQ_TOKEN_FILE or
                PYDDMQ_TOKEN of the environment; "" for none.
            on_resend: Called with the failure before each.
            deduplicate: Number messages.
            patience_ms: How long a send goes on, beyond `resends`, while nobody answers.
            in_flight_max: Calls under way at the same time.
            check_batch_size: Checks fetched at once.
            check_linger_ms: How long a fetch waits at the node.
            on_check_error: Told of each fetch that failed.

        Raises:
            ClientMisuse: A malformed address, no group, unknown protocol, or a number out of range.
        """
        super().__init__(
            address,
            timeout_ms=timeout_ms,
            resends=resends,
            resend_pause_ms=resend_pause_ms,
            protocol=protocol,
            tls=tls,
            token=token,
            on_resend=on_resend,
            deduplicate=deduplicate,
            patience_ms=patience_ms,
            in_flight_max=in_flight_max,
        )
        self.group = group
        self._listener = listener
        self._checks = Checks(
            self._idl, group, batch_size=check_batch_size, linger_ms=check_linger_ms, on_error=on_check_error
        )
        self._check_connection = AsyncConnection(
            address, self._idl.TransactionProducerService, protocol=protocol, tls=tls, token=token
        )
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
        """Store a message half, run the local transaction, and tell the node its outcome.

        As `TransactionProducer.send_in_transaction`. Who is cancelled meanwhile leaves the rest to `check`.

        Args:
            message: What is delivered on commit. A delay begins with the commit.
            arg: Handed to `execute`.
            timeout_ms: In the place of the producer's own.

        Raises:
            Unreachable: No answer; where its `sent` says so the half may be stored: `check` is asked about an id that
                `execute` never saw.
            SendRefused: The node refused the half; `execute` has not run.
            ClientMisuse: The body is no bytes, or the producer is closed.
        """
        self.start()
        timeout_ms = timeout_ms or self._timeout_ms
        return await run_transaction(
            self._idl, self.group, message, arg, timeout_ms, listener=self._listener, call=self._call
        )

    async def _call(self, request: Request[T]) -> T:
        return await (await self._submit(request))

    async def close(self) -> None:
        """End the task that answers checks, once the one it is at has been answered, and close both connections.

        Raises:
            ClientMisuse: Called from `check`.
        """
        task = self._task
        if task is not None and asyncio.current_task() is task:
            raise ClientMisuse("a listener cannot close its own producer: close it from another task")
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
