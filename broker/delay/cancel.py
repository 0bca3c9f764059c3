"""Cancelling a message of a delay level.

A message is named by topic and UNIQ_KEY, as a timer is (D31); the index finds its record, and the record confirms it.
RocketMQ has no cancel for levels, and every record of the schedule topic is delivered by it. So a cancel is a record of
a topic of its own, which nobody reads, and names the one in the schedule topic as replaced (D27): it holds from the
moment it is durable, unless the delivery precedes it in the log.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from broker.cancelling import CancelOutcome, delivered, run_query
from broker.decisions import prepared_offset_of
from broker.delay import metrics as counted
from broker.delay.levels import SCHEDULE_TOPIC
from broker.message import Message
from broker.put import Put
from broker.query import by_unique_key

if TYPE_CHECKING:
    from broker.delay.delays import Delays

CANCEL_TOPIC = "rmq_sys_delay_cancels"
_PROPERTIES = b"REAL_TOPIC\x01%b\x02UNIQ_KEY\x01%b\x02"
_BODY = b"0"
_FOUND_MAX = 64
"""Records of one UNIQ_KEY that are looked at, the newest."""


def cancelling(delays: Delays, topic: str, unique_key: str) -> Generator[None, None, CancelOutcome]:
    """Cancel what waits under a name, in steps of bounded work; durable when it ends.

    All of it, where a producer stored it more than once.

    Raises:
        DiskFull, StoreFailed: It cannot be stored; the message stays.
        OSError: The store cannot be read.
    """
    store = delays.store
    found: list[Message] = []
    if SCHEDULE_TOPIC in store.topics:
        found = yield from run_query(by_unique_key(store, SCHEDULE_TOPIC, unique_key, limit=_FOUND_MAX))
    mine = [each for each in found if each.properties.get("REAL_TOPIC") == topic]
    cancels: list[Message] = []
    if CANCEL_TOPIC in store.topics:
        cancels = yield from run_query(by_unique_key(store, CANCEL_TOPIC, unique_key, limit=_FOUND_MAX))
        cancels = [each for each in cancels if each.properties.get("REAL_TOPIC") == topic]
    # What is under way is durable after this, and settled.
    store.flush()
    waiting = [each for each in mine if delays.is_waiting(each.queue_id + 1, each.offset)]
    if waiting:
        _append(delays, waiting, topic, unique_key)
        return CancelOutcome.CANCELLED
    newest = max(mine, key=lambda each: each.physical, default=None)
    if newest is None:
        return CancelOutcome.CANCELLED if cancels else (yield from delivered(store, topic, unique_key))
    replaced = {each.prepared_offset for each in cancels}
    return CancelOutcome.CANCELLED if prepared_offset_of(newest.physical) in replaced else CancelOutcome.TOO_LATE


def _append(delays: Delays, waiting: list[Message], topic: str, unique_key: str) -> None:
    """Append, flush, and settle; nothing is delivered in between, since one thread does all of it."""
    store = delays.store
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
    store.append(puts, born_ms=waiting[0].born_ms, born_host=waiting[0].born_host, atomic=len(puts) > 1)
    store.flush()
    if store.failed is not None:
        raise store.failed
    for each in waiting:
        delays.take_out(each.queue_id + 1, each.offset)
    delays.metrics.counter(counted.CANCELLED).add(len(waiting))
