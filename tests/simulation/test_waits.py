"""When a waiting message is early: over steps of the wall clock, for all three ways to wait."""

from __future__ import annotations

import pytest

from tests.simulation.waits import Wait, Walls

LEVEL, DELAY = Wait("level", 1_000, 1), Wait("delay", 1_000, 1_000)


class Clocks:
    """A wall clock that can be stepped, over one that cannot."""

    def __init__(self) -> None:
        self.time = 100.0
        self.base_ms = 0
        self.walls = Walls(self.wall_ms, lambda: self.time)

    def wall_ms(self) -> int:
        """What the wall clock shows."""
        return self.base_ms + round(self.time * 1000)

    def step(self, delta_ms: int) -> None:
        """Step the wall clock."""
        before = self.wall_ms()
        self.base_ms += delta_ms
        self.walls.stepped(before, self.wall_ms())

    def early(self, wait: Wait, sent: float, *, received: float | None = None) -> bool:
        """Whether a message that was sent then and is delivered now is early."""
        return self.walls.early(wait, sent=sent, received=sent if received is None else received, delivered=self.time)


@pytest.mark.parametrize("wait", [LEVEL, DELAY, Wait("at", 101_000, 101_000)])
@pytest.mark.parametrize(("seconds", "early"), [(0.5, True), (0.99, True), (1.0, False), (9.0, False)])
def test_waits_end_at_their_moment(wait: Wait, seconds: float, early: bool) -> None:
    """Without any step."""
    clocks = Clocks()
    clocks.time += seconds
    assert clocks.early(wait, 100.0) is early


def test_step_forward_after_one_back_brings_no_level_early() -> None:
    """After a step back a level waits for its delay by the clock that is never stepped, whatever the other one does."""
    clocks = Clocks()
    clocks.time += 0.1
    clocks.step(-1_200_000)
    clocks.time += 0.2
    clocks.step(1_200_000)
    clocks.time += 0.05
    assert clocks.early(LEVEL, 100.0)
    clocks.time += 0.7
    assert not clocks.early(LEVEL, 100.0)


@pytest.mark.parametrize("wait", [LEVEL, DELAY, Wait("at", 101_000, 101_000)])
def test_step_forward_brings_what_is_due_by_it(wait: Wait) -> None:
    """Also when the clock was set back again before the delivery was seen."""
    clocks = Clocks()
    clocks.time += 0.1
    clocks.step(5_000)
    assert not clocks.early(wait, 100.0)
    clocks.time += 0.1
    clocks.step(-5_000)
    assert not clocks.early(wait, 100.0)


def test_step_back_puts_moments_off_and_levels_not() -> None:
    """A timer follows the wall clock, a level waits no longer than its delay (D35)."""
    clocks = Clocks()
    clocks.time += 0.1
    clocks.step(-60_000)
    clocks.time += 1.0
    assert clocks.early(DELAY, 100.0)
    assert clocks.early(Wait("at", 101_000, 101_000), 100.0)
    assert not clocks.early(LEVEL, 100.0)


def test_receipt_may_follow_a_step_back() -> None:
    """A message that was under way during the step is due by the clock after it."""
    clocks = Clocks()
    clocks.time += 0.1
    clocks.step(-60_000)
    clocks.time += 1.0
    assert not clocks.early(DELAY, 100.0, received=100.2)


def test_steps_before_the_send_do_not_count() -> None:
    """The clock's past is no excuse."""
    clocks = Clocks()
    clocks.step(5_000)
    clocks.step(-5_000)
    clocks.time += 1.0
    sent = clocks.time
    clocks.time += 0.5
    assert clocks.early(DELAY, sent)
    assert clocks.walls.at(99.0) == 99_000
