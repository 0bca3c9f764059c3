"""What RocketMQ's POP consumers had in hand when their broker stopped.

A POP broker commits an offset as it hands the message out, and writes a checkpoint (`ck`): which offsets of which queue
went to which group, and until when they are invisible. It is a timed message to `rmq_sys_REVIVE_LOG_<cluster>`, and so
is each acknowledgement (`ack`, `bAck`). A service of RocketMQ's reads that topic under a group of its own, and what a
checkpoint names without an acknowledgement it puts into a retry topic. So what is in hand is in two places: in the
timer topic, until it is due, and in the revive topic above that group's committed offset.

The bodies are JSON of RocketMQ's making; nothing in them is believed that does not name a queue and offsets of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.feature import Feature
from broker.format.properties import find_property
from broker.format.record import split
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.queues.offsets import REVIVE_GROUP, ConsumerOffsets
from broker.store import Store

REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
TIMER_TOPIC = "rmq_sys_wheel_timer"
POPPED_MAX = 1 << 15
"""Messages that a checkpoint may name; RocketMQ hands out 32 at a time."""

POP_FEATURE = Feature(name="pop")
"""Taking over what POP consumers had in hand, as `Store.open` takes it."""

_LATE_MS = 600_000
"""A timed message that was due so long before another one that was delivered was delivered, too."""
_STEP_UNITS = 256

PopKey = tuple[str, str, int]
"""Group, topic, queue id."""
_CheckpointKey = tuple[str, str, int, int, int]
"""The same, first offset, moment of the pop: what RocketMQ matches acknowledgements by."""


class Popped(NamedTuple):
    """What is in hand.

    Attributes:
        in_hand: By group, topic and queue id: the offsets that were popped and not acknowledged, ascending.
        read_to: By revive topic and queue id: the offset of the last record there, which RocketMQ commits when it has
            done all of them.
    """

    in_hand: dict[PopKey, list[int]]
    read_to: dict[tuple[str, int], int]


class _Checkpoint(NamedTuple):
    offsets: list[int]
    revive_ms: int
    bits: int


class _PoppedRecords:
    """What was read of the two topics."""

    def __init__(self) -> None:
        self.pending: dict[_CheckpointKey, _Checkpoint] = {}
        self.delivered: set[_CheckpointKey] = set()
        self.acks: dict[_CheckpointKey, set[int]] = {}
        self.newest_ms = 0


def popped(store: Store, offsets: ConsumerOffsets) -> Iterator[Popped | None]:
    """Yield None after each step of bounded work, and what is in hand at last. Raises OSError."""
    found = _PoppedRecords()
    read_to: dict[tuple[str, int], int] = {}
    for name, topic in store.topics.items():
        if not name.startswith(REVIVE_PREFIX):
            continue
        for queue_id, queue in enumerate(topic.queues):
            if queue.max_offset > queue.min_offset:
                read_to[name, queue_id] = queue.max_offset - 1
            committed = offsets.get(REVIVE_GROUP, name, queue_id)
            yield from _revived(store, queue, -1 if committed is None else committed, found)
    timers = store.topics.get(TIMER_TOPIC)
    for queue in timers.queues if timers is not None else ():
        yield from _timed(store, queue, found)
    in_hand: dict[PopKey, set[int]] = {}
    for key, checkpoint in found.pending.items():
        acked = found.acks.get(key, ())
        left = {
            offset
            for place, offset in enumerate(checkpoint.offsets)
            if offset not in acked and not checkpoint.bits >> place & 1
        }
        if left:
            in_hand.setdefault(key[:3], set()).update(left)
    yield Popped({key: sorted(left) for key, left in in_hand.items()}, read_to)


def _revived(store: Store, queue: ConsumeQueue, committed: int, found: _PoppedRecords) -> Iterator[None]:
    """Read a queue of a revive topic; what its group committed, the offset of the last record done, is in no hand."""
    for offset, body, block in _records(store, queue):
        if body is None:
            yield
            continue
        if (made := _checkpoint(body, block)) is not None:
            key, checkpoint = made
            found.newest_ms = max(found.newest_ms, checkpoint.revive_ms)
            found.delivered.add(key)
            if offset > committed:
                found.pending[key] = checkpoint
        elif offset > committed:
            _take_ack(body, block, found)


def _timed(store: Store, queue: ConsumeQueue, found: _PoppedRecords) -> Iterator[None]:
    """Read the timer topic: what of it was not delivered yet."""
    prefix = REVIVE_PREFIX.encode()
    for _, body, block in _records(store, queue):
        if body is None:
            yield
            continue
        if not (find_property(block, b"REAL_TOPIC") or b"").startswith(prefix):
            continue
        if (made := _checkpoint(body, block)) is None:
            _take_ack(body, block, found)
            continue
        key, checkpoint = made
        if key not in found.delivered and checkpoint.revive_ms > found.newest_ms - _LATE_MS:
            found.pending[key] = checkpoint


def _records(store: Store, queue: ConsumeQueue) -> Iterator[tuple[int, memoryview | None, bytes]]:
    """Yield offset, body and properties of what can be read, and no body where a step ends."""
    offset = queue.min_offset
    while offset < queue.max_offset:
        for physical, size, _ in queue.read(offset, _STEP_UNITS):
            if size != FILLER_SIZE:
                try:
                    body, block = split(store.read(physical, size))
                except (DamagedRecord, RecordGone):
                    pass
                else:
                    yield offset, body, bytes(block)
            offset += 1
        yield offset, None, b""


def _checkpoint(body: memoryview, block: bytes) -> tuple[_CheckpointKey, _Checkpoint] | None:
    """Read a checkpoint; None when it is none that makes sense."""
    if find_property(block, b"TAGS") != b"ck":
        return None
    content = _json(body)
    key = _key(content)
    counted = [content.get(name) for name in ("n", "it", "bm")]
    if key is None or not all(isinstance(value, int) for value in counted):
        return None
    count, invisible_ms, bits = (int(value) for value in counted if value is not None)
    gaps = content.get("d") or list(range(max(0, min(count, POPPED_MAX))))
    if not isinstance(gaps, list) or len(gaps) > POPPED_MAX:
        return None
    offsets = [key[3] + gap for gap in gaps[: max(0, count)] if isinstance(gap, int) and gap >= 0]
    return key, _Checkpoint(offsets, key[4] + invisible_ms, max(0, bits))


def _take_ack(body: memoryview, block: bytes, found: _PoppedRecords) -> None:
    if find_property(block, b"TAGS") not in (b"ack", b"bAck"):
        return
    content = _json(body)
    key = _key(content)
    if key is None:
        return
    several = content.get("aol", content.get("ackOffsetList"))
    acked = several if isinstance(several, list) else [content.get("ao", content.get("ackOffset"))]
    found.acks.setdefault(key, set()).update(offset for offset in acked[:POPPED_MAX] if isinstance(offset, int))


def _key(content: dict[str, Any]) -> _CheckpointKey | None:
    """What a checkpoint or an acknowledgement belongs to; acknowledgements of older versions spell the names out."""
    names = (("c", "consumerGroup"), ("t", "topic"), ("q", "queueId"), ("so", "startOffset"), ("pt", "popTime"))
    group, topic, queue_id, start, pop_ms = (content.get(short, content.get(long)) for short, long in names)
    if not isinstance(group, str) or not isinstance(topic, str):
        return None
    if not isinstance(queue_id, int) or not isinstance(start, int) or not isinstance(pop_ms, int) or start < 0:
        return None
    return group, topic, queue_id, start, pop_ms


def _json(body: memoryview) -> dict[str, Any]:
    try:
        content = json.loads(bytes(body))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
