"""Content that only one side knows: loops, acks out of order, ids of batches, clocks ahead, what retention moved."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from broker.format.properties import find_property
from broker.format.record import split
from broker.log.put import Put
from broker.options import StoreOptions
from broker.query import by_unique_key
from broker.queues.time_search import offset_at
from broker.retention import RetentionLimits
from broker.runtime.bundle import runtime_of
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import SystemClock
from broker.runtime.steps import run_now
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.recurring.occurrence import LOOP, Occurrence
from broker.scheduled.recurring.resumed_loops import returning
from broker.scheduled.timer.retention_hold import TimerHold
from broker.tools.check import StoreCheck
from broker.tools.interchange import adopted, names_of
from broker.transaction.retention_hold import TransactionHold
from pyddmq.testing import ManualClock
from tests.interop.conftest import Surroundings
from tests.interop.contents import OPTIONS, STORE_HOST, open_store
from tests.interop.sides import copied, settings_for
from tests.interop.test_their_store import open_progress
from tests.interop.test_timers import THEIR_SETTINGS, TOPIC, Ours, assert_once, half, times_of
from upstream.tools.store_check import check_data

pytestmark = pytest.mark.long

DAY_MS = 86_400_000
MEMBERS = ("m0", "m1", "m2")


class OursWithLoops(Ours):
    """Our broker, with loops."""

    def __init__(self, root: Path, wall_ms: int) -> None:
        super().__init__(root, wall_ms)
        self.loops = Loops(self.store, runtime_of(RealDisk(), self.clock))
        self.timers.due._follower = self.loops
        run_now(returning(self.store, disk=RealDisk()))
        self.scheduler.run_until_idle()

    def ids(self) -> list[str]:
        """Ids of what was delivered of loops, in order."""
        queue = self.store.topics[TOPIC].queues[0]
        blocks = [bytes(split(self.store.read(*unit[:2]))[1]) for unit in queue.read(0, queue.max_offset)]
        return [key.decode().split()[0] for block in blocks if (key := find_property(block, b"KEYS"))]


def test_loop_goes_on_and_acks_out_of_order_are_repeated_there(rocket: Surroundings) -> None:
    """RocketMQ delivers the pending occurrence and no other; a group gets again what it had acknowledged ahead."""
    root = rocket.folder / "store"
    now_ms = SystemClock().wall_ms()
    ours = OursWithLoops(root, now_ms)
    ours.store.create_topic(TOPIC, 1)
    ours.store.create_topic("permits", 1)
    for number in range(20):
        ours.store.put("permits", b"permit %d" % number, queue_id=0)
    progress = open_progress(root, ours.store)
    tracker = progress.tracker("clerks", "permits", 0, first_offset=lambda: 0)
    tracker.finish_range(0, 5)
    tracker.finish_range(8, 12)
    progress.close()
    at_s = now_ms // 1000 + 3
    first = Occurrence(at_s, LOOP, at_s + 10**6, 4, 0, 60, 0, "14f22520-ad72-11e7-91be-6ee54da579e3")
    put = ours.loops.first(Put(ours.store.topics[TOPIC], 0, b"ping", b""), first)
    ours.store.append([put], born_ms=now_ms, born_host=STORE_HOST)
    ours.store.flush()
    ours.scheduler.run_until_idle()
    ours.leave(kill=False)
    with rocket.broker("broker", settings_for(root) | THEIR_SETTINGS) as broker, rocket.client() as client:
        again = client.consume("clerks", "permits", deliveries=15)
        _, messages = client.read(TOPIC, {0: 1})
        broker.stop()
    assert sorted(each.offset for each in again) == list(range(5, 20))
    assert [each.body for each in messages] == [b"ping"]
    assert messages[0].stored_ms >= at_s * 1000
    back = OursWithLoops(root, (at_s + 130) * 1000)
    occurrences = [each.id for number in range(4) if (each := first.later(number)) is not None]
    assert back.ids() == occurrences[:3]
    back.scheduler.advance(3600)
    assert back.ids() == occurrences
    back.leave(kill=False)


def test_ids_of_batches_and_index_files_of_rocketmqs_own_size(rocket: Surroundings) -> None:
    """Both ids of a batch's member find it; the index is searched as RocketMQ left it, and called right."""
    root = rocket.folder / "store"
    settings = {
        "brokerClusterName": "east",
        "brokerName": "broker-a",
        "storePathRootDir": str(root),
        "storePathCommitLog": f"{root}/commitlog",
        "mappedFileSizeCommitLog": str(5 << 20),
        "mappedFileSizeConsumeQueue": "6000",
    }
    with rocket.broker("broker", settings) as broker, rocket.client() as client:
        client.make_topic(broker, "permits", 1)
        messages = [
            {"key": f"k-{body}", "tags": "", "properties": {}, "body": base64.b64encode(body.encode()).decode()}
            for body in MEMBERS
        ]
        client.ask(do="send", topic="permits", queue=0, messages=messages)
        client.ask(do="send", topic="permits", queue=0, messages=messages[:1])
        _, found = client.read("permits", {0: 4})
        assert client.view("permits", found[3].unique_key) == found[3]
        broker.stop()
    assert names_of(str(root), disk=RealDisk()) == ("east", "broker-a")
    [index] = (root / "index").iterdir()
    assert index.stat().st_size == 420_000_040
    before = index.stat().st_mtime_ns
    options = adopted(str(root), StoreOptions(), disk=RealDisk())
    assert (options.index_slots, options.index_entries) == (5_000_000, 20_000_000)
    store = open_store(root, options)
    assert [file.name for file in store.index.files] == [index.name]
    shown = [each.unique_key for each in found]
    assert shown[0] == shown[1] == shown[2] != shown[3]
    query = by_unique_key(store, "permits", shown[0]).run()
    assert sorted(bytes(each.stored_body) for each in query.found) == [body.encode() for body in MEMBERS]
    store.close()
    assert index.stat().st_mtime_ns == before
    findings = check_data(StoreCheck(str(root), RealDisk(read_only=True), SystemClock()))
    assert not [each for each in findings if each.kind.startswith("index")]


