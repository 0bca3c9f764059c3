"""The kinds of faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

from pyddmq.testing import NetworkFaults, SimTransport
from pyddmq.testing.sim_disk import CRASH_MODES, PowerCut
from tests.simulation.clients import Consumer, ProducerHabits
from tests.simulation.ends import end_again
from tests.simulation.ledger import PromiseBroken
from tests.simulation.operator import operate, pause_group, reset_offsets
from tests.simulation.timer_changes import change_timers
from tests.simulation.topic_goes import lose_topic
from tests.simulation.world import AWAITS, BLOCKS, World

ROUGH = NetworkFaults(delay_ms_max=30, fragment_share=0.8, join_share=0.5, reset_share=0.01, window_bytes=2_048)
NODE_DOWN_SECONDS = 0.4


def kill(world: World, random: Random) -> None:
    """SIGKILL and start again."""
    world.kill()
    world.run(seconds=random.random() * NODE_DOWN_SECONDS)
    world.start()


def lose_power(world: World, random: Random) -> None:
    """Power loss: what was not synced is gone, in part or torn."""
    world.kill(power=True)
    world.run(seconds=random.random() * NODE_DOWN_SECONDS)
    world.start()


def cut_within(world: World, random: Random, *, log_only: bool = False) -> None:
    """Cut the power, or kill, in place of some write, sync or rename; half of a write may have happened.

    `log_only`: cut the power, around a write to the log.
    """
    world.cutting = True
    world.disk.stop_after(random.randrange(6 if log_only else 30), path_part="commitlog" if log_only else "")
    world.run(seconds=5, until=lambda: bool(world.loop.errors))
    if any(not isinstance(error.get("exception"), PowerCut) for error in world.loop.errors):
        raise PromiseBroken(0, str(world.loop.errors))
    world.kill(power=log_only or random.random() < 0.5, left=("sectors",) if log_only else CRASH_MODES)
    world.loop.errors.clear()
    world.cutting = False
    world.run(seconds=random.random() * NODE_DOWN_SECONDS)
    world.start()


def kill_twice(world: World, random: Random) -> None:
    """SIGKILL, and again while the node recovers or has just begun to serve."""
    world.kill()
    if random.random() < 0.5:
        _, task = world.begin()
        world.run(until=task.done, seconds=random.random() * 0.3)
    else:
        world.start()
        world.run(seconds=random.random() * 0.02)
    kill(world, random)


def stop(world: World, random: Random) -> None:
    """SIGTERM: drain, close, start again."""
    world.stop()
    world.run(seconds=random.random() * NODE_DOWN_SECONDS)
    world.start()


def fail_sync(world: World, random: Random) -> None:
    """EIO from the next sync: the node stops acknowledging; then it is killed, perhaps with the power."""
    world.disk.fail("sync", skip=random.randrange(4))
    _ride_out(world, random, synced=False)


def fail_write(world: World, random: Random) -> None:
    """EIO from the next write: likewise."""
    world.disk.fail("write", skip=random.randrange(6))
    _ride_out(world, random, synced=True)


def fill_disk(world: World, random: Random) -> None:
    """ENOSPC for some seconds: publishes are refused, deliveries and acks go on; then there is space again."""
    before = world.report.events["delivered"]
    # A fault may come before the first clients.
    deliverable = world.report.published and any(isinstance(each, Consumer) for each in world.clients)
    world.disk.capacity_bytes = 0
    producers = ProducerHabits(pause_seconds=0.02, batch_share=0.9)
    filler = world.add_producer(producers)
    world.run(seconds=2 + random.random())
    world.disk.capacity_bytes = None
    filler.stopped = True
    if deliverable and world.report.events["delivered"] == before:
        raise PromiseBroken(6, "with a full disk nothing was delivered any more")


def step_clock(world: World, random: Random) -> None:
    """Step the wall clock by up to an hour, either way."""
    world.step_clock(random.randrange(-3_600_000, 3_600_000))


def reset_connections(world: World, random: Random) -> None:
    """Cut half of all connections."""
    world.network.reset_some(0.5)


def roughen_network(world: World, random: Random) -> None:
    """Delays, fragments, small windows and resets in the middle of replies, for a while."""
    world.network.faults = ROUGH
    world.run(seconds=0.5 + random.random())
    world.network.faults = NetworkFaults()


def stall_readers(world: World, random: Random) -> None:
    """Clients that do not read their replies for a while, over narrow windows."""
    world.network.faults = NetworkFaults(window_bytes=300)
    consumers = [client for client in world.clients if isinstance(client, Consumer)]
    for consumer in consumers:
        consumer.habits.stall_share = 0.3
    world.run(seconds=1.5)
    for consumer in consumers:
        consumer.habits.stall_share = 0.0
    world.network.faults = NetworkFaults()


def reload_limits(world: World, random: Random) -> None:
    """Reload with other limits of one group; they take effect live (D22)."""

    def change(settings: dict[str, Any]) -> None:
        for topic in settings["groups"][2]["topics"]:
            topic["maxPullBatchSize"] = random.randrange(1, 20)
            topic["concurrency"] = random.randrange(1, 100)
            topic["retryIntervals"] = [random.randrange(200)]

    _accepted(world, change)


def reload_generation(world: World, random: Random) -> None:
    """Reload with other actions of one group: a new generation of its subscriptions (D22)."""

    def change(settings: dict[str, Any]) -> None:
        for topic in settings["groups"][2]["topics"]:
            ways = [["PullServer"], ["NonBlockAsync", "PullServer"], ["Async", "PullServer"]]
            if world.waits:
                ways += [[AWAITS, "PullServer"], ["Async", BLOCKS, "PullServer"]]
            topic["actions"] = random.choice(ways)
            topic["pressureTraffic"] = random.random() < 0.5

    _accepted(world, change)


def reload_refused(world: World, random: Random) -> None:
    """Reload with something that must be refused, and leave everything as it is."""

    def unknown_action(settings: dict[str, Any]) -> None:
        settings["groups"][0]["topics"][0]["actions"] = ["Asink", "PullServer"]

    def fewer_queues(settings: dict[str, Any]) -> None:
        settings["topics"]["orders"]["queues"] = 1

    def other_port(settings: dict[str, Any]) -> None:
        settings["node"]["producerPort"] = 9_999

    def no_json(settings: dict[str, Any]) -> None:
        settings["groups"][1]["topics"][0]["actions"] = ["Async", "PullServer"]

    before = world.config
    result = world.reload(random.choice([unknown_action, fewer_queues, other_port, no_json]))
    if result.accepted or not result.problems or world.config is not before:
        raise PromiseBroken(7, f"a bad reload was taken: {result}")


def attack(world: World, random: Random) -> None:
    """Send garbage on both ports; only the connections that carry it may suffer."""
    attackers = []
    for port in (9613, 9713):
        for garbage in (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x7f\xff\xff\xff" + bytes(100),
            b"\xff\xff\xff\xff",
            b"\x00\x00\x00\x00",
            b"\x80\x01\x00\x01\x00\x00\x00\x04pull",
            b"\x00\x00\x00\x40" + random.randbytes(64),
            b"\x00\x00\x00\x0c\x82\x21\x01\x04pull\x1c\x18\xff\xff",
            b"\x00\x00\x00",
        ):
            attackers.append(_Attacker(garbage))
            world.network.connect(attackers[-1], ("127.0.0.1", port), host="10.66.6.6")
    world.run(seconds=1)
    for attacker in attackers:
        attacker.leave()


FAULTS: dict[str, Callable[[World, Random], None]] = {
    "kill": kill,
    "lose_power": lose_power,
    "cut_within": cut_within,
    "kill_twice": kill_twice,
    "stop": stop,
    "fail_sync": fail_sync,
    "fail_write": fail_write,
    "fill_disk": fill_disk,
    "step_clock": step_clock,
    "reset_connections": reset_connections,
    "roughen_network": roughen_network,
    "stall_readers": stall_readers,
    "reload_limits": reload_limits,
    "reload_generation": reload_generation,
    "reload_refused": reload_refused,
    "attack": attack,
    "pause_group": pause_group,
    "operate": operate,
    "change_timers": change_timers,
}
SELDOM: dict[str, Callable[[World, Random], None]] = {
    "reset_offsets": reset_offsets,
    "end_again": end_again,
    "lose_topic": lose_topic,
}
"""Those that some seeds have besides."""


def _ride_out(world: World, random: Random, *, synced: bool) -> None:
    """Run into a disk error, stay with the failed node for a moment, then kill it.

    `synced`: whether what was acknowledged before the error must become durable all the same.
    """
    world.run(seconds=5, until=lambda: world.node is not None and world.node.state == "failed")
    world.failed_at = failed_at = world.loop.time()
    world.run(seconds=random.random())
    world.disk.heal()
    world.kill(power=random.random() < 0.5, failed_at=None if synced else failed_at)
    world.run(seconds=random.random() * NODE_DOWN_SECONDS)
    world.start()


def _accepted(world: World, change: Callable[[dict[str, Any]], None]) -> None:
    result = world.reload(change)
    if not result.accepted:
        raise PromiseBroken(7, f"a good reload was refused: {result.problems}")


class _Attacker(asyncio.Protocol):
    """Sends bytes that are no call, and listens to what comes back."""

    def __init__(self, garbage: bytes) -> None:
        self._garbage = garbage
        self._transport: SimTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("SimTransport", transport)
        self._transport.write(self._garbage)

    def leave(self) -> None:
        """Go away, if the node has not closed the connection yet."""
        if self._transport is not None:
            self._transport.abort()
