"""The producer of an event loop: sends of any number of tasks are under way together, in the order of their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from pyddmq.client.aio.async_connection import AsyncConnection
from pyddmq.client.delays import CancelOutcome, Moment, cancel_request, delay_message, delay_request
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.ordered_sends import OrderedSends, Send
from pyddmq.client.requests import Body, NodeRequest
from pyddmq.client.sends import (
    HASH_ID_ABSENT,
    PARTITION_BY_HASH,
    OutgoingMessage,
    Resending,
    SendReceipt,
    batch_request,
    send_request,
)
from pyddmq.client.settings import Sending

# Sends under way together in an event loop: a task runs `OrderedSends` while there are any.


class LoopSends:
    """Belongs to one event loop. The arguments are those of `OrderedSends`."""

    def __init__(
        self, connection: AsyncConnection, resending: Resending, *, in_flight_max: int, deduplicate: bool
    ) -> None:
        self._connection = connection
        self._sends = OrderedSends(connection, resending, _pause, in_flight_max=in_flight_max, deduplicate=deduplicate)
        self._task: asyncio.Task[None] | None = None
        self.withdraw = self._sends.withdraw

    async def connect(self, timeout_ms: int) -> None:
        """Open the connection now. Raises CannotConnect, or ClientMisuse: it is closed."""
        self._sends.check_open()
        if self._task is None:
            await self._connection.open(timeout_ms=timeout_ms)

    def submit(self, send: Send) -> None:
        """Take a send; it goes out behind those before it. Raises ClientMisuse: it is closed."""
        self._sends.submit(send)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._sends.run()
        except Exception:
            # A fault of ours: no caller is to wait forever.
            self._sends.close()
            self._sends.give_up()
            raise
        finally:
            self._task = None

    async def close(self) -> None:
        """Give up what is under way, and close the connection. Harmless the second time."""
        self._sends.close()
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._connection.end()
        self._sends.give_up()


async def _pause(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return True


T = TypeVar("T")


class AsyncProducer(Sending):
    """As `Producer`, for asyncio: an asynchronous context manager that the tasks of one event loop share.

    Up to `in_flight_max` sends are in flight over one connection; further sends wait for room. They are stored in the
    order of the calls, also when some have to be sent again. A cancelled task does not affect other sends. Its message
    is not sent if it was still waiting; otherwise it may or may not be stored.
    """

    _connection_class = AsyncConnection

    def _begin(self) -> None:
        self._sends = LoopSends(
            self._new_connection(),
            self._resending,
            in_flight_max=self._in_flight_max,
            deduplicate=self._deduplicate,
        )
        self._room = asyncio.Semaphore(self._in_flight_max)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waited_for: set[asyncio.Future[Any]] = set()

    async def connect(self) -> None:
        """Open the connection now. Raises CannotConnect, or ClientMisuse: the producer is closed."""
        self._check_loop()
        await self._sends.connect(self._timeout_ms)

    async def send(
        self,
        topic: str,
        body: Body,
        *,
        key: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        hash_id: int = HASH_ID_ABSENT,
        partition_id: int = PARTITION_BY_HASH,
        delay_level: int = 0,
        deliver_at_ms: int = 0,
        delay_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send one message and wait until it is stored as durably as the node promises.

        Args:
            topic: See `Producer.send`, as for the others.
            body: The message's bytes.
            key: Message key.
            tags: RocketMQ tags.
            properties: User properties.
            hash_id: Queue by hash.
            partition_id: Queue by number.
            delay_level: Delivered after the delay of that level.
            deliver_at_ms: Delivered at that moment, ms since the epoch.
            delay_ms: Delivered this number of ms after receipt.
            timeout_ms: In the place of the producer's own.

        Raises:
            Unreachable: No answer; the message may be stored when its `sent` says so.
            SendRefused: The node refused it; the subclass and `code` say why, `stored` whether it may be stored.
            ClientMisuse: The body is not bytes, a value does not fit its field, or the producer is closed.
        """
        message = OutgoingMessage(
            topic=topic,
            body=body,
            key=key,
            tags=tags,
            properties=properties,
            hash_id=hash_id,
            partition_id=partition_id,
            delay_level=delay_level,
            deliver_at_ms=deliver_at_ms,
            delay_ms=delay_ms,
        )
        return await (await self.send_soon(message, timeout_ms=timeout_ms))

    async def send_soon(
        self, message: OutgoingMessage, *, timeout_ms: int | None = None
    ) -> asyncio.Future[SendReceipt]:
        """Have a message sent behind those before it; waits for room only.

        Returns:
            A future of its receipt. Its exception is what `send` raises; the loop logs an exception that is never
            retrieved.

        Raises:
            ClientMisuse: The body is not bytes, or the producer is closed.
        """
        return await self._submit(send_request(self._idl, message, timeout_ms or self._timeout_ms))

    async def send_batch(
        self, messages: Sequence[OutgoingMessage], *, timeout_ms: int | None = None
    ) -> list[SendReceipt]:
        """Send several messages that are stored together or not at all (D8); see `Producer.send_batch`.

        Raises:
            Unreachable: No answer; the batch may be stored when its `sent` says so.
            SendRefused: The node refused the batch; nothing of it is stored unless `stored` says None.
            ClientMisuse: As for `send`.
        """
        if not messages:
            return []
        return await (await self._submit(batch_request(self._idl, messages, timeout_ms or self._timeout_ms)))

    async def send_delay(
        self,
        topic: str,
        body: Body,
        *,
        at: Moment,
        every: int | None = None,
        growth: int | None = None,
        times: int | None = None,
        expire: Moment | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> str:
        """Send a message that is delivered at a moment, or again and again; see `Producer.send_delay`.

        Args:
            topic: Name of the topic.
            body: The message's bytes.
            at: When it is delivered first.
            every: Makes it a loop: seconds from one delivery to the next.
            growth: Makes it a loop with growing gaps.
            times: Deliveries of a loop.
            expire: No delivery of a loop is for a moment after this.
            tags: RocketMQ tags.
            properties: User properties.
            timeout_ms: In the place of the producer's own.

        Returns:
            Its id, which `cancel_delay` takes.

        Raises:
            ClientMisuse, Unreachable, SendRefused: As for `Producer.send_delay`.
        """
        message = delay_message(
            self._idl,
            topic,
            body,
            at=at,
            every=every,
            growth=growth,
            times=times,
            expire=expire,
            tags=tags,
            properties=properties,
        )

        return await (await self._submit(delay_request(message, timeout_ms or self._timeout_ms)))

    async def cancel_delay(self, delay_id: str, topic: str, *, timeout_ms: int | None = None) -> CancelOutcome:
        """Have a message of `send_delay` not delivered, or no more; may be repeated.

        Raises:
            Unreachable: No answer; the cancel may be in force.
            SendRefused: The node refused it; code 30 means that this is not a valid id.
        """
        request = cancel_request(self._idl, delay_id, topic, timeout_ms or self._timeout_ms)
        return await (await self._submit(request))

    async def flush(self) -> None:
        """Wait until all earlier sends have ended, with or without success."""
        if self._waited_for:
            await asyncio.wait(tuple(self._waited_for))

    async def close(self) -> None:
        """Close the connection; calls in flight are abandoned and raise. A second call has no effect."""
        await self._sends.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

    async def _submit(self, request: NodeRequest[T]) -> asyncio.Future[T]:
        """Wait for room and hand a call over; returns a future of what is made of its result."""
        loop = self._check_loop()
        await self._room.acquire()
        future: asyncio.Future[T] = loop.create_future()

        def done(result: Any, attempts: int, error: BaseException | None) -> None:
            self._room.release()
            if future.done():
                return
            if error is None:
                future.set_result(request.made(result, attempts))
            else:
                future.set_exception(error)

        send = Send(request, done)
        try:
            self._sends.submit(send)
        except BaseException:
            self._room.release()
            raise
        self._waited_for.add(future)
        future.add_done_callback(partial(self._ended, send))
        return future

    def _ended(self, send: Send, future: asyncio.Future[Any]) -> None:
        self._waited_for.discard(future)
        if future.cancelled() and self._sends.withdraw(send):
            self._room.release()

    def _check_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise ClientMisuse("this producer belongs to another event loop; give each loop its own producer")
        return loop
