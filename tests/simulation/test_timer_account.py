"""What a checker makes of the answers to changes of one timer."""

from __future__ import annotations

import pytest

from tests.simulation.timer_account import TimerAccount
from tests.simulation.waits import Wait, Walls

DUE, LATER = Wait("at", 101_000, 101_000), Wait("at", 109_000, 109_000)
WALLS = Walls(lambda: 200_000, lambda: 200.0)


def _timer() -> TimerAccount:
    return TimerAccount("name", DUE, sent=100.0, received=100.1)


def _reported(timer: TimerAccount, outcome: str, time: float = 100.5, handle: str = "name") -> str:
    return timer.answered(outcome, handle, time=time, walls=WALLS)


def test_cancelled_is_for_good() -> None:
    """It is never delivered, and a second answer is the same."""
    timer = _timer()
    timer.asked(None, 100.5)
    assert timer.may_be_cancelled
    assert not timer.cancelled
    assert not _reported(timer, "cancelled")
    assert timer.delivered(150.0, WALLS) == "having been cancelled"
    assert "having been cancelled" in _reported(timer, "tooLate")


def test_too_late_is_after_the_moment() -> None:
    """A cancel that comes before it cannot be too late; after it the message is to be delivered."""
    timer = _timer()
    timer.asked(None, 101.0)
    assert not _reported(timer, "tooLate", 101.5)
    assert not timer.may_be_cancelled
    assert "before its moment" in _reported(_timer(), "tooLate", 100.5)


def test_moved_timer_has_one_moment() -> None:
    """The old one until it is answered, the new one from then on; an unanswered one has both, and no name."""
    timer = _timer()
    timer.asked(LATER, 100.5)
    names = [timer.handle]
    assert not timer.delivered(101.5, WALLS)
    assert not _reported(timer, "rescheduled", handle="other")
    names.append(timer.handle)
    assert names == ["", "other"]
    assert "before its moment" in timer.delivered(101.5, WALLS)
    assert not timer.delivered(109.0, WALLS)


@pytest.mark.parametrize("outcome", ["unknown", "cancelled"])
def test_acknowledged_timer_is_known(outcome: str) -> None:
    """It is not unknown, and cancelled only where somebody asked for that."""
    timer = _timer()
    timer.asked(LATER, 100.5)
    assert _reported(timer, outcome)


def test_timer_whose_unit_may_be_damaged_may_be_too_late_early() -> None:
    """The answer says nothing then: the timer comes at its moment, and may be cancelled later."""
    timer = _timer()
    timer.asked(None, 100.4)
    assert not timer.answered("tooLate", "name", time=100.5, walls=WALLS, doubtful=True)
    assert not timer.may_be_cancelled
    timer.asked(None, 100.6)
    assert not _reported(timer, "cancelled", 100.7)


def test_due_is_known_while_one_moment_is() -> None:
    """A level's is a time of the clock that is never stepped; a timer that may be cancelled or moved has none."""
    assert _timer().due(WALLS) == (101_000, float("inf"))
    level = TimerAccount("name", Wait("level", 2_000, 2), sent=100.0, received=100.1)
    assert level.due(WALLS) == (1 << 62, 102.1)
    timer = _timer()
    timer.asked(LATER, 100.5)
    assert timer.due(WALLS) is None
