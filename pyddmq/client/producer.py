"""A synchronous producer: one connection, one call at a time, for any number of threads."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pyddmq.client.calls import run_now
from pyddmq.client.connection import Connection
from pyddmq.client.delays import CancelOutcome, Moment, cancel_request, delay_message, delay_request
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.ordered_sends import OrderedSends, Send
from pyddmq.client.requests import Body, NodeRequest
from pyddmq.client.sends import (
    HASH_ID_ABSENT,
    PARTITION_BY_HASH,
    OutgoingMessage,
    SendReceipt,
    batch_request,
    send_request,
)
from pyddmq.client.settings import Sending

if TYPE_CHECKING:
    from pyddmq.client.background_sends import SendFuture, SoonSends

T = TypeVar("T")

_CLOSE_STEP_SECONDS = 0.05
_alive: weakref.WeakSet[Producer] = weakref.WeakSet()
"""All that a fork copies."""


def _begin_in_child() -> None:
    for each in tuple(_alive):
        each._begin_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)


class Producer(Sending):
    """Sends messages to one node; a context manager. Threads may share it: their calls go one after the other.

    A message is sent again at most `resends` times after a failure that may be temporary: no answer, or the codes 10,
    12, 15 and 20. DDMQ's SDK resends twice without a report (S9). Here the default is one resend, the receipt counts
    the attempts, and `on_resend` is called for each. Messages are numbered: if the first attempt was stored, the resend
    is answered with its receipt and stores nothing twice. Only a node without numbers (DDMQ's own) stores a duplicate.
    Resends never change the order: no other message is sent before, and messages of `send_soon` are numbered. After a
    fork, that of the child has a connection and a name of its own; sends under way are the parent's.
    """

    _connection_class = Connection

    def _begin(self) -> None:
        _alive.add(self)
        self._connection: Connection = self._new_connection()
        self._soon: SoonSends | None = None
        self._closing = threading.Event()
        self._calling = threading.RLock()
        self._is_calling = False
        self._sends = OrderedSends(
            self._connection.conversation, self._resending, self._pause, in_flight_max=1, deduplicate=self._deduplicate
        )

    def _begin_in_child(self) -> None:
        """Let go what the parent uses: two messages of one number would be stored once, and both reported as stored."""
        if not self._closing.is_set():
            self._connection.close()
            Producer._begin(self)

    def connect(self) -> None:
        """Open the connection now. Raises CannotConnect, or ClientMisuse: the producer is closed."""
        with self._alone():
            self._connection.open(timeout_ms=self._timeout_ms)

    def send(
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
            topic: See `OutgoingMessage`, as for the fields up to `partition_id`.
            body: The message's bytes.
            key: Message key.
            tags: RocketMQ tags.
            properties: User properties.
            hash_id: Queue by hash.
            partition_id: Queue by number.
            delay_level: Delivered after the delay of that level; the receipt then has no queue and offset.
            deliver_at_ms: Delivered at that moment, ms since the epoch; likewise, and the receipt has a handle.
            delay_ms: Delivered this number of ms after receipt; likewise.
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
        return self._call(send_request(self._idl, message, timeout_ms or self._timeout_ms))

    def send_soon(self, message: OutgoingMessage, *, timeout_ms: int | None = None) -> SendFuture:
        """Have a message sent behind those before it, in the background; waits for room only.

        Up to `in_flight_max` messages are in flight over a separate connection. They are stored in the order of the
        calls, also when some have to be sent again. Other calls of this producer wait for them. `on_resend` is called
        in the background.

        Returns:
            A future of its receipt. Its exception is what `send` raises; `flush` raises the first one that was not
            read.

        Raises:
            ClientMisuse: The body is not bytes, or the producer is closed.
        """
        request = send_request(self._idl, message, timeout_ms or self._timeout_ms)
        return (self._soon or self._begin_soon()).submit(request)

    def flush(self) -> None:
        """Wait until all earlier messages of `send_soon` have ended. Leaving a `with` block does so, too.

        Raises:
            ClientError: The first failure whose future was not read.
            ClientMisuse: Called by `on_resend`.
        """
        self._wait_for_soon()
        if self._soon is not None:
            self._soon.raise_failure()

    def send_batch(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int | None = None) -> list[SendReceipt]:
        """Send several messages that are stored together or not at all (D8).

        Returns:
            One receipt per message, in the order given; empty for no messages.

        Raises:
            Unreachable: No answer; the batch may be stored when its `sent` says so.
            SendRefused: The node refused the batch; nothing of it is stored unless `stored` says None.
            ClientMisuse: As for `send`.
        """
        if not messages:
            return []
        return self._call(batch_request(self._idl, messages, timeout_ms or self._timeout_ms))

    def send_delay(
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
        """Send a message that is delivered at a moment, or again and again (docs/loops.md).

        Sent again after a lost answer it is still one message: the node knows it by its id.

        Args:
            topic: Name of the topic.
            body: The message's bytes.
            at: Time of the first delivery, rounded up to the second; a past time means now.
            every: Makes it a loop: seconds from one delivery to the next, at least 3.
            growth: Makes it a loop with growing gaps: of growth, growth squared, ... seconds, at most a day.
            times: Deliveries of a loop; without it `expire` ends it.
            expire: No delivery of a loop is for a moment after this; without it `times` ends it.
            tags: RocketMQ tags.
            properties: User properties.
            timeout_ms: In the place of the producer's own.

        Returns:
            Its id, DDMQ's uniqDelayMsgId, which `cancel_delay` takes. Deliveries have ids of their own, as key.

        Raises:
            ClientMisuse: `every` and `growth` together, a loop without an end, or an end without a loop; a time without
                a zone; a body that is not bytes; or the producer is closed.
            Unreachable: No answer; the message may be stored when its `sent` says so.
            SendRefused: The node refused it.
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
        return self._call(delay_request(message, timeout_ms or self._timeout_ms))

    def cancel_delay(self, delay_id: str, topic: str, *, timeout_ms: int | None = None) -> CancelOutcome:
        """Have a message of `send_delay` not delivered, or no more; may be repeated.

        Args:
            delay_id: Its id, or that of any delivery of a loop.
            topic: Where it was sent to.
            timeout_ms: In the place of the producer's own.

        Raises:
            Unreachable: No answer; the cancel may be in force.
            SendRefused: The node refused it; code 30 means that this is not a valid id.
        """
        return self._call(cancel_request(self._idl, delay_id, topic, timeout_ms or self._timeout_ms))

    def close(self) -> None:
        """Close the connection; calls in other threads, and messages of `send_soon` in flight, are abandoned.

        Harmless the second time.

        Raises:
            ClientMisuse: Called by `on_resend` in the background.
        """
        self._check_thread()
        self._closing.set()
        self._sends.close()
        if self._soon is not None:
            self._soon.close()
        while not self._calling.acquire(timeout=_CLOSE_STEP_SECONDS):
            # Again and again: it may just be about to connect.
            self._connection.interrupt()
        try:
            self._connection.close()
        finally:
            self._calling.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def _begin_soon(self) -> SoonSends:
        # Here, because most programs have no use for an event loop.
        from pyddmq.client.aio.async_connection import AsyncConnection
        from pyddmq.client.aio.async_producer import LoopSends
        from pyddmq.client.background_sends import SoonSends

        def sends() -> LoopSends:
            connection = AsyncConnection(self.address, getattr(self._idl, self._service), **self._network)
            return LoopSends(
                connection, self._resending, in_flight_max=self._in_flight_max, deduplicate=self._deduplicate
            )

        with self._alone():
            if self._soon is None:
                self._soon = SoonSends(sends, in_flight_max=self._in_flight_max)
            return self._soon

    def _wait_for_soon(self) -> None:
        self._check_thread()
        if self._soon is not None:
            self._soon.wait()

    def _check_thread(self) -> None:
        if self._soon is not None and self._soon.is_own_thread:
            raise ClientMisuse("on_resend cannot call its own producer, whose call is still running")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads' calls apart from this one. Raises ClientMisuse: closed, or called by `on_resend`."""
        with self._calling:
            self._begin_call()
            try:
                yield
            finally:
                self._is_calling = False

    def _begin_call(self) -> None:
        if self._closing.is_set():
            raise ClientMisuse("this producer is closed; create a new one")
        if self._is_calling:
            raise ClientMisuse("on_resend cannot call its own producer, whose call is still running")
        self._is_calling = True

    def _call(self, request: NodeRequest[T]) -> T:
        """Call with the resend policy, and return what is made of the result."""
        if self._soon is not None:
            self._wait_for_soon()
        ended: list[tuple[Any, int, BaseException | None]] = []
        # As `_alone`, which costs a call more.
        with self._calling:
            self._begin_call()
            try:
                self._sends.submit(Send(request, lambda *end: ended.append(end)))
                run_now(self._sends.run())
            except BaseException:
                self._sends.abandon()
                raise
            finally:
                self._is_calling = False
        [(result, attempts, error)] = ended
        if error is not None:
            raise error
        return request.made(result, attempts)

    async def _pause(self, seconds: float) -> bool:
        return not self._closing.wait(seconds)
