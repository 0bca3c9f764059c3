"""Timer log and wheel that are made anew while the node runs: nothing is lost, repeated or answered wrongly by that."""

from __future__ import annotations

import errno
from random import Random

import pytest

from broker.log.durability import AwaitedSteps
from broker.retention import RetentionLimits
from broker.runtime.steps import StepsEnd, step
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring.cancel import cancelling_delay
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.pending.log import Taken, TimersDamaged
from broker.scheduled.timer.retention_hold import TimerHold
from pyddmq.testing import SimSyncs
from tests.integration.loop_tools import once, world
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import TOPIC, Broker, broker
from tests.integration.turns import Turns, take_over
from tests.integration.waiting_tools import drive, put_durably, retain

OTHER = "other"


def damage(made: Broker, number: int) -> None:
    """Flip a bit of the due time in a unit of the timer log."""
    log = made.timers.table.log
    file, at = divmod(log.position(number), log.file_bytes)
    made.disk.flip_bit(f"{ROOT}/timerlog/{file * log.file_bytes:020d}", at + 44 + 6, 3)


def times(made: Broker) -> tuple[int, int]:
    """How often the files were damaged, and how often they were made anew."""
    return made.metrics.value(counted.DAMAGED), made.metrics.value(counted.REBUILT)


def retaining(made: Broker) -> Broker:
    """Keep two log files."""
    if OTHER not in made.store.topics:
        made.store.create_topic(OTHER, 1)
    made.store.retention.holds.append(TimerHold(made.timers, made.metrics))
    made.store.retention.limits = RetentionLimits(log_bytes=2 * made.store.options.segment_bytes)
    return made


