"""Loops that RocketMQ ended, continued after the way back.

RocketMQ delivers a loop's pending occurrence as any timed message: once, with all its properties, the loop's
state among them. What is delivered here never has that, so the record in a user's topic shows that the loop stands
still. Recovery notes such records as it scans them (`Interrupted`), before its checkpoint passes them over; once timers
are open, the next occurrence is put, naming the record that it follows, and the note goes when that is durable. It is
looked up first, by its id, so a loop continues once wherever a stop comes in between.
"""

from __future__ import annotations

from collections.abc import Generator

import structlog

from broker.format.message import LogMessage
from broker.format.record import split
from broker.log.put import Put
from broker.query import NotFound, at_physical, by_key
from broker.runtime.seams import Disk
from broker.scheduled.recurring.ended_loops import Interrupted
from broker.scheduled.recurring.loops import waiting
from broker.scheduled.recurring.occurrence import LOOP_NAME, Occurrence, parse_id
from broker.scheduled.release import moved, without
from broker.scheduled.timer.names import TIMER_NAMES, TIMER_TOPIC
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store

_FOUND_MAX = 64

log = structlog.get_logger()


def returning(store: Store, *, disk: Disk) -> Generator[None, None, int]:
    """Have interrupted loops continue, in steps; return how many. What is put is durable at the end.

    Where the store fails with that, the next start does it.

    Raises:
        StoreError: It cannot be stored.
        OSError: The index, or the note, cannot be read or written.
    """
    interrupted = Interrupted(store.root, disk=disk)
    count = 0
    noted = interrupted.load()
    for physical in noted:
        put = yield from _following(store, physical)
        if put is not None:
            store.append([put[0]], born_ms=put[1], born_host=put[2])
            count += 1
        yield
    if noted:
        store.flush()
        if store.failed is not None:
            return 0
        store.make_durable()
        interrupted.forget()
        log.info("loops_go_on", count=count, noted=len(noted))
    return count


def _following(store: Store, physical: int) -> Generator[None, None, tuple[Put, int, bytes] | None]:
    """Return what to append so that a loop continues after an occurrence.

    None when it continues, has ended, or the occurrence is not of a loop.
    """
    try:
        message = at_physical(store, physical)
    except NotFound:
        return None
    each = parse_id(message.properties.get(LOOP_NAME.decode(), ""))
    following = each.next() if each is not None else None
    topic = store.topics.get(message.topic)
    if each is None or following is None or topic is None or topic.system or message.queue_id >= len(topic.queues):
        return None
    # Clients cannot write the timer topic: what never waited there is none, whatever it says of itself.
    waited = yield from _timed(store, topic.name, each)
    if not any(found.unique_key == message.unique_key for found in waited):
        return None
    if (yield from _timed(store, topic.name, following)):
        return None
    record = store.read(message.physical, message.size)
    body, block = split(record)
    released = moved(record, body, without(bytes(block), TIMER_NAMES), topic, message.queue_id)
    put = store.waiting(TimedPuts).timed(waiting(released.put, following), following.at_s * 1000)
    return put, released.born_ms, released.born_host


def _timed(store: Store, topic: str, occurrence: Occurrence) -> Generator[None, None, list[LogMessage]]:
    """Records of an occurrence in the timer topic, pending or not."""
    if TIMER_TOPIC not in store.topics:
        return []
    query = by_key(store, TIMER_TOPIC, occurrence.id, limit=_FOUND_MAX)
    yield from query.steps()
    text = occurrence.id
    return [
        found
        for found in query.found
        if found.properties.get("REAL_TOPIC") == topic and found.properties.get(LOOP_NAME.decode()) == text
    ]
