"""A whole node whose log files go while it works: limits by reload, losses by group, kills in between."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from broker.retention import RetentionLimits
from broker.runtime.sealed_file import SealedFile
from broker.runtime.store_metrics import CHECKPOINTS
from proxy.node.assembly import retention_limits
from proxy.node.reload import Reloader
from proxy.node.trouble_facts import ConfigurationView
from proxy.operate.attention.troubles import troubles_of
from proxy.operate.live_node import LiveNode
from proxy.operate.views.changes import LossesAnswer
from pyddmq.testing import NetworkFaults
from tests.insides import opened_of
from tests.simulation.clients import PERFECT, Consumer, ProducerHabits
from tests.simulation.world import DATA, World
from upstream.retention_losses import MESSAGES_EXPIRED

SEGMENT_BYTES = 131_072


def files(world: World) -> list[str]:
    """Names of the log's files."""
    return world.disk.list(f"{DATA}/commitlog")


def limit(world: World, **settings: Any) -> None:
    """Reload with settings of the node."""
    assert world.reload(lambda wanted: wanted["node"].update(settings), accept_loss=True).accepted


def filled(seed: int, *, segments: int = 6) -> World:
    """A node with some log files of messages that no group was given."""
    world = World(seed, faults=NetworkFaults())
    node = world.start()
    for _ in range(3):
        world.add_producer(ProducerHabits())
    assert world.run(until=lambda: opened_of(node).store.end > segments * SEGMENT_BYTES, seconds=600)
    for client in world.clients:
        client.stopped = True
    world.run(seconds=15)
    return world


def test_limits_hold_from_the_reload_on() -> None:
    """Each of the four settings reaches the store; 0 and null are no limit."""
    world = World(1, faults=NetworkFaults())
    node = world.start()
    assert opened_of(node).store.retention.limits == RetentionLimits(age_ms=72 * 3_600_000)
    limit(world, retentionHours=0.5, retentionBytes=10**9, retentionDiskRatio=0.8, retentionDiskRatioForced=0.99)
    assert opened_of(node).store.retention.limits == RetentionLimits(
        age_ms=1_800_000, log_bytes=10**9, disk_ratio=0.8, disk_ratio_forced=0.99
    )
    limit(world, retentionHours=None, retentionBytes=None, retentionDiskRatio=None)
    assert opened_of(node).store.retention.limits == RetentionLimits()


def test_node_keeps_its_log_below_the_limit_and_groups_go_on() -> None:
    """Old files go by themselves; groups lose what they were never given, counted, and get everything that is kept."""
    world = filled(2)
    node = world.node
    assert node is not None
    before = len(files(world))
    limit(world, retentionBytes=3 * SEGMENT_BYTES)
    world.run(seconds=30)
    assert len(files(world)) <= 3 < before
    assert node.runtime.metrics.value("pyddmq_retention_files_total", "size") >= before - 3
    for group in ("by-key", "by-path", "free"):
        assert node.runtime.metrics.value(MESSAGES_EXPIRED, group) > 0
        world.add_consumer(group, PERFECT)
    assert world.run(until=lambda: not world.lag(), seconds=300)
    assert node.failure is None
    world.stop()


def test_full_disk_gets_room_from_old_files() -> None:
    """Without a byte for a checkpoint no file may go: what is set aside makes room for one, and is set aside anew."""
    world = World(5, faults=NetworkFaults())
    node = world.start()
    world.disk.capacity_bytes = world.disk.total_bytes(DATA) - world.disk.free_bytes(DATA) + 6 * SEGMENT_BYTES
    for _ in range(6):
        world.add_producer(ProducerHabits(pause_seconds=0.005, batch_share=0.9))
    assert world.run(until=lambda: opened_of(node).store.segment_space.refuses, seconds=9)
    for client in world.clients:
        client.stopped = True
    world.disk.capacity_bytes = 0
    world.disk.capacity_bytes = world.disk.total_bytes(DATA)
    before = files(world)
    assert node.runtime.metrics.value(CHECKPOINTS) == 1
    limit(world, retentionBytes=2 * SEGMENT_BYTES)
    world.run(seconds=30)
    assert files(world)[0] > before[0]
    assert node.runtime.metrics.value(CHECKPOINTS) > 1
    assert opened_of(node).store.segment_space.reserve_bytes == SEGMENT_BYTES
    world.add_producer(ProducerHabits(pause_seconds=1.0))
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group, PERFECT)
    end = opened_of(node).store.end
    assert world.run(until=lambda: opened_of(node).store.end > end, seconds=60)
    world.clients[6].stopped = True
    assert world.run(until=lambda: not world.lag(), seconds=300)
    assert node.failure is None
    world.stop()


def test_age_takes_files_while_the_node_runs() -> None:
    """A file goes when its last message has the configured age, not before; the newest stays."""
    world = filled(3)
    limit(world, retentionHours=0.1)
    there = len(files(world))
    world.run(seconds=300)
    assert len(files(world)) == there
    world.run(seconds=100)
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
        assert opened_of(node).store.recovery.holes == ()
    for client in world.clients[3:]:
        assert isinstance(client, Consumer)
        client.habits = PERFECT
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group, PERFECT)
    assert world.run(until=lambda: not world.lag(), seconds=600)
    assert node.failure is None
    world.stop()