def test_clock_days_ahead_is_passed_on(rocket: Surroundings) -> None:
    """What was stored by a clock three days ahead is served there; what RocketMQ adds is found behind it here."""
    root = rocket.folder / "store"
    now_ms = SystemClock().wall_ms()
    store = open_store(root, clock=ManualClock(now_ms + 3 * DAY_MS))
    store.create_topic("permits", 1)
    for number in range(50):
        store.put("permits", b"%d" % number, queue_id=0)
    store.close()
    with rocket.broker("broker", settings_for(root)) as broker, rocket.client() as client:
        _, messages = client.read("permits", {0: 50})
        assert [each.body for each in messages] == [b"%d" % number for number in range(50)]
        client.ask(do="send", topic="permits", queue=0, messages=[
            {"key": "", "tags": "", "properties": {}, "body": "bmV3"}])  # fmt: skip
        _, messages = client.read("permits", {0: 51})
        broker.stop()
    assert messages[50].stored_ms < messages[49].stored_ms
    store = open_store(root)
    queue = store.topics["permits"].queues[0]
    assert (store.recovery.duplicates, queue.max_offset) == (0, 51)
    assert bytes(split(store.read(*queue.read(50, 1)[0][:2]))[0]) == b"new"
    assert offset_at(store, queue, 0) == 0
    store.put("permits", b"newer", queue_id=0)
    store.close()


def test_timers_and_halves_that_retention_moved_are_served_there(rocket: Surroundings) -> None:
    """Their log files have gone here; RocketMQ delivers the timer at its time, and checks the half."""
    root = rocket.folder / "store"
    now_ms = SystemClock().wall_ms()
    ours = Ours(root, now_ms)
    ours.store.create_topic(TOPIC, 1)
    ours.store.create_topic("filling", 1)
    ours.timer(b"our timer", now_ms + 25_000)
    ours.half(b"our undecided")
    ours.scheduler.run_until_idle()
    retention = ours.store.retention
    retention.holds += [TimerHold(ours.timers, Metrics()), TransactionHold(ours.transactions, Metrics())]
    retention.limits = RetentionLimits(log_bytes=2 * OPTIONS.segment_bytes)
    while ours.store.min_offset == 0:
        for _ in range(8):
            ours.store.put("filling", bytes(1 << 20), queue_id=0)
        ours.store.checkpoint()
        ours.scheduler.advance(0.1)
        while retention.step():
            ours.scheduler.run_until_idle()
    ours.save()
    ours.leave(kill=False)
    copy = copied(root)
    with rocket.broker("broker", settings_for(copy) | THEIR_SETTINGS) as broker, rocket.client() as client:
        half(client, b"their last", "commit", keep=True)
        _, messages = client.read(TOPIC, {0: 3})
        broker.stop()
    assert_once(times_of(messages), {b"our timer": now_ms + 25_000, b"our undecided": 0, b"their last": 0})
