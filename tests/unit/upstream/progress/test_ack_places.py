"""What the ack journal says of a finished message's place in the log comes from the job that was answered."""

from __future__ import annotations

from broker.runtime.steps import run_now
from tests.unit.upstream_world import ROOT, Client, World
from upstream.progress.journal import AckJournal
from upstream.progress.journal_format import Acked


def queue_bytes_read(world: World) -> int:
    """Bytes that were read of queue files so far."""
    return sum(count for path, count in world.sim.read_bytes.items() if "/consumequeue/" in path)


def world_with_queue_file() -> World:
    """Return a world with eight messages in a queue whose units lie in their file."""
    world = World({"topic": "t", "orderKey": "KEY"}, queues=1)
    world.publish(*"abcdefgh", queue=0)
    world.clock.advance(11)
    world.store.checkpoint()
    before = queue_bytes_read(world)
    world.store.topics["t"].queues[0].read(0, 1)
    assert queue_bytes_read(world) > before, "the units are in memory: nothing would be shown"
    return world


def test_an_ack_is_vouched_for_without_reading_its_queue() -> None:
    """The journal has the record's offset, which the job knew; the queue's file is not read for it."""
    world = world_with_queue_file()
    client = Client()
    [*jobs] = world.pull_all(client)
    before = queue_bytes_read(world)
    for first in (0, 5):
        answered = jobs[first : first + 3]
        world.group.apply("t", answered[0].qid, [job.offset for job in answered], [], client)
        world.turn_end()
    assert queue_bytes_read(world) == before
    physicals = [physical for physical, _, _ in world.store.topics["t"].queues[0].read(0, 8)]
    world.sim.kill()
    content = run_now(AckJournal(f"{ROOT}/pyddmq/acks", world.sim).reading())
    assert content is not None
    acked = [entry for entry in content.entries if isinstance(entry, Acked)]
    assert [entry.fence for entry in acked] == [physicals[2], physicals[7]]


def test_the_place_of_one_message_never_vouches_for_another() -> None:
    """Results that came out of order in one turn: the highest one's place is read, since another job was the last."""
    world = world_with_queue_file()
    client = Client()
    jobs = world.pull_all(client)
    for job in (jobs[6], jobs[1]):
        world.group.apply("t", job.qid, [job.offset], [], client)
    world.turn_end()
    [physical] = [physical for physical, _, _ in world.store.topics["t"].queues[0].read(6, 1)]
    world.sim.kill()
    content = run_now(AckJournal(f"{ROOT}/pyddmq/acks", world.sim).reading())
    assert content is not None
    [acked] = [entry for entry in content.entries if isinstance(entry, Acked)]
    assert acked.fence == physical
