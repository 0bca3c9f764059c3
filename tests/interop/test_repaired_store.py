"""A store with a hole in its log opens in RocketMQ in full once it is repaired (D3)."""

from __future__ import annotations

import itertools
from random import SystemRandom

import pytest

from broker.format.record import physical_offset
from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from proxy.cli.store.store_check_command import repair_data
from tests.interop.conftest import Surroundings
from tests.interop.contents import OPTIONS, TOPICS, open_store, permits, randoms, write_all
from tests.interop.sides import assert_same, by_arrival, copied, settings_for
from tests.interop.test_timers import THEIR_SETTINGS, TOPIC, Ours

pytestmark = pytest.mark.long


def test_repaired_hole_costs_its_record_and_no_more(rocket: Surroundings) -> None:
    """RocketMQ would cut the log at a hole; with the hole filled it serves everything behind it."""
    root = rocket.folder / "store"
    sent = [*permits(), *itertools.islice(randoms(1), 1300)]
    store = open_store(root)
    write_all(store, sent)
    places = [
        unit
        for queue in store.topics["random"].queues
        for unit in queue.read(0, queue.max_offset)
        if 2 * OPTIONS.segment_bytes < unit[0] < 3 * OPTIONS.segment_bytes and unit[1] < 10_000
    ]
    physical, size, _ = min(places)
    assert physical_offset(store.read(physical, size)) == physical
    ends = {queue.queue_id: queue.max_offset for queue in store.topics["random"].queues}
    store.close()
    number, start = divmod(physical, OPTIONS.segment_bytes)
    with (root / "commitlog" / f"{number * OPTIONS.segment_bytes:020d}").open("r+b") as file:
        file.seek(start + 4)
        file.write(b"\x00")
    repair_data(str(root), disk=RealDisk(), clock=SystemClock(), random=SystemRandom())
    copy = copied(root)
    # As after a kill: RocketMQ walks over the log instead of believing its end.
    (copy / "abort").write_text("1")
    with rocket.broker("broker", settings_for(copy)), rocket.client() as client:
        served = assert_same(client, root, [topic for topic in TOPICS if topic != "random"])
        bounds, hit = client.read("random", ends)
    assert bounds == {queue_id: (0, end) for queue_id, end in ends.items()}
    assert physical not in [message.physical for message in hit]
    # In the place of the one that was hit its neighbour comes a second time, to readers without a tag filter.
    assert len(hit) == sum(ends.values())
    hit = list({message.physical: message for message in hit}.values())
    assert len(hit) == sum(ends.values()) - 1
    assert len(by_arrival([*served, *hit])) == len(sent) - 1


def test_timer_in_a_repaired_hole_does_not_stop_the_others(rocket: Surroundings) -> None:
    """RocketMQ passes over the timer whose record is lost, and delivers those that are due with it and after it."""
    root = rocket.folder / "store"
    now_ms = SystemClock().wall_ms()
    ours = Ours(root, now_ms)
    ours.store.create_topic(TOPIC, 1)
    due_ms = now_ms + 5000  # soon enough not to be rolled
    for body, at_ms in ((b"lost", due_ms), (b"beside", due_ms), (b"after", due_ms + 2000)):
        ours.timer(body, at_ms)
    ours.scheduler.advance(0.1)
    ours.save()
    physical, size, _ = ours.store.topics["rmq_sys_wheel_timer"].queues[0].read(0, 1)[0]
    assert b"lost" in bytes(ours.store.read(physical, size))
    ours.leave(kill=False)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(physical + 4)
        file.write(b"\x00")
    repair_data(str(root), disk=RealDisk(), clock=SystemClock(), random=SystemRandom())
    with rocket.broker("broker", settings_for(root) | THEIR_SETTINGS), rocket.client() as client:
        _, found = client.read(TOPIC, {0: 2})
    assert sorted(message.body for message in found) == [b"after", b"beside"]
