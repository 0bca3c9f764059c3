"""docs/states.md: timed messages."""

from __future__ import annotations

import contextlib
from functools import partial

from broker.errors import DamagedRecord, DiskFull, RecordGone
from broker.record import split
from broker.timer import metrics as counted
from broker.timer.names import TIMER_TOPIC
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import TOPIC, Broker, broker
from tests.lifecycle.delays import GONE, tell
from tests.lifecycle.scenario import DERIVED, Scenario
from tests.lifecycle.walk import Walk

TIME = "its millisecond has come"
REFUSED = "the store refuses"


class _Killed(Exception):
    """The scenario's own kill, while deliveries are staged."""


class Timers(Scenario):
    """Sends for later; flushes at the end of a turn, so that a delivery under way can be seen."""

    table = "states.md: States of a timer"
    losses = DERIVED

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._kill = False
        self._known: dict[int, bytes] = {}
        self._due: dict[bytes, int] = {}
        self._open()
        self._deliver()
        self._roll()
        self._refuse()
        self._fill_the_disk()
        self._kill_while_delivering()
        self._damage()
        self._made.close()

    # What happens

    def _deliver(self) -> None:
        for body, delay_ms in ((b"a", 1234), (b"b", 1234), (b"c", 5001), (b"far", 900_000)):
            self._send(body, delay_ms)
        self._advance(1.3)
        self._again()
        self._walk.went(b"c", self._state(b"c"), "kill, power loss")
        self._walk.went(b"a", self._state(b"a"), "kill, power loss")
        self._made.timers.start()
        self._advance(5)

    def _roll(self) -> None:
        before = len(self._records(b"far"))
        for _ in range(10):
            self._made.scheduler.advance(90)
            if len(self._records(b"far")) > before:
                break
        assert len(self._records(b"far")) > before
        self._walk.went(b"far", self._state(b"far"), "its slot is one of a roll")
        self._made.timers.save()

    def _refuse(self) -> None:
        made = self._made
        made.store.create_topic(GONE, 1)
        self._send(b"g", 1500, GONE)
        made.store.topic_changes.delete(GONE)
        made.scheduler.advance(1.6)
        self._walk.went(b"g", self._state(b"g"), TIME, REFUSED)
        made.scheduler.advance(10)
        self._walk.went(b"g", self._state(b"g"), "10 s have passed", REFUSED)
        made.timers.save()
        self._again()
        self._walk.went(b"g", self._state(b"g"), "kill, power loss")
        self._made.store.create_topic(GONE, 1)
        self._made.timers.start()
        self._advance(20)

    def _fill_the_disk(self) -> None:
        full = b"full" * 50
        self._send(full, 3000)
        self._made.scheduler.advance(2.5)
        self.disk.capacity_bytes = 0
        with contextlib.suppress(DiskFull):
            while True:
                self._made.store.put("other", b"x" * 50)
        self._made.scheduler.advance(1)
        self._walk.went(full, self._state(full), TIME, "the disk is full")
        self.disk.capacity_bytes = None
        self._advance(3)

    def _kill_while_delivering(self) -> None:
        self._send(b"k", 1000)
        self._kill = True
        with contextlib.suppress(_Killed):
            self._advance(2)
        self._kill = False
        self._again()
        self._walk.went(b"k", self._state(b"k"), "kill, power loss before")
        self._made.timers.start()
        self._advance(2)

    def _damage(self) -> None:
        self._send(b"d", 5000)
        self._advance(1)
        self._send(b"e", 9000)
        self.account.unsure(b"d")
        [physical] = self._records(b"d")
        self._made.close()
        segment = self._made.store.options.segment_bytes
        self.disk.flip_bit(f"{ROOT}/commitlog/{physical - physical % segment:020d}", physical % segment + 90)
        self.moment.stop()
        self._open()
        self._made.scheduler.advance(5)
        self._walk.went(b"d", self._state(b"d"), TIME, "its record is damaged")
        self._advance(5)

    # How it runs

    def _open(self, *, start: bool = True) -> None:
        made = self._made = broker(self.disk, self.clock, start=False)
        made.store.on_pending = partial(self._soon, made)
        made.store.create_topic("other", 1)
        if start:
            made.timers.start()

    def _again(self) -> None:
        self._made.timers.stop()
        self._made.store.abandon()
        self.moment.stop()
        self._open(start=False)

    def _soon(self, made: Broker) -> None:
        made.scheduler.call_soon(self._turn_end)

    def _turn_end(self) -> None:
        if not self._made.store.pending:
            return
        self._see()
        if self._kill and self._made.timers.due.delivery.in_flight:
            raise _Killed
        self._made.store.flush()
        self._see()

    def _send(self, body: bytes, delay_ms: int, topic: str = TOPIC) -> None:
        self._due[body] = self.clock.wall_ms() + delay_ms
        self.account.asked(body, self._due[body])
        self._made.send(body, delay_ms, topic)
        self.account.answered(body)
        self._see()

    def _advance(self, seconds: float) -> None:
        self._made.scheduler.advance(seconds)
        self._see()

    # What can be seen

    def _see(self) -> None:
        self._read()
        self._walk.saw_all({body: self._state(body) for body in set(self._known.values())})

    def _read(self) -> None:
        tell(self, self._made.store)
        topic = self._made.store.topics.get(TIMER_TOPIC)
        for queue in topic.queues if topic else ():
            for physical, size, _ in queue.read(queue.min_offset, queue.max_offset - queue.min_offset):
                if physical not in self._known:
                    with contextlib.suppress(DamagedRecord, RecordGone):
                        self._known[physical] = bytes(split(self._made.store.read(physical, size))[0])

    def _records(self, body: bytes) -> list[int]:
        """Commit-log offsets of a message's records in the timer topic."""
        self._read()
        return [physical for physical, each in sorted(self._known.items()) if each == body]

    def _state(self, body: bytes) -> str:
        """Where a message is, told by the timers and by its topic."""
        due, records = self._made.timers.due, self._records(body)
        if body in [thing for thing, _ in self.account.visible.values()]:
            return "delivered"
        if body == b"d" and self._made.metrics.value(counted.LOST):
            return "lost"
        if records[-1] in due.aside:
            return "delivering" if due.delivery.in_flight else "aside"
        if due.delivery.in_flight and self._due[body] <= self.clock.wall_ms():
            return "delivering"
        return "waiting"

    def finish(self) -> None:
        """Start, with the topic that was gone, and wait for more than any delay."""
        made = broker(self.disk, self.clock)
        made.store.create_topic(GONE, 1)
        made.scheduler.advance(30)
        made.scheduler.advance(900)
        tell(self, made.store)
        if made.pending:
            self.account.open_ones.add(f"{made.pending} timers")
        made.close()
