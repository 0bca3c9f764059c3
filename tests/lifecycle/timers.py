"""docs/states.md: timed messages, cancels and other moments."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial

import pytest

from broker.errors import DamagedRecord, DiskFull, RecordGone, StoreFailed
from broker.format.message import message_of
from broker.log.group_commit import AHEAD_MAX_US
from broker.retention import RetentionLimits
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.retention_hold import TimerHold
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import SMALL, TOPIC, Broker, broker
from tests.integration.turns import Turns, take_over
from tests.integration.waiting_tools import drive, put_durably, retain
from tests.lifecycle.delays import GONE, report
from tests.lifecycle.scenario import DERIVED, MADE_ANEW, Moment, Scenario
from tests.lifecycle.walk import Walk

SEVERAL_FILES = replace(SMALL, log_file_bytes=256)
"""Four records a file: what waits is in several, and files go while it does."""
FURTHER_MS = 5_000
"""More than passes while the clock is ahead."""
TIME = "its moment comes"
REFUSED = "the store refuses the message"
KILLED = "kill, power loss"


class _Killed(Exception):
    """The scenario's own kill, while something is staged."""


class Timers(Scenario):
    """Sends for later; flushes at the end of a turn, so that what is under way can be seen."""

    table = "states.md: Timers"
    losses = DERIVED
    spoils = MADE_ANEW

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        self._kill = False
        self._keys: dict[bytes, str] = {}
        """UNIQ_KEY of each body, the last that it was given."""
        self._due: dict[str, int] = {}
        self._ending: dict[str, str] = {}
        """By UNIQ_KEY: what is to end a timer before its time."""
        self._damaged = ""
        self._answered: list[tuple[str, str]] = []
        """Topics and UNIQ_KEYs of cancels that were answered."""
        self._records: dict[str, dict[int, int]] = {}
        """By UNIQ_KEY: queue offset by commit-log offset of its records in the timer topic."""
        self._cancels: set[str] = set()
        self._delivered: set[str] = set()
        self._looked: set[int] = set()
        self._rebuilt = 0.0
        """How often the start made timer log and wheel anew: without a checkpoint it does."""
        self._furthest_ms = 0
        """Store times are at most this, where the clock was ahead: they do not go back with it."""

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._open()
        self._deliver()
        self._roll()
        self._refuse()
        self._retain()
        self._retain_what_is_read()
        self._cancel_and_reschedule()
        self._fill_the_disk()
        self._kill_while_delivering()
        self._fail_syncs()
        self._set_the_clock()
        self._damage()
        self._made.close()

    # What happens

    def _deliver(self) -> None:
        for body, delay_ms in ((b"a", 1234), (b"b", 1234), (b"c", 5001), (b"far", 900_000)):
            self._send(body, delay_ms)
        self._advance(1.3)
        self._again()
        self._went(b"c", KILLED)
        self._went(b"a", KILLED)
        self._made.timers.start()
        self._advance(5)

    def _roll(self) -> None:
        """Two rolls of the wheel: one ends in a kill and comes again."""
        self._kill = True
        with contextlib.suppress(_Killed):
            self._advance(200)
        self._again()
        self._went(b"far", KILLED)
        self._made.timers.start()
        self._advance(10)
        assert len(self._records[self._keys[b"far"]]) == 2

    def _refuse(self) -> None:
        made = self._made
        made.store.create_topic(GONE, 1)
        for body in (b"g", b"h"):
            self._send(body, 1500, GONE)
        made.store.topic_changes.delete(GONE)
        made.timers.due.refused_max = 1
        self._advance(1.6)
        made.scheduler.advance(10)
        self._went(b"g", "10 s have passed", REFUSED)
        made.timers.save()
        self._again()
        self._went(b"g", KILLED)
        self._made.store.create_topic(GONE, 1)
        self._made.timers.start()
        self._advance(20)

    def _retain(self) -> None:
        """Log files go below what waits and what is refused."""
        made, store = self._made, self._made.store
        store.create_topic(GONE, 1)
        self._send(b"old", 30_000)
        self._send(b"stuck", 500, GONE)
        store.topic_changes.delete(GONE)
        self._advance(1)
        for number in range(16):
            put_durably(store, made.scheduler, "other", b"%d" % number * 900)
        self.clock.advance(11)
        store.checkpoint()
        self.moment.saved()
        self._see()
        store.retention.holds.append(TimerHold(made.timers, made.metrics))
        store.retention.limits = RetentionLimits(log_bytes=2 * store.options.segment_bytes)
        before = store.min_offset
        retain(store, made.scheduler, between=self._see)
        store.retention.limits = RetentionLimits()
        assert store.min_offset > before
        self._went(b"old", "its log file is to be deleted")
        self._see()

    def _retain_what_is_read(self) -> None:
        """Log files go while their timers were read and are not yet due: nothing that the wheel names goes too."""
        made, store = self._made, self._made.store
        near = [b"near%d" % number for number in range(6)]
        start = self.clock.wall_ms()
        for body in near:
            self._send(body, start + 4_000 - self.clock.wall_ms())
        for number in range(16):
            put_durably(store, made.scheduler, "other", b"%d" % number * 900)
        # Their slots are read two seconds before.
        self._advance((start + 3_000 - self.clock.wall_ms()) / 1000)
        store.checkpoint()
        made.timers.save()
        self.moment.saved()
        self._see()
        assert made.timers.table.coming.count >= len(near)
        store.retention.limits = RetentionLimits(log_bytes=2 * store.options.segment_bytes)
        retain(store, made.scheduler, between=self._see)
        store.retention.limits = RetentionLimits()
        self._see()
        self._advance(3)
        assert all(self._walk.states[self._keys[body]] == "delivered" for body in near)

    def _set_the_clock(self) -> None:
        """It is ahead, then behind, with a start in each; once it is right again, timers are on time."""
        for by_ms in (300_000, -60_000):
            self._send(b"far%d" % by_ms, 600_000)
            self._set_clock(by_ms)
            self._set_clock(-by_ms)
            near = b"near%d" % by_ms
            self._send(near, 1_500)
            self._advance(1)
            assert self._walk.states[self._keys[near]] != "delivered", "early after a clock that was wrong"
            self._advance(1)
            assert self._walk.states[self._keys[near]] == "delivered", "late after a clock that was wrong"

    def _set_clock(self, by_ms: int) -> None:
        self.clock.set_wall_ms(self.clock.wall_ms() + by_ms)
        self._furthest_ms = max(self._furthest_ms, self.clock.wall_ms() + FURTHER_MS)
        self._advance(1)
        self._again()
        self._made.timers.start()
        self._advance(1)

    def _cancel_and_reschedule(self) -> None:
        made = self._made
        for body, delay_ms in ((b"no", 3000), (b"later", 4000), (b"sooner", 600_000)):
            self._send(body, delay_ms)
        self._cancel(b"no", TOPIC)
        self._cancel(b"far", TOPIC)
        self._reschedule(b"later", 9000)
        self._reschedule(b"sooner", 5000)
        self._advance(1)
        self._again()
        self._went(b"no", KILLED)
        self._made.timers.start()
        self._advance(10)
        made = self._made
        made.store.create_topic(GONE, 1)
        self._send(b"refused", 500, GONE)
        made.store.topic_changes.delete(GONE)
        self._advance(1)
        self._cancel(b"refused", GONE)
        made.store.create_topic(GONE, 1)
        self._advance(20)

    def _fill_the_disk(self) -> None:
        full = b"full" * 50
        self._send(full, 3000)
        self._made.scheduler.advance(2.5)
        self.disk.capacity_bytes = 0
        with contextlib.suppress(DiskFull):
            while True:
                put_durably(self._made.store, self._made.scheduler, "other", b"x" * 50)
        self._made.scheduler.advance(1)
        self._went(full, TIME, "the disk is full")
        self.disk.capacity_bytes = None
        self._advance(3)

    def _kill_while_delivering(self) -> None:
        self._send(b"k", 1000)
        self._kill = True
        with contextlib.suppress(_Killed):
            self._advance(2)
        self._again()
        self._went(b"k", KILLED)
        self._made.timers.start()
        self._advance(2)

    def _damage(self) -> None:
        self._send(b"d", 5000)
        self._advance(1)
        self._send(b"e", 9000)
        self.account.unsure(b"d")
        self._damaged = self._keys[b"d"]
        [physical] = self._records[self._damaged]
        self._made.close()
        segment = self._made.store.options.segment_bytes
        self.disk.flip_bit(f"{ROOT}/commitlog/{physical - physical % segment:020d}", physical % segment + 90)
        self.moment.stop()
        self._open()
        self._made.scheduler.advance(5)
        self._went(b"d", TIME, "its record is damaged")
        self._advance(5)

    def _fail_syncs(self) -> None:
        """A sync fails while something is delivered or cancelled: a life each, since the store writes no more."""
        self._advance(900)
        for body, event in (
            (b"r", "kill, and the log has the delivered"),
            (b"s", "power loss, and the log"),
            (b"t", "kill, and the log has the cancel"),
            (b"u", "power loss, and the log"),
        ):
            self._send(body, 2000)
            if body in (b"t", b"u"):
                self.account.unsure(body)
                self.disk.fail("sync", path_part="/commitlog/")
                with pytest.raises(StoreFailed):
                    drive(self._made.timers.cancelling(TOPIC, self._keys[body]), self._made.scheduler)
                self._went(body, "a cancel, the sync fails")
            else:
                self.disk.fail("sync", path_part="/commitlog/")
                self._made.scheduler.advance(2.1)
                was = self._walk.states[self._keys[body]]
                if was != "undecided":
                    self._went(body, *(("the sync fails",) if was == "delivering" else (TIME, "the sync fails")))
            self.disk.heal()
            self._again(power_lost=event.startswith("power"))
            self._went(body, event)
            self._made.timers.start()
            self._advance(3)

    # How it runs

    def _open(self, *, start: bool = True) -> None:
        made = self._made = broker(self.disk, self.clock, start=False, timers=SEVERAL_FILES)
        self._rebuilt = made.metrics.value(counted.REBUILT)
        take_over(made.store, Turns(partial(self._soon, made)))
        self.moment.run(made.store, made.scheduler, before=self._before_flush, after=self._see)
        made.store.create_topic("other", 1)
        if start:
            made.timers.start()

    def _again(self, *, power_lost: bool = False) -> None:
        self._kill = False
        self._made.timers.stop()
        self._made.store.abandon()
        if power_lost:
            self.moment.power_off()
        self.moment.stop()
        self._open(start=False)

    def _soon(self, made: Broker) -> None:
        made.scheduler.call_soon(self._turn_end)

    def _turn_end(self) -> None:
        if not self._made.store.pending:
            return
        self._before_flush()
        self._made.store.flush()
        self._see()

    def _before_flush(self) -> None:
        self._see()
        if self._kill and self._made.timers.due.delivery.in_flight:
            raise _Killed

    def _send(self, body: bytes, delay_ms: int, topic: str = TOPIC) -> None:
        due = self.clock.wall_ms() + delay_ms
        self.account.asked(body, due)
        self._name(body, self._made.send(body, delay_ms, topic), due)
        self.account.answered(body)
        self._see()

    def _name(self, body: bytes, key: str, due_ms: int) -> None:
        self._keys[body] = key
        self._due[key] = due_ms

    def _cancel(self, body: bytes, topic: str) -> None:
        self.account.unsure(body)
        made = self._made
        self._ending[self._keys[body]] = "a cancel is durable"
        assert drive(made.timers.cancelling(topic, self._keys[body]), made.scheduler) is CancelEffect.CANCELLED
        self.account.forbid(body)
        self._answered.append((topic, self._keys[body]))
        self._see()

    def _reschedule(self, body: bytes, delay_ms: int) -> None:
        """Until it is answered either moment holds; the message comes once in any case."""
        key, due = self._keys[body], self.clock.wall_ms() + delay_ms
        self.account.promised[body] = min(due, self._due[key])
        self._ending[key] = "it is rescheduled"
        outcome, again = drive(self._made.timers.rescheduling(TOPIC, key, due), self._made.scheduler)
        assert outcome is CancelEffect.CANCELLED
        self.account.promised[body] = due
        self._answered.append((TOPIC, key))
        self._name(body, again, due)
        self._see()

    def _advance(self, seconds: float) -> None:
        self._made.scheduler.advance(seconds)
        self._see()

    # What can be seen

    def _went(self, body: bytes, *events: str) -> None:
        self._look()
        key = self._keys[body]
        self._walk.went(key, self._state(key), *events)

    def _see(self) -> None:
        before = {key: len(records) for key, records in self._records.items()}
        self._look()
        for key in self._records:
            state, was = self._state(key), self._walk.states.get(key, "")
            again = len(self._records[key]) > before.get(key, 0)
            if (was, state) == ("pending", "refused"):
                self._walk.went(key, state, TIME, REFUSED)
            elif state != was and state == "cancelled" and key in self._ending:
                self._walk.went(key, state, self._ending[key])
            elif again and (was, state) == ("rolling", "pending"):
                self._walk.went(key, state, "the copy is durable")
            elif again and (was, state) == ("delivering", "pending"):
                self._walk.went(key, state, "the store refuses it, and")
            else:
                self._walk.saw(key, state)

    def _look(self) -> None:
        """Tell the account what is delivered, and read what is new in the topics."""
        store = self._made.store
        rebuilt = self._made.metrics.value(counted.REBUILT)
        assert rebuilt == self._rebuilt, "timer log and wheel are made anew, and nothing harmed them"
        report(self, store)
        for name in (TIMER_TOPIC, TOPIC, GONE):
            topic = store.topics.get(name)
            for queue in topic.queues if topic else ():
                offsets = range(queue.min_offset, queue.max_offset)
                units = queue.read(queue.min_offset, len(offsets))
                for offset, (physical, size, _) in zip(offsets, units, strict=True):
                    if physical in self._looked:
                        continue
                    with contextlib.suppress(DamagedRecord, RecordGone):
                        self._note(name, offset, store.read(physical, size))
                        self._looked.add(physical)

    def _note(self, topic: str, offset: int, record: memoryview) -> None:
        message = message_of(record)
        if topic != TIMER_TOPIC:
            assert message.store_ms <= max(self.clock.wall_ms(), self._furthest_ms), "it is shown before its moment"
            self._delivered.add(message.unique_key)
        elif "TIMER_DEL_UNIQKEY" in message.properties:
            self._cancels.add(message.unique_key)
        else:
            self._records.setdefault(message.unique_key, {})[message.physical] = offset

    def _state(self, key: str) -> str:
        """Where a message is, told by the timers, the timer topic and its own topic."""
        timers = self._made.timers
        physical, offset = max(self._records[key].items())
        if key in self._delivered:
            return "delivered"
        if key == self._damaged and self._made.metrics.value(counted.LOST):
            return "lost"
        if key in self._cancels and not timers.parts.is_pending(physical, offset):
            return "cancelled"
        if self._made.store.failed is not None:
            return "undecided"
        if physical in timers.due.refused:
            return "delivering" if timers.due.delivery.in_flight else "refused"
        if timers.parts.is_pending(physical, offset):
            return "pending"
        by_ms = self.clock.wall_ms() + AHEAD_MAX_US // 1000
        return "delivering" if self._due[key] <= by_ms else "rolling"

    def finish(self) -> None:
        """Start, with the topic that was gone, wait for more than any delay, and ask again for what was cancelled."""
        made = broker(self.disk, self.clock)
        made.store.create_topic(GONE, 1)
        made.scheduler.advance(30)
        made.scheduler.advance(900)
        report(self, made.store)
        if made.pending:
            self.account.open_ones.add(f"{made.pending} timers")
        for topic, key in self._answered:
            if made.timers.cancel(topic, key) is not CancelEffect.CANCELLED:
                self.account.open_ones.add(f"the cancel of {key}")
        made.close()
