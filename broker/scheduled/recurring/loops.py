"""Loops: what is stored when one is added, and what takes the place of an occurrence when it is due.

Guarantees:

- An occurrence's delivery and the next pending occurrence are one atomic append (D8, D27): a stop leaves either the
  occurrence waiting, or it delivered and the next one waiting.
- A loop has one pending record and nothing in memory; its state is the id of the pending occurrence.
- Occurrences that were missed, in a downtime or since a loop began in the past, are delivered one after the other
  without their gaps, in the order of the loop, a bunch at a time: UNFOLD_COUNT and UNFOLD_BYTES to a step of the
  timers, so that other messages have their turn between two of them (W86). Of more than MISSED_MAX the oldest are
  skipped, counted and said; they count as made.
- Nothing decides whether a loop continues but its id: a topic that takes nothing keeps its occurrence apart as any
  other timed message, and the loop continues when the topic does.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.errors import MessageRefused
from broker.format.properties import PROPERTIES_BYTES_MAX, find_property
from broker.format.record import BLANK_BYTES
from broker.log.put import Put
from broker.runtime.bundle import Runtime
from broker.scheduled.recurring import metrics as counted
from broker.scheduled.recurring.occurrence import LOOP_NAME, Occurrence, parse_id
from broker.scheduled.release import Released, closed, without
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store

# A loop's message as it waits in the timer topic, and as it is delivered.
#
# It waits under two keys: the id of the occurrence, DDMQ's uniqDelayMsgId (D31), and that of the loop's first one, by
# which a cancel finds what is pending by any occurrence. `__PYDDMQ_LOOP` holds the id once more; it is
# all the state that a loop has. What is delivered has the id as its only key, as with DDMQ (its MqPushService).


_KEYS_NAME = b"KEYS"
_UNIQUE_NAME = b"UNIQ_KEY"


def occurrence_of(block: bytes) -> Occurrence | None:
    """Return which occurrence of a loop waits in a record with these properties; None without a loop."""
    value = find_property(block, LOOP_NAME)
    return None if value is None else parse_id(value.decode("utf-8", "replace"))


def delivered(put: Put, occurrence: Occurrence) -> Put:
    """Return the put of an occurrence, from that of any other: with its id as key, without the loop's state."""
    rest = without(put.properties, (_KEYS_NAME, LOOP_NAME))
    return put._replace(properties=b"KEYS\x01%b\x02%b" % (occurrence.id.encode(), rest))


def waiting(put: Put, occurrence: Occurrence) -> Put:
    """Return the put of an occurrence as it waits, before it has its due time; it gets a UNIQ_KEY of its own."""
    rest = without(put.properties, (_KEYS_NAME, LOOP_NAME, _UNIQUE_NAME))
    text = occurrence.id.encode()
    keys = text if occurrence.made == 0 else b"%b %b" % (text, occurrence.first.id.encode())
    block = b"KEYS\x01%b\x02%b%b\x01%b\x02" % (keys, closed(rest), LOOP_NAME, text)
    return put._replace(properties=block, unique_key=b"")


def anew(put: Put) -> Put:
    """Return a put that gets a UNIQ_KEY of its own."""
    return put._replace(properties=without(put.properties, (_UNIQUE_NAME,)), unique_key=b"")


MISSED_MAX = 100_000
UNFOLD_COUNT = 64
UNFOLD_BYTES = 1 << 20

_OWN_BYTES = 512
"""What the broker adds to the record and the properties of an occurrence, and what later ids have more, at the most."""


class Unfolded(NamedTuple):
    """What takes the place of a waiting occurrence.

    Attributes:
        puts: One atomic append: the occurrence, further ones that were missed, and the next one to wait, if any.
        delivered: How many of them are deliveries.
        skipped: How many missed ones are left out.
    """

    puts: list[Put]
    delivered: int
    skipped: int

    @property
    def ends(self) -> bool:
        """Whether the loop has no further occurrence."""
        return len(self.puts) == self.delivered


