"""Fillers in the first log file, and topics that were deleted: RocketMQ serves all but the message that was hit."""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom

import pytest

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from broker.store import Store
from proxy.cli.store.store_check_command import repair_data
from tests.interop.conftest import Surroundings
from tests.interop.contents import OPTIONS, Sent, open_store, write
from tests.interop.rocketmq import Client
from tests.interop.sides import copied, settings_for

pytestmark = pytest.mark.long

TOPIC = "permits"
COUNT, HIT = 900, 400


def filled(root: Path) -> Store:
    """One queue of messages in the first log file, some with tags of equal hash codes, then other topics."""
    store = open_store(root)
    tags = ("Aa", "BB", "")
    write(store, [Sent(TOPIC, 0, f"k{number}", tags[number % 3], {}, b"body %d" % number) for number in range(COUNT)])
    write(store, [Sent("other", 0, "k", "", {}, b"other %d" % number) for number in range(COUNT)])
    return store


def hit(root: Path, physical: int) -> None:
    """Damage one record, and repair the store."""
    number, start = divmod(physical, OPTIONS.segment_bytes)
    with (root / "commitlog" / f"{number * OPTIONS.segment_bytes:020d}").open("r+b") as file:
        file.seek(start + 4)
        file.write(b"\x00")
    repair_data(str(root), disk=RealDisk(), clock=SystemClock(), random=SystemRandom())


def consumed(client: Client, group: str, count: int, tags: str = "*") -> list[str]:
    """What a fresh group is given, without its adjacent repeats."""
    found = [each.body.decode() for each in client.consume(group, TOPIC, deliveries=count, tags=tags)]
    assert len(found) == count
    return found


def test_message_that_was_hit_in_the_first_log_file_costs_no_other(rocket: Surroundings) -> None:
    """To readers of the whole queue, to a fresh group, to one with a tag filter, by time, and to what is sent next."""
    root = rocket.folder / "store"
    store = filled(root)
    physical = store.topics[TOPIC].queues[0].read(HIT, 1)[0][0]
    last = store.topics["other"].queues[0].read(COUNT - 1, 1)[0][0]
    assert 0 < physical < last < OPTIONS.segment_bytes
    store.close()
    hit(root, physical)
    hit(root, last)
    copy = copied(root)
    with rocket.broker("broker", settings_for(copy)) as broker, rocket.client() as client:
        bounds, messages = client.read(TOPIC, {0: COUNT})
        assert bounds[0] == (0, COUNT)
        bodies = [each.body for each in messages]
        assert [each for number, each in enumerate(bodies) if each not in bodies[:number]] == [
            b"body %d" % number for number in range(COUNT) if number != HIT
        ]
        assert len(bodies) == COUNT
        # By code, a tag's neighbour of equal hash code passes the broker; its client compares the text.
        wanted = [f"body {number}" for number in range(0, COUNT, 3) if number != HIT]
        assert sorted(consumed(client, "tagged", len(wanted), "Aa")) == sorted(wanted)
        assert set(consumed(client, "fresh", COUNT)) == {f"body {number}" for number in range(COUNT) if number != HIT}
        found = client.ask(do="search", topic=TOPIC, queue=0, at=messages[-1].stored_ms + 1)[0]["offset"]
        assert found == COUNT
        found = client.ask(do="search", topic=TOPIC, queue=0, at=messages[0].stored_ms)[0]["offset"]
        assert found == 0
        client.ask(do="send", topic="other", queue=0, messages=[
            {"key": "", "tags": "", "properties": {}, "body": "bmV3"}])  # fmt: skip
        _, other = client.read("other", {0: COUNT})
        assert other[-1].body == b"new"
        broker.stop()
    store = open_store(copy)
    queue = store.topics["other"].queues[0]
    assert store.recovery.duplicates == 0
    assert queue.max_offset == other[-1].offset + 1
    store.close()


def test_topic_deleted_and_made_again_is_served_whole(rocket: Surroundings) -> None:
    """Twice over the boundary of a queue file; what RocketMQ adds and deletes is so here."""
    root = rocket.folder / "store"
    store = filled(root)
    store.topic_changes.delete(TOPIC)
    write(store, [Sent(TOPIC, 0, "k", "", {}, b"new %d" % number) for number in range(750)])
    first = store.topics[TOPIC].queues[0].min_offset
    assert first % OPTIONS.queue_file_units == 0
    store.close()
    copy = copied(root)
    # Without timers RocketMQ fails half-way through a deletion.
    settings = settings_for(copy) | {"timerWheelEnable": "true"}
    with rocket.broker("broker", settings) as broker, rocket.client() as client:
        bounds, messages = client.read(TOPIC, {0: first + 750})
        assert bounds[0] == (first, first + 750)
        assert [each.body for each in messages] == [b"new %d" % number for number in range(750)]
        assert sorted(consumed(client, "fresh", 750)) == sorted(f"new {number}" for number in range(750))
        client.ask(do="delete", topic="other", broker=broker.address)
        broker.stop()
    store = open_store(copy)
    assert "other" not in store.topics
    assert store.topics[TOPIC].queues[0].max_offset == first + 750
    store.close()
