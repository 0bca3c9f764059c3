"""Seeded runs of the whole node: every promise holds over every kind of fault, and a seed replays exactly."""

from __future__ import annotations

import pytest

from tests.accelerator_ways import need_compiled, running
from tests.simulation.__main__ import COMMAND
from tests.simulation.faults import FAULTS
from tests.simulation.many_seeds import ManySeeds
from tests.simulation.plan import draw, run_seed
from tests.simulation.shrink import shrink
from tests.simulation.world import Report

SEEDS = 8
SEEDS_MORE = 2
SEEDS_MOST = 72
"""The first seeds, and further ones until all of them together hit everything. `make simulate` has the rest."""
SEEDS_LONG = 1_000

HAPPENINGS = (
    "delivered", "failed", "silent", "late", "repeated_result", "resent_results", "nonsense_result", "poison",
    "refused_publish", "publish_code_0", "publish_code_10", "publish_code_11", "publish_code_14", "publish_code_20",
    "operator_retry", "operator_skip", "operator_dead_letter", "operator_refused",
    "timer_cancelled", "timer_rescheduled", "timer_tooLate", "timer_unanswered", "timer_unknown",
    "reset_made", "reset_passed_over", "reset_repeated", "reset_with_retries", "retried", "loop_added",
    "loop_delivered", "delay_cancelled", "delay_tooLate",
    "half_stored", "half_asked",
    "loop_cancel_1", "loop_cancel_2", "loop_cancelled", "loop_rescheduled", "loop_tooLate",
    "stalled_reader", "writer_paused", "fragment", "join", "reset", "half_delivered", "refused",
    "pull_code_3",
)  # fmt: skip
"""What clients, producers and network must have done at least once over all seeds."""
CAUGHT = ("publishes", "deliveries", "acks")
"""What kills must have caught in the middle."""


def _made_small(seed: int) -> str:
    try:
        return shrink(draw(seed)).text()
    except ValueError as error:
        return f"not made small, {error} in this process"


def _seeds() -> ManySeeds:
    """The first that fails is made small."""
    wanted = {"faults": FAULTS, "events": HAPPENINGS, "outstanding": CAUGHT}
    return ManySeeds(run_seed, wanted, lambda seed: f"replay: {COMMAND} {seed}\n{_made_small(seed)}")


def test_seeds_hit_every_fault_and_break_no_promise() -> None:
    """Promises 1, 2, 3, 6 and 7 hold over seeded runs that together make every kind of fault."""
    done = _seeds()
    done.until_all_is_done(SEEDS, SEEDS_MORE, SEEDS_MOST)
    done.print()
    assert not done.missing()


@pytest.mark.long
def test_thousand_seeds_break_no_promise() -> None:
    """The same over a thousand seeds."""
    done = _seeds()
    done.run(range(1_000, 1_000 + SEEDS_LONG))
    done.print()
    assert not done.missing()


@pytest.fixture(scope="module")
def seventh() -> Report:
    """One run of a seed, with accelerators in Python."""
    with running("pure"):
        return run_seed(7, faults=2)


def test_seed_replays_exactly(seventh: Report) -> None:
    """Two runs of one seed do the same things at the same times; another seed draws others."""
    with running("pure"):
        assert seventh == run_seed(7, faults=2)
    assert draw(7, faults=2).steps != draw(8, faults=2).steps


def test_seed_is_the_same_run_with_compiled_leaves(seventh: Report) -> None:
    """Whether accelerators run compiled or in Python changes nothing that a node does, nor when."""
    need_compiled()
    with running("compiled"):
        assert seventh == run_seed(7, faults=2)
