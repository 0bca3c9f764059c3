"""Timers: delivery at the very millisecond, rolls, what is refused, clocks that step, pauses."""

from __future__ import annotations

import contextlib
import errno

import pytest

from broker.format.message import message_of
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import TIMER_TOPIC, TimerOptions
from broker.scheduled.timer.stages import TimerPipelineStage
from pyddmq.testing import PowerCut, SimDisk
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import SMALL, START_MS, TOPIC, Broker, broker

DAY = 86_400_000


def records(made: Broker, topic: str) -> list[tuple[int, int, int]]:
    """Units of a topic's only queue."""
    queue = made.store.topics[topic].queues[0]
    return queue.read(queue.min_offset, queue.max_offset)


def test_each_timer_is_delivered_at_its_very_millisecond() -> None:
    """In the order of due times, whatever the order of sending, on and beside the borders of slots."""
    made = broker()
    delays = [1, 2, 999, 1000, 1001, 1999, 2000, 2345, 2346, 59_999, 100_000]
    for delay in reversed(delays):
        made.send(b"%d" % delay, delay)
    made.scheduler.advance(2.3449)
    assert made.delivered() == [b"%d" % delay for delay in delays[:7]]
    made.scheduler.advance(100)
    assert made.times() == delays
    assert made.pending == made.metrics.value(counted.LATE_MAX) == 0
    assert made.metrics.value(counted.DELIVERED) == len(delays)


def test_far_timers_roll() -> None:
    """Beyond the window a record is put again, as RocketMQ does; it ends in its own slot, exactly, delivered once."""
    made = broker(segment_bytes=1 << 20)
    for delay in (119_000, 121_000, 159_000, 161_000, 1_000_500):
        made.send(b"%d" % delay, delay)
    made.scheduler.advance(1100)
    assert made.times() == [119_000, 121_000, 159_000, 161_000, 1_000_500]
    assert made.metrics.value(counted.ROLLED) == 1 + 1 + 1 + 8
    rolled = [message_of(made.store.read(physical, size)) for physical, size, _ in records(made, TIMER_TOPIC)]
    assert max(int(each.properties.get("TIMER_ROLL_TIMES", "0")) for each in rolled) == 8
    assert made.pending == 0


def test_a_year_and_more() -> None:
    """With RocketMQ's own window of two days, across 400 of them, to the millisecond."""
    made = broker(timers=TimerOptions(slots=604_800, log_file_bytes=1 << 16), segment_bytes=1 << 20)
    made.send(b"year", 366 * DAY)
    made.send(b"more", 400 * DAY)
    for day in (365.9, 366, 399.9, 400):
        while made.clock.wall_ms() < START_MS + day * DAY - 500:
            made.clock.advance(min(DAY / 1000, (START_MS + day * DAY - 500 - made.clock.wall_ms()) / 1000))
            made.scheduler.advance(0.01)
        made.scheduler.advance(0.5)
    assert made.times() == [366 * DAY, 400 * DAY]


def test_refused_timer_holds_up_nobody() -> None:
    """Its topic is gone: the others go on, it is counted, and is delivered once the topic is there again."""
    made = broker()
    made.store.create_topic("gone", 1)
    made.send(b"stuck", 1000, "gone")
    made.send(b"free", 1000)
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(1)
    assert (made.delivered(), made.metrics.value(counted.REFUSED)) == ([b"free"], 1)
    made = made.again()
    made.scheduler.advance(60)
    made.timers.save()
    made = made.again()
    made.scheduler.advance(1)
    [refused] = made.timers.due.refused.values()
    assert "topic 'gone' does not exist" in refused.reason or refused.tries == 0
    assert made.pending == 1
    made.store.create_topic("gone", 1)
    made.scheduler.advance(10)
    assert (made.delivered("gone"), made.delivered(), made.pending) == ([b"stuck"], [b"free"], 0)


