"""What a dead letter holds: the message with the facts of its end (D16).

A record keeps the message's key, tags, properties, body and UNIQ_KEY, and adds what is below. A body that
RocketMQ's client compressed is unpacked; if that is impossible it is kept as stored, and the sysFlag says how.

==================== =========================================================
DLQ_GROUP            group that gave up
DLQ_ORIGIN_TOPIC     topic, RocketMQ's name for it
DLQ_ORIGIN_QUEUE     queue number
DLQ_ORIGIN_OFFSET    queue offset
DLQ_ORIGIN_MESSAGE_ID  UNIQ_KEY of the message, RocketMQ's name for it
DLQ_REASON           what went wrong last, one line
DLQ_ACTION           name of the action that failed last
DLQ_ATTEMPTS         attempts that failed
DLQ_RETRY_OFFSET     offset in the group's retry topic, of a message that was sent back before
==================== =========================================================

The origin is where the message was published. Of one that RocketMQ sent back queue and offset are not known. What the
message itself has of these names, and of those of a retry without being in a retry topic, is left out: only the broker
says them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.errors import BodyUnusable
from broker.format.body import SYS_PACKING, split_body
from broker.format.properties import LETTER_PROPERTIES, PROPERTIES_BYTES_MAX, find_property
from broker.format.record import BATCH_BYTES, CRC_BYTES, born_host, born_timestamp, split, sys_flag, user_flag
from broker.log.decisions import prepared_offset_of
from broker.log.put import Put
from broker.queues.topics import DEAD_LETTER_PREFIX, dead_letter_topic
from broker.retry.puts import (
    COUNTS_NAME,
    OFFSET_NAME,
    QUEUE_NAME,
    RETRY_NAMES,
    RETRY_TOPIC_NAME,
    ROUTE_NAMES,
    is_retry_topic,
)
from broker.scheduled.release import without

if TYPE_CHECKING:
    from broker.store import Store

REASON_CHARS_MAX = 500
_RETRIED = (*LETTER_PROPERTIES, QUEUE_NAME, OFFSET_NAME, COUNTS_NAME, *ROUTE_NAMES)
_FIRST = (*_RETRIED, *RETRY_NAMES)
"""What is left out of the properties of a message that was sent back, and of one that was not."""
_KEPT_WHEN_TOO_LONG = (b"KEYS", b"TAGS")
_ROOM = PROPERTIES_BYTES_MAX - CRC_BYTES - BATCH_BYTES - 64
"""The block's limit less what the broker adds: the sum, the batch mark, UNIQ_KEY where it is missing."""


class Buriable(Protocol):
    """A message as its dead letter names it; a job is one."""

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def physical(self) -> int: ...

    @property
    def attempts(self) -> int: ...


def is_dead_letter_topic(topic: str) -> bool:
    """Whether a topic holds dead letters; what is exhausted there is not dead-lettered a second time (D16)."""
    return topic.startswith(DEAD_LETTER_PREFIX)


def dead_letter(
    store: Store, group: str, origin: Buriable, reason: str, record: memoryview, *, action: str = ""
) -> tuple[Put, int, bytes]:
    """Make the dead letter of a message: what to append, its born time in ms and its born host.

    Args:
        store: Where it goes.
        group: The group that gives the message up.
        origin: The message.
        reason: What went wrong last.
        record: The record of the message.
        action: Name of the action that failed last; "" where no action did.

    Raises:
        StoreError: The dead-letter topic is not there and cannot be made.
        DamagedRecord: The bytes are no record.
    """
    body, block, flags = _carried(store, record)
    unique_key = find_property(block, b"UNIQ_KEY") or b""
    facts = [
        ("DLQ_GROUP", group),
        *_origin(origin, block),
        ("DLQ_ORIGIN_MESSAGE_ID", unique_key.decode("utf-8", "replace")),
        ("DLQ_REASON", _one_line(reason)),
        ("DLQ_ACTION", action),
        ("DLQ_ATTEMPTS", str(origin.attempts)),
    ]
    added = "".join(f"{name}\x01{value}\x02" for name, value in facts if value).encode("utf-8", "replace")
    put = Put(
        topic=store.create_topic(dead_letter_topic(group), 1, system=True),
        queue_id=0,
        body=body,
        properties=_join(without(block, _RETRIED if is_retry_topic(origin.topic) else _FIRST), added, unique_key),
        tags=find_property(block, b"TAGS") or b"",
        unique_key=unique_key,
        prepared_offset=prepared_offset_of(origin.physical),
        reconsume_times=origin.attempts,
        sys_flag=flags,
        flag=user_flag(record),
    )
    return put, born_timestamp(record), born_host(record)


def _origin(origin: Buriable, block: bytes) -> list[tuple[str, str]]:
    """Tell where a message was published; what is in a retry topic says so itself."""
    if not is_retry_topic(origin.topic):
        place = (origin.topic, str(origin.queue_id), str(origin.offset))
        return list(zip(("DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_QUEUE", "DLQ_ORIGIN_OFFSET"), place, strict=True))

    def reported(name: bytes) -> str:
        return (find_property(block, name) or b"").decode("utf-8", "replace")

    return [
        ("DLQ_ORIGIN_TOPIC", reported(RETRY_TOPIC_NAME)),
        ("DLQ_ORIGIN_QUEUE", reported(QUEUE_NAME)),
        ("DLQ_ORIGIN_OFFSET", reported(OFFSET_NAME)),
        ("DLQ_RETRY_OFFSET", str(origin.offset)),
    ]


def _carried(store: Store, record: memoryview) -> tuple[memoryview, bytes, int]:
    """Body, properties and packing of the dead letter: unpacked if that is possible, else as it is stored."""
    limit = store.options.message_bytes_max
    try:
        return *split_body(record, limit), 0
    except BodyUnusable:
        return *split(record), sys_flag(record) & SYS_PACKING


def _join(block: bytes, added: bytes, unique_key: bytes) -> bytes:
    """Put the facts behind the message's block; when that is too long, user properties go and DLQ_CUT says so."""
    if block and not block.endswith(b"\x02"):
        block += b"\x02"
    if len(block) + len(added) <= _ROOM:
        return block + added
    kept = b"".join(
        b"%b\x01%b\x02" % (name, value) for name in _KEPT_WHEN_TOO_LONG if (value := find_property(block, name))
    )
    if unique_key:
        kept += b"UNIQ_KEY\x01%b\x02" % unique_key
    return kept + added + b"DLQ_CUT\x01true\x02"


def _one_line(text: str) -> str:
    """Make a reason fit into a property: printable, one line, bounded."""
    clean = "".join(each if each.isprintable() else " " for each in text[: 2 * REASON_CHARS_MAX])
    return clean.strip()[:REASON_CHARS_MAX] or "unknown"
