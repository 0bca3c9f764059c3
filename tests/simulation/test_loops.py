"""A whole node under faults, with producers of loops: every occurrence is delivered once, in order, and none early."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.loop.occurrence import LOOP, Occurrence
from broker.metrics import Metrics
from broker.properties import parse_properties
from broker.record import split, store_timestamp
from broker.store import Store
from tests.simulation.clients import ProducerHabits
from tests.simulation.faults import FAULTS
from tests.simulation.lines import Client, Link
from tests.simulation.wire import Reply, producer_codec, producer_idl
from tests.simulation.world import DATA, World, settings, store_options

TOPIC = "later"
FAULTS_USED = ("kill", "kill_twice", "lose_power", "stop", "cut_within", "fill_disk", "fail_sync", "reset_connections")
"""Without steps of the clock, so that the moment of an occurrence is the earliest that is right."""


class LoopProducer(Client):
    """Adds loops that begin now, soon or in the past, cancels some, and remembers what was answered."""

    def __init__(self, world: World, number: int) -> None:
        around = world.surroundings(number)
        super().__init__(
            f"loops {number}", f"10.3.1.{number}", producer_codec(compact=True), around, around.producer_address
        )
        self.number = number
        self._clock = world.clock
        self.asked: dict[str, Occurrence] = {}
        self.added: set[str] = set()
        self.to_cancel: set[str] = set()

    def on_connected(self) -> None:
        self._work(self.link)

    def _work(self, link: Link | None) -> None:
        if link is None or link is not self.link or self.stopped:
            return
        random = self.around.random
        if self.added and random.random() < 0.2:
            target = random.choice(sorted(self.added))
            self.to_cancel.add(target)
            cancel = producer_idl.DelayMessage(topic=TOPIC, body=b"-", action=2, uniqDelayMsgId=target)
            self.call("sendDelaySync", "", delayMessage=cancel, timeout=100)
        else:
            first = self._make(random)
            self.asked[first.id] = first
            add = producer_idl.DelayMessage(
                topic=TOPIC,
                body=b"x" * 50,
                action=1,
                timestamp=first.at_s,
                dmsgtype=LOOP,
                interval=first.interval,
                times=first.times,
                expire=first.expire_s,
                uuid=first.uuid,
            )
            self.call("sendDelaySync", first.id, delayMessage=add, timeout=100)
        self.later(0.2, self._work, link)

    def _make(self, random: Random) -> Occurrence:
        at_s = self._clock.wall_ms() // 1000 + random.choice((-7, 0, 1, 3))
        uuid = f"{self.number:08x}-0000-0000-0000-{len(self.asked):012x}"
        return Occurrence(at_s, LOOP, at_s + 1000, random.choice((1, 3, 4)), 0, random.choice((3, 4)), 0, uuid)

    def on_reply(self, link: Link, about: str, reply: Reply, stamp: Any) -> None:
        if about and reply.error is None and reply.value.code == 0:
            assert reply.value.uniqDelayMsgId == about
            self.added.add(about)


def delivered(world: World) -> list[tuple[str, int]]:
    """Ids and store times in the topic, in the order of each queue, read from the store by itself."""
    options = store_options(settings())
    random, metrics = Random(0), Metrics()
    store = Store.open(DATA, options=options, disk=world.disk, clock=world.clock, random=random, metrics=metrics)
    found = []
    for queue in store.topics[TOPIC].queues:
        for physical, size, _ in queue.read(queue.min_offset, queue.max_offset):
            record = store.read(physical, size)
            found.append((parse_properties(split(record)[1])["KEYS"], store_timestamp(record)))
    store.close()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_loops_survive_every_fault(seed: int) -> None:
    """Kills, power losses, full and failing disks: what was acknowledged comes whole, or up to its cancel."""
    world, random = World(seed), Random(f"loops {seed}")
    wanted = settings()
    wanted["topics"][TOPIC] = {"queues": 2}
    world.config = world._load(wanted).config
    world.start()
    world.add_producer(ProducerHabits(pause_seconds=0.2))
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group)
    producers = [LoopProducer(world, number) for number in (92, 93)]
    for producer in producers:
        producer.connect()
    for _ in range(5):
        world.run(seconds=random.random() * 3)
        FAULTS[random.choice(FAULTS_USED)](world, random)
    world.run(seconds=1)
    for producer in producers:
        producer.stopped = True
    world.settle()
    world.run(seconds=30)
    world.check()
    found = delivered(world)
    added = 0
    for producer in producers:
        for delay_id, first in producer.asked.items():
            whole: list[str] = []
            each: Occurrence | None = first
            while each is not None:
                whole.append(each.id)
                each = each.next()
            came = [name for name, _ in found if name.endswith(first.uuid)]
            assert came == whole[: len(came)], "twice, out of order, or with a gap"
            if delay_id in producer.added and delay_id not in producer.to_cancel:
                assert came == whole, "lost"
                added += 1
    assert added > 5
    assert not [name for name, stored_ms in found if stored_ms < int(name[:10]) * 1000], "early"
