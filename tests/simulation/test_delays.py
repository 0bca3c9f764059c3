"""A whole node under faults, with producers whose messages are delayed: each is delivered once, and none early."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from broker.features import ALL
from broker.format.properties import parse_properties
from broker.format.record import split, store_timestamp
from broker.runtime.metrics import Metrics
from broker.store import Store
from tests.insides import opened_of
from tests.simulation.clients import LEVELS_MS, ProducerHabits
from tests.simulation.faults import FAULTS
from tests.simulation.lines import Client, Link
from tests.simulation.wire import Reply, producer_codec, producer_idl
from tests.simulation.world import DATA, World, settings, store_options

TOPIC = "delayed"
FAULTS_USED = ("kill", "kill_twice", "lose_power", "stop", "cut_within", "fill_disk", "fail_sync", "reset_connections")
"""Without steps of the clock, so that the moment of sending plus the delay is the earliest that is right."""


class DelayedProducer(Client):
    """Sends single messages and batches with delay levels, and remembers what was acknowledged."""

    def __init__(self, world: World, number: int) -> None:
        around = world.surroundings(number)
        codec = producer_codec(compact=True)
        super().__init__(f"delayed {number}", f"10.3.0.{number}", codec, around, around.producer_address)
        self.number = number
        self._clock = world.clock
        self.earliest: dict[str, int] = {}
        self.acknowledged: set[str] = set()

    def on_connected(self) -> None:
        self._work(self.link)

    def _work(self, link: Link | None) -> None:
        if link is None or link is not self.link or self.stopped:
            return
        random = self.around.random
        messages = [self._make(random) for _ in range(random.choice((1, 1, 4)))]
        names = [message.properties["name"] for message in messages]
        if len(messages) > 1:
            self.call("sendBatchSync", names, messages=messages)
        else:
            self.call("sendSync", names, message=messages[0], timeout=3000)
        self.later(0.1, self._work, link)

    def _make(self, random: Random) -> Any:
        name = f"{self.number}-{len(self.earliest)}"
        level = random.choice((1, 3))
        self.earliest[name] = self._clock.wall_ms() + LEVELS_MS[level - 1]
        return producer_idl.Message(topic=TOPIC, body=b"x" * 50, properties={"name": name}, delayLevel=level)

    def on_reply(self, link: Link, about: list[str], reply: Reply, stamp: Any) -> None:
        if reply.error is None and reply.value.code == 0:
            self.acknowledged.update(about)


def delivered(world: World) -> list[tuple[str, int]]:
    """Names and store times in the topic, read from the store by itself."""
    options = store_options(settings())
    random, metrics = Random(0), Metrics()
    store = Store.open(
        DATA, options=options, features=ALL, disk=world.disk, clock=world.clock, random=random, metrics=metrics
    )
    found = []
    for queue in store.topics[TOPIC].queues:
        for physical, size, _ in queue.read(queue.min_offset, queue.max_offset):
            record = store.read(physical, size)
            found.append((parse_properties(split(record)[1])["name"], store_timestamp(record)))
    store.close()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_delayed_messages_survive_every_fault(seed: int) -> None:
    """Kills, power losses, full and failing disks: everything acknowledged comes once, and nothing before its time."""
    world, random = World(seed), Random(f"delays {seed}")
    wanted = settings()
    wanted["topics"][TOPIC] = {"queues": 2}
    world.config = world.load(wanted).config
    world.start()
    world.add_producer(ProducerHabits(pause_seconds=0.2))
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group)
    producers = [DelayedProducer(world, number) for number in (90, 91)]
    for producer in producers:
        producer.connect()
    for fault in random.sample(FAULTS_USED, len(FAULTS_USED)):
        world.run(seconds=random.random() * 2)
        FAULTS[fault](world, random)
    world.run(seconds=1)
    for producer in producers:
        producer.stopped = True
    world.settle()
    world.run(seconds=20)
    assert world.node is not None
    assert not any(level.pending for level in opened_of(world.node).delays.levels.values())
    world.check()
    found = delivered(world)
    counts = Counter(name for name, _ in found)
    assert not [name for name, count in counts.items() if count > 1], "delivered twice"
    acknowledged = producers[0].acknowledged | producers[1].acknowledged
    assert len(acknowledged) > 10
    assert not acknowledged - counts.keys(), "lost"
    earliest = producers[0].earliest | producers[1].earliest
    assert not [name for name, stored_ms in found if stored_ms < earliest[name]], "early"
