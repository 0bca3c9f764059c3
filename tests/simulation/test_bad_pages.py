"""Pages go bad under a node: what the log has is received all the same, and what is lost is said and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyddmq.testing import NetworkFaults
from tests.insides import opened_of
from tests.simulation.clients import PERFECT, ProducerHabits
from tests.simulation.facts import Place
from tests.simulation.stored import QID_PREFIX
from tests.simulation.world import DATA, World
from upstream.progress.journal import segment_name, segment_numbers
from upstream.progress.reconcile import JOURNAL_DAMAGE

CHECKPOINT_SECONDS = 15
PAGE_BYTES = 4096
COLD_SECONDS = 240


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
    queues = [queue for topic in ("orders", "events") for queue in opened_of(node).store.topics[topic].queues]
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


def records_on(world: World, pages: set[int]) -> Iterator[Place]:
    """Messages of which a byte is on a page of the first log file."""
    assert world.node is not None
    for name in ("orders", "events"):
        for queue in opened_of(world.node).store.topics[name].queues:
            units = queue.read(queue.min_offset, queue.max_offset - queue.min_offset)
            for offset, (physical, size, _) in enumerate(units, queue.min_offset):
                if pages & set(range(physical // PAGE_BYTES, (physical + size - 1) // PAGE_BYTES + 1)):
                    yield Place(name, f"{QID_PREFIX}{queue.queue_id}", offset)


@pytest.mark.parametrize("restart", ["", "stop", "kill"])
def test_bad_page_of_the_log_loses_its_records_alone_and_says_so(restart: str) -> None:
    """Groups that are behind pass over the records on it, and the finding counts them; all others arrive."""
    # A seed in which these pages are read after they went bad.
    world = World(39, faults=NetworkFaults())
    world.start()
    assert world.reload(lambda wanted: wanted["node"].update(maxWaitingPerTopic=10)).accepted
    publish(world, messages=250)
    assert world.node is not None
    # Later nothing of it is taken for what the page cache still has.
    world.run(seconds=COLD_SECONDS)
    pages = {7, 10}
    lost = set(records_on(world, pages))
    path = f"{DATA}/commitlog/{0:020d}"
    world.disk.bad_pages[path] = set(pages)
    if restart:
        (world.stop if restart == "stop" else world.kill)()
        world.start()
    world.settle()
    damage = opened_of(world.node).store.damage.left(opened_of(world.node).store.min_offset)
    assert damage is not None
    assert damage.records + damage.fillers == len(lost) > 2
    assert not any(
        world.ledger.accounts[group, place].deliveries for group in world.node.in_force.groups for place in lost
    )
    world.ledger.lost = lost
    # So that the ledger can see what was on them.
    world.disk.bad_pages.clear()
    assert world.check().published >= 250


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_bad_page_of_the_ack_journal_loses_no_message_and_says_so(end: str) -> None:
    """Acks on it may be gone: their messages come again, each one once more, and a finding says why."""
    world = World(33, faults=NetworkFaults())
    world.start()
    for group in world.config.groups:
        world.add_consumer(group, PERFECT)
    publish(world, messages=150)
    (world.stop if end == "stop" else world.kill)()
    folder = f"{DATA}/pyddmq/acks"
    for number in segment_numbers(folder, world.disk):
        world.disk.bad_pages[f"{folder}/{segment_name(number)}"] = {0}
    # Only that page is bad: a part of it cannot be written either.
    world.disk.bad_pages[f"{folder}/spare"] = {0, 3}
    for ledger in world.ledgers:
        ledger.acks_lost(world.loop.time())
    node = world.start()
    assert node.runtime.metrics.value(JOURNAL_DAMAGE)
    publish(world, messages=50)
    world.settle()
    assert world.check().published >= 200
