"""docs/states.md: messages of the delay levels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from functools import partial

import pytest

from broker.errors import DamagedRecord, DiskFull, RecordGone, StoreFailed
from broker.format.message import message_of
from broker.format.record import split, store_timestamp
from broker.retention import RetentionLimits
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.level_queue import DelayLevel
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.scheduled.delay.retention_hold import DelayHold
from broker.store import Store
from tests.integration.delay_tools import TOPIC, Broker, broker
from tests.integration.store_tools import ROOT
from tests.integration.turns import Turns, take_over
from tests.integration.waiting_tools import drive, put_durably, retain
from tests.lifecycle.scenario import DERIVED, MADE_ANEW, Scenario
from tests.lifecycle.walk import Walk

GONE = "gone"
LEVELS_MS = {1: 1000, 2: 5000, 3: 10_000}
TIME = "its time has come"
REFUSED = "the store refuses"


class _Killed(Exception):
    """The scenario's own kill, while deliveries are staged."""


class Delays(Scenario):
    """Sends with levels 1 to 3; flushes at the end of a turn, so that a delivery under way can be seen."""

    table = "states.md: Delayed messages"
    losses = DERIVED
    spoils = MADE_ANEW

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._kill = False
        self._known: dict[int, bytes] = {}
        self._ids: dict[bytes, str] = {}
        self._cancelled: set[bytes] = set()
        self._open()
        self._deliver()
        self._cancel_some()
        self._refuse()
        self._fill_the_disk()
        self._kill_while_delivering()
        self._fail_syncs()
        self._damage()
        self._made.close()

    # What happens

    def _deliver(self) -> None:
        for body, level in ((b"a", 1), (b"b", 1), (b"c", 2)):
            self._send(body, level)
        self._advance(1)
        self._advance(5)

    def _cancel_some(self) -> None:
        """One that waits behind another, one that was refused; a kill changes nothing of it."""
        for body in (b"before", b"no"):
            self._send(body, 3)
        self._cancel(b"no", TOPIC)
        self._made.store.create_topic(GONE, 1)
        self._send(b"stuck", 1, GONE)
        self._made.store.topic_changes.delete(GONE)
        self._made.scheduler.advance(1)
        self._walk.went(b"stuck", self._state(b"stuck"), TIME, REFUSED)
        self._cancel(b"stuck", GONE)
        self._made.delays.stop()
        self._made.store.abandon()
        self.moment.stop()
        self._open(start=False)
        self._walk.went(b"no", self._state(b"no"), "kill, power loss")
        self._made.delays.start()
        self._advance(10)

    def _cancel(self, body: bytes, topic: str) -> None:
        self.account.unsure(body)
        name = self._ids[body]
        self._cancelled.add(body)
        assert drive(self._made.delays.cancelling(topic, name), self._made.scheduler) is CancelEffect.CANCELLED
        self.account.forbid(body)
        self._see()

    def _refuse(self) -> None:
        """A message whose topic is gone: refused, tried again, put again, delivered in the end."""
        made = self._made
        made.store.create_topic(GONE, 1)
        self._send(b"g", 2, GONE)
        self._send(b"h", 3, GONE)
        made.store.topic_changes.delete(GONE)
        made.scheduler.advance(5)
        self._walk.went(b"g", self._state(b"g"), TIME, REFUSED)
        made.scheduler.advance(5)
        self._walk.went(b"h", self._state(b"h"), TIME, REFUSED)
        made.scheduler.advance(5)
        self._walk.went(b"g", self._state(b"g"), "10 s have passed", REFUSED)
        made.store.create_topic(GONE, 1)
        self._advance(10)
        made.store.topic_changes.delete(GONE)
        self._send(b"i", 2, GONE, refused=True)
        made.scheduler.advance(5)
        self._walk.went(b"i", self._state(b"i"), TIME, REFUSED)
        for number in range(8):
            put_durably(made.store, made.scheduler, "other", b"%d" % number * 1500)
        self.clock.advance(11)
        made.store.checkpoint()
        self.moment.saved()
        self._see()
        retain(made.store, made.scheduler)
        if not self.moment.beside:
            # There it was seen when its copy became visible.
            self._walk.went(b"i", self._state(b"i"), "its log file is to be deleted")
        made.store.retention.limits = RetentionLimits()
        made.store.create_topic(GONE, 1)
        self._advance(20)

    def _fill_the_disk(self) -> None:
        full = b"full" * 50
        self._send(full, 1)
        self.disk.capacity_bytes = 0
        with contextlib.suppress(DiskFull):
            while True:
                put_durably(self._made.store, self._made.scheduler, "other", b"x" * 50)
        self._made.scheduler.advance(1)
        self._walk.went(full, self._state(full), TIME, "the disk is full")
        self.disk.capacity_bytes = None
        self._advance(3)

    def _kill_while_delivering(self) -> None:
        self._send(b"k", 1)
        self._kill = True
        try:
            self._advance(1)
        except _Killed:
            self._kill = False
        self._made.delays.stop()
        self._made.store.abandon()
        self.moment.stop()
        self._open(start=False)
        self._walk.went(b"k", self._state(b"k"), "kill, power loss")
        self._made.delays.start()
        self._advance(1)

    def _damage(self) -> None:
        self._send(b"d", 2)
        self._advance(1)
        self._send(b"e", 2)
        self.account.unsure(b"d")
        [physical] = [physical for physical, body in self._known.items() if body == b"d"]
        self._made.close()
        segment = self._made.store.options.segment_bytes
        self.disk.flip_bit(f"{ROOT}/commitlog/{physical - physical % segment:020d}", physical % segment + 90)
        self.moment.stop()
        self._open()
        self._made.scheduler.advance(4)
        self._walk.went(b"d", self._state(b"d"), TIME, "its record is damaged")
        self._advance(1)

    def _fail_syncs(self) -> None:
        """A sync fails while something is delivered or cancelled: a life each, since the store writes no more."""
        self._advance(60)
        for body, event in (
            (b"r", "kill, and the log has the delivered"),
            (b"s", "power loss, and the log"),
            (b"t", "kill, and the log has the cancel"),
            (b"u", "power loss, and the log"),
        ):
            self._send(body, 1)
            if body in (b"t", b"u"):
                self.account.unsure(body)
                self._cancelled.add(body)
                self.disk.fail("sync", path_part="/commitlog/")
                with pytest.raises(StoreFailed):
                    drive(self._made.delays.cancelling(TOPIC, self._ids[body]), self._made.scheduler)
                self._walk.went(body, self._state(body), "a cancel, the sync fails")
            else:
                self.disk.fail("sync", path_part="/commitlog/")
                self._made.scheduler.advance(1.1)
                was = self._walk.states[body]
                if was != "undecided":
                    events = ("the sync fails",) if was == "delivering" else (TIME, "the sync fails")
                    self._walk.went(body, self._state(body), *events)
            self.disk.heal()
            self._made.delays.stop()
            self._made.store.abandon()
            if event.startswith("power"):
                self.moment.power_off()
            self.moment.stop()
            self._open(start=False)
            self._walk.went(body, self._state(body), event)
            self._made.delays.start()
            self._advance(1)

    # How it runs

    def _open(self, *, start: bool = True) -> None:
        made = self._made = broker(self.disk, self.clock, start=False)
        store = made.store
        take_over(store, Turns(partial(_soon, made, self._turn_end)))
        self.moment.run(store, made.scheduler, before=self._before_flush, after=self._see)
        store.retention.holds.append(DelayHold(made.delays, made.metrics))
        store.retention.limits = RetentionLimits(log_bytes=3 * store.options.segment_bytes)
        store.create_topic("other", 1)
        if start:
            made.delays.start()

    def _turn_end(self) -> None:
        if not self._made.store.pending:
            return
        self._before_flush()
        self._made.store.flush()
        self._see()

    def _before_flush(self) -> None:
        self._see()
        if self._kill:
            raise _Killed

    def _send(self, body: bytes, level: int, topic: str = TOPIC, *, refused: bool = False) -> None:
        """Publish; `refused`: as RocketMQ's own tools can, to a topic that is not there any more."""
        store = self._made.store
        if refused:
            store.create_topic(topic, 1)
        self.account.asked(body, self.clock.wall_ms() + LEVELS_MS[level])
        self._made.send(body, level, topic)
        self.account.answered(body)
        self._see()
        if refused:
            store.topic_changes.delete(topic)

    def _advance(self, seconds: float) -> None:
        self._made.scheduler.advance(seconds)
        self._see()

    # What can be seen

    def _see(self) -> None:
        self._report()
        self._read_schedule()
        states: dict[Hashable, str] = {body: self._state(body) for body in set(self._known.values())}
        self._walk.saw_all(states)

    def _read_schedule(self) -> None:
        topic = self._made.store.topics.get(SCHEDULE_TOPIC)
        for queue in topic.queues if topic else ():
            for physical, size, _ in queue.read(queue.min_offset, queue.max_offset - queue.min_offset):
                if physical not in self._known:
                    message = message_of(self._made.store.read(physical, size))
                    body = self._known[physical] = bytes(message.stored_body)
                    self._ids[body] = message.unique_key

    def _state(self, body: bytes) -> str:
        """Where a message is, told by the levels and by its topic."""
        self._read_schedule()
        self._report()
        found = [
            self._state_in(level, offset)
            for level in self._made.delays.levels.values()
            for offset, physical in _places(level)
            if self._known.get(physical) == body
        ]
        if found:
            return found[-1]
        if body in [thing for thing, _ in self.account.visible.values()]:
            return "delivered"
        return "cancelled" if body in self._cancelled else "lost"

    def _state_in(self, level: DelayLevel, offset: int) -> str:
        if self._made.store.failed is not None:
            return "undecided"
        if self._made.delays.due.delivery.in_flight and level.is_tried(offset):
            return "delivering"
        return "refused" if offset in level.refused else "waiting"

    def _report(self) -> None:
        report(self, self._made.store)

    def finish(self) -> None:
        """Start, with the topics that were gone, and wait for more than any delay."""
        made = broker(self.disk, self.clock)
        made.store.create_topic(GONE, 1)
        made.scheduler.advance(30)
        report(self, made.store)
        self.account.open_ones |= {f"level {each.level}" for each in made.delays.levels.values() if each.pending}
        made.close()


def _soon(made: Broker, turn_end: Callable[[], None]) -> None:
    made.scheduler.call_soon(turn_end)


def _places(level: DelayLevel) -> list[tuple[int, int]]:
    """Queue offset and commit-log offset of what is not settled."""
    return [(each.offset, each.physical) for each in level.waiting(level.position)]


def report(scenario: Scenario, store: Store) -> None:
    """Tell the account what is in the topics that messages were delivered to."""
    for name in (TOPIC, GONE):
        topic = store.topics.get(name)
        for queue in topic.queues if topic else ():
            for physical, size, _ in queue.read(queue.min_offset, queue.max_offset):
                try:
                    record = store.read(physical, size)
                except (DamagedRecord, RecordGone):
                    continue
                scenario.account.see(physical, bytes(split(record)[0]), store_timestamp(record))