def test_smaller_limit_is_refused_while_a_group_would_lose_messages() -> None:
    """The refusal counts them by group; a restart keeps the old limit, with a finding; a confirmation deletes."""
    world = filled(6)
    before = files(world)
    result = world.reload(lambda wanted: wanted["node"].update(retentionBytes=3 * SEGMENT_BYTES))
    [problem] = result.problems
    assert "simulated.yaml:" in problem
    assert "node.retentionBytes" in problem
    assert " of group by-key" in problem
    assert "--accept-loss" in problem
    assert world.node is not None
    view = LiveNode(world.node, Reloader(world.node, lambda: world.load({})))
    for given in ({"retentionBytes": str(3 * SEGMENT_BYTES)}, {"topic": "orders"}):
        losses = view.losses(given)
        assert losses is not None
        assert "of group by-key" in losses.sentence
    assert view.losses({"retentionBytes": ""}) == LossesAnswer(groups=[])
    for wrong in ("much", "inf", "-inf", "nan", "1e308", "-1"):
        for name in ("retentionHours", "retentionBytes", "retentionDiskRatioForced"):
            with pytest.raises(ValueError, match=f"invalid {name} '{wrong}'; pass a number"):
                view.losses({name: wrong})
    world.run(seconds=30)
    assert files(world) == before
    world.config = world.config.model_copy(
        update={"node": world.config.node.model_copy(update={"retention_bytes": 3 * SEGMENT_BYTES})}
    )
    world.stop()
    node = world.start()
    world.run(seconds=30)
    assert files(world)[0] == before[0]
    waiting = troubles_of(node, ConfigurationView()).retention_waits
    assert waiting is not None
    assert waiting["by-key"] > 0
    limit(world, retentionBytes=3 * SEGMENT_BYTES)
    world.run(seconds=30)
    assert len(files(world)) <= 3
    assert troubles_of(node, ConfigurationView()).retention_waits is None
    world.stop()


def test_smaller_limit_holds_by_itself_once_the_groups_have_finished() -> None:
    """A limit that waits since the start comes into force when no group would lose a message."""
    world = filled(7)
    world.config = world.config.model_copy(
        update={"node": world.config.node.model_copy(update={"retention_bytes": 3 * SEGMENT_BYTES})}
    )
    world.stop()
    node = world.start()
    retention = opened_of(node).store.retention
    assert retention.limits == RetentionLimits(age_ms=72 * 3_600_000)
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group, PERFECT)
    assert world.run(until=lambda: not world.lag(), seconds=300)
    world.run(seconds=60)
    assert retention.limits == RetentionLimits(age_ms=72 * 3_600_000, log_bytes=3 * SEGMENT_BYTES)
    assert len(files(world)) <= 3
    assert not any(node.runtime.metrics.value(MESSAGES_EXPIRED, group) for group in ("by-key", "by-path", "free"))
    world.stop()


def test_loss_that_is_accepted_in_a_refused_reload_deletes_nothing() -> None:
    """A reload is all or nothing: the limits that wait stay out of force when another key of the file is refused."""
    world = filled(8)
    world.config = world.config.model_copy(
        update={"node": world.config.node.model_copy(update={"retention_bytes": 3 * SEGMENT_BYTES})}
    )
    world.stop()
    node = world.start()
    before = files(world)

    def change(wanted: dict[str, Any]) -> None:
        wanted["node"].update(retentionBytes=3 * SEGMENT_BYTES, backlog=7)

    assert not world.reload(change, accept_loss=True).accepted
    world.run(seconds=30)
    assert files(world) == before
    assert troubles_of(node, ConfigurationView()).retention_waits
    world.stop()


def test_limits_wait_where_nothing_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable queue file refuses the reload with its reason; limits that wait go on waiting, with a finding."""
    world = filled(9)
    assert world.node is not None
    retaining = opened_of(world.node).retaining

    def unreadable(*_: object) -> dict[str, int]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(retaining._expiry, "unfinished_below", unreadable)
    before = files(world)
    [problem] = world.reload(lambda wanted: wanted["node"].update(retentionBytes=3 * SEGMENT_BYTES)).problems
    assert "cannot be counted ([Errno 5] Input/output error); run `pyddmq reload --accept-loss`" in problem
    retaining.begin(RetentionLimits(log_bytes=3 * SEGMENT_BYTES))
    world.run(seconds=60)
    assert files(world) == before
    assert troubles_of(world.node, ConfigurationView()).retention_waits == {}
    world.kill()


@pytest.mark.parametrize("limits", [None, {}, {"age_ms": 1}, {"age_ms": "1", "log_bytes": None}])
def test_limits_of_a_file_that_holds_something_else_are_not_taken(limits: object) -> None:
    """The configured ones hold, and the log says why; the file is rewritten."""
    world = filled(10)
    world.stop()
    full = {"age_ms": None, "log_bytes": None, "disk_ratio": None, "disk_ratio_forced": None}
    kept = {"limits": {**full, **limits} if isinstance(limits, dict) and len(limits) > 1 else limits}
    file = SealedFile(world.disk, f"{DATA}/pyddmq/retention.json")
    file.save(kept)
    node = world.start()
    assert opened_of(node).store.retention.limits == retention_limits(node.in_force.config.node)
    world.run(seconds=3)
    assert file.load()["limits"] == asdict(opened_of(node).store.retention.limits)
    world.stop()