class Loops:
    """The loops of one store.

    Args:
        store: Its `timed` makes what waits.
        runtime: Wall clock, counts, and log lines on what is skipped.
    """

    def __init__(self, store: Store, runtime: Runtime) -> None:
        metrics = runtime.metrics
        self._store = store
        self._timed = store.waiting(TimedPuts)
        self._clock = runtime.clock
        self._limited_log = runtime.limited_log
        self._staged: dict[int, Unfolded] = {}
        """By commit-log offset: what is about to take the place of what."""
        self._delivered = metrics.counter(counted.DELIVERED)
        self._exhausted = metrics.counter(counted.ENDED, "exhausted")
        self._cancelled = metrics.counter(counted.ENDED, "cancelled")
        self._skipped = metrics.counter(counted.SKIPPED)

    def first(self, put: Put, occurrence: Occurrence) -> Put:
        """Return what to append for a message that is added.

        Args:
            put: As it would be delivered now, without a key.
            occurrence: Its first one. What is past is due now: a single message is then not made to wait at all.

        Raises:
            MessageRefused: A loop's message is too large to be stored twice in one log file, or as `TimedPuts.put`.
            DiskFull, StoreFailed: As `TimedPuts.put`.
        """
        now = self._clock.wall_ms()
        due = occurrence.at_s * 1000
        if not occurrence.is_loop:
            return self._timed.put(delivered(put, occurrence), due)
        self._check_room(put)
        made = waiting(put, occurrence)
        # Checked as any timed message is, though a loop waits also when it is due: its delivery makes its successor.
        self._timed.put(made, max(due, now + 1))
        return self._timed.timed(made, max(due, now + 1))

    def _check_room(self, put: Put) -> None:
        room = self._store.options.segment_bytes - BLANK_BYTES
        size = len(put.body) + len(put.properties) + _OWN_BYTES
        if 2 * size > room:
            raise MessageRefused(
                f"a loop's delivery and its next message need {2 * size} bytes together, and a log file has "
                f"{room}; send a smaller body"
            )
        if len(put.properties) > PROPERTIES_BYTES_MAX - _OWN_BYTES:
            raise MessageRefused(
                f"tags and properties have {len(put.properties)} bytes; the limit is "
                f"{PROPERTIES_BYTES_MAX - _OWN_BYTES}"
            )

    def unfold(self, released: Released) -> Unfolded | None:
        """Return what takes the place of a waiting record that is due; None without a loop.

        Tell `done` when it is stored.

        Args:
            released: The record as it would be delivered if it were none.
        """
        each = occurrence_of(released.put.properties)
        if each is None or not each.is_loop:
            return None
        put = released.put
        now = self._clock.wall_ms()
        missed = max(1, each.missed(now // 1000))
        skipped = max(0, missed - MISSED_MAX)
        if skipped:
            each = each.later(skipped) or each
        count = min(missed - skipped, UNFOLD_COUNT, max(1, self._fitting(put) - 1))
        puts: list[Put] = []
        following: Occurrence | None = each
        while following is not None and len(puts) < count:
            puts.append(delivered(anew(put) if puts else put, following))
            following = following.next()
        made = len(puts)
        if following is not None:
            due = max(following.at_s * 1000, now + 1)
            puts.append(self._timed.timed(waiting(put, following), due))
        unfolded = self._staged[max(put.prepared_offset, 0)] = Unfolded(puts, made, skipped)
        return unfolded

    def _fitting(self, put: Put) -> int:
        """Records of a loop that one append may hold."""
        room = min(UNFOLD_BYTES, self._store.options.segment_bytes - BLANK_BYTES)
        return room // (len(put.body) + len(put.properties) + _OWN_BYTES)

    def done(self, physical: int) -> None:
        """Count what took the place of the record at a commit-log offset, once it is stored."""
        unfolded = self._staged.pop(physical, None)
        if unfolded is None:
            return
        self._delivered.value += unfolded.delivered
        self._exhausted.value += unfolded.ends
        if unfolded.skipped:
            self._skipped.value += unfolded.skipped
            put = unfolded.puts[0]
            next_id = (find_property(put.properties, b"KEYS") or b"").decode()
            self._limited_log.note(
                "loop_occurrences_skipped", count=unfolded.skipped, topic=put.topic.name, next=next_id
            )

    def cancelled(self, properties: bytes) -> None:
        """Count a loop whose pending occurrence was cancelled; `properties` are those of its record."""
        each = occurrence_of(properties)
        self._cancelled.value += each is not None and each.is_loop
