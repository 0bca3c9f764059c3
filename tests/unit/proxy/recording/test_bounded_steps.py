"""No step of the work over all topics, queues or series is of more than some hundred of them: counted, never timed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.queues.queue_locks import RENEWAL_SECONDS
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from conf import loads
from lag.rules.limits import LagLimits
from lag.samples import QueueKey, QueueSample
from proxy.node.action_places import finding_unmakeable
from proxy.node.vitals import WINDOW_SECONDS, Vitals
from proxy.operate.answers import counter_sums
from proxy.operate.live_node import LiveNode
from proxy.recording.judging import QueueJudge
from proxy.recording.queue_samples import QueueSampler
from proxy.recording.recorder import Notes
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.insides import opened_of
from tests.integration.store_tools import open_store
from tests.simulation.test_queue_samples import ward_of
from tests.unit.proxy.recording.test_judging import Counted
from upstream.embedded.ownership import QueueOwnership

MANY = 3_000
AT_ONCE = 600
NOW_MS = 1_700_000_000_000


def windows_of(clock: ManualClock, topics: int, queues: int = 1, end: int = 9) -> Counted:
    """The windows of a group that is behind in many topics, or in many queues of one."""
    windows = Counted(clock)
    sample = QueueSample(time_ms=NOW_MS, start=0, end=end, committed=0, started=0, start_ms=1, end_ms=1)
    keys = [
        QueueKey(cluster="c", node="n", group="g", topic=f"t{number}", queue=queue)
        for number in range(topics)
        for queue in range(queues)
    ]
    assert bounded(windows.taking_round([(key, sample) for key in keys]), lambda: windows.changes) == len(keys)
    return windows


def bounded(steps: Any, count: Any, at_once: int = AT_ONCE) -> int:
    """Make steps, each of which counts some at most; returns how much was counted."""
    began = before = count()
    for _ in steps:
        assert count() - before <= at_once
        before = count()
    assert count() - before <= at_once
    return cast(int, count() - began)


@pytest.mark.parametrize(("topics", "queues"), [(MANY, 1), (1, 1_024)])
def test_rounds_are_taken_and_judged_in_steps(topics: int, queues: int) -> None:
    """The windows take some hundred samples in one step; a judgement looks at as many queues."""
    clock = ManualClock(NOW_MS)
    windows = windows_of(clock, topics, queues)
    judge = QueueJudge(windows, clock, lambda _: None)
    assert bounded(judge.judging(NOW_MS), lambda: windows.judgements, 100) == topics * queues
    before = windows.judgements
    steps = sum(1 for _ in windows.judging(NOW_MS, lambda *_: LagLimits()))
    assert steps >= windows.judgements - before == topics * queues


def test_queues_that_left_are_found_in_steps() -> None:
    """Also where all have: those of the round before are looked at in steps, too."""
    notes, sample = Notes(ManualClock()), QueueSample(time_ms=NOW_MS)
    samples = [
        (QueueKey(cluster="c", node="n", group="g", topic=f"t{number}", queue=0), sample) for number in range(MANY)
    ]
    looked = [0]

    def looking() -> Iterator[tuple[QueueKey, QueueSample]]:
        for each in samples:
            looked[0] += 1
            yield each

    assert bounded(notes.looking_at_queues(looking()), lambda: looked[0]) == MANY
    assert sum(1 for _ in notes.looking_at_queues(())) >= MANY // AT_ONCE
    assert [each.detail for each in notes.take()] == ["the group is no longer configured"]
    windows = windows_of(ManualClock(NOW_MS), MANY)
    assert bounded(windows.taking_round(looking()), lambda: looked[0]) == MANY


def test_topics_that_were_never_written_to_are_passed_in_steps() -> None:
    """They are counted, and not judged."""
    clock = ManualClock(NOW_MS)
    judge = QueueJudge(windows_of(clock, MANY, end=0), clock, lambda _: None)
    assert sum(1 for _ in judge.judging(NOW_MS)) >= MANY // AT_ONCE


def test_queues_are_sampled_in_steps() -> None:
    """Each queue is a piece of its own: it may have many messages in work."""
    ward = ward_of(lambda wanted: wanted["topics"].update(orders={"queues": 200}))
    opened = opened_of(ward.node)
    sampler = QueueSampler(ward.node.in_force, opened.store, opened.pauses, ManualClock())
    assert sum(1 for _ in sampler.round()) >= 200


def test_locks_of_many_topics_are_renewed_in_steps() -> None:
    """The loop does other things between some hundred of them."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    store = open_store(SimDisk(), clock=clock)
    runtime = runtime_of(SimDisk(), clock, scheduler=scheduler)
    lost: list[str] = []
    own = QueueOwnership("g", "proxy", store=store, progress=cast(Any, None), runtime=runtime, lost=lost.append)
    for number in range(MANY):
        own.take(cast(Any, SimpleNamespace(name=f"t{number}", queues=[SimpleNamespace(queue_id=0)])))
    locked, lock_batch = [0], store.queue_locks.lock_batch

    def counted(*arguments: Any) -> Any:
        locked[0] += 1
        return lock_batch(*arguments)

    store.queue_locks.lock_batch = counted  # type: ignore[assignment, method-assign]
    clock.advance(RENEWAL_SECONDS)
    turns = []
    while not scheduler.idle:
        before = locked[0]
        scheduler.run_turn()
        turns.append(locked[0] - before)
    assert sum(turns) == MANY
    assert max(turns) <= AT_ONCE
    assert not lost


