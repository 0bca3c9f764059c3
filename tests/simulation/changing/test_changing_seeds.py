"""Seeded runs about changes of the configuration: none loses, repeats or disorders what it meets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.consumer.shared import Shared
from broker.queues.message_queue import MessageQueue
from tests.simulation.changing.changes import CHANGES
from tests.simulation.ledger import PromiseBroken
from tests.simulation.plan import run_changing_seed
from upstream.delivery.group_queues import GroupQueues
from upstream.outcomes.outcomes import Outcomes

# A node that is killed within the test's process leaves its connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
SEEDS = (2, 7)
SEEDS_LONG = range(1_000, 1_200)


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_in_the_middle_of_everything_break_no_promise(seed: int) -> None:
    """Also what consumers inside the program get, and what is pushed; `--changes --seed` replays it."""
    report = run_changing_seed(seed)
    assert report.events["inside"]
    assert report.events["pushed"]
    assert {"widen_topic", "push_or_pull"} <= set(report.faults) & set(CHANGES)


def _later_queues_begin_at_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupQueues, "_new_queues", lambda queues, topic: len(topic.queues))


def _later_queues_begin_at_the_end_inside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shared, "begin", lambda shared, group, name, options, **_: _begin(shared, group, name))


def _what_clients_have_is_pushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outcomes, "readopt", lambda outcomes, jobs: list(jobs))


def _begin(shared: Shared, group: str, name: MessageQueue) -> int:
    known = shared.offsets.get(group, name.topic, name.queue_id)
    return shared.store.topics[name.topic].queues[name.queue_id].max_offset if known is None else known


@pytest.mark.parametrize(
    ("broken", "seed", "promise"),
    [
        (_later_queues_begin_at_the_end, 2, 6),
        (_later_queues_begin_at_the_end_inside, 2, 6),
        (_what_clients_have_is_pushed, 7, 3),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_broken_node_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], seed: int, promise: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them was a fault once that no other seed had found."""
    broken(monkeypatch)
    with pytest.raises(PromiseBroken) as raised:
        run_changing_seed(seed)
    assert raised.value.promise == promise


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS_LONG)
def test_many_seeds_break_no_promise(seed: int) -> None:
    """The same, for `make simulate`."""
    run_changing_seed(seed)
