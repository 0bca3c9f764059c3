"""A store that a real RocketMQ wrote opens here, and every message of it is read as RocketMQ's own client reads it."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.disk import RealDisk
from broker.errors import StoreGeometryDiffers
from broker.interchange import adopted, broker_settings
from broker.metrics import Metrics
from broker.offsets import ConsumerOffsets
from broker.seams import SystemClock
from broker.store import Store, StoreOptions
from broker.store_json import Geometry
from broker.testing import ManualClock, ManualScheduler
from tests.interop.conftest import Surroundings
from tests.interop.contents import BODY_BYTES_MAX, QUEUES, TOPICS, Sent, open_store, permits, randoms, read, write_all
from tests.interop.rocketmq import Broker, Client, Message
from tests.interop.sides import assert_same, by_arrival, copied, settings_for
from upstream.progress import Progress

pytestmark = pytest.mark.long

SIZES = Geometry(segment_bytes=5 << 20, queue_file_units=700, index_slots=3000, index_entries=12_000)
MESSAGES = 900
GROUP = "permits-audit"


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
    some = list(itertools.islice(permits(), MESSAGES))
    return some + list(itertools.islice(randoms(seed, empty_bodies=False), MESSAGES))


def requests(messages: Sequence[Sent]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield send requests, some of them of several messages of one queue, and how many messages each has."""
    random = Random(1)
    at = 0
    while at < len(messages):
        first = messages[at]
        size = random.choice((1, 1, 5))
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
    for topic in TOPICS:
        client.make_topic(broker, topic, QUEUES)


def send(client: Client, messages: Sequence[Sent]) -> None:
    """Send and have each acknowledged."""
    for _, request in requests(messages):
        [answer] = client.ask(**request)
        assert answer["status"] == "SEND_OK"


def served(client: Client) -> list[Message]:
    """Everything in all topics as RocketMQ serves it."""
    return [message for topic in TOPICS for message in client.read(topic)[1]]


def ours(root: Path, options: StoreOptions) -> list[Message]:
    """Everything in all topics as we read it."""
    store = open_store(root, options)
    try:
        assert not store.recovery.holes
        assert not store.recovery.duplicates
        return [message for topic in TOPICS for message in read(store, topic)[1]]
    finally:
        store.close()


@pytest.mark.parametrize("sums", [True, False], ids=["sums", "no-sums"])
def test_closed_store_is_read_record_by_record(rocket: Surroundings, sums: bool) -> None:
    """Offsets, times, hosts, keys, tags, properties and bodies are those that RocketMQ's client shows."""
    root = rocket.folder / "store"
    messages = sendable(3)
    with rocket.broker("broker", foreign_settings(root, sums=sums)) as broker, rocket.client() as client:
        make_topics(client, broker)
        send(client, messages)
        theirs = served(client)
        broker.stop()
    assert len(list((root / "commitlog").iterdir())) > 3
    found = ours(root, foreign_options(root))
    assert found == theirs
    assert by_arrival(found) == messages


def test_store_of_other_sizes_is_refused_with_both(rocket: Surroundings) -> None:
    """A configuration that does not fit is told what would; nothing is changed."""
    root = rocket.folder / "store"
    with rocket.broker("broker", foreign_settings(root, sums=False)) as broker, rocket.client() as client:
        make_topics(client, broker)
        send(client, sendable(4)[:5])
        broker.stop()
    with pytest.raises(StoreGeometryDiffers, match=f"segment_bytes {SIZES.segment_bytes}"):
        open_store(root)
    assert len(ours(root, foreign_options(root))) == 5


@pytest.mark.parametrize("sums", [True, False], ids=["sums", "no-sums"])
def test_store_of_a_killed_rocketmq_is_read(rocket: Surroundings, sums: bool) -> None:
    """Every message that RocketMQ had acknowledged before SIGKILL is there, in order."""
    root = rocket.folder / "store"
    messages = sendable(5)
    broker = rocket.broker("broker", foreign_settings(root, sums=sums))
    client = rocket.client()
    acknowledged = 0
    try:
        make_topics(client, broker)
        for count, request in requests(messages):
            client.ask(**request)
            acknowledged += count
            if acknowledged > MESSAGES + 500:
                break
        client.write(request)
    finally:
        broker.kill()
        client.kill()
    assert (root / "abort").exists()
    found = by_arrival(ours(root, foreign_options(root)))
    # What was on its way when it died may be there, once more.
    assert found[:acknowledged] == messages[:acknowledged]
    assert len(found) <= acknowledged + count


def test_store_goes_back_and_forth(rocket: Surroundings) -> None:
    """Each side goes on where the other stopped, cleanly or not, and both read the same."""
    root = rocket.folder / "store"
    messages = sendable(6)
    parts = [messages[at::4] for at in range(4)]
    with rocket.broker("broker-1", foreign_settings(root, sums=False)) as broker, rocket.client() as client:
        make_topics(client, broker)
        send(client, parts[0])
        broker.stop()
    options = foreign_options(root)
    store = open_store(root, options)
    write_all(store, parts[1])
    store.close()
    copy = copied(root)
    with rocket.broker("broker-2", settings_for(root)) as broker, rocket.client() as client:
        assert_same(client, copy, options=options)
        send(client, parts[2])
        theirs = served(client)
        broker.stop()
    assert ours(root, options) == theirs
    store = open_store(root, options)
    write_all(store, parts[3])
    store.abandon()
    copy = copied(root)
    with rocket.broker("broker-3", settings_for(root)), rocket.client() as client:
        everything = assert_same(client, copy, options=options)
    assert by_arrival(everything) == [each for part in parts for each in part]


def open_progress(root: Path, store: Store) -> Progress:
    """Open the progress of all groups over a store."""
    scheduler = ManualScheduler(ManualClock())
    return Progress.open(
        str(root), store=store, disk=RealDisk(), clock=SystemClock(), metrics=Metrics(), scheduler=scheduler
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


def test_offsets_committed_at_rocketmq_are_where_a_group_goes_on(rocket: Surroundings) -> None:
    """Also after this side knew other ones: what RocketMQ moved wins (D10)."""
    root = rocket.folder / "store"
    with rocket.broker("broker-1", foreign_settings(root, sums=False)) as broker, rocket.client() as client:
        make_topics(client, broker)
        send(client, list(itertools.islice(permits(), 400)))
        for queue_id in range(QUEUES):
            client.ask(do="commit", group=GROUP, topic="permits", queue=queue_id, offset=20 + queue_id)
        broker.stop()
    options = foreign_options(root)
    assert watermarks(root, options) == [20, 21, 22, 23]
    store = open_store(root, options)
    progress = open_progress(root, store)
    tracker = progress.tracker(GROUP, "permits", 1, first_offset=lambda: 0)
    tracker.finish_range(21, 30)
    tracker.finish(40)
    progress.close()
    store.close()
    with rocket.broker("broker-2", settings_for(root)) as broker, rocket.client() as client:
        assert client.ask(do="offset", group=GROUP, topic="permits", queue=1) == [{"offset": 30}]
        client.ask(do="commit", group=GROUP, topic="permits", queue=1, offset=12)
        client.ask(do="commit", group=GROUP, topic="permits", queue=2, offset=33)
        broker.stop()
    assert watermarks(root, options) == [20, 12, 33, 23]
    offsets = ConsumerOffsets.open(str(root), disk=RealDisk(), clock=SystemClock())
    assert [offsets.get(GROUP, "permits", queue_id) for queue_id in range(QUEUES)] == [20, 12, 33, 23]
