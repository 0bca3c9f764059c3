"""Cancelling a message of a delay level.

A message is named by topic and UNIQ_KEY, as a timer is (D31); the index finds its record, and the record confirms it.
RocketMQ has no cancel for levels, and every record of the schedule topic is delivered by it. So a cancel is a record of
a topic of its own, which has no readers, and names the one in the schedule topic as replaced (D27): it holds from the
moment it is durable, unless the delivery precedes it in the log.
"""

from __future__ import annotations

from collections.abc import Generator

from broker.errors import StoreError
from broker.format.message import LogMessage
from broker.log.decisions import prepared_offset_of
from broker.log.durability import Awaited, AwaitedSteps, all_durable
from broker.log.put import Put
from broker.query import by_unique_key
from broker.scheduled.cancelling import CancelEffect, delivered, run_query
from broker.scheduled.delay import metrics as counted
from broker.scheduled.delay.due import DueDelays
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.store import Store

CANCEL_TOPIC = "rmq_sys_delay_cancels"
_PROPERTIES = b"REAL_TOPIC\x01%b\x02UNIQ_KEY\x01%b\x02"
_BODY = b"0"
_FOUND_MAX = 64
"""Records of one UNIQ_KEY that are looked at, the newest."""


def cancelling(due: DueDelays, topic: str, unique_key: str) -> AwaitedSteps[CancelEffect]:
    """Cancel what waits under a name, in steps of bounded work; durable when it ends.

    All of it, where a producer stored it more than once.

    Raises:
        DiskFull, StoreFailed: It cannot be stored; the message stays.
        OSError: The store cannot be read.
    """
    store = due.store
    mine: list[LogMessage] = []
    cancels: list[LogMessage] = []
    while True:
        retries = due.retries
        # What was under way is durable after this, and completed. It is looked at again while more is under way that
        # may be of this message. That ends: a message is delivered, cancelled or put again elsewhere once.
        yield from all_durable(store.writes)
        mine = yield from _stored(store, SCHEDULE_TOPIC, topic, unique_key)
        cancels = yield from _stored(store, CANCEL_TOPIC, topic, unique_key)
        waiting = [each for each in mine if due.is_waiting(each.queue_id + 1, each.offset, retries)]
        if waiting and not any(each.offset in due.levels[each.queue_id + 1].held for each in waiting):
            yield from _append(due, waiting, topic, unique_key)
            return CancelEffect.CANCELLED
        if all(due.is_over(each.queue_id + 1, each.offset) for each in mine):
            break
    newest = max(mine, key=lambda each: each.physical, default=None)
    if newest is None:
        return CancelEffect.CANCELLED if cancels else (yield from delivered(store, topic, unique_key))
    if CANCEL_TOPIC in store.topics:
        # Another cancel of it may have become durable since: asked once more, in one step.
        cancels = by_unique_key(store, CANCEL_TOPIC, unique_key, limit=_FOUND_MAX).run().found
    replaced = {each.prepared_offset for each in cancels}
    return CancelEffect.CANCELLED if prepared_offset_of(newest.physical) in replaced else CancelEffect.TOO_LATE


def _stored(store: Store, where: str, topic: str, unique_key: str) -> Generator[None, None, list[LogMessage]]:
    """Find the records of a name in one of the two topics."""
    if where not in store.topics:
        return []
    found = yield from run_query(by_unique_key(store, where, unique_key, limit=_FOUND_MAX))
    return [each for each in found if each.properties.get("REAL_TOPIC") == topic]


def _append(due: DueDelays, waiting: list[LogMessage], topic: str, unique_key: str) -> AwaitedSteps[None]:
    """Append, and complete what was replaced when that is durable; until then it is held."""
    store = due.store
    own = store.create_topic(CANCEL_TOPIC, 1, system=True)
    properties = _PROPERTIES % (topic.encode(), unique_key.encode())
    puts = [
        Put(
            topic=own,
            queue_id=0,
            body=_BODY,
            properties=properties,
            unique_key=unique_key.encode(),
            prepared_offset=prepared_offset_of(each.physical),
        )
        for each in waiting
    ]
    awaited = Awaited(store.commit)

    def done(error: StoreError | None) -> None:
        for each in waiting:
            level = due.levels[each.queue_id + 1]
            level.held.discard(each.offset)
            if error is None:
                level.complete(each.offset)
        awaited.report(error)

    first = waiting[0]
    store.append(puts, born_ms=first.born_ms, born_host=first.born_host, atomic=len(puts) > 1, done=done)
    for each in waiting:
        due.levels[each.queue_id + 1].held.add(each.offset)
    yield from awaited.steps()
    due.metrics.counter(counted.CANCELLED).add(len(waiting))
