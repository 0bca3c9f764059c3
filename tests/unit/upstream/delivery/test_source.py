"""The source over the embedded broker: order over queues, filters, damage."""

from __future__ import annotations

import errno
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.format.java import string_hash
from broker.format.record import split, strip_own
from pyddmq.testing import SimDisk
from pyddmq.testing.sim_disk import SimFile
from tests.unit.upstream_world import QID, ROOT, Client, World
from upstream.job import PartialBatch


@settings(max_examples=25)
@given(
    runs=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), min_size=1, max_size=12),
    turns=st.integers(1, 4),
)
def test_queues_are_merged_in_commit_log_order(runs: list[tuple[int, int]], turns: int) -> None:
    """However messages are spread over queues and turns, one key sees them in the order of the log (D14)."""
    world = World({"topic": "t", "orderKey": "KEY", "concurrency": 10_000}, queues=4)
    for place, (queue, count) in enumerate(runs):
        world.stage(*["k"] * count, queue=queue)
        if place % turns == 0:
            world.turn_end()
    world.turn_end()
    world.scheduler.run_until_idle()
    client = Client()
    seen = []
    while (batch := world.group.pull(None, None, client)) is not None:
        [job] = batch.jobs
        seen.append(job.physical)
        world.group.apply("t", batch.qid, [job.offset], [], client)
        world.scheduler.run_turn()
    assert len(seen) == sum(count for _, count in runs)
    assert seen == sorted(seen)


def test_tag_filter_compares_code_and_text() -> None:
    """Tags with equal codes ("Aa" and "BB") are told apart; what is filtered is finished and counted."""
    assert string_hash("Aa") == string_hash("BB")
    world = World({"topic": "t", "tags": ["Aa", "x"]}, queues=1)
    for tag in ("Aa", "BB", "", "x", "y"):
        world.stage(None, tag=tag)
    world.turn_end()
    client = Client()
    jobs = world.pull_all(client)
    assert [job.message.tag for job in jobs] == ["Aa", "x"]
    assert world.count("pyddmq_skipped_messages_total", "g", "t", "tag_filter") == 3
    for job in jobs:
        world.answer(client, job)
    assert jobs[0].group_queue.tracker.watermark == 5


@pytest.mark.parametrize("tags", [["TagA"], None])
@pytest.mark.parametrize(
    "block",
    [
        b"KEYS\x01key\x02TAGS\x01TagA",
        b"TAGS\x01TagA\x02KEYS\x01key",
        b"TAGS\x01other\x02KEYS\x01no\x02TAGS\x01TagA\x02KEYS\x01key\x02",
        b"KEYS\x01no\x02KEYS\x01key\x02TAGS\x01TagA\x02",
    ],
)
def test_properties_in_a_store_of_others_are_read_as_rocketmq_does(block: bytes, tags: list[str] | None) -> None:
    """The last one may end with the block, and of two equal names the later counts."""
    world = World({"topic": "t", "orderKey": "KEY", **({"tags": tags} if tags else {})}, queues=1)
    world.stage("k", tag="TagA", body=bytes(100))
    world.turn_end()
    file = world.sim.open(f"{ROOT}/commitlog/{0:020d}")
    [(physical, size, _)] = world.store.topics["t"].queues[0].read(0, 1)
    # A record of the same size, without a sum of its own.
    body = bytes(size - 91 - len(b"t") - len(block))
    record = file.read(physical, 84) + len(body).to_bytes(4) + body + b"\x01t" + len(block).to_bytes(2) + block
    record = record[:8] + (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4) + record[12:]
    assert len(record) == size
    file.write(physical, [record])
    world.kill()
    [job] = world.pull_all(Client())
    assert job.key == b"key"
    assert job.message.tag == "TagA"


@pytest.mark.parametrize(("wanted", "expected"), [(False, [1, 3]), (True, [1, 2, 3])])
def test_stress_test_messages_are_skipped_unless_wanted(wanted: bool, expected: list[int]) -> None:
    """IsPressureTraffic `true` in any case is skipped and counted; any other value is ordinary (R14)."""
    world = World({"topic": "t", "pressureTraffic": wanted}, queues=1)
    world.publish(None)
    world.publish(None, properties=[("a", "b"), ("isPressureTraffic", "True")])
    world.publish(None, properties=[("isPressureTraffic", "false")])
    assert [world.body(job) for job in world.pull_all(Client())] == expected
    skipped = world.count("pyddmq_skipped_messages_total", "g", "t", "pressure_traffic")
    assert skipped == 3 - len(expected)


