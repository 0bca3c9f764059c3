"""A group over records with packed bodies, as a store of RocketMQ's has them."""

from __future__ import annotations

import json
import zlib
from typing import Any

from broker.format.body import SYS_PACKING
from broker.format.properties import encode_properties
from broker.format.record import split, sys_flag
from broker.log.put import Put
from tests.unit.upstream_world import Client, World
from upstream.job import PartialBatch

ZLIB = 0x301
UNKNOWN = 0x701


def publish(world: World, body: bytes, flags: int, key: str = "k") -> None:
    """Append one message whose body is packed, and end the turn."""
    block = encode_properties({"KEYS": key, "color": "red"})
    put = Put(world.store.topics["t"], 0, body, block, sys_flag=flags)
    world.store.append([put], born_ms=1, born_host=b"\x7f\x00\x00\x01\x00\x00\x00\x00")
    world.turn_end()


def dead_record(world: World) -> memoryview:
    """The only dead letter."""
    [(physical, size, _)] = world.store.topics["%DLQ%g"].queues[0].read(0, 9)
    return world.store.read(physical, size)


def ordered(**more: Any) -> World:
    """A world whose actions parse the body and order by it."""
    return World({"topic": "t", "actions": ["Json", "Async", "PullServer"], "orderKey": "$.case", **more})


def test_actions_see_the_unpacked_body() -> None:
    """The Json action parses it, and the order key is found in it."""
    world = ordered()
    for number in range(2):
        publish(world, zlib.compress(json.dumps({"case": 7, "number": number}).encode()), ZLIB)
    client = Client()
    [job] = world.pull_all(client)
    assert (job.key, job.message.body) == ("7", b'{"case": 7, "number": 0}')
    assert job.message.properties == {"color": "red"}
    world.answer(client, job)
    [job] = world.pull_all(client)
    assert job.message.body == b'{"case": 7, "number": 1}'


def test_body_that_actions_cannot_unpack_is_dead_lettered_as_stored() -> None:
    """At once, with the reason, counted; body and flags are the origin's (D17)."""
    world = ordered()
    publish(world, b"\x01\x02packed", UNKNOWN)
    assert world.pull(Client()) is None
    [letter] = world.dead_letters()
    assert "unknown method, number 7" in letter["DLQ_REASON"]
    record = dead_record(world)
    assert bytes(split(record)[0]) == b"\x01\x02packed"
    assert sys_flag(record) & SYS_PACKING == UNKNOWN
    assert world.count("pyddmq_bodies_unusable_total", "g", "t", "unknown_compression") == 1
    assert world.count("pyddmq_dead_letters_total", "g", "t", "unprocessable") == 1
    assert world.progress.tracker("g", "t", 0, first_offset=lambda: 0).watermark == 1


def test_exhausted_message_is_dead_lettered_unpacked() -> None:
    """A dead letter of ours is never compressed where it can be unpacked."""
    world = World({"topic": "t", "retryIntervals": []})
    publish(world, zlib.compress(b"the body"), ZLIB)
    client = Client()
    [job] = world.pull_all(client)
    world.answer(client, job, fail=True)
    record = dead_record(world)
    assert bytes(split(record)[0]) == b"the body"
    assert not sys_flag(record) & SYS_PACKING


def test_dead_letter_of_a_packed_body_is_not_handed_out_packed() -> None:
    """Whoever reads the dead-letter topic does not get it either: skipped, counted, kept where it is."""
    world = World({"topic": "t", "actions": ["Json", "PullServer"]}, {"topic": "%DLQ%g"})
    publish(world, b"packed", UNKNOWN)
    batch = world.pull(Client(), "%DLQ%g")
    assert batch is not None, "a group without actions learns it when the reply is assembled"
    world.group.settle(PartialBatch([], [], [_unusable(job) for job in batch.jobs], []))
    world.turn_end()
    assert world.count("pyddmq_skipped_messages_total", "g", "%DLQ%g", "dead_letter_exhausted") == 1
    assert len(world.dead_letters()) == 1


def _unusable(job: Any) -> Any:
    [found] = job.subscription.sort_out([job], 1 << 20).unusable
    return found
