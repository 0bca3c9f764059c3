"""The clock and scheduler that move by hand."""

from __future__ import annotations

import pytest

from pyddmq.testing import ManualClock, ManualScheduler


def test_calls_run_in_turns_and_order() -> None:
    """What a call schedules runs in the next turn."""
    scheduler = ManualScheduler(ManualClock())
    ran: list[str] = []

    def first() -> None:
        ran.append("a")
        scheduler.call_soon(ran.append, "c")

    scheduler.call_soon(first)
    scheduler.call_soon(ran.append, "b")
    assert scheduler.run_turn() == 2
    assert ran == ["a", "b"]
    scheduler.run_until_idle()
    assert ran == ["a", "b", "c"]
    assert scheduler.idle


def test_timers_run_at_their_time_in_order() -> None:
    """`advance` stops at each timer on its way."""
    clock = ManualClock(wall_ms=1000)
    scheduler = ManualScheduler(clock)
    seen: list[tuple[str, float, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic(), clock.wall_ms()))

    scheduler.call_later(2, note, "late")
    scheduler.call_later(1, note, "early")
    scheduler.call_later(1, note, "early too")
    scheduler.call_later(1.5, note, "withdrawn").cancel()
    scheduler.advance(1.9)
    assert [name for name, _, _ in seen] == ["early", "early too"]
    scheduler.advance(0.1)
    assert seen[0][1:] == (1.0, 2000)
    assert (seen[-1][0], round(seen[-1][1], 6), seen[-1][2]) == ("late", 2.0, 3000)
    assert scheduler.next_due() is None


def test_endless_callbacks_are_told_from_idle() -> None:
    """A callback that schedules itself without end is an error, not a hang."""
    scheduler = ManualScheduler(ManualClock())

    def again() -> None:
        scheduler.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="without end"):
        scheduler.run_until_idle(turns_max=50)


def test_clock_steps_the_wall_alone() -> None:
    """The wall clock may jump; the monotonic one never goes back."""
    clock = ManualClock(wall_ms=5000, monotonic=3.0)
    clock.set_wall_ms(10)
    assert (clock.wall_ms(), clock.monotonic()) == (10, 3.0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