def test_damaged_record_is_finished_and_counted_and_costs_only_itself() -> None:
    """A record whose bytes are not its own is never handed out; its key goes on (promise 6)."""
    world = World({"topic": "t", "orderKey": "KEY"}, queues=1)
    world.group.stop()
    world.publish("a", "a", "a")
    [_, (physical, _, _), _] = world.store.topics["t"].queues[0].read(0, 3)
    [name] = world.sim.list("/data/commitlog")
    world.sim.flip_bit(f"/data/commitlog/{name}", physical + 30)
    world.group = world.make_group(world.config())
    world.group.start()
    client = Client()
    bodies = []
    for _ in range(2):
        [job] = world.pull_all(client)
        bodies.append(world.body(job))
        world.answer(client, job)
    assert bodies == [1, 3]
    assert world.count("pyddmq_skipped_messages_total", "g", "t", "damaged") == 1
    assert job.group_queue.tracker.watermark == 3


def test_record_damaged_after_it_was_read_is_dropped_from_the_reply() -> None:
    """What turns out unreadable when the reply is assembled is finished and counted, and its key goes on."""
    world = World({"topic": "t", "orderKey": "KEY"}, queues=1)
    world.publish("a", "a")
    client = Client()
    batch = world.pull(client)
    assert batch is not None
    world.group.settle(PartialBatch([], batch.jobs, [], []))
    assert [world.body(job) for job in world.pull_all(client)] == [2]
    assert world.count("pyddmq_skipped_messages_total", "g", "t", "damaged") == 1


def test_queue_order_is_one_at_a_time_per_queue() -> None:
    """OrderKey QID: one message of each queue is out at a time (R30)."""
    world = World({"topic": "t", "orderKey": "QID"}, queues=3)
    world.publish(*["x"] * 9)
    client = Client()
    jobs = world.pull_all(client)
    assert sorted(job.qid for job in jobs) == [f"{QID}0", f"{QID}1", f"{QID}2"]
    world.answer(client, jobs[0])
    assert [job.qid for job in world.pull_all(client)] == [jobs[0].qid]


def test_lag_limit_of_one_queue_holds_the_order_of_all() -> None:
    """A queue at its lag limit holds back what lies behind it in the log, so a key over two queues stays in order."""
    world = World({"topic": "t", "orderKey": "KEY", "maxConsumeLag": 2}, queues=2)
    for key in ("stuck", "a", "a", "b"):
        world.stage(key, queue=0)
    world.stage("b", queue=1)
    world.turn_end()
    client = Client()
    jobs = world.pull_all(client)
    assert [world.body(job) for job in jobs] == [1, 2]
    world.answer(client, jobs[1])
    assert world.pull_all(client) == []
    world.answer(client, jobs[0])
    assert [world.body(job) for job in world.pull_all(client)] == [3, 4]


def test_records_located_in_a_batch_agree_with_split() -> None:
    """The short cut for batches finds the same body and property block as the broker's own reader."""
    world = World(queues=1)
    world.publish("key", tag="t", properties=[("a", "b")])
    world.publish(None)
    places = [unit[:2] for unit in world.store.topics["t"].queues[0].read(0, 2)]
    for place, (view, body_at, body_end, block_at, end) in zip(places, world.store.locate(places), strict=True):
        body, block = split(world.store.read(*place))
        assert view[body_at:body_end] == body
        assert strip_own(view[block_at:end].tobytes()) == block


class NoDescriptors(SimDisk):
    """Opens no file of a topic's queues while `none` is set."""

    none = False

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Open it, or fail as the system does."""
        if self.none and "consumequeue/t/" in path:
            raise OSError(errno.EMFILE, "no descriptor", path)
        return super().open(path, create=create)


def test_queues_that_cannot_be_opened_at_the_start_are_read_soon_and_once() -> None:
    """A node without descriptors goes on by itself when there are some, and never has two of a key out."""

    class Node(World):
        def store_opened(self) -> None:
            disk.none = is_restarted

    disk, is_restarted = NoDescriptors(), False
    # More than are open at once, so that the first ones are not when the group begins.
    world = Node({"topic": "t", "orderKey": "KEY"}, queues=520, disk=disk)
    world.sim = disk
    world.publish(*["a"] * 520)
    world.settle()
    is_restarted = True
    world.kill()
    client = Client()
    world.advance(2)
    assert world.pull_all(client) == []
    disk.none = False
    world.advance(10)
    seen = []
    for _ in range(540):
        jobs = world.pull_all(client)
        assert len(jobs) <= 1
        for job in jobs:
            seen.append(job.physical)
            world.answer(client, job)
        if len(seen) == 10:
            world.publish("a")
    assert len(seen) == 521
    assert seen == sorted(seen)
