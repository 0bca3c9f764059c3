"""A synchronous producer: one connection, one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from proxy import idl
from proxy.client.connection import Connection, WireProtocol
from proxy.client.delays import DelayedSends
from proxy.client.errors import ClientMisuse, SendRefused, Unreachable, send_refusal

HASH_ID_ABSENT = 0
"""On the wire an absent hashId and 0 are the same: the key chooses the queue then (D7)."""
PARTITION_BY_HASH = -1
PARTITION_RANDOM = -2

ANSWER_MARGIN_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One message to send.

    Attributes:
        topic: Name of the topic.
        body: The bytes that consumers get; at least one.
        key: Message key; chooses the queue when neither `partition_id` nor `hash_id` does.
        tags: RocketMQ's TAGS, what a subscription's tag filter looks at.
        properties: User properties.
        hash_id: Chooses the queue as |hash_id| mod queues; 0 counts as absent (D7).
        partition_id: 0 and above: that queue mod queues; -1: by hash_id or key; -2 and below: random (R96).
        delay_level: Delivered after the delay of that level; 0: at once.
        deliver_at_ms: Delivered at that moment, ms since the epoch; 0 and the past: at once.
        delay_ms: Delivered so many ms after the node has received it; 0: at once. One of the three may be given.
    """

    topic: str
    body: bytes
    key: str | None = None
    tags: str | None = None
    properties: Mapping[str, str] | None = None
    hash_id: int = HASH_ID_ABSENT
    partition_id: int = PARTITION_BY_HASH
    delay_level: int = 0
    deliver_at_ms: int = 0
    delay_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReceipt:
    """Where one message was stored.

    Attributes:
        code: Always 0; other codes are exceptions.
        msg: The node's text.
        message_id: The unique key that the broker stamped on the message; "" when the node tells no receipts (DDMQ's).
        qid: Queue, `<cluster>_<broker>_<number>`; "" when not told, as of a delayed message.
        offset: Offset in the queue; -1 likewise.
        attempts: How often the message was sent: above 1 it may be stored more than once.
        handle: Names a message sent with `deliver_at_ms` or `delay_ms` for a later change of mind; "" for others.
    """

    code: int
    msg: str
    message_id: str
    qid: str
    offset: int
    attempts: int
    handle: str = ""


class Producer(DelayedSends):
    """Sends messages to one node; a context manager. One thread at a time uses it.

    A message is sent again at most `resends` times after a failure that another try may cure: no answer, or the codes
    10, 12, 15 and 20. DDMQ's SDK does so twice and tells nobody (S9); here the default is one resend, the receipt
    counts the attempts, and `on_resend` hears of each. A resend whose first try was stored after all makes a
    duplicate, never a reordering: nothing else is sent meanwhile.
    """

    _service = "ProducerService"

    def __init__(
        self,
        address: str,
        *,
        timeout_ms: int = 5000,
        resends: int = 1,
        resend_pause_ms: int = 50,
        protocol: WireProtocol = "binary",
        on_resend: Callable[[Exception], None] | None = None,
    ) -> None:
        """Set up; the connection is opened by the first send or `connect`.

        Args:
            address: `host:port` of the node's producer port.
            timeout_ms: How long the node may take for a send; the client waits one second more for its answer.
            resends: How often a failed send is tried again; 0 for never.
            resend_pause_ms: Wait before each resend.
            protocol: "binary" or "compact".
            on_resend: Called with the failure before each resend.

        Raises:
            ClientMisuse: A malformed address, unknown protocol or negative number.
        """
        if timeout_ms <= 0 or resends < 0 or resend_pause_ms < 0:
            raise ClientMisuse("timeout_ms must be above 0, resends and resend_pause_ms 0 or above")
        self._idl: Any = idl.load("producer")
        self._connection = Connection(address, getattr(self._idl, self._service), protocol=protocol)
        self._timeout_ms = timeout_ms
        self._resends = resends
        self._resend_pause_ms = resend_pause_ms
        self._on_resend = on_resend
        self._closing = threading.Event()

    @property
    def address(self) -> str:
        """The node's `host:port`."""
        return self._connection.address

    def connect(self) -> None:
        """Open the connection now. Raises CannotConnect."""
        self._connection.open(timeout_ms=self._timeout_ms)

    def send(
        self,
        topic: str,
        body: bytes,
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
            delay_ms: Delivered so many ms after receipt; likewise.
            timeout_ms: In the place of the producer's own.

        Raises:
            Unreachable: No answer; the message may be stored when its `sent` says so.
            SendRefused: The node refused it; the subclass and `code` say why.
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
        timeout_ms = timeout_ms or self._timeout_ms
        result, attempts = self._call("sendSync", {"message": self._encode(message), "timeout": timeout_ms}, timeout_ms)
        return _receipt(result, result.msg, attempts)

    def send_batch(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int | None = None) -> list[SendReceipt]:
        """Send several messages that are stored together or not at all (D8).

        Returns:
            One receipt per message, in the order given; empty for no messages.

        Raises:
            Unreachable: No answer; the batch may be stored when its `sent` says so.
            SendRefused: The node refused the batch; nothing of it is stored unless `stored` says None.
        """
        if not messages:
            return []
        timeout_ms = timeout_ms or self._timeout_ms
        arguments = {"messages": [self._encode(message) for message in messages], "receipts": True}
        result, attempts = self._call("sendBatchSync", arguments, timeout_ms)
        told = result.receipts
        if told is None or len(told) != len(messages):
            # A node without the additive field stores the batch and tells no places.
            return [_receipt(self._idl.Receipt(), result.msg, attempts)] * len(messages)
        return [_receipt(receipt, result.msg, attempts) for receipt in told]

    def close(self) -> None:
        """Close the connection; a resend that is waiting in another thread is given up."""
        self._closing.set()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _encode(self, message: OutgoingMessage) -> Any:
        return self._idl.Message(
            topic=message.topic,
            key=message.key,
            hashId=message.hash_id,
            tags=message.tags,
            partitionId=message.partition_id,
            body=message.body,
            properties=dict(message.properties) if message.properties else None,
            delayLevel=message.delay_level or None,
            deliverAtMs=message.deliver_at_ms or None,
            delayMs=message.delay_ms or None,
        )

    def _call(self, method: str, arguments: Mapping[str, object], timeout_ms: int) -> tuple[Any, int]:
        """Call with the resend policy; returns the result, whose code is 0, and how often it was sent."""
        attempts = 1
        while True:
            try:
                result = self._connection.call(method, arguments, timeout_ms=timeout_ms + ANSWER_MARGIN_MS)
                if result.code == 0:
                    return result, attempts
                raise send_refusal(result.code, result.msg or "", attempts=attempts)
            except (Unreachable, SendRefused) as error:
                if not error.retriable or attempts > self._resends or not self._pause_after(error):
                    raise
                attempts += 1

    def _pause_after(self, error: Exception) -> bool:
        """Tell of a failure and wait; False when the producer is being closed."""
        if self._on_resend is not None:
            self._on_resend(error)
        return not self._closing.wait(self._resend_pause_ms / 1000)


def _receipt(told: Any, text: str | None, attempts: int) -> SendReceipt:
    return SendReceipt(
        code=0,
        msg=text or "",
        message_id=told.msgId or "",
        qid=told.qid or "",
        offset=-1 if told.offset is None else told.offset,
        attempts=attempts,
        handle=told.handle or "",
    )
