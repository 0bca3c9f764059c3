"""What the record of a half says, and the records that are made from it: commit, put-back, discard.

RocketMQ's forms. What a commit stores is the message as it was sent: without the properties that made it a half
(RocketMQ leaves them in), with its flag and reconsume times (RocketMQ loses the flag at a check).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.format.numbers import whole_number
from broker.format.record import SYS_TRANSACTION_MASK, born_timestamp, physical_offset, split, store_timestamp
from broker.log.put import OWNER_NAME
from broker.queues.topics import Topic
from broker.scheduled.release import Released, moved, without
from broker.transaction import names

PRIVATE = (
    names.TRANSACTION,
    names.PRODUCER_GROUP,
    names.REAL_TOPIC,
    names.REAL_QUEUE,
    names.TRANSACTION_ID,
    names.CHECK_TIMES,
    names.IMMUNITY,
    names.PREPARED_OFFSET,
    names.LEVEL,
    names.DELIVER_AT,
    names.DELAY_MS,
    names.AGE_MS,
    OWNER_NAME,
)
_COPIED = (names.CHECK_TIMES, names.PREPARED_OFFSET, names.AGE_MS)
IMMUNITY_SECONDS_MAX = 366 * 86_400


class CommitDelay(NamedTuple):
    """What a commit starts: a level, a moment (ms since the epoch) or ms from the commit; 0 where not."""

    level: int
    deliver_at_ms: int
    delay_ms: int


class Half(NamedTuple):
    """A half as its record says it; times in ms.

    Attributes:
        record: The whole record.
        physical: Its commit-log offset.
        topic: Where its message goes; "" when the record does not say.
        queue_id: Which queue there; -1 when the record does not say.
        group: Producer group.
        owner: The principal that sent it; "" without access rules.
        transaction_id: Its id; the unique key where the record names none.
        times: Checks that the record counts.
        age_ms: How old it was when it was put again.
        delay: What the commit starts.
        immunity_ms: How long no check is made; None: the broker's default.
        immune: The record asks for a time of its own, also when that cannot be read.
        store_ms: When it was stored, by the broker's clock.
        born_ms: When its producer made it, by the producer's.
        block: All properties.
        body: As stored.
    """

    record: memoryview
    physical: int
    topic: str
    queue_id: int
    group: str
    owner: str
    transaction_id: str
    times: int
    age_ms: int
    delay: CommitDelay
    immunity_ms: int | None
    immune: bool
    store_ms: int
    born_ms: int
    block: bytes
    body: memoryview


def half_of(record: memoryview) -> Half:
    """Take the record of a half apart.

    Raises:
        DamagedRecord: The bytes are no record.
    """
    body, block = split(record)
    # One pass in place of a search per property; the first of two equal names wins, as it does for `find_property`.
    found = dict([pair.partition(b"\x01")[::2] for pair in reversed(block.split(b"\x02")) if pair])
    queue = whole_number(found.get(names.REAL_QUEUE))
    immunity = found.get(names.IMMUNITY) or None
    seconds = whole_number(immunity, 11)
    return Half(
        record=record,
        physical=physical_offset(record),
        topic=_text(found, names.REAL_TOPIC),
        queue_id=-1 if queue is None else queue,
        group=_text(found, names.PRODUCER_GROUP),
        owner=_text(found, OWNER_NAME),
        transaction_id=_text(found, names.TRANSACTION_ID) or _text(found, b"UNIQ_KEY"),
        times=whole_number(found.get(names.CHECK_TIMES)) or 0,
        age_ms=whole_number(found.get(names.AGE_MS)) or 0,
        delay=CommitDelay(
            *[whole_number(found.get(name)) or 0 for name in (names.LEVEL, names.DELIVER_AT, names.DELAY_MS)]
        ),
        immunity_ms=None if seconds is None else min(seconds, IMMUNITY_SECONDS_MAX) * 1000,
        immune=immunity is not None,
        store_ms=store_timestamp(record),
        born_ms=born_timestamp(record),
        block=block,
        body=body,
    )


def message_block(half: Half) -> bytes:
    """Properties of the message as its producer sent it."""
    return without(half.block, PRIVATE)


def commit_of(half: Half, topic: Topic) -> Released:
    """Make the message that a commit stores, without its delay; sysFlag says commit."""
    made = _copy(half, message_block(half), topic, half.queue_id)
    return made._replace(put=made.put._replace(sys_flag=made.put.sys_flag | names.SYS_COMMIT))


def put_back_of(half: Half, topic: Topic, *, times: int, age_ms: int) -> Released:
    """Make the copy that takes a half's place at the log's tail: RocketMQ's put-back, with count and age."""
    own = b"%b\x01%d\x02" % (names.AGE_MS, age_ms)
    if times:
        own += b"%b\x01%d\x02" % (names.CHECK_TIMES, times)
    return _copy(half, without(half.block, _COPIED) + own, topic, 0)


def discard_of(half: Half, topic: Topic, *, times: int) -> Released:
    """Make the record of the discard topic that takes a half's place: RocketMQ's full copy, with the count."""
    own = b"%b\x01%d\x02" % (names.CHECK_TIMES, times) if times else b""
    return _copy(half, without(half.block, _COPIED) + own, topic, 0)


def resumed_of(half: Half, topic: Topic) -> Released:
    """Make a half again from a discarded one: no checks counted, no age."""
    return _copy(half, without(half.block, _COPIED), topic, 0)


def _copy(half: Half, block: bytes, topic: Topic, queue_id: int) -> Released:
    """Make the record that replaces a half; no form of a half keeps the transaction's bits of the sysFlag."""
    made = moved(half.record, half.body, block, topic, queue_id)
    return made._replace(put=made.put._replace(sys_flag=made.put.sys_flag & ~SYS_TRANSACTION_MASK))


def _text(found: Mapping[bytes, bytes], name: bytes) -> str:
    return found.get(name, b"").decode("utf-8", "replace")
