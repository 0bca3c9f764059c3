"""The list of timers says of loops what their ids say."""

from __future__ import annotations

from broker.scheduled.recurring.occurrence import LOOP, Occurrence
from broker.scheduled.timer.listing import delay_ids
from broker.views import LoopView

FIRST = Occurrence(1_800_000_000, LOOP, 1_800_003_600, 10, 0, 60, 0, "14f22520-ad72-11e7-91be-6ee54da579e3")


def test_pending_occurrence_of_a_loop_tells_what_was_made_and_what_is_left() -> None:
    """Under the id of the add, whichever occurrence is pending."""
    third = FIRST.later(2)
    assert third is not None
    reported = LoopView(id=FIRST.id, made=2, left=8, interval=60, expire_ms=1_800_003_600_000)
    assert delay_ids(f"{third.id} {FIRST.id}") == (third.id, reported)
    begun = LoopView(id=FIRST.id, made=0, left=10, interval=60, expire_ms=1_800_003_600_000)
    assert delay_ids(FIRST.id) == (FIRST.id, begun)


def test_other_timers_are_no_loops() -> None:
    """Keys of users, and single messages of sendDelaySync."""
    once = FIRST._replace(kind=2, times=0)
    assert [delay_ids(keys) for keys in ("", "order-7", once.id)] == [(None, None), (None, None), (once.id, None)]
