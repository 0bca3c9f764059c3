"""How large steps are, by what the ones before took and by what others ask."""

from __future__ import annotations

from dataclasses import replace

from broker.runtime.bundle import runtime_of
from broker.runtime.step_size import ALONE_STEPS, FIRST, LEAST, STEP_SECONDS, StepSize
from pyddmq.testing import ManualClock, SimDisk

MOST = 512


class Steps:
    """Steps whose messages take a while each, beside others who ask for something or not."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked = 0
        self.step_size = StepSize(replace(runtime_of(SimDisk(), self.clock), requests=lambda: self.asked), MOST)

    def run(self, steps: int, *, each: float, asked: int = 0) -> int:
        """Make steps; return the size of the last."""
        count = 0
        for _ in range(steps):
            self.asked += asked
            count = self.step_size.begin()
            self.clock.advance(count * each)
            self.step_size.end(count)
        return count


def test_step_takes_its_time_while_others_ask() -> None:
    """Whatever a message takes; the first one is small, since nothing is known yet."""
    steps = Steps()
    assert steps.run(1, each=0.000001, asked=1) == FIRST
    for each in (0.000001, 0.000002, 0.0000005):
        count = steps.run(20, each=each, asked=1)
        assert 0.9 * STEP_SECONDS <= count * each <= 1.1 * STEP_SECONDS


def test_step_has_its_full_size_when_nobody_asks() -> None:
    """Not at once, and others who ask again have it small at once."""
    steps = Steps()
    small = steps.run(20, each=0.000003, asked=1)
    assert steps.run(ALONE_STEPS, each=0.000003) == small
    assert steps.run(1, each=0.000003) == MOST
    assert steps.run(1, each=0.000003, asked=1) == small


def test_step_has_a_least_size_and_a_most() -> None:
    """Dear messages go on all the same, cheap ones do not make a step of any length."""
    steps = Steps()
    assert steps.run(20, each=0.01, asked=1) == LEAST
    assert steps.run(40, each=0.0000001, asked=1) == MOST


def test_fixed_costs_of_few_messages_say_nothing() -> None:
    """Steps of a message or two, which is what is due most often, leave what a message takes as it was."""
    steps = Steps()
    small = steps.run(20, each=0.000003, asked=1)
    for _ in range(100):
        steps.asked += 1
        assert steps.step_size.begin() == small
        steps.clock.advance(0.0002)
        steps.step_size.end(2)


def test_clock_that_stands_still_leaves_the_full_size() -> None:
    """A simulation has the same steps in every run."""
    steps = Steps()
    steps.run(2, each=0.0, asked=1)
    assert steps.run(1, each=0.0, asked=1) == MOST
