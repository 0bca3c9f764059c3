"""A whole node whose log files go while it works: limits by reload, losses by group, kills in between."""

from __future__ import annotations

from typing import Any

import pytest

from broker.retention import RetentionLimits
from broker.runtime.store_metrics import CHECKPOINTS
from pyddmq.testing import NetworkFaults
from tests.simulation.clients import PERFECT, Consumer, ProducerHabits
from tests.simulation.world import DATA, World
from upstream.losses import MESSAGES_EXPIRED

SEGMENT_BYTES = 131_072


def files(world: World) -> list[str]:
    """Names of the log's files."""
    return world.disk.list(f"{DATA}/commitlog")


def limit(world: World, **settings: Any) -> None:
    """Reload with settings of the node."""
    assert world.reload(lambda wanted: wanted["node"].update(settings)).accepted


def filled(seed: int, *, segments: int = 6) -> World:
    """A node with some log files of messages that no group was given."""
    world = World(seed, faults=NetworkFaults())
    node = world.start()
    for _ in range(3):
        world.add_producer(ProducerHabits())
    assert world.run(until=lambda: node.store.end > segments * SEGMENT_BYTES, seconds=600)
    for client in world.clients:
        client.stopped = True
    world.run(seconds=15)
    return world


def test_limits_hold_from_the_reload_on() -> None:
    """Each of the four settings reaches the store; 0 and null are no limit."""
    world = World(1, faults=NetworkFaults())
    node = world.start()
    assert node.store.retention.limits == RetentionLimits(age_ms=72 * 3_600_000)
    limit(world, retentionHours=0.5, retentionBytes=10**9, retentionDiskRatio=0.8, retentionDiskRatioForced=0.99)
    assert node.store.retention.limits == RetentionLimits(
        age_ms=1_800_000, log_bytes=10**9, disk_ratio=0.8, disk_ratio_forced=0.99
    )
    limit(world, retentionHours=None, retentionBytes=None, retentionDiskRatio=None)
    assert node.store.retention.limits == RetentionLimits()


def test_node_keeps_its_log_below_the_limit_and_groups_go_on() -> None:
    """Old files go by themselves; groups lose what they were never given, counted, and get everything that is kept."""
    world = filled(2)
    node = world.node
    assert node is not None
    before = len(files(world))
    limit(world, retentionBytes=3 * SEGMENT_BYTES)
    world.run(seconds=30)
    assert len(files(world)) <= 3 < before
    assert node.metrics.value("pyddmq_retention_files_total", "size") >= before - 3
    for group in ("by-key", "by-path", "free"):
        assert node.metrics.value(MESSAGES_EXPIRED, group) > 0
        world.add_consumer(group, PERFECT)
    assert world.run(until=lambda: not world._lag(), seconds=300)
    assert node.failure is None
    world.stop()


def test_full_disk_gets_room_from_old_files() -> None:
    """Without a byte for a checkpoint no file may go: what is set aside makes room for one, and is set aside anew."""
    world = World(5, faults=NetworkFaults())
    node = world.start()
    world.disk.capacity_bytes = world.disk.total_bytes(DATA) - world.disk.free_bytes(DATA) + 6 * SEGMENT_BYTES
    for _ in range(6):
        world.add_producer(ProducerHabits(pause_seconds=0.005, batch_share=0.9))
    assert world.run(until=lambda: node.store.segment_space.refuses, seconds=9)
    for client in world.clients:
        client.stopped = True
    world.disk.capacity_bytes = 0
    world.disk.capacity_bytes = world.disk.total_bytes(DATA)
    before = files(world)
    assert node.metrics.value(CHECKPOINTS) == 1
    limit(world, retentionBytes=2 * SEGMENT_BYTES)
    world.run(seconds=30)
    assert files(world)[0] > before[0]
    assert node.metrics.value(CHECKPOINTS) > 1
    assert node.store.segment_space.reserve_bytes == SEGMENT_BYTES
    world.add_producer(ProducerHabits(pause_seconds=1.0))
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group, PERFECT)
    end = node.store.end
    assert world.run(until=lambda: node.store.end > end, seconds=60)
    world.clients[6].stopped = True
    assert world.run(until=lambda: not world._lag(), seconds=300)
    assert node.failure is None
    world.stop()


def test_age_takes_files_while_the_node_runs() -> None:
    """A file goes when its last message has the configured age, not before; the newest stays."""
    world = filled(3)
    limit(world, retentionHours=1)
    there = len(files(world))
    world.run(seconds=3_000)
    assert len(files(world)) == there
    world.run(seconds=1_000)
    assert 1 <= len(files(world)) <= 2
    world.stop()


@pytest.mark.parametrize("power", [False, True])
def test_kills_while_files_go_leave_a_node_that_starts(power: bool) -> None:
    """Killed again and again while retention works with clients about: every start is sound, and the lag ends."""
    world = filled(4)
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group)
    for segments in (5, 4, 3, 2):
        limit(world, retentionBytes=segments * SEGMENT_BYTES)
        world.run(seconds=world.disk_random.random() * 4)
        world.kill(power=power)
        node = world.start()
        assert node.store.recovery.holes == ()
    for client in world.clients[3:]:
        assert isinstance(client, Consumer)
        client.habits = PERFECT
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group, PERFECT)
    assert world.run(until=lambda: not world._lag(), seconds=600)
    assert node.failure is None
    world.stop()
