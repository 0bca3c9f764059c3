"""What takes the place of an occurrence that is due: deliveries, and the next one that waits, in one append."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import MessageRefused
from broker.format.message import LogMessage, message_of
from broker.format.properties import encode_properties, find_property
from broker.log.put import Put
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.scheduled.recurring import metrics as counted
from broker.scheduled.recurring.loops import MISSED_MAX, UNFOLD_BYTES, UNFOLD_COUNT, Loops, occurrence_of
from broker.scheduled.recurring.occurrence import GROWING, LOOP, LOOP_NAME, NUMBER_MAX, ONCE, Occurrence
from broker.scheduled.release import release
from broker.scheduled.timer.names import TIMER_NAMES, TIMER_TOPIC
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import HOST, open_store

UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
START_S = 1_700_000_000
BODY = bytes(range(256))


class World:
    """A store with loops and nobody who delivers: the tests do that by hand."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock(START_S * 1000)
        self.metrics = Metrics()
        disk = SimDisk()
        self.store: Store = open_store(disk, clock=self.clock, metrics=self.metrics, **options)
        self.topic = self.store.create_topic("t", 2)
        self.loops = Loops(self.store, runtime_of(disk, self.clock, metrics=self.metrics))

    def add(self, occurrence: Occurrence, body: bytes = BODY, **properties: str) -> None:
        """Store a loop as the node does."""
        put = Put(self.topic, 1, body, encode_properties({"TAGS": "tag", **properties}), b"tag")
        self.append([self.loops.first(put, occurrence)])

    def append(self, puts: list[Put]) -> None:
        """Append as one, and flush."""
        self.store.append(puts, born_ms=77, born_host=HOST, atomic=len(puts) > 1)
        self.store.flush()

    def records(self, topic: str, queue_id: int) -> list[LogMessage]:
        """All records of a queue."""
        found = self.store.topics.get(topic)
        queue = found.queues[queue_id] if found else None
        units = queue.read(0, queue.max_offset) if queue else []
        return [message_of(self.store.read(physical, size)) for physical, size, _ in units]

    def deliver(self) -> int:
        """Have the newest waiting record delivered; returns how many deliveries that made."""
        waiting = self.records(TIMER_TOPIC, 0)[-1]
        released = release(self.store.read(waiting.physical, waiting.size), self.store.topics, TIMER_NAMES)
        unfolded = self.loops.unfold(released)
        assert unfolded is not None
        self.append(unfolded.puts)
        self.loops.done(waiting.physical)
        return unfolded.delivered


def loop(kind: int = LOOP, *, at: int = 60, expire: int = 10**6, times: int = 10, interval: int = 60) -> Occurrence:
    """A loop's first occurrence, its times in seconds from the start."""
    return Occurrence(START_S + at, kind, START_S + expire, times, 0, interval, 0, UUID)


def test_loop_waits_under_its_id_and_that_of_its_first() -> None:
    """Timed message, exact due time, state in a private property; a UNIQ_KEY of its own each time."""
    world = World()
    first = loop()
    following = first.next()
    assert following is not None
    world.add(first, color="red")
    world.clock.advance(60)
    assert world.deliver() == 1
    one, two = world.records(TIMER_TOPIC, 0)
    assert (one.properties["KEYS"], two.properties["KEYS"]) == (first.id, f"{following.id} {first.id}")
    assert one.properties[LOOP_NAME.decode()] == first.id
    assert one.properties["TIMER_DELIVER_MS"] == str((START_S + 60) * 1000)
    assert two.properties["TIMER_DELIVER_MS"] == str((START_S + 120) * 1000)
    assert one.properties["UNIQ_KEY"] != two.properties["UNIQ_KEY"]
    assert (one.properties["REAL_TOPIC"], one.properties["REAL_QID"]) == ("t", "1")