def test_actions_of_many_topics_are_tried_in_steps() -> None:
    """A reload that adds them to a group does not hold the loop up."""
    topics = ", ".join(f"{{topic: t{number}}}" for number in range(MANY))
    known = "\n".join(f"  t{number}: {{}}" for number in range(MANY))
    config = loads(f"topics:\n{known}\ngroups: [{{group: g, topics: [{topics}]}}]").config
    made = [0]
    registry = cast(Any, SimpleNamespace(make=lambda _: made.__setitem__(0, made[0] + 1)))
    assert bounded(finding_unmakeable(registry, config, "g"), lambda: made[0]) == MANY


def test_windows_of_many_histograms_begin_with_several_looks() -> None:
    """Those of few begin with the first look of a minute."""
    clock = ManualClock()
    metrics = Metrics()
    many = [metrics.histogram("pyddmq_sync_seconds", f"file{number}") for number in range(5_000)]
    vitals = Vitals(metrics, clock)
    for each in many:
        each.observe(1)
    for _ in range(2):
        clock.advance(WINDOW_SECONDS)
        vitals.look()
        begun = sum(not any(each.recent()) for each in many)
        for _ in range(5):
            vitals.look()
    assert 0 < begun < len(many)
    assert not any(any(each.recent()) for each in many)


def test_counters_of_the_node_are_summed_over_their_labels() -> None:
    """Each by its name, those that were never touched as 0."""
    metrics = Metrics()
    metrics.counter("pyddmq_turns_total").add(3)
    for number in range(10):
        metrics.counter("pyddmq_messages_published_total", f"t{number}").add(number)
    found = counter_sums(cast(LiveNode, SimpleNamespace(metrics=metrics)))
    assert {name: value for name, value in found.items() if value} == {
        "pyddmq_turns_total": 3,
        "pyddmq_messages_published_total": 45,
    }
    assert found["pyddmq_bytes_published_total"] == 0


def test_start_collects_no_garbage(tmp_path: Path) -> None:
    """With 10,000 topics a pass over all that a start makes takes a second."""
    file = tmp_path / "node.yaml"
    file.write_text(f"node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {tmp_path}/data}}\n")
    program = (
        "import gc, sys\n"
        "gc.collect = lambda *_: sys.exit('a start collects garbage')\n"
        "from pyddmq.__main__ import main\n"
        "main()"
    )
    command = [sys.executable, "-c", program, "serve", "--json", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            assert '"producer"' in node.stdout.readline()
        finally:
            node.terminate()
            _, errors = node.communicate(timeout=60)
    assert "collects garbage" not in errors
