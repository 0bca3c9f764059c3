"""What goes wrong in a run over Kafka: each takes the world and its own randomness, and is over some time later."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.fakes.kafka.member import SimMember
from tests.simulation.kafka.world import GROUPS, SESSION_SECONDS, SHAKEN, SHAKY, WAITING_TOPIC, KafkaWorld, Slot
from upstream.kafka.link import KafkaFailure, KafkaPartition

Fault = Callable[[KafkaWorld, Random], None]


def _up(world: KafkaWorld) -> list[Slot]:
    """Nodes that run, with nothing wrong so far."""
    return [
        slot
        for slot in world.slots.values()
        if slot.process is not None and not slot.still and not (slot.kafka is not None and slot.kafka.link.is_cut)
    ]


def _ready(world: KafkaWorld) -> list[Slot]:
    return [slot for slot in _up(world) if slot.task is not None and slot.task.done()]


def _revive(world: KafkaWorld, slot: Slot) -> None:
    if slot.process is None:
        world.start(slot)


def kill(world: KafkaWorld, random: Random) -> None:
    """A node dies, at times with its disk, and is started again; at times at once, at times after its session."""
    alive = [slot for slot in world.slots.values() if slot.process is not None]
    slot = random.choice(alive)
    world.kill(slot, empty=random.random() < 0.5)
    world.loop.call_later(random.choice([0.05, 1.0, SESSION_SECONDS * 1.5]), _revive, world, slot)


def stop(world: KafkaWorld, random: Random) -> None:
    """A node is stopped in order, and started again."""
    if not (ready := _ready(world)):
        return
    slot = random.choice(ready)
    world.stop(slot)
    world.loop.call_later(random.random(), _revive, world, slot)


def _wake(world: KafkaWorld, slot: Slot) -> None:
    if slot.still:
        world.go_on(slot)


def stand_still(world: KafkaWorld, random: Random) -> None:
    """A node's process stands still, for less than its session or for more."""
    if not (up := _up(world)):
        return
    slot = random.choice(up)
    world.stand_still(slot)
    world.loop.call_later(SESSION_SECONDS * random.choice([0.1, 0.5, 0.9, 1.1, 2.0]), _wake, world, slot)


def cut_off(world: KafkaWorld, random: Random) -> None:
    """A node and the cluster do not reach each other; afterwards all of it arrives, or nothing."""
    if not (up := [slot for slot in _up(world) if slot.kafka is not None]):
        return
    slot = random.choice(up)
    world.cut(slot)
    reset, kafka = random.random() < 0.5, slot.kafka

    def heal() -> None:
        if slot.kafka is kafka:
            world.heal(slot, reset=reset)

    world.loop.call_later(SESSION_SECONDS * random.choice([0.05, 0.3, 0.9, 1.2, 2.0]), heal)


def reset_links(world: KafkaWorld, random: Random) -> None:
    """Connections to the cluster break: questions are lost, and answers."""
    for slot in world.slots.values():
        if slot.kafka is not None and random.random() < 0.6:
            world.cut(slot)
            world.heal(slot, reset=True)


def restart_kafka(world: KafkaWorld, random: Random) -> None:
    """The cluster is killed, and started again."""
    if world.kafka.down:
        return
    world.stop_kafka()
    world.loop.call_later(random.choice([0.1, 1.0, SESSION_SECONDS * 1.2]), _start_kafka, world)


def _start_kafka(world: KafkaWorld) -> None:
    if world.kafka.down:
        world.start_kafka()


def reset_clients(world: KafkaWorld, random: Random) -> None:
    """Connections of clients break."""
    world.network.reset_some(0.5)


def transact(world: KafkaWorld, random: Random) -> None:
    """Another program writes in a transaction, which stays open for a while."""
    name, commit = f"t{random.random()}", random.random() < 0.6
    for _ in range(random.randrange(1, 12)):
        world.append_plainly(transaction=name)
    world.loop.call_later(random.random() * 2, lambda: world.end_transaction(name, commit=commit))


