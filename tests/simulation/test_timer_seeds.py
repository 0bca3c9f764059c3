"""Seeded runs about timers: damage and bad pages, retention, a clock that is wrong, restarts, all in one node.

Each seed of the short form finds a fault that was once in the node and that no other run found:

| fault | seed |
| --- | --- |
| retention deletes files of the timer log that slots which were read still name | 1 |
| after a start, timers wait until the clock shows again what it showed when it was ahead | 1 |
| a clock that is set back and right again brings messages of a level early | 2 |
| a page of a queue file that cannot be read takes units that were written to it with it | 10 |
| delivered timers are cancelled while timer log and wheel are made anew | 10 |
| a checkpoint within a rebuild forgets what was delivered before it, and a second end comes | 7 |
| retention goes on where it was in a timer log that was made anew meanwhile | 42 |
| log files go with what says that timers were delivered, before a checkpoint knows it | 40119 |
| a record behind torn ones is not found, and timers are made anew each second | 40381 |
"""

from __future__ import annotations

import pytest

from tests.simulation.plan import draw_timers, run_timer_seed
from tests.simulation.timer_faults import TIMER_FAULTS

SEEDS = (1, 2, 7, 10, 42, 40_119, 40_381)
SEEDS_LONG = 300


@pytest.mark.parametrize("seed", SEEDS)
def test_timers_keep_every_promise(seed: int) -> None:
    """No timer is lost, early, late or delivered after its cancel; `run_timer_seed(seed)` replays it."""
    assert run_timer_seed(seed).published > 300


def test_short_form_makes_every_fault() -> None:
    """The seeds together make each kind of fault that is about timers."""
    made = {step.fault for seed in SEEDS for step in draw_timers(seed).steps}
    assert made >= TIMER_FAULTS.keys()


@pytest.mark.long
def test_many_seeds_of_timers_keep_every_promise() -> None:
    """The same over many more seeds, which together delete log files, damage timers and meet their repair."""
    events: dict[str, int] = {}
    for seed in range(SEEDS_LONG):
        for name, count in run_timer_seed(seed).events.items():
            events[name] = events.get(name, 0) + count
    wanted = ("timer_damaged", "timer_rebuild_met", "segments_expired", "page_consumequeue", "page_timerlog")
    assert all(events.get(name) for name in wanted), events
