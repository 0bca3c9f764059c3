"""Delayed messages that one side left pending are delivered by the other, once, with what they were sent with."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.format.record import split
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import SystemClock
from broker.runtime.steps import run_now
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.delays import Delays
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler
from tests.interop.conftest import Surroundings
from tests.interop.contents import open_store
from tests.interop.sides import settings_for

pytestmark = pytest.mark.long

TOPIC = "permits"


def delivering(store: Store, clock: ManualClock) -> tuple[Delays, ManualScheduler]:
    """Deliver what is pending, at moments that the test chooses."""
    scheduler = ManualScheduler(clock)
    steps = Delays.opening(
        store, disk=RealDisk(), clock=clock, scheduler=scheduler, metrics=Metrics(), limited_log=RateLimitedLog(clock)
    )
    delays = run_now(steps)
    delays.start()
    return delays, scheduler


def bodies(store: Store) -> list[bytes]:
    """Bodies of the topic's one queue."""
    queue = store.topics[TOPIC].queues[0]
    return [bytes(split(store.read(physical, size))[0]) for physical, size, _ in queue.read(0, queue.max_offset)]


def ours_first(root: Path) -> None:
    """Leave level 1 delivered, one more of it pending; one of level 2 cancelled, and one behind it pending."""
    clock = ManualClock(SystemClock().wall_ms())
    store = open_store(root)
    store.create_topic(TOPIC, 1)
    delays, scheduler = delivering(store, clock)
    store.put(TOPIC, b"ours delivered", key="k", delay_level=1)
    scheduler.advance(1.5)
    assert bodies(store) == [b"ours delivered"]
    store.put(TOPIC, b"ours 1", key="k", tags="TagA", properties={"own": "1"}, delay_level=1)
    cancelled = store.put(TOPIC, b"ours cancelled", delay_level=2)
    assert delays.cancel(TOPIC, cancelled.unique_key.decode()) is CancelEffect.CANCELLED
    store.put(TOPIC, b"ours 2", delay_level=2)
    delays.close()
    store.close()


def test_what_one_side_left_the_other_delivers(rocket: Surroundings) -> None:
    """Ours by RocketMQ, RocketMQ's by ours; what was delivered is not delivered again by either."""
    root = rocket.folder / "store"
    ours_first(root)
    with rocket.broker("broker", settings_for(root)) as broker, rocket.client() as client:
        _, messages = client.read(TOPIC, {0: 3})
        fields = {"key": "k", "tags": "", "properties": {}, "body": "dGhlaXJz", "delayLevel": 4}
        [answer] = client.ask(do="send", topic=TOPIC, queue=0, messages=[fields])
        assert answer["status"] == "SEND_OK"
        broker.stop()
    # RocketMQ has a thread for each level: of two that are late either comes first.
    came = [message.body for message in messages]
    assert (came[0], sorted(came[1:])) == (b"ours delivered", [b"ours 1", b"ours 2"])
    first = messages[came.index(b"ours 1")]
    assert (first.tags, first.properties["own"]) == ("TagA", "1")
    store = open_store(root)
    clock = ManualClock(SystemClock().wall_ms())
    delays, scheduler = delivering(store, clock)
    assert [level.level for level in delays.levels.values() if level.pending] == [4]
    scheduler.advance(31)
    assert bodies(store) == [*came, b"theirs"]
    delays.close()
    store.close()
    with rocket.broker("again", settings_for(root)), rocket.client() as client:
        # What it delivers of its own shows that it has looked.
        client.ask(do="send", topic=TOPIC, queue=0, messages=[fields | {"delayLevel": 2}])
        bounds, messages = client.read(TOPIC, {0: 5})
    assert bounds[0] == (0, 5)
    assert [message.body for message in messages][3:] == [b"theirs", b"theirs"]
