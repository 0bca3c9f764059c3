"""A message that waited in a topic of the broker's own, on its way to its real topic.

While it waits, topic and queue are the waiting room's, and the real ones stand in `REAL_TOPIC` and `REAL_QID`. Out:
everything as it was sent, without the properties of the wait (RocketMQ leaves them in the delivered record). The
waiting record's offset goes into the prepared offset, by which a start knows that this one was delivered (D27).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.errors import MessageRefused
from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.format.record import (
    SYS_BORN_HOST_V6,
    SYS_STORE_HOST_V6,
    born_host,
    born_timestamp,
    physical_offset,
    reconsume_times,
    split,
    sys_flag,
    user_flag,
)
from broker.format.wait_properties import REAL_QUEUE_NAME, REAL_TOPIC_NAME
from broker.log.decisions import prepared_offset_of
from broker.log.put import Put
from broker.queues.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, Topic, is_system
from broker.scheduled.pop_records import REVIVE_PREFIX

_HOSTS_V6 = SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6


class Released(NamedTuple):
    """A message that waited, as it goes to its real topic."""

    put: Put
    born_ms: int
    born_host: bytes


def check_waits(put: Put, *, body_bytes_max: int, which: str) -> None:
    """Check that a message may wait; the waiting room itself would take it.

    Args:
        put: The message as it would be appended without waiting.
        body_bytes_max: Largest body of what producers send; a retry has no limit.
        which: What its topic does not take: "delayed", "timed".

    Raises:
        MessageRefused: The topic is one of the broker's own, the queue is not there, or the body is too large.
    """
    topic = put.topic
    if topic.system and not topic.name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise MessageRefused(f"{topic.name} is an internal topic of the broker: it accepts no {which} messages")
    if not 0 <= put.queue_id < len(topic.queues):
        raise MessageRefused(f"topic {topic.name} has no queue {put.queue_id}")
    if len(put.body) > body_bytes_max and not topic.system:
        raise MessageRefused(f"the body has {len(put.body)} bytes; the limit is {body_bytes_max}")


def release(record: memoryview, topics: Mapping[str, Topic], names: tuple[bytes, ...]) -> Released:
    """Make the message to deliver from the record that waited.

    The body is not copied.

    Args:
        record: The whole record.
        topics: By name.
        names: Properties of the wait, which are taken out.

    Raises:
        MessageRefused: Its real topic is not there, takes nothing, or lacks the queue.
        DamagedRecord: The bytes are no record.
    """
    body, block = split(record)
    name = (find_property(block, REAL_TOPIC_NAME) or b"").decode("utf-8", "replace")
    queue = find_property(block, REAL_QUEUE_NAME) or b""
    topic = topics.get(name)
    if topic is None:
        raise MessageRefused(f"topic {name!r} does not exist; create it")
    if name.startswith(REVIVE_PREFIX):
        # RocketMQ's own, for RocketMQ: it reads the moment in what was delivered, which has all properties there.
        names = ()
    elif is_system(name) and not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise MessageRefused(f"{name} is an internal topic of the broker; it accepts no delayed messages")
    queue_id = whole_number(queue)
    if queue_id is None or queue_id >= len(topic.queues):
        raise MessageRefused(f"topic {name} has no queue {queue[:20].decode('utf-8', 'replace')}; add queues")
    return moved(record, body, without(block, names), topic, queue_id)


def moved(record: memoryview, body: memoryview, properties: bytes, topic: Topic, queue_id: int) -> Released:
    """Make a message that takes the place of a record: the same but for properties, topic and queue."""
    put = Put(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties,
        tags=find_property(properties, b"TAGS") or b"",
        unique_key=find_property(properties, b"UNIQ_KEY") or b"",
        prepared_offset=prepared_offset_of(physical_offset(record)),
        reconsume_times=reconsume_times(record),
        sys_flag=sys_flag(record) & ~_HOSTS_V6,
        flag=user_flag(record),
    )
    return Released(put, born_timestamp(record), born_host(record))


def without(block: bytes, names: tuple[bytes, ...]) -> bytes:
    """Return a property block without these properties; the order of the others stays."""
    pairs = [pair for pair in block.split(b"\x02") if pair and pair.partition(b"\x01")[0] not in names]
    return b"".join([pair + b"\x02" for pair in pairs])


def closed(block: bytes) -> bytes:
    """Return a property block that ends in its separator, so that more can follow."""
    return block if not block or block.endswith(b"\x02") else block + b"\x02"
