"""Caches of waiting messages that cannot be made, filled or read: their log is the truth, and others are there."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.runtime.disk import RealDisk
from tests.waiting_world import WaitingWorld
from upstream.kafka.waiting.cache import PartitionCache
from upstream.kafka.waiting.rows import CachedRecord


class FullDisk(RealDisk):
    """One without space for a folder, for a while."""

    full = True

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Refuse it."""
        if self.full:
            raise OSError(28, "No space left on device")
        super().make_folder(path, durable=durable)


def test_node_without_space_for_a_cache_leaves_its_partitions_to_others(tmp_path: Path) -> None:
    """With a finding; it takes part again when there is space."""
    world = WaitingWorld(nodes=0)
    disk = FullDisk()
    full = world.start("full", folder=str(tmp_path), disk=disk)
    other = world.start("other")
    for number in range(9):
        world.run(5)
        other.add(f"m{number}", world.now_ms + 1_000)
    world.run(15)
    assert any("No space left on device" in each for each in full.waiting.troubles())
    assert len(world.delivered()) == 9
    disk.full = False
    world.run(60)
    assert full.served
    assert full.waiting.troubles() == []


@pytest.mark.parametrize("others", [0, 1])
def test_owner_whose_cache_finds_no_space_for_messages_that_come_loses_none(
    others: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so and leaves its partitions, to others or until there is space; each message is delivered once."""
    pages, connect = [25], sqlite3.connect

    def connected(path: str) -> sqlite3.Connection:
        database = connect(path)
        if path.startswith(str(tmp_path)) and pages:
            database.execute(f"PRAGMA max_page_count = {pages[0]}")
        return database

    monkeypatch.setattr("upstream.kafka.waiting.cache.sqlite3.connect", connected)
    world = WaitingWorld(nodes=0, partitions=4)
    full = world.start("full", folder=str(tmp_path), disk=RealDisk())
    world.settle()
    for number in range(others):
        world.start(f"other{number}")
    with capture_logs() as logs:
        for number in range(400):
            full.add(f"m{number}", world.now_ms + 2_000 + 100 * number, body=b"%d" % number + b" " * 1_000)
        world.run(30, step=0.05)
        assert any("database or disk is full" in each for each in full.waiting.troubles())
    assert {each["error"] for each in logs if each["event"] == "kafka_waiting_cache_failed"} == {
        "database or disk is full"
    }
    pages.clear()
    world.run(90, step=0.05)
    assert (len(world.added), [len(moments) for moments in world.delivered().values()]) == (400, [1] * 400)
    assert full.served
    assert full.waiting.troubles() == []


def test_node_whose_caches_cannot_be_made_anew_takes_none_of_what_it_is_assigned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The space was there when the files were opened; another node serves all partitions."""
    connect, opened = sqlite3.connect, set[str]()

    def connected(path: str) -> sqlite3.Connection:
        if path.startswith(str(tmp_path)) and path in opened:
            raise sqlite3.OperationalError("database or disk is full")
        opened.add(path)
        return connect(path)

    monkeypatch.setattr("upstream.kafka.waiting.cache.sqlite3.connect", connected)
    world = WaitingWorld(nodes=0)
    full = world.start("full", folder=str(tmp_path), disk=RealDisk())
    world.run(10)
    assert full.served == []
    assert any("database or disk is full" in each for each in full.waiting.troubles())
    other = world.start("other")
    world.run(10)
    other.add("a", world.now_ms + 1_000)
    world.run(10)
    assert len(world.delivered()) == 1


def test_node_whose_caches_cannot_be_read_leaves_its_partitions_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a finding; nothing waits for that node."""
    world = WaitingWorld(nodes=2, partitions=4)
    world.settle()
    bad = [owner.cache for owner in world.nodes[0].waiting.owners.values()]
    due = PartitionCache.due

    def failing(self: PartitionCache, *given: Any, **more: Any) -> list[CachedRecord]:
        if self in bad:
            raise sqlite3.OperationalError("disk I/O error")
        return due(self, *given, **more)

    monkeypatch.setattr(PartitionCache, "due", failing)
    for number in range(20):
        world.nodes[1].add(f"m{number}", world.now_ms + 1_000)
    for _ in range(200):
        with contextlib.suppress(sqlite3.OperationalError):
            world.run(0.1)
    assert len(world.delivered()) == 20
    assert all(len(moments) == 1 for moments in world.delivered().values())


@pytest.mark.parametrize("first", [4_096, 20_480, 40_960])
def test_damaged_pages_of_a_cache_cost_a_look_through_the_log(first: int, tmp_path: Path) -> None:
    """Also where no other node is there to take the partition over."""
    world = WaitingWorld(nodes=0, partitions=1)
    node = world.start("n", folder=str(tmp_path), disk=RealDisk())
    world.settle()
    for number in range(300):
        node.add(f"m{number}", world.now_ms + 60_000)
    world.run(2)
    node.kill()
    [path] = tmp_path.glob("*.db")
    data = bytearray(path.read_bytes())
    data[first : first + 40_960] = b"\xa5" * len(data[first : first + 40_960])
    path.write_bytes(data)
    node = world.start("n", folder=str(tmp_path), disk=RealDisk())
    world.run(150, step=0.05)
    assert (node.served, node.waiting.troubles()) == ([0], [])
    assert [len(moments) for moments in world.delivered().values()] == [1] * 300
