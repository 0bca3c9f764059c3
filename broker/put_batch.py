"""An encoded batch into the store: its members become records of their own, adjacent, all of them or none (D8).

As RocketMQ's broker does (SendMessageProcessor, MessageExtEncoder): one queue with consecutive offsets, shared born
time and host, the properties of the request checked and dropped. Beyond it, a stop amid the write leaves nothing of a
batch: recovery cuts an incomplete one.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.errors import MessageRefused
from broker.format.properties import find_property
from broker.format.record import SYS_TRANSACTION_MASK
from broker.log.batch import check_batch_topic, check_plain, decode_batch
from broker.log.put import LogPosition, Put
from broker.queues.topics import Topic
from broker.runtime.seams import Buffer
from broker.runtime.store_metrics import REFUSED
from broker.store import Store


class BatchStored(NamedTuple):
    """Where a batch went.

    Attributes:
        positions: One per member, in their order.
        offset_message_ids: What RocketMQ answers: the members' offsetMsgIds (store host and commit-log offset in upper
            hex digits), joined by commas.
    """

    positions: list[LogPosition]
    offset_message_ids: str


def put_batch(
    store: Store,
    topic: str | Topic,
    encoded: Buffer,
    *,
    queue_id: int | None = None,
    properties: bytes = b"",
    sys_flag: int = 0,
    born_ms: int,
    born_host: bytes | None = None,
) -> BatchStored:
    """Append a batch as one unit, and flush.

    Args:
        store: Where to.
        topic: Of all members; not one of the broker's own.
        encoded: As `broker.log.batch` describes.
        queue_id: The queue of all members; None: the next one in turn.
        properties: The property block of the request.
        sys_flag: Of the request.
        born_ms: When the producer made it, ms since the epoch.
        born_host: Its address (4 or 16 bytes) and i32 port; None: the store's own.

    Raises:
        KeyError: No topic has that name.
        MessageRefused: It breaks a rule of `broker.log.batch`, or fits into no log file; counted, nothing is stored.
        DiskFull, StoreFailed: As `Store.append`; StoreFailed also when the flush failed.
    """
    target = store.topics[topic] if isinstance(topic, str) else topic
    queue = store.queue_for(target) if queue_id is None else queue_id
    limit = store.options.message_bytes_max
    try:
        puts = batch_puts(target, encoded, queue_id=queue, properties=properties, sys_flag=sys_flag, bytes_max=limit)
    except MessageRefused:
        # How many messages it is cannot be known of bytes that are no batch.
        store.metrics.counter(REFUSED, "illegal").add()
        raise
    host = store.options.store_host
    positions = store.append(puts, born_ms=born_ms, born_host=born_host or host, atomic=True)
    store.flush()
    if store.failed is not None:
        raise store.failed
    ids = [(host + position.physical.to_bytes(8, "big")).hex().upper() for position in positions]
    return BatchStored(positions, ",".join(ids))


def batch_puts(
    topic: Topic, encoded: Buffer, *, queue_id: int, properties: bytes = b"", sys_flag: int = 0, bytes_max: int
) -> list[Put]:
    """Return what to append for an encoded batch, with `atomic=True`; for a caller that flushes by itself.

    Raises:
        MessageRefused: See `broker.log.batch`.
    """
    check_batch_topic(topic.name)
    if topic.system:
        raise MessageRefused(f"{topic.name} is an internal topic of the broker: it accepts no batch")
    if sys_flag & SYS_TRANSACTION_MASK:
        raise MessageRefused(
            "the batch is marked as part of a transaction, which a batch cannot be; send half messages"
        )
    if sys_flag:
        raise MessageRefused(f"the batch has the sysFlag {sys_flag:#x}; RocketMQ's clients send batches with 0")
    try:
        check_plain(properties)
    except MessageRefused as error:
        raise MessageRefused(f"the batch as a whole: {error.text}") from error
    return [
        Put(topic, queue_id, body, block, find_property(block, b"TAGS") or b"", unique_key, flag=flag)
        for body, block, unique_key, flag in decode_batch(encoded, bytes_max=bytes_max)
    ]
