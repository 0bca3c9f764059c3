"""Calls that are to come: one, the earliest of several, and one again and again."""

from __future__ import annotations

import pytest

from broker.runtime.later import Earliest, Later, Repeated
from pyddmq.testing import ManualClock, ManualScheduler


class Times:
    """When something was called, in seconds from the beginning."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.found: list[float] = []
        self._began = self.clock.monotonic()

    def note(self) -> None:
        """Note a call."""
        self.found.append(self.clock.monotonic() - self._began)


def test_one_call_takes_the_place_of_the_one_before() -> None:
    """Or does not, when it is asked for unless one is due; a call that was made is due no more."""
    times = Times()
    later = Later(times.scheduler, times.note)
    later.after(1)
    later.after(3)
    later.unless_due(2)
    assert later.is_due
    times.scheduler.advance(5)
    assert (times.found, later.is_due) == ([3], False)
    later.unless_due(1)
    times.scheduler.advance(5)
    assert times.found == [3, 6]


def test_call_that_is_withdrawn_is_not_made() -> None:
    """Until it is asked for again; withdrawing nothing is harmless."""
    times = Times()
    later = Later(times.scheduler, times.note)
    later.cancel()
    later.after(1)
    later.cancel()
    times.scheduler.advance(5)
    later.after(1)
    times.scheduler.advance(5)
    assert times.found == [6]


def test_work_may_ask_for_its_next_call() -> None:
    """It is no longer due when it runs."""
    times = Times()
    laters: list[Later] = []

    def work() -> None:
        times.note()
        laters[0].unless_due(2)

    laters.append(Later(times.scheduler, work))
    laters[0].after(1)
    times.scheduler.advance(4)
    assert times.found == [1, 3]


def test_the_earliest_moment_wins() -> None:
    """Whether it was asked for in seconds or by its time; what is past is called at once."""
    times = Times()
    earliest = Earliest(times.clock, times.scheduler, times.note)
    now = times.clock.monotonic()
    earliest.within(3)
    earliest.at(now + 2)
    earliest.within(4)
    assert earliest.is_scheduled
    times.scheduler.advance(5)
    earliest.at(now)
    times.scheduler.advance(0)
    assert (times.found, earliest.is_scheduled) == ([2, 5], False)
    earliest.within(1)
    earliest.end()
    times.scheduler.advance(5)
    assert times.found == [2, 5]


def test_repeated_work_goes_on_until_its_end() -> None:
    """Beginning twice changes nothing; it may end itself."""
    times = Times()
    repeated = Repeated(times.scheduler, 2, times.note)
    repeated.begin()
    times.scheduler.advance(1)
    repeated.begin()
    times.scheduler.advance(4)
    assert (times.found, repeated.is_on) == ([2, 4], True)
    repeated.end()
    times.scheduler.advance(10)
    assert (times.found, repeated.is_on) == ([2, 4], False)


def test_repeated_work_may_end_itself() -> None:
    """In a call; no other one follows."""
    times = Times()
    made: list[Repeated] = []

    def work() -> None:
        times.note()
        made[0].end()

    made.append(Repeated(times.scheduler, 1, work))
    made[0].begin()
    times.scheduler.advance(5)
    assert times.found == [1]


def test_repeated_work_goes_on_after_an_exception() -> None:
    """Saves and looks that a program or disk made fail once are made again: nobody else would begin them."""
    times = Times()

    def work() -> None:
        times.note()
        if len(times.found) == 1:
            raise ValueError("once")

    repeated = Repeated(times.scheduler, 2, work)
    repeated.begin()
    with pytest.raises(ValueError, match="once"):
        times.scheduler.advance(2)
    times.scheduler.advance(4)
    assert times.found == [2, 4, 6]
