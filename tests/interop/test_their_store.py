"""A store that a real RocketMQ wrote opens here, and every message of it is read as RocketMQ's own client reads it."""

from __future__ import annotations

import base64
import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.servers.processes import BenchError
from broker.errors import StoreGeometryDiffers
from broker.format.body import SYS_COMPRESSED, SYS_COMPRESSION_MASK
from broker.format.record import split, sys_flag
from broker.opening.store_json import Geometry
from broker.options import StoreOptions
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.bundle import runtime_of
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import SystemClock
from broker.runtime.steps import run_now
from broker.store import Store
from broker.tools.interchange import adopted, broker_settings
from pyddmq.testing import ManualClock, ManualScheduler
from tests.insides import opened_of
from tests.integration.ddmq_tools import Peer, result
from tests.interop.conftest import Surroundings
from tests.interop.contents import BODY_BYTES_MAX, QUEUES, TOPICS, Sent, open_store, permits, randoms, read, write_all
from tests.interop.rocketmq import Broker, Client, Message
from tests.interop.sides import assert_rolled, assert_same, by_arrival, copied, settings_for
from tests.patient import until
from tests.running_node import RunningNode
from upstream.embedded.queues import EmbeddedQueues
from upstream.progress.progress import Progress

pytestmark = pytest.mark.long

SIZES = Geometry(segment_bytes=5 << 20, queue_file_units=700, index_slots=3000, index_entries=12_000)
PERMITS = 300
RANDOM_MESSAGES = 700
GROUP = "permits-audit"
COMPRESSIONS = {"ZLIB": 0x300, "LZ4": 0x100, "ZSTD": 0x200}
PACKED = "packed"
YAML = f"""
node: {{segmentBytes: {SIZES.segment_bytes}, queueFileUnits: {SIZES.queue_file_units}}}
topics: {{{PACKED}: {{queues: {QUEUES}}}}}
groups:
  - {{group: readers, topics: [{{topic: {PACKED}, maxPullBatchSize: 32}}]}}
"""


def foreign_settings(root: Path, *, sums: bool) -> dict[str, str]:
    """A broker.conf of RocketMQ's own making: sizes that are not ours, with or without sums in its records."""
    settings = broker_settings(str(root), SIZES, message_bytes_max=BODY_BYTES_MAX)
    return settings | {"enabledAppendPropCRC": str(sums).lower(), "flushDiskType": "ASYNC_FLUSH"}


def foreign_options(root: Path) -> StoreOptions:
    """The options that a program makes to open a store of RocketMQ's."""
    options = adopted(str(root), StoreOptions(), disk=RealDisk())
    assert {name: getattr(options, name) for name in asdict(SIZES)} == asdict(SIZES)
    return options


def sendable(seed: int) -> list[Sent]:
    """Some of the sample data and random messages that RocketMQ's client accepts."""
    some = list(itertools.islice(permits(), PERMITS))
    return some + list(itertools.islice(randoms(seed, empty_bodies=False, large_each=80), RANDOM_MESSAGES))


