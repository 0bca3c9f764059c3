"""What a node remembers of its last minute."""

from __future__ import annotations

from broker.runtime.metrics import Metrics, Rises
from broker.runtime.store_metrics import REFUSED as WATCHED
from proxy.node.vitals import WINDOW_SECONDS, Vitals
from pyddmq.testing import ManualClock


def look(vitals: Vitals, clock: ManualClock, seconds: int) -> None:
    """Let time pass as a node does."""
    for _ in range(seconds):
        clock.advance(1)
        vitals.look()


def test_rises_are_those_of_the_last_minute_and_are_forgotten() -> None:
    """A rise counts at once, as long as a minute, and no longer than that and a sample; others are not touched."""
    clock, metrics = ManualClock(), Metrics()
    vitals = Vitals(metrics, clock, watched=(WATCHED,))
    metrics.counter(WATCHED, "a").add(3)
    assert vitals.risen() == {WATCHED: {("a",): 3}}
    look(vitals, clock, 30)
    metrics.counter(WATCHED, "b").add(1)
    metrics.counter(WATCHED, "a").add(1)
    look(vitals, clock, 20)
    assert vitals.risen() == {WATCHED: {("a",): 4, ("b",): 1}}
    look(vitals, clock, 20)
    assert vitals.risen() == {WATCHED: {("a",): 1, ("b",): 1}}
    look(vitals, clock, int(WINDOW_SECONDS))
    assert vitals.risen() == {}


def test_rises_compare_with_the_last_look_that_is_kept() -> None:
    """New series begin at 0; a gauge that fell has not risen."""
    metrics = Metrics()
    rises = Rises(metrics, (WATCHED,))
    metrics.counter(WATCHED, "a").add(3)
    assert rises.look(keep=False) == rises.look() == {(WATCHED, ("a",)): 3}
    metrics.counter(WATCHED, "b").add(1)
    metrics.counter(WATCHED, "a").value = 2
    assert rises.look() == {(WATCHED, ("b",)): 1}
    metrics.counter(WATCHED, "a").add(2)
    assert rises.look() == {(WATCHED, ("a",)): 2}
    assert rises.look() == {}


def test_quiet_counters_cost_nothing() -> None:
    """A thousand series that stand still are not kept minute by minute."""
    clock, metrics = ManualClock(), Metrics()
    vitals = Vitals(metrics, clock, watched=(WATCHED,))
    for number in range(1000):
        metrics.counter(WATCHED, str(number)).add(1)
    look(vitals, clock, 120)
    assert vitals.risen() == {}
    assert sum(len(rises) for _, rises in vitals._rises) == 0


def test_clock_steps_are_noticed_and_a_slow_drift_is_none() -> None:
    """Forward and back by more than a second; a clock that is slewed goes on unnoticed."""
    clock = ManualClock()
    vitals = Vitals(Metrics(), clock)
    look(vitals, clock, 3)
    clock.set_wall_ms(clock.wall_ms() + 200)
    look(vitals, clock, 3)
    unnoticed = vitals.clock_step
    assert unnoticed is None
    clock.set_wall_ms(clock.wall_ms() + 60_000)
    look(vitals, clock, 2)
    step = vitals.clock_step
    assert step is not None
    assert round(step.seconds) == 60
    assert vitals.clock_behind_seconds == 0.0
    clock.set_wall_ms(clock.wall_ms() + -30_000)
    assert 27 < vitals.clock_behind_seconds <= 30
    look(vitals, clock, 3)
    assert 24 < vitals.clock_behind_seconds <= 27
    look(vitals, clock, 40)
    assert vitals.clock_behind_seconds == 0.0
