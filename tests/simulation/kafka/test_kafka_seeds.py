"""Seeded runs of three whole nodes over a simulated Kafka: every promise holds over every kind of fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.facts import PromiseBroken
from tests.simulation.kafka import world
from tests.simulation.kafka.faults import FAULTS
from tests.simulation.kafka.plan import run_seed, shrink, way_of
from tests.simulation.kafka.under_way import OPERATIONS, STATES
from tests.simulation.kafka.world import Report
from tests.simulation.many_seeds import ManySeeds
from tests.tried import NOTHING, Tried, add
from upstream.kafka.commits.commits import OffsetCommitter
from upstream.kafka.commits.metadata import CommitMetadata
from upstream.kafka.lasting_producer import LastingProducer
from upstream.kafka.lease import Lease
from upstream.kafka.partitions import Partitions
from upstream.kafka.positions.log_watch import LogWatch
from upstream.kafka.positions.topic_ids import TopicIdWatch
from upstream.kafka.silence import Silence

SEEDS = 4
SEEDS_MORE = 2
SEEDS_MOST = 24
"""The first seeds, and further ones until all of them together hit everything. `make simulate` has the rest."""
SEEDS_LONG = 200
COMMAND = "python -m tests.simulation.kafka --seed"
HAPPENINGS = (
    "handed_out", "delivered", "shaken", "failed", "silent", "late", "repeated_result", "resent_results", "poison",
    "publish_code_0", "publish_code_11", "publish_code_12", "publish_code_14",
    "refused_ILLEGAL_GENERATION", "refused_STALE_MEMBER_EPOCH", "again", "dead",
)  # fmt: skip
"""What must have been done, refused or seen at least once over all seeds."""
RARE = ("publish_code_20",)
"""Likewise over the seeds of `make simulate`; of ten seeds one has it."""


def _seeds() -> ManySeeds:
    wanted = {"faults": FAULTS, "events": HAPPENINGS}
    return ManySeeds(run_seed, wanted, lambda seed: f"{way_of(seed)}\nreplay: {COMMAND} {seed}")


def test_runs_write_what_they_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault with what goes on at the nodes and the cluster, and how the run is configured."""
    monkeypatch.setenv("PYDDMQ_TRIED", str(tmp_path / "tried"))
    report = run_seed(1)
    found: Counter[Tried] = Counter()
    add([tmp_path / "tried"], found)
    assert {each.fault for each in found} == set(report.faults)
    assert {"publishes", "deliveries", "acks"} < {each.operation for each in found} <= {*OPERATIONS, NOTHING}
    assert {way_of(1).protocol} <= {each.state for each in found} <= set(STATES)


def test_faults_that_a_failure_does_not_need_are_left_out() -> None:
    """Of eight two are left, in whose presence alone the run fails in the same way."""
    tried = []

    def run(kept: Collection[int]) -> Report:
        tried.append(kept)
        if {2, 5} <= set(kept):
            raise PromiseBroken(3, f"key {len(kept)} is out of order")
        if 7 in kept:
            raise ValueError("another failure")
        return Report(seed=2)

    left, error = shrink(run)
    assert left == [2, 5]
    assert str(error) == str(PromiseBroken(3, "key 2 is out of order"))
    assert len(tried) < 30
    assert sum(run_seed(2, faults=3, kept=[1]).faults.values()) == 1


def test_seeds_hit_every_fault_and_break_no_promise() -> None:
    """The promises over Kafka hold: nothing lost, out of order, handed out by two, or committed and given again."""
    done = _seeds()
    done.until_all_is_done(SEEDS, SEEDS_MORE, SEEDS_MOST)
    done.print()
    assert not done.missing()


@pytest.mark.long
def test_many_seeds_break_no_promise() -> None:
    """The same over some hundreds."""
    done = _seeds()
    done.run(range(1_000, 1_000 + SEEDS_LONG))
    done.print()
    assert not done.missing()
    assert all(done.counts["events"][name] for name in RARE)


def test_seed_replays_exactly() -> None:
    """Two runs of one seed do the same things at the same times; another seed goes another way."""
    assert run_seed(2, faults=2) == run_seed(2, faults=2)
    assert way_of(2) != way_of(3)


def _lease_that_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "holds", property(lambda lease: lease._until >= 0))
    patch.setattr(Lease, "end", lambda lease: None)


def _commit_without_its_text(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partitions, "_known", lambda partitions, queue: CommitMetadata())


def _answer_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OffsetCommitter, "when_durable", lambda commits, reported: reported(True))


def _interval_of_a_second(patch: pytest.MonkeyPatch) -> None:
    made: Any = OffsetCommitter.__init__
    patch.setattr(
        OffsetCommitter,
        "__init__",
        lambda commits, *given, **how: made(commits, *given, **{**how, "interval_seconds": 1.0}),
    )


def _log_that_is_not_watched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWatch, "heard", lambda watch, known, ends, failures: None)
    patch.setattr(LogWatch, "goes_back", lambda watch, queue, offset: False)


def _producer_that_is_not_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LastingProducer, "_replace", lambda producer: None)


def _member_that_stands_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Silence, "is_over", property(lambda silence: False))


def _topic_known_by_its_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicIdWatch, "ask", lambda watch, member: None)


@pytest.mark.parametrize(
    ("broken", "seed", "promise"),
    [
        (_lease_that_never_ends, 13, 3),
        (_commit_without_its_text, 2, 2),
        (_answer_before_the_commit, 5, 2),
        (_interval_of_a_second, 2, 2),
        pytest.param(_log_that_is_not_watched, 3, 6, marks=pytest.mark.long),
        pytest.param(_producer_that_is_not_replaced, 0, 6, marks=pytest.mark.long),
        (_member_that_stands_for_ever, 3, 6),
        (_topic_known_by_its_name, 40220, 6),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_broken_node_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], seed: int, promise: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account names the promise that these nodes break; with whole ones the same seed passes."""
    broken(monkeypatch)
    # Whole nodes are done in less; a broken one is simulated to the end of it.
    monkeypatch.setattr(world, "SETTLE_SECONDS", 12.0)
    with pytest.raises(PromiseBroken) as raised:
        run_seed(seed)
    assert raised.value.promise == promise