def test_too_many_refused_are_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused stays bounded; the others are tried again later, and nothing is lost or delivered twice."""
    monkeypatch.setattr("broker.scheduled.timer.due.REFUSED_MAX", 3)
    made = broker(segment_bytes=1 << 16)
    made.store.create_topic("gone", 1)
    for number in range(8):
        made.send(b"%d" % number, 1000, "gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(20)
    assert (len(made.timers.due.refused), made.metrics.value(counted.DEFERRED), made.pending) == (3, 5, 8)
    made.store.create_topic("gone", 1)
    made.scheduler.advance(700)
    assert sorted(made.delivered("gone")) == [b"%d" % number for number in range(8)]
    assert made.pending == 0


def test_full_disk_that_takes_no_timer_into_the_timer_log_holds_up_none_that_is_due() -> None:
    """The log may have room all the same, and what is due goes into that, on time."""
    made = broker(segment_bytes=1 << 20)
    for number in range(31):
        made.send(b"%d" % number, 5000 + number * 100)
    made.scheduler.advance(1)
    for _ in range(10):
        made.disk.fail("write", path_part="timerlog", error=errno.ENOSPC)
    made.send(b"another", 60_000)
    made.scheduler.advance(6)
    assert made.metrics.value(counted.WAITS) > 1
    assert made.delivered() == [b"%d" % number for number in range(21)]
    assert made.metrics.value(counted.LATE_MAX) == 0
    made.disk.heal()
    made.scheduler.advance(60)
    assert made.delivered() == [*[b"%d" % number for number in range(31)], b"another"]


def test_full_disk_keeps_what_is_to_roll_beside_what_is_due() -> None:
    """Where what is due finds no space, a roll of the same moment waits as well, and is not forgotten."""
    disk = SimDisk(capacity_bytes=80 * 4096)
    made = broker(disk)
    made.send(b"due" * 1000, 120_000)
    made.send(b"far" * 1000, 121_000)
    made.scheduler.advance(1)
    made.fill()
    made.scheduler.advance(125)
    assert made.metrics.value(counted.WAITS) > 1
    disk.capacity_bytes = 1 << 30
    made.scheduler.advance(30)
    assert [body[:3] for body in made.delivered() if body and body[:3] in {b"due", b"far"}] == [b"due", b"far"]
    assert made.pending == 0


def test_forward_step_delivers_at_once() -> None:
    """What became due by the step goes within a second of it, in order, and what comes later is on time."""
    made = broker()
    for delay in (3_600_000, 60_000, 7_200_500):
        made.send(b"%d" % delay, delay)
    made.scheduler.advance(10)
    made.clock.set_wall_ms(START_MS + 7_200_000)
    made.scheduler.advance(1.0)
    assert made.delivered() == [b"60000", b"3600000", b"7200500"]
    made.send(b"after", 100)
    made.scheduler.advance(0.1)
    assert made.delivered()[-1] == b"after"


def test_back_step_repeats_nothing_and_follows_the_clock() -> None:
    """A due time is an instant (D35): what waits for it waits by the wall clock, also what is sent after the step."""
    made = broker()
    made.send(b"done", 1000)
    made.send(b"waits", 20_000)
    made.scheduler.advance(10)
    made.clock.set_wall_ms(START_MS - 600_000)
    made.send(b"soon", 500)
    made.scheduler.advance(0.4)
    assert made.delivered() == [b"done"]
    made.scheduler.advance(0.1)
    assert made.delivered() == [b"done", b"soon"]
    made = made.again()
    made.send(b"again", 500)
    made.scheduler.advance(0.5)
    assert made.delivered() == [b"done", b"soon", b"again"]
    made.scheduler.advance(618.9)
    assert made.delivered() == [b"done", b"soon", b"again"]
    made.scheduler.advance(0.1)
    assert made.delivered() == [b"done", b"soon", b"again", b"waits"]


@pytest.mark.parametrize("stage", list(TimerPipelineStage))
def test_stages_pause_and_resume(stage: TimerPipelineStage) -> None:
    """Nothing passes a paused stage, nothing is lost by it, and publishing goes on."""
    made = broker()
    made.send(b"first", 500)
    made.scheduler.advance(1)
    made.timers.pause(stage)
    for delay in (4000, 10_000):
        made.send(b"%d" % delay, delay)
    made.scheduler.advance(30)
    assert made.delivered() == [b"first"]
    assert made.metrics.value(counted.STAGE_PAUSED, stage.value) == 1
    made.timers.parts.measure()
    depths = {each: made.metrics.value(counted.STAGE_DEPTH, each.value) for each in TimerPipelineStage}
    # Nothing waits between the last two.
    before = TimerPipelineStage.DEQUEUE_GET_MESSAGE if stage is TimerPipelineStage.DEQUEUE_PUT_MESSAGE else stage
    assert depths == {each: 2 if each is before else 0 for each in TimerPipelineStage}
    made.timers.resume(stage)
    made.scheduler.advance(0)
    assert made.delivered() == [b"first", b"4000", b"10000"]
    assert made.metrics.value(counted.STAGE_COUNT, TimerPipelineStage.ENQUEUE_PUT.value) == 3
    assert made.metrics.value(counted.STAGE_COUNT, TimerPipelineStage.DEQUEUE_PUT_MESSAGE.value) == made.metrics.value(
        counted.DELIVERED
    )


def test_idle_store_has_nothing_to_do() -> None:
    """With nothing pending there is no look at the clock; the first timer makes its files."""
    made = broker()
    assert made.scheduler.next_due() is None
    made.send(b"x", 1000)
    made.scheduler.advance(1)
    made.scheduler.advance(60)
    due = made.scheduler.next_due() or 0.0
    assert due - made.scheduler.time() > 1.0, "only the checkpoint is still timed"


def test_wheel_has_rocketmqs_form() -> None:
    """Slot, unit and checkpoint, byte by byte, as the reference has them."""
    made = broker()
    position = made.store.put(TOPIC, b"x", delay_ms=5300)
    made.scheduler.advance(0)
    made.close()
    slot_ms = START_MS + 5000
    wheel = made.disk.open("/store/timerwheel")
    index = slot_ms // 1000 % 1200
    expected = (slot_ms // 1000).to_bytes(8, "big") + bytes(16) + (1).to_bytes(4, "big") + bytes(4)
    assert wheel.read(index * 32, 32) == expected
    assert wheel.size() == 1200 * 32
    unit = made.disk.open(f"/store/timerlog/{0:020d}").read(0, 52)
    [(physical, size, _)] = records(made, TIMER_TOPIC)
    assert physical == position.physical
    assert unit == b"".join(
        (
            (52).to_bytes(4, "big"),
            b"\xff" * 8,
            (1).to_bytes(4, "big"),
            START_MS.to_bytes(8, "big"),
            (5000).to_bytes(4, "big"),
            physical.to_bytes(8, "big"),
            size.to_bytes(4, "big"),
            (116).to_bytes(4, "big"),  # "t".hashCode()
            (START_MS + 5300).to_bytes(8, "big"),
        )
    )
    check = made.disk.open("/store/config/timercheck").read(0, 4096)
    assert len(check) == 4096
    # One unit, one record; the first slot that was not read is the second after two more than now.
    assert check[8:32] == (52).to_bytes(8, "big") + (1).to_bytes(8, "big") + b"\x7f" + b"\xff" * 7
    assert int.from_bytes(check[:8], "big") == START_MS + 3000
    assert SMALL.precision_ms == 1000


def test_kill_between_a_clean_stop_and_the_first_checkpoint_forgets_no_timer() -> None:
    """What was entered meanwhile is not in the counts of the clean stop, and is pending all the same."""
    made = broker()
    made.send(b"x", 1000)
    made.scheduler.advance(1)
    made.send(b"y", 60_000)
    made.close()
    made = broker(made.disk, made.clock).again()
    assert made.pending == 1
    made.scheduler.advance(60)
    assert made.delivered() == [b"x", b"y"]


@pytest.mark.parametrize("changes", range(5))
def test_kill_while_the_checkpoint_is_written_is_not_taken_for_rocketmqs(changes: int) -> None:
    """Half of `timercheck` would say that RocketMQ delivered what lies below, refused timers too."""
    made = broker()
    made.store.create_topic("gone", 1)
    made.send(b"far", 60_000)
    made.send(b"stuck", 1000, "gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(2)
    made.timers.save()
    made.scheduler.advance(2)
    made.disk.stop_after(changes, path_part="timercheck")
    with contextlib.suppress(PowerCut):
        made.timers.save()
    made.disk.kill()
    for name in made.disk.list(f"{ROOT}/timerlog"):
        made.disk.remove(f"{ROOT}/timerlog/{name}")
    made = broker(made.disk, made.clock)
    made.store.create_topic("gone", 1)
    made.scheduler.advance(60)
    assert (made.delivered("gone"), made.delivered()) == ([b"stuck"], [b"far"])
