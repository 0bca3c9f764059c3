"""Timers and retention: a pending timer never goes with its log file, and never holds it (D29)."""

from __future__ import annotations

from broker.retention import RetentionLimits
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.retention_hold import TimerHold
from tests.integration.timer_tools import TOPIC, Broker, broker


def retaining(made: Broker) -> Broker:
    """Keep two log files."""
    made.store.retention.holds.append(TimerHold(made.timers, made.metrics))
    made.store.retention.limits = RetentionLimits(log_bytes=2 * 4096)
    return made


def fill(made: Broker) -> None:
    """Publish four files' worth, and have the checkpoint cover them; retention does what it can."""
    for _ in range(8):
        made.store.put(TOPIC, b"y" * 1500)
    made.scheduler.advance(11)
    made.store.checkpoint()
    for _ in range(50):
        if not made.store.retention.step():
            return
        made.scheduler.advance(0)


def bodies(made: Broker) -> list[bytes]:
    """What was delivered and is still kept, without the filling."""
    return [body for body in made.delivered() if len(body) < 100]


def test_pending_timer_moves_on_as_its_files_go() -> None:
    """Put again, once per file that goes; it is delivered on time, once, and can be cancelled all the while."""
    made = retaining(broker())
    made.send(b"x", 100_000)
    key = made.send(b"no", 100_000)
    made.send(b"soon", 1000)
    for round_ in range(1, 8):
        before = made.store.min_offset
        fill(made)
        assert made.store.min_offset > before
        assert made.store.retention.waiting is None
        assert made.timers.pending == (2 if round_ < 4 else 1)
        if round_ == 3:
            made = retaining(made.again())
            assert made.timers.cancel(TOPIC, key) is CancelEffect.CANCELLED
        assert b"x" not in bodies(made)
    made.scheduler.advance(30)
    assert bodies(made) == [b"x"]
    assert made.times()[-1] == 100_000
    assert made.timers.pending == 0
    assert made.metrics.value(counted.PUT_BACK) >= 3
    assert made.metrics.value(counted.LOST) == 0


def test_file_does_not_go_before_its_timers_are_in_the_wheel() -> None:
    """Nothing is dropped that nobody has looked at."""
    made = retaining(broker())
    made.timers.stop()
    made.send(b"x", 100_000)
    fill(made)
    assert made.store.min_offset == 0
    assert made.store.retention.waiting is not None
    made.timers.start()
    made.scheduler.advance(0)
    fill(made)
    assert made.store.min_offset > 0
    made.scheduler.advance(100)
    assert b"x" in bodies(made)


def test_refused_timer_moves_on_too() -> None:
    """What is refused is put again; the files of the timer log go with the records that they name."""
    made = retaining(broker())
    made.store.create_topic("gone", 1)
    made.send(b"stuck", 1000, "gone")
    made.store.topic_changes.delete("gone")
    for number in range(40):
        made.send(b"%d" % number, 500)
    made.scheduler.advance(2)
    for _ in range(4):
        fill(made)
    assert made.timers.pending == 1
    assert TIMER_TOPIC in made.store.topics
    assert made.timers.table.log.first > 0
    made = made.again()
    assert made.timers.pending == 1
    made.store.create_topic("gone", 1)
    made.scheduler.advance(20)
    assert made.delivered("gone") == [b"stuck"]


def test_kill_after_the_files_of_delivered_timers_went_waits_for_none_of_them() -> None:
    """The clock was ahead for a while: all came due, their files went, and no checkpoint had been due in between."""
    made = retaining(broker())
    for number in range(5):
        made.send(b"%d" % number, 100_000 + number * 10_000)
    made.scheduler.advance(6)
    assert made.timers.pending == 5
    made.timers.checkpoints.end()
    made.clock.set_wall_ms(made.clock.wall_ms() + 3_600_000)
    made.scheduler.advance(1.1)
    assert made.timers.pending == 0
    fill(made)
    assert made.store.min_offset > 0
    made.clock.set_wall_ms(made.clock.wall_ms() - 3_600_000)
    made = made.again()
    assert made.timers.pending == 0
    made.scheduler.advance(200)
    assert made.metrics.value(counted.LOST) == 0
