"""The producer of transactions of an event loop; see `pyddmq.client.transaction_producer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from pyddmq.client.aio.async_connection import AsyncConnection
from pyddmq.client.aio.async_producer import AsyncProducer
from pyddmq.client.checks import CLOSE_SECONDS, Checks, checked_message, decision_of, state_of
from pyddmq.client.codec import WireProtocol
from pyddmq.client.errors import ClientError, ClientMisuse
from pyddmq.client.sends import HALF, IN_FLIGHT_MAX, OutgoingMessage, wire_message
from pyddmq.client.tls import Tls
from pyddmq.client.tokens import Token
from pyddmq.client.transactions import (
    AsyncTransactionListener,
    TransactionResult,
    executed_message,
    half_arguments,
    transaction_result,
)


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
        self._checks = Checks(self._idl, group, batch_size=check_batch_size, linger_ms=check_linger_ms)
        self._check_connection = AsyncConnection(
            address, self._idl.TransactionProducerService, protocol=protocol, tls=tls, token=token
        )
        self._on_check_error = on_check_error
        self._closing = asyncio.Event()
        self._fetching = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to answer checks; harmless the second time. Raises ClientMisuse: it belongs to another event loop."""
        loop = self._check_loop()
        if self._task is None and not self._closing.is_set():
            self._task = loop.create_task(self._answer_checks())

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
        sent = wire_message(self._idl, message)
        arguments = half_arguments(sent, self.group, timeout_ms)
        half, attempts = await (await self._submit(HALF, arguments, timeout_ms, [sent], _both))
        answer: object
        try:
            answer = await self._listener.execute(executed_message(message, half), arg)
        except Exception as error:
            # The half is stored: whatever the program's own code raises must not look like a failed send.
            answer = error
        state, remark = state_of(answer)
        decision = decision_of(self._idl, self.group, half.handle or "", state, remark, from_check=False)
        problem = ""
        try:
            await (await self._submit("endTransaction", {"decision": decision}, timeout_ms, (), _both))
        except (ClientError, ClientMisuse) as error:
            # Misuse: another task has closed the producer meanwhile.
            problem = str(error)
        return transaction_result(half, state, remark, problem, attempts)

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
            if self._fetching:
                self._check_connection.close()
            _, late = await asyncio.wait([task], timeout=CLOSE_SECONDS)
            for each in late:
                each.cancel()
        await self._check_connection.end()
        await super().close()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def _answer_checks(self) -> None:
        while not self._closing.is_set():
            try:
                checks = await self._fetch()
            except ClientError as error:
                if self._closing.is_set():
                    break
                self._tell_error(error)
                await self._pause(self._checks.pause_seconds())
                continue
            for check in checks:
                self._checks.answered(check, await self._answer(check))
                if self._closing.is_set():
                    # The node asks another process, or this one again, once the lease has passed.
                    break
        try:
            # One by one: a fetch might bring new checks that nobody would answer.
            for answer in self._checks.answers:
                await self._call_about_checks("endTransaction", {"decision": answer}, self._checks.tell_timeout_ms)
        except ClientError as error:
            self._tell_error(error)

    async def _fetch(self) -> list[Any]:
        self._fetching = True
        try:
            timeout_ms = self._checks.fetch_timeout_ms
            return self._checks.fetched(await self._call_about_checks("fetchChecks", self._checks.fetch(), timeout_ms))
        finally:
            self._fetching = False

    async def _call_about_checks(self, method: str, arguments: dict[str, object], timeout_ms: int) -> Any:
        connection = self._check_connection
        await connection.open(timeout_ms=timeout_ms)
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        sequence = connection.write(method, arguments)
        return await connection.answer(method, sequence, deadline=deadline, timeout_ms=timeout_ms)

    async def _answer(self, check: Any) -> object:
        try:
            return await self._listener.check(checked_message(check))
        except Exception as error:
            # Whatever the program's own code raises is an answer.
            return error

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until the producer is closed."""
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait([closing], timeout=seconds)
        closing.cancel()

    def _tell_error(self, error: ClientError) -> None:
        if self._on_check_error is not None:
            self._on_check_error(error)


def _both(result: Any, attempts: int) -> tuple[Any, int]:
    return result, attempts