def requests(messages: Sequence[Sent], sizes: Sequence[int] = (1, 1, 5)) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield send requests, some of them of several messages of one queue, and how many messages each has."""
    random = Random(1)
    at = 0
    while at < len(messages):
        first = messages[at]
        size = random.choice(sizes)
        batch = [first]
        for each in messages[at + 1 : at + size]:
            bytes_in_all = sum(len(other.body) for other in batch) + len(each.body)
            if (each.topic, each.queue_id) != (first.topic, first.queue_id) or bytes_in_all > BODY_BYTES_MAX // 2:
                break
            batch.append(each)
        at += len(batch)
        fields = [
            {
                "key": each.key,
                "tags": each.tags,
                "properties": each.properties,
                "body": base64.b64encode(each.body).decode(),
            }
            for each in batch
        ]
        yield len(batch), {"do": "send", "topic": first.topic, "queue": first.queue_id, "messages": fields}


def make_topics(client: Client, broker: Broker) -> None:
    """Create all topics at a broker."""
    for topic in (*TOPICS, PACKED):
        client.make_topic(broker, topic, QUEUES)


def send(client: Client, messages: Sequence[Sent], **more: Any) -> None:
    """Send and have each acknowledged."""
    # RocketMQ's client compresses no batches.
    for _, request in requests(messages, sizes=(1,) if more else (1, 1, 5)):
        [answer] = client.ask(**request, **more)
        assert answer["status"] == "SEND_OK"


def send_until_killed(broker: Broker, client: Client, messages: Sequence[Sent], count: int) -> tuple[int, int]:
    """Send, and kill the broker with a request on its way once `count` messages are acknowledged.

    Returns:
        How many are acknowledged, and how many more may be stored.
    """
    acknowledged = 0
    for messages_of_it, request in requests(messages):
        if acknowledged >= count:
            client.write(request)
            broker.kill()
            try:
                [answer] = client.answers()
            except BenchError:
                return acknowledged, messages_of_it
            return acknowledged + messages_of_it * (answer["status"] == "SEND_OK"), messages_of_it
        [answer] = client.ask(**request)
        assert answer["status"] == "SEND_OK"
        acknowledged += messages_of_it
    raise AssertionError(f"{acknowledged} messages were sent before it was killed")


def packed(compression: str) -> list[Sent]:
    """Messages whose bodies shrink, from some bytes to 4 MiB."""
    random = Random(compression)
    bodies = [event.body * random.choice((1, 2, 20)) for event in itertools.islice(permits(), 20)]
    bodies.append((random.randbytes(1 << 10) * (4 << 10))[: BODY_BYTES_MAX - 1])
    return [
        Sent(PACKED, random.randrange(QUEUES), f"{compression} {number}", "", {}, body)
        for number, body in enumerate(bodies)
    ]


def served(client: Client) -> list[Message]:
    """Everything in all topics as RocketMQ serves it."""
    return [message for topic in (*TOPICS, PACKED) for message in client.read(topic)[1]]


def ours(root: Path, options: StoreOptions) -> list[Message]:
    """Everything in all topics as we read it, bodies unpacked."""
    store = open_store(root, options)
    try:
        assert not store.recovery.holes
        assert not store.recovery.duplicates
        return [message for topic in (*TOPICS, PACKED) for message in read(store, topic)[1]]
    finally:
        store.close()


@pytest.mark.parametrize("sums", [True, False], ids=["sums", "no-sums"])
def test_store_goes_back_and_forth(rocket: Surroundings, sums: bool) -> None:
    """RocketMQ, ours, RocketMQ (killed), ours (killed), RocketMQ: all see every message, and each other's offsets."""
    root = rocket.folder / "store"
    messages = sendable(3 + sums)
    at = 2 * len(messages) // 3
    first, second, third = messages[:at], messages[at : at + 100], messages[at + 100 :]
    compressed = [each for name in COMPRESSIONS for each in packed(name)]
    with rocket.broker("broker-1", foreign_settings(root, sums=sums)) as broker, rocket.client() as client:
        make_topics(client, broker)
        send(client, first)
        for name in COMPRESSIONS:
            send(client, packed(name), compress=name)
        for queue_id in range(QUEUES):
            client.ask(do="commit", group=GROUP, topic="permits", queue=queue_id, offset=20 + queue_id)
        theirs = served(client)
        broker.stop()
    refuse_other_sizes(root)
    options = foreign_options(root)
    untouched = copied(root)
    found = ours(root, options)
    assert found == theirs
    assert by_arrival(found) == first + compressed
    assert_rolled(found, SIZES.segment_bytes)
    serve_packed(untouched, compressed)
    assert watermarks(root, options) == [20, 21, 22, 23]
    finish_some(root, options)
    store = open_store(root, options)
    write_all(store, second)
    store.close()
    copy = copied(root)
    settings = settings_for(root) | {"enabledAppendPropCRC": str(sums).lower(), "flushConsumerOffsetInterval": "200"}
    with rocket.broker("broker-2", settings) as broker, rocket.client() as client:
        assert client.ask(do="offset", group=GROUP, topic="permits", queue=1) == [{"offset": 30}]
        client.ask(do="commit", group=GROUP, topic="permits", queue=1, offset=12)
        client.ask(do="commit", group=GROUP, topic="permits", queue=2, offset=33)
        assert_same(client, copy, (*TOPICS, PACKED), options)
        wait_for_offset(root, queue_id=2, offset=33)
        acknowledged, uncertain = send_until_killed(broker, client, third, len(third) // 2)
    assert (root / "abort").exists()
    expected = first + compressed + second
    found_sent = by_arrival(ours(root, options))
    # What was on its way when it died may be there.
    assert found_sent[: len(expected) + acknowledged] == expected + third[:acknowledged]
    assert len(found_sent) <= len(expected) + acknowledged + uncertain
    assert watermarks(root, options) == [20, 12, 33, 23]
    store = open_store(root, options)
    write_all(store, second)
    store.abandon()
    copy = copied(root)
    with rocket.broker("broker-3", settings_for(root)), rocket.client() as client:
        everything = assert_same(client, copy, (*TOPICS, PACKED), options)
    assert by_arrival(everything) == found_sent + second


def refuse_other_sizes(root: Path) -> None:
    """A configuration that does not fit is told what would."""
    with pytest.raises(StoreGeometryDiffers, match=f"segment_bytes {SIZES.segment_bytes}"):
        open_store(root)


def serve_packed(root: Path, compressed: Sequence[Sent]) -> None:
    """A node on a copy serves compressed bodies as they were sent, though they are stored as the client packed them."""
    copy = copied(root)
    with RunningNode(YAML, copy) as node:
        kinds = node.call(_kinds_stored, opened_of(node.node).store)
        assert kinds == {SYS_COMPRESSED | kind for kind in COMPRESSIONS.values()}
        found: dict[str, bytes] = {}
        with Peer(node.consumer) as consumer:
            while len(found) < len(compressed):
                pulled = consumer.pull("readers")
                found |= {each.key: each.value for each in pulled.messages}
                offsets = [each.offset for each in pulled.messages]
                assert consumer.submit(result("readers", PACKED, pulled.context.qid, offsets))
    assert found == {each.key: each.body for each in compressed}
    shutil.rmtree(copy)


def _kinds_stored(store: Store) -> set[int]:
    """The compressions that the records of the topic have."""
    kinds = set()
    for queue in store.topics[PACKED].queues:
        for physical, size, _ in queue.read(0, queue.max_offset):
            record = store.read(physical, size)
            assert len(split(record)[0]) < size
            kinds.add(sys_flag(record) & (SYS_COMPRESSED | SYS_COMPRESSION_MASK))
    return kinds


def open_progress(root: Path, store: Store) -> Progress:
    """Open the progress of all groups over a store."""
    scheduler = ManualScheduler(ManualClock())
    return run_now(
        Progress.opening(
            str(root),
            queues=EmbeddedQueues(store),
            runtime=runtime_of(RealDisk(), SystemClock(), metrics=Metrics(), scheduler=scheduler),
        )
    )


def watermarks(root: Path, options: StoreOptions) -> list[int]:
    """Where the group goes on, by queue."""
    store = open_store(root, options)
    progress = open_progress(root, store)
    try:
        return [
            progress.tracker(GROUP, "permits", queue_id, first_offset=lambda: 0).watermark for queue_id in range(QUEUES)
        ]
    finally:
        progress.close()
        store.close()


def finish_some(root: Path, options: StoreOptions) -> None:
    """Finish some messages of queue 1 here, in a row and out of it."""
    store = open_store(root, options)
    progress = open_progress(root, store)
    tracker = progress.tracker(GROUP, "permits", 1, first_offset=lambda: 0)
    tracker.finish_range(21, 30)
    tracker.finish(40)
    progress.close()
    store.close()


def wait_for_offset(root: Path, *, queue_id: int, offset: int) -> None:
    """Wait until RocketMQ has written an offset that it was told, which it does from 10 s after its start on."""

    def written() -> bool:
        offsets = ConsumerOffsets.open(str(root), disk=RealDisk(), clock=SystemClock())
        return offsets.get(GROUP, "permits", queue_id) == offset

    until(written, f"offset {offset} of queue {queue_id}")
