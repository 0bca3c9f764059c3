"""What waits in a stopped store, message by message, as it would wait in Kafka: timers, loops, levels and halves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from broker.errors import BodyUnusable, StoreError
from broker.format.body import body_limit, split_body
from broker.format.java import queue_of_hash, string_hash
from broker.format.numbers import whole_number
from broker.format.properties import find_property, is_system_property, parse_properties
from broker.format.record import prepared_offset, split
from broker.format.wait_properties import REAL_QUEUE_NAME, REAL_TOPIC_NAME
from broker.log.put import owner_of
from broker.queues.topics import is_system
from broker.runtime.steps import run_now
from broker.scheduled.delay.levels import DelayLevels
from broker.scheduled.recurring.occurrence import parse_id
from broker.scheduled.timer.listing import KeptScan, TimerListing
from broker.scheduled.timer.names import CANCEL_NAME
from broker.scheduled.timer.pending.log import MAGIC_DELETE
from broker.transaction.half import half_of
from proxy.cli.store.stopped_queries import Answers, undecided_of
from upstream.kafka.headers import encode
from upstream.kafka.waiting.records import Identity, WaitingHalf, WaitingRecord

if TYPE_CHECKING:
    from broker.scheduled.timer.timers import Timers
    from proxy.cli.store.stopped_store import StoppedStore

_PAGE = 1000
_CHUNK_UNITS = 1024
Unreadable = Literal["unreadable", "internal"]


class StoredWaiting(NamedTuple):
    """A message that waits in a store.

    Attributes:
        identity: What names it in Kafka.
        record: As it would wait there; its `partition` is to be chosen by `placed`.
        queue: Its queue in the store.
        uuid: Of a loop, which has all its occurrences in one partition; "": it is none.
    """

    identity: Identity
    record: WaitingRecord
    queue: int
    uuid: str = ""

    def placed(self, partitions: int) -> WaitingRecord:
        """Return the record for a topic with this number of partitions.

        Loops go where a node would have them, others by their key; those without a key keep the order of their queue.
        """
        if self.uuid:
            return self.record._replace(partition=queue_of_hash(string_hash(self.uuid) or 1, partitions))
        return self.record._replace(partition=None if self.record.key is not None else self.queue % partitions)


class NotCopied(NamedTuple):
    """A message that cannot wait in Kafka, and why."""

    topic: str
    kind: Unreadable


class WaitingInStore:
    """What waits in one store. Opened at once, so that reading it takes no loop.

    Args:
        found: The store.
        levels: Delays of the levels that a commit begins.
    """

    def __init__(self, found: StoppedStore, levels: DelayLevels) -> None:
        answers = Answers(found)
        self._store = found.store
        self._clock = found.runtime.clock
        self._levels = levels
        self._body_max = body_limit(found.store.options.message_bytes_max)
        self._timers = answers.opened_timers()
        self._delays = answers.opened_delays()
        self._transactions = answers.opened_transactions()

    @property
    def discarded(self) -> int:
        """Number of discarded halves; they stay in the store."""
        count, cursor = 0, 0
        while True:
            page = run_now(self._transactions.discarded(cursor=cursor, count_max=_PAGE))
            count += len(page.found)
            if page.cursor is None:
                return count
            cursor = page.cursor

    def messages(self) -> Iterator[StoredWaiting | NotCopied]:
        """Yield all of them; the same ones in the same order each time."""
        yield from self._timed()
        for level in self._delays.levels.values():
            for each in level.waiting(level.position, _CHUNK_UNITS):
                yield self._message(each.physical, each.size, each.due_ms, "level")
        for half in undecided_of(self._transactions):
            yield self._half(half.physical, half.bytes, half.topic)

    def _timed(self) -> Iterator[StoredWaiting | NotCopied]:
        timers, kept = self._timers, KeptScan()
        cancelled = _cancelled_by_rocketmq(timers)
        after: tuple[int, int] | None = None
        while True:
            listing = TimerListing(timers, after=after, limit=_PAGE, kept=kept)
            run_now(listing.steps())
            for each in listing.found:
                key = each.id.encode()
                if key and (key in cancelled or b"%b+%b" % (each.topic.encode(), key) in cancelled):
                    continue
                refused = timers.due.refused.get(each.physical)
                position = timers.table.log.find(each.physical)
                if refused is not None:
                    size = refused.timer.unit.size
                elif position is not None:
                    size = timers.table.log.unit(position).size
                else:
                    continue
                yield self._message(each.physical, size, each.due_ms, "timer")
            after = listing.after
            if after is None:
                return

    def _message(self, physical: int, size: int, due_ms: int, kind: str) -> StoredWaiting | NotCopied:
        topic = ""
        try:
            record = self._store.read(physical, size)
            body, block = split_body(record, self._body_max)
            topic = (find_property(block, REAL_TOPIC_NAME) or b"").decode("utf-8", "replace")
        except (StoreError, BodyUnusable):
            return NotCopied(topic, "unreadable")
        if is_system(topic):
            return NotCopied(topic, "internal")
        unique = (find_property(block, b"UNIQ_KEY") or b"").decode("utf-8", "replace")
        keys = (find_property(block, b"KEYS") or b"").decode("utf-8", "replace")
        occurrence = parse_id(keys.partition(" ")[0])
        name, uuid, loop = unique or f"store-{physical}", "", ""
        if occurrence is not None:
            # A delay message of DDMQ's: its first id names it, and the pending one is its only key.
            name, loop, kind, keys = occurrence.first.id, occurrence.id, "loop", occurrence.id
            uuid = occurrence.uuid if occurrence.is_loop else ""
        waiting = self._record(due_ms, keys, block, body, unique)._replace(kind=kind, loop=loop)
        queue = whole_number(find_property(block, REAL_QUEUE_NAME)) or 0
        return StoredWaiting(Identity(topic, owner_of(block), name), waiting, queue, uuid)

    def _half(self, physical: int, size: int, topic: str) -> StoredWaiting | NotCopied:
        try:
            record = self._store.read(physical, size)
            half = half_of(record)
            body, block = split_body(record, self._body_max)
        except (StoreError, BodyUnusable):
            return NotCopied(topic, "unreadable")
        if is_system(half.topic):
            return NotCopied(half.topic, "internal")
        delay = half.delay
        delay_ms = self._levels.ms(delay.level) if delay.level else 0 if delay.deliver_at_ms else delay.delay_ms
        waits = WaitingHalf(
            half.group,
            deliver_at_ms=0 if delay.level else delay.deliver_at_ms,
            delay_ms=delay_ms,
            immunity_ms=-1 if half.immunity_ms is None else half.immunity_ms,
        )
        keys = (find_property(block, b"KEYS") or b"").decode("utf-8", "replace")
        unique = (find_property(block, b"UNIQ_KEY") or b"").decode("utf-8", "replace") or half.transaction_id
        # It has waited for its first check already.
        waiting = self._record(self._clock.wall_ms(), keys, block, body, unique)._replace(kind="half", half=waits)
        identity = Identity(half.topic, half.owner, half.transaction_id)
        return StoredWaiting(identity, waiting, max(0, half.queue_id))

    def _record(self, due_ms: int, keys: str, block: bytes, body: memoryview, unique: str) -> WaitingRecord:
        properties = parse_properties(block)
        tag = properties.get("TAGS", "")
        own = {name: text for name, text in properties.items() if not is_system_property(name.encode())}
        key, headers = encode(keys, tag, own, unique)
        return WaitingRecord(due_ms, None, key, bytes(body), tuple(headers))


def _cancelled_by_rocketmq(timers: Timers) -> set[bytes]:
    """Return the keys that cancels of RocketMQ's name, which take effect when their slot is read."""
    log, found = timers.table.log, set[bytes]()
    for number in range(log.first, log.count):
        unit = log.unit(log.position(number))
        if not unit.size or not unit.magic & MAGIC_DELETE or unit.slot_ms < timers.table.read_ms:
            continue
        try:
            record = timers.store.read(unit.physical, unit.size)
        except StoreError:
            continue
        if not prepared_offset(record):
            found.add(find_property(split(record)[1], CANCEL_NAME) or b"")
    return found