def expire(made: Broker, files: int = 4) -> None:
    """Publish so many log files of other messages, and delete the oldest ones."""
    for _ in range(files * made.store.options.segment_bytes // 2000):
        put_durably(made.store, made.scheduler, OTHER, b"y" * 1500)
    made.scheduler.advance(11)
    made.store.checkpoint()
    retain(made.store, made.scheduler)


def in_turns(made: Broker) -> Broker:
    """Have what is appended flushed at the end of a turn, as a node does it."""
    take_over(made.store, Turns(lambda: made.scheduler.call_soon(made.store.flush)))
    return made


def rebuilding(made: Broker, number: int) -> None:
    """Damage a unit, and let time pass until timers are being made anew."""
    damage(made, number)
    while made.timers.parts.mending is None:
        if not made.scheduler.run_turn():
            due = made.scheduler.next_due()
            assert due is not None, "nothing found the damage"
            made.clock.advance(max(due - made.scheduler.time(), 0.0))


def test_no_pending_timer_is_lost_to_retention_after_a_rebuild() -> None:
    """Retention looks at the units of the new timer log from the first on, whatever it saw of the old one."""
    made = retaining(broker())
    for number in range(60):
        made.send(b"soon %d" % number, 500)
    made.scheduler.advance(2)
    expire(made)
    assert made.timers.table.log.relocated > 40
    made.send(b"near", 20_000)
    for number in range(10):
        made.send(b"%d" % number, 300_000)
    made.scheduler.advance(1)
    damage(made, made.timers.table.log.count - 11)
    made.scheduler.advance(20)
    assert times(made) == (1, 1)
    for _ in range(3):
        expire(made)
    assert made.pending == 10
    made.scheduler.advance(300)
    assert made.store.min_offset > 0
    assert made.delivered() == [b"%d" % number for number in range(10)]
    assert (made.timers.pending, made.metrics.value(counted.LOST)) == (0, 0)


def test_files_of_the_timer_log_stay_while_positions_in_them_are_about_to_be_delivered() -> None:
    """A timer that retention put again is passed over where it stood before: that is no damage."""
    made = retaining(broker())
    for number in range(40):
        made.send(b"%d" % number, 14_000)
    made.send(b"far", 900_000)
    for _ in range(8):
        put_durably(made.store, made.scheduler, OTHER, b"y" * 1500)
    made.scheduler.advance(12.5)
    assert made.timers.table.coming.count == 40
    made.store.checkpoint()
    retain(made.store, made.scheduler)
    assert made.store.min_offset > 0
    made.scheduler.advance(5)
    assert made.delivered() == [b"%d" % number for number in range(40)]
    assert times(made) == (0, 0)
    # They go with one of the next log files.
    for _ in range(3):
        expire(made)
    assert made.timers.table.log.first > 0
    assert (made.pending, times(made)) == (1, (0, 0))


def test_cancel_and_move_wait_until_it_is_known_what_was_delivered() -> None:
    """Delivered timers look as if they were pending while all of them are entered again."""
    made = broker(segment_bytes=1 << 20)
    keys = [made.send(b"%d" % number, 500) for number in range(600)]
    made.send(b"near", 9_000)
    far = made.send(b"far", 90_000)
    made.scheduler.advance(2)
    in_turns(made)
    rebuilding(made, 600)
    assert made.timers.parts.mending is not None
    asked: list[AwaitedSteps[object]] = [
        made.timers.cancelling(TOPIC, keys[0]),
        made.timers.rescheduling(TOPIC, keys[1], made.clock.wall_ms() + 5_000),
        made.timers.cancelling(TOPIC, far),
    ]
    first = [step(each) for each in asked]
    assert not any(isinstance(each, StepsEnd) for each in first)
    outcomes = [drive(each, made.scheduler) for each in asked]
    assert outcomes == [CancelEffect.TOO_LATE, (CancelEffect.TOO_LATE, ""), CancelEffect.CANCELLED]
    made.scheduler.advance(100)
    assert made.delivered() == [*[b"%d" % number for number in range(600)], b"near"]
    assert made.timers.pending == 0


def test_cancel_of_a_program_without_a_loop_makes_all_of_it_anew_at_once() -> None:
    """`cancel` returns the outcome, so it cannot wait for steps of others."""
    made = broker(segment_bytes=1 << 20)
    keys = [made.send(b"%d" % number, 500) for number in range(600)]
    made.send(b"near", 9_000)
    made.scheduler.advance(2)
    in_turns(made)
    rebuilding(made, 600)
    assert made.timers.cancel(TOPIC, keys[0]) is CancelEffect.TOO_LATE
    assert made.timers.parts.mending is None
    made.scheduler.advance(10)
    assert made.delivered()[-1] == b"near"


@pytest.mark.parametrize("what", ["cancel", "copy", "deferred"])
def test_what_is_under_way_ends_before_timers_are_made_anew(what: str) -> None:
    """A cancel, a copy of retention's, or one refused too many: each would end with positions of what is gone."""
    made = broker(segment_bytes=1 << 16)
    made.store.create_topic("gone", 1)
    if what == "deferred":
        made.timers.due.refused_max = 0
        made.send(b"refused", 2_500, "gone")
        made.store.topic_changes.delete("gone")
    key = made.send(b"x", 3_000)
    made.send(b"near", 3_000)
    for number in range(3):
        made.send(b"%d" % number, 3_100)
    made.scheduler.advance(2)
    # Nothing is flushed by itself.
    take_over(made.store, Turns(), syncs=SimSyncs(made.disk, made.scheduler, Random(1), seconds_max=1.0))
    due = made.timers.due
    if what == "cancel":
        steps = made.timers.cancelling(TOPIC, key)
        while not (made_step := step(steps)):
            made.scheduler.run_until_idle()
        assert not isinstance(made_step, StepsEnd)
        damage(made, 1)
    elif what == "copy":
        hold = TimerHold(made.timers, made.metrics)
        assert hold._put_again(Taken(0, made.timers.table.log.unit(0)))
        damage(made, 1)
    else:
        damage(made, 2)
    made.scheduler.advance(1.2)
    assert made.timers.parts.mending is not None
    assert due.under_way == 1
    assert made.timers.table.log.generation == 1
    made.store.flush()
    assert due.under_way == 0
    in_turns(made)
    made.scheduler.advance(1)
    assert times(made) == (1, 1)
    made.store.create_topic("gone", 1)
    made.scheduler.advance(700)
    wanted = [b"near", b"0", b"1", b"2"]
    assert [body for body in made.delivered() if body != b"x"] == wanted
    assert made.delivered().count(b"x") == (0 if what == "cancel" else 1)
    assert made.timers.pending == 0
    assert made.timers.table.read_ms == made.timers.table.next_ms


@pytest.mark.parametrize("path", ["timerwheel", "pyddmq/"])
def test_rebuild_that_a_full_disk_breaks_off_begins_again(path: str) -> None:
    """Half of it is never taken for all of it."""
    made = broker()
    for number in range(3):
        made.send(b"%d" % number, 10_000)
    made.scheduler.advance(5)
    damage(made, 1)
    made.disk.fail("truncate" if path == "timerwheel" else "write", path_part=path, error=errno.ENOSPC)
    made.scheduler.advance(3.5)
    assert made.timers.parts.mending is not None
    made.scheduler.advance(2)
    assert made.delivered() == [b"0", b"1", b"2"]
    assert times(made) == (1, 2)
    assert made.timers.pending == 0


@pytest.mark.parametrize("lost", ["", "timerwheel", "pyddmq/timers.json"])
def test_start_on_a_full_disk_waits_for_room_with_its_timers(lost: str) -> None:
    """A node that was killed starts all the same: what needs no room is served, and timers come once there is some."""
    made = broker()
    made.send(b"early", 1000)
    made.scheduler.advance(2)
    made.timers.save()
    for number in range(40):
        made.send(b"%d" % number, 60_000)
    made.disk.kill()
    if lost:
        made.disk.remove(f"{ROOT}/{lost}")
    made.disk.capacity_bytes = 0
    made = made.opened_again()
    made.scheduler.advance(50)
    assert made.delivered() == [b"early"]
    made.disk.capacity_bytes = None
    made.scheduler.advance(20)
    assert made.delivered() == [b"early", *[b"%d" % number for number in range(40)]]
    assert made.pending == 0


def test_checkpoint_of_a_timer_log_that_was_made_anew_is_written_though_it_says_the_same() -> None:
    """Else the next start makes all of it anew once more."""
    made = broker()
    made.send(b"x", 100_000)
    made.scheduler.advance(6)
    saved = made.timers.checkpoints.saved
    made.timers.parts.note_damage(TimersDamaged("a test"))
    made.timers.parts.begin_mending()
    while made.timers.parts.mending is not None:
        made.timers.parts.mend()
    made.timers.save()
    assert made.timers.checkpoints.saved is not saved
    made = made.again()
    assert times(made) == (0, 0)


def test_cancel_by_the_id_of_a_loop_waits_too() -> None:
    """It finds what is pending by another way, and a loop goes on where an old occurrence of it was named."""
    made = world(segment_bytes=1 << 20)
    made.store.create_topic(OTHER, 1)
    for number in range(600):
        made.store.put(OTHER, b"%d" % number, delay_ms=500)
    done = once(2)
    made.add(done)
    made.store.put(OTHER, b"near", delay_ms=9_000)
    made.scheduler.advance(4)
    assert made.ids() == [done.id]
    made.timers.parts.note_damage(TimersDamaged("a test"))
    made.timers.parts.begin_mending()
    steps = cancelling_delay(made.timers, TOPIC, done)
    while (first := step(steps)) is None:
        continue
    assert not isinstance(first, StepsEnd)
    assert drive(steps, made.scheduler) is CancelEffect.TOO_LATE
    made.scheduler.advance(10)
    assert made.ids() == [done.id]
