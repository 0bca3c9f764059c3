"""When a message that waited was due: its delay level, or its timer, as the record says that it replaces (D27).

It is stored again when it is due, or later: so lag counts from then, and not from when the broker came to it. The node
says the same of its samples (`upstream.embedded.message_times`).
"""

from __future__ import annotations

from typing import Final

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import locate, prepared_offset, store_timestamp, topic_of
from broker.log.commit_log import CommitLog
from broker.log.scan import record_at
from broker.scheduled.delay.levels import SCHEDULE_TOPIC, DelayLevels, due_ms
from broker.scheduled.timer.names import TIMER_TOPIC, TimerOptions, due_of

LEVELS: Final = DelayLevels()
"""Of records of RocketMQ's; ours say how long they wait."""
PRECISION_MS: Final = TimerOptions().precision_ms


def consumable_ms(record: memoryview, log: CommitLog) -> int:
    """Return when a message could first be consumed, Unix ms: when it was due or, if it did not wait, stored.

    Args:
        record: Its record, whole.
        log: The log that it is in.
    """
    stored_ms = store_timestamp(record)
    replaced = prepared_offset(record)
    if not replaced:
        return stored_ms
    due = _due_ms(max(0, replaced), log)
    # Nothing is due after it was stored: a clock that was set back would say so.
    return stored_ms if due is None else min(stored_ms, due)


def _due_ms(position: int, log: CommitLog) -> int | None:
    """Return when the record at a position of the log was due; None: it did not wait, was deleted or is damaged."""
    try:
        entry = record_at(log, position)
        if entry is None:
            return None
        record, _, _, block_at, block_end = locate(log.read(position, entry.size))
    except (DamagedRecord, RecordGone):
        return None
    topic = topic_of(record).decode("utf-8", "replace")
    return waits_until_ms(topic, bytes(record[block_at:block_end]), store_timestamp(record))


def waits_until_ms(topic: str, block: bytes, stored_ms: int) -> int | None:
    """Return when a record that waits in a topic is due, Unix ms; None: nothing waits there, or it names no moment.

    Args:
        topic: Its topic.
        block: Its properties.
        stored_ms: When it was stored.
    """
    if topic == SCHEDULE_TOPIC:
        return due_ms(block, stored_ms, LEVELS)
    return due_of(block, PRECISION_MS) if topic == TIMER_TOPIC else None
