"""Timers after stops: what a start makes of files that are gone or damaged, and what RocketMQ makes of them (D27)."""

from __future__ import annotations

import errno

import pytest

from broker.scheduled.timer import enqueuing
from broker.scheduled.timer import metrics as counted
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import SMALL, START_MS, Broker, broker
from tests.integration.waiting_tools import lose

FILES = ("timerwheel", "timerlog", "config/timercheck", "pyddmq/timers.json")
"""What tells what is pending; the log can do without."""
DAY_S = 86_400


def test_full_disk_at_the_sync_of_the_wheel_stops_the_write_side() -> None:
    """What was written to it before may be gone: waiting for space is no help. At a write it is."""
    for operation, fails in (("write", False), ("sync", True)):
        made = broker()
        made.send(b"x", 60_000)
        made.scheduler.advance(0.1)
        made.disk.fail(operation, error=errno.ENOSPC, path_part="timerwheel")
        made.timers.save()
        assert (made.store.failed is not None) is fails
        if not fails:
            made.timers.save()
            assert made.again().timers.pending == 1


@pytest.mark.parametrize("days", [0, 8, 400])
@pytest.mark.parametrize("lost", range(16))
def test_any_downtime_without_any_of_the_files(days: int, lost: int) -> None:
    """Killed amid deliveries, started days later: what was delivered stays so, all else comes, in order, at once."""
    disk, clock = SimDisk(), ManualClock(START_MS)
    made = broker(disk, clock, segment_bytes=1 << 18)
    for number in range(40):
        made.send(b"%02d" % number, 500 + number * 250)
    made.send(b"far", 600_000)
    made.store.create_topic("gone", 1)
    made.send(b"stuck", 1000, "gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(6)
    before = made.delivered()
    assert 0 < len(before) < 40
    made.timers.stop()
    made.store.abandon()
    disk.kill()
    lose(disk, FILES, lost)
    clock.advance(days * DAY_S)
    made = broker(disk, clock, segment_bytes=1 << 18)
    assert made.timers.pending == 41 - len(before) + 1 - (0 if not days else 41 - len(before))
    made.store.create_topic("gone", 1)
    made.scheduler.advance(20)
    wanted = [b"%02d" % number for number in range(40)]
    assert made.delivered() == (wanted if not days else [*wanted, b"far"])
    made.scheduler.advance(600)
    assert (made.delivered(), made.delivered("gone")) == ([*wanted, b"far"], [b"stuck"])
    assert made.timers.pending == 0


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("turns", range(14))
def test_stop_before_a_rebuild_has_entered_all_repeats_nothing(
    turns: int, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was delivered before the rebuild, and is not entered yet, is known to the next start, too."""
    monkeypatch.setattr(enqueuing, "STEP_RECORDS", 5)
    disk, clock = SimDisk(), ManualClock(START_MS)
    made = broker(disk, clock, segment_bytes=1 << 18)
    for number in range(40):
        made.send(b"%02d" % number, 500 + number * 250)
    made.scheduler.advance(6)
    assert 0 < len(made.delivered()) < 40
    made.timers.stop()
    made.store.abandon()
    disk.kill()
    lose(disk, FILES, 15)
    made = broker(disk, clock, start=False, segment_bytes=1 << 18)
    assert made.timers.entering.lag == 40, "records that are due need a step of a running node"
    made.timers.start()
    for _ in range(turns):
        made.scheduler.run_turn()
    made.timers.save(clean=clean)
    made.store.abandon()
    disk.kill()
    made = broker(disk, clock, segment_bytes=1 << 18)
    made.scheduler.advance(20)
    assert made.delivered() == [b"%02d" % number for number in range(40)]
    assert made.timers.entering.decided_from is None


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("delivered", [False, True])
def test_refused_timer_comes_once_although_its_slot_is_read_again(clean: bool, delivered: bool) -> None:
    """A checkpoint names it, and a start finds it in its slot, too, where others of that slot still wait."""
    made = broker()
    made.store.create_topic("gone", 1)
    made.send(b"stuck", 1100, "gone")
    made.send(b"later", 1900)
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(1.3)
    assert made.metrics.value(counted.REFUSED) > 0
    made.timers.save(clean=clean)
    if delivered:
        made.store.create_topic("gone", 1)
        made.timers.due.retry_at = 0.0
        made.send(b"now", 1)
        made.scheduler.advance(0.3)
        assert (made.delivered("gone"), made.delivered()) == ([b"stuck"], [b"now"])
    made.leave()
    made.disk.kill()
    made = made.opened_again(start=False)
    if not delivered:
        made.store.create_topic("gone", 1)
    made.timers.start()
    made.scheduler.advance(30)
    assert made.delivered("gone") == [b"stuck"]
    assert made.delivered()[-1] == b"later"
    assert (made.timers.pending, made.metrics.value(counted.DAMAGED)) == (0, 0)


def test_refused_timer_comes_once_although_all_is_made_anew() -> None:
    """The wall clock was ahead behind the checkpoint, so that its slots cannot be used."""
    made = broker()
    made.store.create_topic("gone", 1)
    made.send(b"stuck", 1100, "gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(4)
    made.timers.save()
    made.clock.set_wall_ms(made.clock.wall_ms() + 3_600_000)
    made.scheduler.advance(1.5)
    made.clock.set_wall_ms(made.clock.wall_ms() - 3_600_000)
    made.send(b"soon", 2000)
    made.scheduler.advance(0.1)
    made.leave()
    made.disk.kill()
    made = made.opened_again()
    assert made.metrics.value(counted.REBUILT) == 1
    made.store.create_topic("gone", 1)
    made.scheduler.advance(30)
    assert (made.delivered("gone"), made.delivered()) == ([b"stuck"], [b"soon"])
    assert made.timers.pending == 0


@pytest.mark.parametrize("timers", [3, 32])
def test_kill_while_a_file_of_the_timer_log_is_made_is_no_damage(timers: int) -> None:
    """It has its name and no size yet; a file has 32 units."""
    made = broker()
    for number in range(timers):
        made.send(b"%02d" % number, 10_000)
    made.scheduler.advance(1)
    made.timers.save()
    made.leave()
    made.disk.kill()
    made.disk.open(f"{ROOT}/timerlog/{SMALL.log_file_bytes:020d}", create=True)
    made = made.opened_again()
    assert made.metrics.value(counted.DAMAGED) == 0
    for number in range(timers, 40):
        made.send(b"%02d" % number, 10_000)
    made.scheduler.advance(20)
    assert made.delivered() == [b"%02d" % number for number in range(40)]
    assert made.metrics.value(counted.REBUILT) == 0


def test_damaged_unit_and_slot_have_everything_made_anew() -> None:
    """A flipped bit in the timer log or the wheel is found before anything is delivered by it, counted, and mended."""
    for path, at in ((f"timerlog/{0:020d}", 28 + 7), (f"timerlog/{0:020d}", 44 + 6), ("timerwheel", None)):
        made = broker()
        for number in range(3):
            made.send(b"%d" % number, 10_000 + number)
        made.scheduler.advance(6)
        index = (START_MS + 10_000) // 1000 % 1200
        made.disk.flip_bit(f"{ROOT}/{path}", index * 32 + 23 if at is None else at, 3)
        made.scheduler.advance(3.9)
        assert made.delivered() == []
        made.scheduler.advance(2)
        assert made.delivered() == [b"0", b"1", b"2"]
        assert (made.metrics.value(counted.DAMAGED), made.metrics.value(counted.REBUILT)) == (1, 1)
        assert made.timers.pending == 0


def rocketmq_goes_on_at(made: Broker, units: int) -> int:
    """Queue offset at which RocketMQ goes on to enqueue (TimerMessageStore.recover) with so many units in the log.

    Behind the record of the last unit, at what `timercheck` says where that unit names none; never behind the master's.
    """
    unit = made.disk.open(f"{ROOT}/timerlog/{0:020d}").read(52 * (units - 1), 52)
    physical, size = int.from_bytes(unit[28:36], "big"), int.from_bytes(unit[36:40], "big")
    check = made.disk.open(f"{ROOT}/config/timercheck").read(0, 56)
    offset = int.from_bytes(check[16:24], "big")
    if size:
        entry = made.store.record_at(physical)
        assert entry is not None
        offset = entry.queue_offset + 1
    return min(offset, int.from_bytes(check[24:32], "big"))


def test_rocketmq_enqueues_nothing_again_after_a_kill() -> None:
    """Units behind the last checkpoint are in the timer log already: their records would be delivered twice."""
    made = broker()
    made.send(b"x", 60_000)
    made.scheduler.advance(6)
    made.send(b"y", 60_000)
    made.scheduler.advance(1)
    assert rocketmq_goes_on_at(made, 2) == 2
    made = made.again()
    made.close()
    made = broker(made.disk, made.clock)
    assert rocketmq_goes_on_at(made, 2) == 2


@pytest.mark.parametrize("clean", [True, False])
def test_rocketmq_enqueues_nothing_again_that_was_delivered_before_the_files_were_lost(clean: bool) -> None:
    """Log and wheel that are made anew lead to the queue's end, though the last records need no units any more."""
    made = broker()
    made.send(b"pending", 60_000)
    for body in (b"one", b"two", b"three"):
        made.send(body, 1000)
    made.scheduler.advance(2)
    made.timers.stop()
    made.store.abandon()
    lose(made.disk, FILES, 15)
    made = broker(made.disk, made.clock)
    assert (made.pending, made.timers.entering.offset) == (1, 4)
    made.scheduler.advance(6)
    if clean:
        made.close()
        made = broker(made.disk, made.clock)
    assert rocketmq_goes_on_at(made, made.timers.table.log.count) == 4
    made.scheduler.advance(60)
    assert made.delivered() == [b"one", b"two", b"three", b"pending"]
    assert made.pending == 0


def test_units_behind_rocketmqs_flush_position_are_kept() -> None:
    """RocketMQ notes the log's end before it flushes, the queue's offset of that moment: units between are no tail.

    Cut off, their slots would lead nowhere, and RocketMQ would make them lead to themselves.
    """
    made = broker()
    for body in (b"x", b"y"):
        made.send(body, 60_000)
        made.scheduler.advance(1)
    made.close()
    check = made.disk.open(f"{ROOT}/config/timercheck")
    content = check.read(0, 8) + b"".join(each.to_bytes(8, "big") for each in (52, 2, 2, 0, START_MS, 1))
    check.truncate(0)
    check.write(0, [content.ljust(4096, b"\x00")])
    made = broker(made.disk, made.clock)
    assert (made.timers.table.log.count, made.timers.entering.offset, made.pending) == (2, 2, 2)
    assert made.metrics.counter(counted.DAMAGED).value == 0
    made.scheduler.advance(60)
    assert made.delivered() == [b"x", b"y"]
    assert made.metrics.counter(counted.DAMAGED).value == 0
