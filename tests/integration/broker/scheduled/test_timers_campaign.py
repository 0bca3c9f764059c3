"""Timers in seeded runs of everything at once: damage while the node runs, retention, a clock that is wrong, restarts.

The timer log has many small files, and log files go all the while. Each run is judged by what clients were answered:
each timer comes once and at its moment, cancels and moves hold, nothing is damaged that was not damaged here.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from broker.format.record import split
from broker.retention import RetentionLimits
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.pending.log import UNIT_BYTES
from broker.scheduled.timer.retention_hold import TimerHold
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import SMALL, START_MS, TOPIC, Broker, broker
from tests.integration.waiting_tools import drive, put_durably, retain

OTHER = "other"
SEGMENT_BYTES = 8_192
TICK = 0.25
LATE_SECONDS = 3.0
"""A step of the clock is seen within a second, and so is a full queue of other work; the rest is slack."""
STEPS = 60
SEEDS = 40
GLITCHES_MS = (-3_600_000, -120_000, -5_000, 5_000, 120_000, 3_600_000, 86_400_000)
UNIT_FIELDS = (*range(16, 24), *range(28, 36), *range(44, 52))
"""Bytes of a unit that say when it is due, and of which record it is."""


class Run:
    """One seeded run.

    Args:
        seed: Of everything.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(f"timers {seed}")
        self.disk, self.clock = SimDisk(), ManualClock(START_MS)
        self.options = replace(SMALL, log_file_bytes=UNIT_BYTES * self.random.choice((5, 8, 32)) + 16)
        self.beside = self.random.random() < 0.5
        self.waits: dict[bytes, int] = {}
        """What is to come, and when."""
        self.keys: dict[bytes, str] = {}
        self.highest: dict[bytes, int] = {}
        """The most that the clock showed since it was sent."""
        self.overdue: dict[bytes, float] = {}
        self.delivered: set[bytes] = set()
        self.cancelled: set[bytes] = set()
        self.flips = self.restarts_in = 0
        self.damaged = 0
        self.read_to = 0
        self.number = 0
        self.made = self.opened()

    def opened(self) -> Broker:
        """Open what is there."""
        made = broker(self.disk, self.clock, segment_bytes=SEGMENT_BYTES, queue_file_units=100, timers=self.options)
        if OTHER not in made.store.topics:
            made.store.create_topic(OTHER, 1)
        made.store.retention.holds.append(TimerHold(made.timers, made.metrics))
        made.store.retention.limits = RetentionLimits(log_bytes=2 * SEGMENT_BYTES)
        if self.beside:
            made.flush_in_background(self.random, seconds_max=0.05)
        self.overdue.clear()
        return made

    # What happens

    def send(self, count: int) -> None:
        """Send some timers: most of them soon."""
        for _ in range(count):
            self.number += 1
            body = b"%d" % self.number
            delay_ms = self.random.choice((1, 400, 1_500, 2_500, 2_500, 6_000, 20_000, 130_000, 400_000))
            due_ms = self.clock.wall_ms() + delay_ms
            # Of many lengths, so that no flipped bit leads from one record to another.
            self.keys[body] = self.made.send(body + b" " * self.random.randrange(50), delay_ms)
            # The moment was fixed at receipt, which took what a sync takes.
            self.waits[body], self.highest[body] = due_ms, self.clock.wall_ms()
        self.look()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and look each moment."""
        for _ in range(max(1, round(seconds / TICK))):
            self.made.scheduler.advance(TICK)
            self.look()

    def expire(self) -> None:
        """Have the oldest log files deleted."""
        for _ in range(self.random.choice((4, 12, 40))):
            put_durably(self.made.store, self.made.scheduler, OTHER, b"y" * 1_500)
        self.pass_time(self.random.choice((0.25, 11)))
        self.made.store.checkpoint()
        self.look()
        retain(self.made.store, self.made.scheduler, between=self.look)

    def damage(self) -> None:
        """Flip one bit of a unit that the running broker has written, one of the last ones."""
        log = self.made.timers.table.log
        if log.count == log.first or self.made.timers.parts.is_mending:
            return
        number = max(log.first, log.count - 1 - self.random.randrange(40))
        file, at = divmod(log.position(number), log.file_bytes)
        byte, bit = self.random.choice(UNIT_FIELDS), self.random.randrange(8)
        self.disk.flip_bit(f"{ROOT}/timerlog/{file * log.file_bytes:020d}", at + byte, bit)
        self.flips += 1

    def meet_damage(self) -> None:
        """Damage, and change timers in the very moment in which the broker makes all of them anew."""
        self.damage()
        made, until = self.made, self.clock.monotonic() + 3.0
        while made.timers.parts.mending is None and self.clock.monotonic() < until:
            if not made.scheduler.run_turn():
                due = made.scheduler.next_due()
                step = TICK if due is None else min(TICK, max(due - made.scheduler.time(), 0.0))
                self.clock.advance(max(step, 0.000_1))
                self.look()
        for _ in range(self.random.randrange(4)):
            made.scheduler.run_turn()
        for _ in range(3):
            self.change()

    def change(self) -> None:
        """Cancel or move a timer, one that was delivered, too."""
        known = sorted(self.keys, key=int)[-60:]
        if self.random.random() < 0.3:
            known = [body for body in known if body in self.delivered]
        if not known:
            return
        body, moves = self.random.choice(known), self.random.random() < 0.5
        timers, key = self.made.timers, self.keys[body]
        due_ms = self.clock.wall_ms() + self.random.choice((300, 3_000, 9_000, 150_000))
        before_ms = self.waits.get(body, 0)
        if body in self.waits:
            # Until it is answered either moment holds.
            self.waits[body] = min(before_ms, due_ms) if moves else before_ms
        if moves:
            moved = drive(timers.rescheduling(TOPIC, key, due_ms), self.made.scheduler)
            outcome, key = moved.outcome, moved.unique_key
        else:
            outcome = drive(timers.cancelling(TOPIC, key), self.made.scheduler)
        self.look()
        known_end = body in self.delivered or body in self.cancelled
        if outcome is CancelEffect.CANCELLED and body not in self.cancelled:
            assert moves or body not in self.delivered, f"{body!r} was delivered, and then cancelled"
            if moves:
                self.keys[body] = key
                if body not in self.delivered:
                    self.waits[body] = due_ms
            else:
                del self.waits[body]
                self.cancelled.add(body)
        elif outcome is CancelEffect.TOO_LATE:
            self.waits.update({body: before_ms} if body in self.waits else {})
            if body in self.waits:
                self.pass_time(1.0)
            # (The unit of a timer is not found where one is damaged that the search meets. It comes at its moment.)
            assert body in self.delivered or self.flips, f"{body!r}: too late, and it did not come"
        elif outcome is CancelEffect.UNKNOWN:
            assert known_end, f"{body!r} is unknown"

    def glitch(self) -> None:
        """Set the clock wrong for a while, and right again; the broker may be started anew meanwhile, or just after."""
        by_ms, restart = self.random.choice(GLITCHES_MS), self.random.choice(("", "", "in", "after", "after"))
        self.clock.set_wall_ms(self.clock.wall_ms() + by_ms)
        self.look()
        self.pass_time(self.random.choice((0.25, 1.5, 4)))
        if self.random.random() < 0.3:
            self.send(2)
        if restart == "in":
            # What was late for its slot may have to be entered anew after that.
            self.restarts_in += 1
            self.restart()
            self.pass_time(TICK)
        self.clock.set_wall_ms(self.clock.wall_ms() - by_ms)
        self.look()
        if restart == "after":
            self.send(self.random.randrange(3))
            self.pass_time(self.random.choice((0.25, 6)))
            self.restart()

    def restart(self) -> None:
        """Stop, in an orderly way or by a kill, and start."""
        self.look()
        self.damaged += self.made.metrics.value(counted.DAMAGED)
        self.check_lost()
        if self.random.random() < 0.5:
            self.made.close()
        else:
            self.made.leave()
            self.disk.kill()
        self.made = self.opened()
        self.look()

    # What must hold

    def look(self) -> None:
        """See what was delivered since the last look, and what should have been."""
        made, wall_ms, now = self.made, self.clock.wall_ms(), self.clock.monotonic()
        queue = made.store.topics[TOPIC].queues[0]
        assert queue.min_offset <= self.read_to, "a delivery went unseen"
        for offset in range(self.read_to, queue.max_offset):
            physical, size, _ = queue.read(offset, 1)[0]
            body = bytes(split(made.store.read(physical, size))[0]).rstrip()
            assert body not in self.delivered, f"{body!r} came twice"
            assert body not in self.cancelled, f"{body!r} came having been cancelled"
            due_ms = self.waits.pop(body)
            assert max(self.highest[body], wall_ms) >= due_ms, f"{body!r} came {due_ms - wall_ms} ms early"
            self.delivered.add(body)
            self.overdue.pop(body, None)
        self.read_to = queue.max_offset
        for body, due_ms in self.waits.items():
            self.highest[body] = max(self.highest[body], wall_ms)
            if wall_ms < due_ms:
                self.overdue.pop(body, None)
            else:
                late = now - self.overdue.setdefault(body, now)
                assert late <= LATE_SECONDS, f"{body!r} is {late} s late"

    def check_lost(self) -> None:
        """None is given up, but that a damaged unit of a timer that was replaced is counted, too."""
        assert self.flips or not self.made.metrics.value(counted.LOST), "a timer counts as lost"

    def end(self) -> None:
        """Everything comes at last."""
        self.pass_time(15)
        while self.waits:
            self.clock.set_wall_ms(max(self.clock.wall_ms(), min(self.waits.values()) - 300))
            self.pass_time(1.5)
        self.pass_time(3)
        # (A timer that ended while its unit was damaged stays in the count until all are made anew.)
        assert self.flips or self.made.pending == 0, "counted as pending"
        self.check_lost()
        # (One that an orderly stop meets is met by the start, too.)
        most = 2 * self.flips + self.restarts_in
        assert self.damaged + self.made.metrics.value(counted.DAMAGED) <= most, "damage not made here"
        self.made.close()


def run(seed: int) -> Run:
    """Make the run of a seed."""
    made = Run(seed)
    for _ in range(STEPS):
        match made.random.choice(
            ("send", "send", "send", "pass", "expire", "expire", "damage", "meet", "change", "glitch", "restart")
        ):
            case "send":
                made.send(made.random.choice((1, 3, 30)))
            case "pass":
                made.pass_time(made.random.choice((0.25, 2, 7)))
            case "expire":
                made.expire()
            case "damage" if made.random.random() < 0.5:
                made.damage()
            case "meet" if made.random.random() < 0.5:
                made.meet_damage()
            case "change":
                made.change()
            case "glitch" if made.random.random() < 0.5:
                made.glitch()
            case "restart" if made.random.random() < 0.3:
                made.restart()
    made.end()
    return made


@pytest.mark.parametrize("seed", range(SEEDS))
def test_seeded_run_loses_repeats_and_hurries_no_timer(seed: int) -> None:
    """Whatever comes together in it; `run(seed)` replays it."""
    run(seed)


@pytest.mark.long
def test_a_thousand_runs() -> None:
    """The same over a thousand seeds."""
    for seed in range(1_000, 2_000):
        run(seed)