def compact(world: KafkaWorld, random: Random) -> None:
    """The cluster compacts, behind and in front of who reads."""
    world.compact()


def compact_waiting(world: KafkaWorld, random: Random) -> None:
    """The cluster compacts the topic in which messages wait."""
    for partition in world.kafka.topics.get(WAITING_TOPIC, ()):
        partition.compact()


def widen(world: KafkaWorld, random: Random) -> None:
    """A topic gets a partition more."""
    world.widen("events")


def go_back(world: KafkaWorld, random: Random) -> None:
    """A log loses its end, as by an unclean election, and goes on, at times beyond where it was."""
    place = KafkaPartition("shaky", random.randrange(SHAKY["shaky"]))
    partition = world.kafka.found(place)
    if partition is None:
        return
    world.kafka.cut(place, random.randrange(partition.high + 1))
    world.loop.call_later(random.choice([0.0, 0.5, 2.5]), _fill, world, random.randrange(1, 40))


def _fill(world: KafkaWorld, count: int) -> None:
    for _ in range(count):
        world.append_shaky()


def make_again(world: KafkaWorld, random: Random) -> None:
    """A topic is deleted, and created again, at times before anybody looks."""
    if "shaky" not in world.kafka.topics or world.kafka.down:
        return
    world.kafka.delete("shaky")

    def again() -> None:
        if world.kafka.deleted:
            world.kafka.make_again("shaky")
            _fill(world, random.randrange(1, 40))

    world.loop.call_later(random.choice([0.3, 1.5, 3.0]), again)


def end_producers(world: KafkaWorld, random: Random) -> None:
    """Every producer ends by a fatal error, and so do those that take their places, for a while."""
    failure = KafkaFailure("FATAL", "out of order", unknown=True)
    world.kafka.producers_denied = failure
    for slot in world.slots.values():
        for producer in slot.kafka.producers if slot.kafka is not None else ():
            producer.fail(failure)
    world.loop.call_later(random.random() * 2, lambda: setattr(world.kafka, "producers_denied", None))


def lose_coordinator(world: KafkaWorld, random: Random) -> None:
    """The members of a group find its coordinator no more, on all nodes that run."""
    group = random.choice([*GROUPS, SHAKEN])
    for slot in _up(world):
        for member in slot.kafka.members if slot.kafka is not None else ():
            if member.group_name == group and not member.dead:
                world.member_stands(slot, member)


def lose_owners_coordinator(world: KafkaWorld, random: Random) -> None:
    """Those who own what waits find their coordinator no more, on all nodes, nor do some that join in their place."""
    seen: set[SimMember] = set()
    until = world.loop.time() + random.choice([1.0, 40.0])

    def look() -> None:
        for slot in _up(world):
            for member in slot.kafka.members if slot.kafka is not None else ():
                if member.group_name == WAITING_TOPIC and member not in seen:
                    seen.add(member)
                    member.stands = random.random() < 0.8
        if world.loop.time() < until:
            world.loop.call_later(0.05, look)

    look()


def limit_sizes(world: KafkaWorld, random: Random) -> None:
    """A dead-letter topic takes only what is small, for a while."""
    topic = f"{random.choice(GROUPS)}.DLQ"
    world.kafka.limits[topic] = random.choice([0, 30])
    world.loop.call_later(random.random() * 3, lambda: world.kafka.limits.pop(topic, None))


FAULTS: dict[str, Fault] = {
    each.__name__: each
    for each in (
        kill,
        stop,
        stand_still,
        cut_off,
        reset_links,
        restart_kafka,
        reset_clients,
        transact,
        compact,
        widen,
        go_back,
        make_again,
        end_producers,
        lose_coordinator,
        limit_sizes,
    )
}
"""Of every run."""
ALL_FAULTS: dict[str, Fault] = {
    **FAULTS,
    **{each.__name__: each for each in (compact_waiting, lose_owners_coordinator)},
}
"""With those of runs in which messages wait."""
