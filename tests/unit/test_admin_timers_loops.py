"""The list of timers says of loops what their ids say."""

from __future__ import annotations

from broker.scheduled.recurring.occurrence import LOOP, Occurrence
from broker.scheduled.timer.listing import PendingTimer
from proxy.admin.timers import _timer

FIRST = Occurrence(1_800_000_000, LOOP, 1_800_003_600, 10, 0, 60, 0, "14f22520-ad72-11e7-91be-6ee54da579e3")


def pending(key: str) -> PendingTimer:
    """A timer with a key."""
    return PendingTimer("orders", 0, "UNIQUE", key, 1, 2, 3, 0, None, 0)


def test_pending_occurrence_of_a_loop_tells_what_was_made_and_what_is_left() -> None:
    """Under the id of the add, whichever occurrence is pending."""
    third = FIRST.later(2)
    assert third is not None
    told = {"id": FIRST.id, "made": 2, "left": 8, "interval": 60, "expireMs": 1_800_003_600_000}
    assert _timer(pending(f"{third.id} {FIRST.id}"))["loop"] == told
    assert _timer(pending(FIRST.id))["loop"] == {**told, "made": 0, "left": 10}


def test_other_timers_are_no_loops() -> None:
    """Keys of users, and single messages of sendDelaySync."""
    once = FIRST._replace(kind=2, times=0)
    assert [_timer(pending(key))["loop"] for key in ("", "order-7", once.id)] == [None] * 3
