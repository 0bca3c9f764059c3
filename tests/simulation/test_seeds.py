"""Seeded runs of the whole node: every promise holds over every kind of fault, and a seed replays exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

import pytest

from tests.accelerator_ways import need_compiled, running
from tests.simulation.__main__ import COMMAND
from tests.simulation.faults import FAULTS
from tests.simulation.plan import draw, run_seed
from tests.simulation.shrink import shrink
from tests.simulation.world import Report

SEEDS = 8
SEEDS_MORE = 4
SEEDS_MOST = 72
"""The first seeds, and further ones until all of them together hit everything. `make simulate` has the rest."""
SEEDS_LONG = 1_000
PROCESSES = 2

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


def _reports(seeds: range) -> Iterator[Report]:
    """Run the seeds, one after the other in each of two processes; the first that fails is made small."""
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for seed, result in zip(seeds, pool.map(_attempt, seeds, chunksize=2), strict=True):
            if isinstance(result, str):
                pool.shutdown(cancel_futures=True)
                pytest.fail(f"seed {seed}: {result}\nreplay: {COMMAND} {seed}\n{_made_small(seed)}")
            yield result


def _made_small(seed: int) -> str:
    try:
        return shrink(draw(seed)).text()
    except ValueError as error:
        return f"not made small, {error} in this process"


def _attempt(seed: int) -> Report | str:
    """Return what the run did, or how it failed."""
    try:
        return run_seed(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@dataclass
class _Sum:
    """What seeds did together."""

    seeds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    outstanding: Counter[str] = field(default_factory=Counter)
    published: int = 0
    seconds: float = 0.0

    def run(self, seeds: range) -> None:
        """Run some more."""
        for report in _reports(seeds):
            self.seeds += 1
            self.faults += report.faults
            self.events += report.events
            self.outstanding += report.outstanding
            self.published += report.published
            self.seconds += report.seconds

    def missing(self) -> list[str]:
        """What none of them did."""
        wanted = [(FAULTS, self.faults), (HAPPENINGS, self.events), (CAUGHT, self.outstanding)]
        return [name for names, found in wanted for name in names if not found[name]]

    def print(self) -> None:
        """Print all of it."""
        print(f"\n{self.seeds} seeds, {self.seconds:.0f} virtual seconds, {self.published} publishes acknowledged")
        print("faults:", dict(sorted(self.faults.items())))
        print("events:", dict(sorted(self.events.items())))
        print("caught in the middle by kills:", dict(self.outstanding))


def test_seeds_hit_every_fault_and_break_no_promise() -> None:
    """Promises 1, 2, 3, 6 and 7 hold over seeded runs that together make every kind of fault."""
    done = _Sum()
    while done.seeds < SEEDS or (done.missing() and done.seeds < SEEDS_MOST):
        done.run(range(done.seeds, done.seeds + (SEEDS_MORE if done.seeds else SEEDS)))
    done.print()
    assert not done.missing()


@pytest.mark.long
def test_thousand_seeds_break_no_promise() -> None:
    """The same over a thousand seeds."""
    done = _Sum()
    done.run(range(1_000, 1_000 + SEEDS_LONG))
    done.print()
    assert not done.missing()


@pytest.fixture(scope="module")
def seventh() -> Report:
    """One run of a seed, with accelerators in Python."""
    with running("pure"):
        return run_seed(7, faults=2)


def test_seed_replays_exactly(seventh: Report) -> None:
    """Two runs of one seed do the same things at the same times; another seed does others."""
    with running("pure"):
        again, other = run_seed(7, faults=2), run_seed(8, faults=2)
    assert seventh == again
    assert seventh.events != other.events


def test_seed_is_the_same_run_with_compiled_leaves(seventh: Report) -> None:
    """Whether accelerators run compiled or in Python changes nothing that a node does, nor when."""
    need_compiled()
    with running("compiled"):
        assert seventh == run_seed(7, faults=2)