def test_delivery_is_the_message_that_was_added_under_the_occurrences_id() -> None:
    """Body byte for byte, tag, properties; both records name the one that they replace (D27), as one batch (D8)."""
    world = World()
    first = loop()
    world.add(first, color="red")
    world.clock.advance(60)
    world.deliver()
    waited, following = world.records(TIMER_TOPIC, 0)
    [found] = world.records("t", 1)
    assert bytes(found.stored_body) == BODY
    expected = {"KEYS": first.id, "TAGS": "tag", "color": "red", "UNIQ_KEY": waited.unique_key}
    assert found.properties == expected
    # Offset 0 is written as -1.
    assert [found.prepared_offset, following.prepared_offset] == [waited.physical or -1] * 2
    assert following.physical == found.physical + found.size


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(((LOOP, 3), (LOOP, 50), (GROWING, 2), (GROWING, 7))),
    st.integers(1, 150),
    st.integers(1, 2000),
    st.lists(st.integers(0, 700), max_size=40),
)
def test_any_pauses_give_every_occurrence_once_and_in_order(
    kind: tuple[int, int], times: int, expire: int, pauses: list[int]
) -> None:
    """Whenever the node looks: all that is due is delivered in order, nothing else, and the rest waits."""
    world = World(segment_bytes=1 << 16)
    first = loop(kind[0], at=0, expire=expire, times=times, interval=kind[1])
    plain = [first]
    while (after := plain[-1].next()) is not None:
        plain.append(after)
    world.add(first, b"x")
    made = 0
    for pause in [*pauses, 10**8]:
        world.clock.advance(pause + 0.001)
        while made < len(plain) and plain[made].at_s * 1000 <= world.clock.wall_ms():
            made += world.deliver()
    assert [message.properties["KEYS"] for message in world.records("t", 1)] == [each.id for each in plain]
    assert world.metrics.value(counted.DELIVERED) == len(plain)
    assert world.metrics.value(counted.ENDED, "exhausted") == 1


def test_missed_occurrences_come_in_bunches() -> None:
    """As many at a time as a step of the timers may take, by count and by bytes; the rest waits and is due now."""
    world = World(segment_bytes=4 * UNFOLD_BYTES)
    world.add(loop(at=-6000, interval=3, times=10**6), b"small")
    assert world.deliver() == UNFOLD_COUNT
    assert int(world.records(TIMER_TOPIC, 0)[-1].properties["TIMER_DELIVER_MS"]) == START_S * 1000 + 1
    world = World(segment_bytes=4 * UNFOLD_BYTES)
    world.add(loop(at=-6000, interval=3, times=10**6), bytes(UNFOLD_BYTES // 4))
    assert world.deliver() == 2
    world = World(segment_bytes=1 << 15)
    world.add(loop(at=-6000, interval=3, times=10**6), bytes(15_000))
    assert world.deliver() == 1


def test_too_many_missed_are_skipped_counted_and_part_of_times() -> None:
    """The newest of them are delivered; what is skipped counts as made."""
    world = World(segment_bytes=1 << 20)
    first = loop(at=-3 * (MISSED_MAX + 500), interval=3, times=NUMBER_MAX, expire=10**8)
    world.add(first)
    world.deliver()
    skipped = first.later(501)
    assert skipped is not None
    assert world.records("t", 1)[0].properties["KEYS"] == skipped.id
    assert world.metrics.value(counted.SKIPPED) == 501


def test_past_single_message_is_delivered_at_once_under_its_id() -> None:
    """It does not wait at all; one of the future waits as any timed message."""
    world = World()
    past = Occurrence(START_S - 10, ONCE, START_S, 0, 0, 0, 0, UUID)
    world.add(past)
    [found] = world.records("t", 1)
    assert found.properties["KEYS"] == past.id
    world.add(past._replace(at_s=START_S + 1))
    [waiting] = world.records(TIMER_TOPIC, 0)
    assert LOOP_NAME.decode() not in waiting.properties


def test_loop_that_would_not_fit_twice_into_a_log_file_is_refused() -> None:
    """Its delivery and its next message are one append; a single message of that size is taken."""
    world = World(segment_bytes=4096)
    world.add(loop(), bytes(1500))
    with pytest.raises(MessageRefused, match="send a smaller body"):
        world.add(loop(), bytes(1800))
    world.add(Occurrence(START_S + 9, ONCE, START_S + 99, 0, 0, 0, 0, UUID), bytes(1800))
    world = World(segment_bytes=1 << 20)
    with pytest.raises(MessageRefused, match="the limit is"):
        world.add(loop(), b"x", long="x" * 32_400)
    world.add(loop(), b"x", long="x" * 32_000)
    world.clock.advance(60)
    assert world.deliver() == 1


def test_other_records_are_no_loops() -> None:
    """A message of the timers unfolds to nothing; damaged state is no loop."""
    world = World()
    world.append([world.store.waiting(TimedPuts).put(Put(world.topic, 0, b"x", b""), (START_S + 5) * 1000)])
    [waiting] = world.records(TIMER_TOPIC, 0)
    released = release(world.store.read(waiting.physical, waiting.size), world.store.topics, TIMER_NAMES)
    assert world.loops.unfold(released) is None
    assert occurrence_of(b"__PYDDMQ_LOOP\x01nonsense\x02") is None
    assert find_property(released.put.properties, LOOP_NAME) is None
