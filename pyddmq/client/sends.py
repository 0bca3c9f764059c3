"""What is sent and what comes back: messages, receipts, and when a failed send is sent again.

Producers of both kinds share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyddmq.client.errors import ClientError, ClientMisuse, NodeShuttingDown, Refused, Unreachable
from pyddmq.client.requests import Body, NodeRequest, body_bytes

HASH_ID_ABSENT = 0
"""On the wire an absent hashId and 0 are the same: the key chooses the queue then (D7)."""
PARTITION_BY_HASH = -1

IN_FLIGHT_MAX = 64
"""Sends of one producer that are under way at the same time, where nothing else is said."""
ANSWER_MARGIN_MS = 1000
"""What a client waits for the answer of a send, beyond the node's own time for it."""
HALF = "sendHalfSync"
"""The call that stores the half of a transaction."""
_PAUSE_MS_MAX = 1000


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
        delay_ms: Delivered this number of ms after the node has received it; 0 means immediately. Only one of the three
            may be set.
    """

    topic: str
    body: Body
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
        message_id: The unique key that the broker assigned to the message; "" if the node sends no receipts (DDMQ's).
        qid: Queue, `<cluster>_<broker>_<number>`; "" if unknown, as for a delayed message.
        offset: Offset in the queue; -1 likewise.
        attempts: How often the message was sent: above 1 it may be stored more than once, unless `numbered`.
        handle: Names a message sent with `deliver_at_ms` or `delay_ms` for a later change of mind; "" for others.
        numbered: The node knows the message by its number: however often it was sent, it is stored once.
        repeat: 1: an attempt before was stored, and this is its receipt. 2: likewise, and the place is not known any
            more. 0: it was stored by the last attempt.
    """

    code: int
    msg: str
    message_id: str
    qid: str
    offset: int
    attempts: int
    handle: str = ""
    numbered: bool = False
    repeat: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resending:
    """When a failed send is sent again.

    Attributes:
        resends: How often, at most.
        pause_ms: Wait before each; longer ones while patience lasts.
        patience_ms: How long beyond `resends` while no node answers, or the node starts or stops.
        on_resend: Told of the failure before each.

    Raises:
        ClientMisuse: A negative number.
    """

    resends: int
    pause_ms: int
    patience_ms: int
    on_resend: Callable[[Exception], None] | None

    def __post_init__(self) -> None:
        if min(self.resends, self.pause_ms, self.patience_ms) < 0:
            raise ClientMisuse("resends, resend_pause_ms and patience_ms must be 0 or above")

    def is_over(self, method: str, error: ClientError, attempts: int, *, is_known: bool, patience_left: bool) -> bool:
        """Whether a send has failed for good.

        Args:
            method: What was called: a half that may be stored is not sent again where that could make a second one.
            error: What became of its last attempt.
            attempts: How many there were.
            is_known: The node knows the message by its number, so that sending it again stores nothing twice.
            patience_left: Patience has not passed since its first attempt.
        """
        if not error.retriable or (method == HALF and error.undecided and not is_known):
            return True
        is_patient = is_known and patience_left and isinstance(error, Unreachable | NodeShuttingDown)
        return attempts > self.resends and not is_patient

    def wait_ms(self, attempts: int, error: Exception) -> int:
        """How long to wait after so many attempts, the last of which ended so."""
        doubled = min(max(0, attempts - self.resends), 10)
        reported = error.retry_after_ms if isinstance(error, Refused) else 0
        return max(self.pause_ms, min(self.pause_ms << doubled, _PAUSE_MS_MAX), reported)


def wire_message(idl: Any, message: OutgoingMessage) -> Any:
    """Build a message as it is sent. Raises ClientMisuse: its body is no bytes."""
    return idl.Message(
        topic=message.topic,
        key=message.key,
        hashId=message.hash_id,
        tags=message.tags,
        partitionId=message.partition_id,
        body=body_bytes(message.body),
        properties=dict(message.properties) if message.properties else None,
        delayLevel=message.delay_level or None,
        deliverAtMs=message.deliver_at_ms or None,
        delayMs=message.delay_ms or None,
    )


def send_request(idl: Any, message: OutgoingMessage, timeout_ms: int) -> NodeRequest[SendReceipt]:
    """Return the call that sends one message. Raises ClientMisuse: its body is no bytes."""
    sent = wire_message(idl, message)

    def receipt(result: Any, attempts: int) -> SendReceipt:
        return receipt_of(result, result, sent, attempts)

    return NodeRequest("sendSync", {"message": sent, "timeout": timeout_ms}, timeout_ms, [sent], receipt)


def batch_request(idl: Any, messages: Sequence[OutgoingMessage], timeout_ms: int) -> NodeRequest[list[SendReceipt]]:
    """Return the call that sends several together; as `send_request`."""
    sent = [wire_message(idl, message) for message in messages]

    def receipts(result: Any, attempts: int) -> list[SendReceipt]:
        return receipts_of(idl, result, sent, attempts)

    return NodeRequest("sendBatchSync", {"messages": sent, "receipts": True}, timeout_ms, sent, receipts)


def knows_numbers(result: Any, messages: Sequence[Any]) -> bool:
    """Whether an answer shows that the node knows messages by their numbers: it has one of them, or says `repeat`."""
    if getattr(result, "repeat", None) is not None:
        return True
    receipts = getattr(result, "receipts", None)
    reported = (
        receipts[0].msgId if receipts else getattr(result, "msgId", None) or getattr(result, "transactionId", None)
    )
    return bool(messages) and reported is not None and reported == messages[0].uniqKey


def receipt_of(reported: Any, result: Any, message: Any, attempts: int) -> SendReceipt:
    """Build a receipt from the answer about the message, by the result of its call or within it."""
    return SendReceipt(
        code=0,
        msg=result.msg or "",
        message_id=reported.msgId or "",
        qid=reported.qid or "",
        offset=-1 if reported.offset is None else reported.offset,
        attempts=attempts,
        handle=reported.handle or "",
        numbered=reported.msgId is not None and reported.msgId == message.uniqKey,
        repeat=result.repeat or 0,
    )


def receipts_of(idl: Any, result: Any, messages: Sequence[Any], attempts: int) -> list[SendReceipt]:
    """Build the receipts of a batch, in its order."""
    reported = result.receipts
    if reported is None or len(reported) != len(messages):
        # A node without the additive field stores the batch and returns no places.
        reported = [idl.Receipt()] * len(messages)
    return [receipt_of(receipt, result, each, attempts) for receipt, each in zip(reported, messages, strict=True)]
