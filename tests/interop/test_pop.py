"""What POP consumers of RocketMQ had in hand at a hand-over is in hand here, and again there."""

from __future__ import annotations

import pytest

from broker.queues.offsets import REVIVE_GROUP, ConsumerOffsets
from broker.runtime.bundle import runtime_of
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import SystemClock
from broker.runtime.steps import run_now
from broker.scheduled.pop_records import REVIVE_PREFIX
from pyddmq.testing import ManualClock, ManualScheduler
from tests.interop.conftest import Surroundings
from tests.interop.contents import open_store
from tests.interop.sides import settings_for
from upstream.embedded.queues import EmbeddedQueues
from upstream.progress.progress import Progress

pytestmark = pytest.mark.long

TOPIC, GROUP = "permits", "poppers"
COUNT, POPPED = 60, 45
ACKED = ("body 3", "body 20", "body 21", "body 22", "body 44")


def test_what_was_popped_and_not_acknowledged_comes_again_here_and_there(rocket: Surroundings) -> None:
    """40 of 45 have no acknowledgement; offsets above the committed one are as they were, and nobody loses one."""
    root = rocket.folder / "store"
    store = open_store(root)
    store.create_topic(TOPIC, 1)
    for number in range(COUNT):
        store.put(TOPIC, b"body %d" % number, queue_id=0)
    store.close()
    settings = {**settings_for(root), "timerWheelEnable": "true"}
    with rocket.broker("first", settings) as broker, rocket.client() as client:
        popped = client.pop(broker, GROUP, TOPIC, count=POPPED, invisible_ms=600_000, acks=ACKED)
        broker.stop()
    assert [each.body for each in popped] == [b"body %d" % number for number in range(POPPED)]
    offsets = ConsumerOffsets.open(str(root), disk=RealDisk(), clock=SystemClock())
    assert offsets.get(GROUP, TOPIC, 0) == POPPED
    store = open_store(root)
    metrics = Metrics()
    scheduler = ManualScheduler(ManualClock())
    progress = run_now(
        Progress.opening(
            str(root),
            queues=EmbeddedQueues(store),
            runtime=runtime_of(RealDisk(), SystemClock(), metrics=metrics, scheduler=scheduler),
        )
    )
    tracker = progress.tracker(GROUP, TOPIC, 0, first_offset=lambda: 0)
    again = [number for number in range(POPPED) if not tracker.is_finished(number)]
    assert again == [number for number in range(POPPED) if f"body {number}" not in ACKED]
    assert (len(again), tracker.unfinished(COUNT)) == (40, COUNT - len(ACKED))
    assert metrics.value("pyddmq_popped_taken_over_total", GROUP) == 40
    tracker.finish_range(0, 3)
    progress.close()
    store.close()
    [revive] = [topic for topic in store.topics if topic.startswith(REVIVE_PREFIX)]
    assert offsets.get(REVIVE_GROUP, revive, 0) in (None, -1, 0)
    settings = {**settings_for(root), "timerWheelEnable": "true"}
    with rocket.broker("second", settings) as broker, rocket.client() as client:
        rest = client.pop(broker, GROUP, TOPIC, count=COUNT - 4, invisible_ms=600_000)
    assert {each.body for each in rest} >= {b"body %d" % number for number in [*again[3:], *range(POPPED, COUNT)]}
