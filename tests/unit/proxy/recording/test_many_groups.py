"""What a second of many idle groups costs, counted: looks at groups, trackers and series, and never time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from broker.runtime.metrics import Metrics
from proxy.recording.queue_samples import QueueSampler
from proxy.recording.recorder import ROUNDS
from pyddmq.testing import ManualClock
from tests.insides import opened_of
from tests.simulation.test_queue_samples import ward_of
from upstream.budget import JOB_BYTES, VISITS_MAX, Budget


class CountedTrackers(dict[Any, Any]):
    """Trackers that count how often one of them is passed in a walk over all."""

    passed = 0

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            CountedTrackers.passed += 1
            yield key


def test_idle_subscriptions_are_not_visited_by_the_count_of_memory() -> None:
    """Ten thousand that have read, finished and been counted once cost nothing until they read again."""
    visits = 0
    live = 0

    def idle(_: int = 0) -> int:
        nonlocal visits
        visits += 1
        return live

    budget = Budget(1 << 40)
    budget.count_jobs = budget.live_jobs
    for number in range(10_000):
        budget.add_jobs(1, partial(idle, number))
    budget.recount()
    assert (visits, budget.job_bytes) == (10_000, 0)
    budget.recount()
    assert visits == 10_000
    live = 1
    budget.add_jobs(1, idle)
    budget.recount()
    budget.recount()
    assert visits == 10_002


def test_each_look_at_memory_visits_a_bounded_number_of_subscriptions() -> None:
    """Those that were visited longest ago; what the others have counts as it was."""
    visits: list[int] = []
    jobs = [2] * (VISITS_MAX + 10)

    def live(number: int) -> int:
        visits.append(number)
        return jobs[number]

    budget = Budget(1 << 40)
    for number in range(len(jobs)):
        budget.add_jobs(2, partial(live, number))
    jobs = [1] * len(jobs)
    budget.look()
    assert visits == list(range(VISITS_MAX))
    assert budget.job_bytes == (VISITS_MAX + 20) * JOB_BYTES
    budget.look()
    assert visits[VISITS_MAX : VISITS_MAX + 10] == list(range(VISITS_MAX, len(jobs)))
    assert budget.job_bytes == len(jobs) * JOB_BYTES == budget.used


def test_round_of_samples_passes_each_tracker_once() -> None:
    """Whatever the number of groups: each looked through those of all others."""
    ward = ward_of()
    [group] = ward.node.in_force.groups.values()
    groups = {f"g{number}": group for number in range(50)}
    trackers = CountedTrackers(opened_of(ward.node).progress.trackers)
    opened_of(ward.node).progress.trackers = trackers
    ward.node.in_force.groups.update(groups)
    sampler = QueueSampler(ward.node.in_force, opened_of(ward.node).store, opened_of(ward.node).pauses, ManualClock())
    CountedTrackers.passed = 0
    for _ in sampler.round():
        pass
    assert CountedTrackers.passed == len(trackers)


def test_series_of_other_metrics_are_not_visited() -> None:
    """A look at few metrics costs what these have."""
    metrics = Metrics()
    metrics.counter("pyddmq_turns_total").add(1)
    found = list(metrics.some(("pyddmq_turns_total", "pyddmq_finished_messages_total")))
    assert [(spec.name, labels, value) for spec, labels, value in found] == [("pyddmq_turns_total", (), 1)]


def test_start_of_a_group_passes_no_tracker_of_another() -> None:
    """The trackers of a new group are looked up, and those of all others left alone."""
    ward = ward_of()
    trackers = CountedTrackers(opened_of(ward.node).progress.trackers)
    opened_of(ward.node).progress.trackers = opened_of(ward.node).progress._table.by_key = trackers
    CountedTrackers.passed = 0
    ward.edit_group(lambda groups: groups.append({**groups[0], "group": "new"}))
    assert "new" in ward.node.in_force.groups
    assert CountedTrackers.passed == 0


def test_rounds_take_a_tenth_of_the_loop_at_most() -> None:
    """After one that took 12 s of it the next comes two minutes later, and not after ten seconds."""
    ward = ward_of()
    recorder = ward.node.recording.recorder
    ward.run(30)
    before = ward.node.runtime.metrics.value(ROUNDS)
    recorder._sampled = 12.0
    recorder._over()
    ward.run(118)
    assert ward.node.runtime.metrics.value(ROUNDS) == before
    ward.run(5)
    assert ward.node.runtime.metrics.value(ROUNDS) == before + 1
