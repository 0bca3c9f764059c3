"""A page of a queue file goes bad under a working node: groups that are behind receive every message all the same."""

from __future__ import annotations

from pyddmq.testing import NetworkFaults
from tests.simulation.clients import ProducerHabits
from tests.simulation.world import DATA, World

CHECKPOINT_SECONDS = 15


def queue_files(world: World) -> list[str]:
    """The last file of each queue that has one."""
    root = f"{DATA}/consumequeue"
    folders = [
        f"{root}/{topic}/{name}" for topic in world.disk.list(root) for name in world.disk.list(f"{root}/{topic}")
    ]
    return [f"{folder}/{names[-1]}" for folder in folders if (names := world.disk.list(folder))]


def publish(world: World, *, messages: int) -> None:
    """Publish at least so many messages, and wait until queue files hold them."""
    node = world.node
    assert node is not None
    queues = [queue for topic in ("orders", "events") for queue in node.store.topics[topic].queues]
    end = sum(queue.max_offset for queue in queues) + messages
    producer = world.add_producer(ProducerHabits())
    assert world.run(until=lambda: sum(queue.max_offset for queue in queues) >= end, seconds=300)
    producer.stopped = True
    world.run(seconds=CHECKPOINT_SECONDS)


def test_bad_page_of_a_queue_file_loses_no_message() -> None:
    """Units of this process on the page, and those that are written to it later, are rebuilt from the log."""
    world = World(31, faults=NetworkFaults())
    world.start()
    # Groups read few messages ahead: what lies on the pages is read after they went bad.
    assert world.reload(lambda wanted: wanted["node"].update(maxWaitingPerTopic=10)).accepted
    publish(world, messages=150)
    bad = queue_files(world)
    assert len(bad) >= 7
    for path in bad:
        world.disk.bad_pages[path] = {0}
    publish(world, messages=150)
    world.settle()
    assert world.check().published >= 300
    assert world.disk.faults_hit["bad_page"] > 0
