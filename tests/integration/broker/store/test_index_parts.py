"""Which files of an index are believed at a start, which stretch of the log a gap stands for, and what is searched."""

from __future__ import annotations

from typing import Any

import pytest

from broker.index.file import IndexFile
from broker.index.parts import IndexGap, IndexParts
from broker.index.state import IndexState, SavedIndex
from broker.options import StoreOptions
from broker.query import by_key
from broker.runtime.bundle import runtime_of
from broker.runtime.file_writes import at_once
from broker.runtime.metrics import Metrics
from broker.store import Store
from broker.tools.check import StoreCheck
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.index_tools import FOLDER, REBUILT, Model, filled, names
from tests.integration.store_tools import ROOT, open_store


class World:
    """An index of several files that was closed."""

    def __init__(self) -> None:
        self.disk, self.clock, self.metrics = SimDisk(), ManualClock(), Metrics()
        self.log = filled(self.disk, self.clock, Model()).index.log
        saved = IndexState(ROOT, disk=self.disk).load()
        assert saved is not None
        self.saved: SavedIndex = saved
        self.names = names(self.disk)
        assert len(self.names) > 4

    def parts(self, **options: Any) -> IndexParts:
        """Return parts that have not looked at the folder."""
        return IndexParts(
            FOLDER,
            log=self.log,
            options=StoreOptions(index_slots=7, index_entries=12),
            runtime=runtime_of(self.disk, self.clock, metrics=self.metrics),
            **{"read_only": False, **options},
        )

    def taken(
        self, saved: SavedIndex | None, *, clean: bool = True, index_ms: int = 1 << 60, **options: Any
    ) -> IndexParts:
        """Return parts after their look."""
        parts = self.parts(**options)
        parts.take_stock(saved, clean=clean, index_ms=index_ms)
        return parts


def kinds(parts: IndexParts) -> str:
    """A letter for each part, the oldest first: a file, or a gap."""
    return "".join("f" if isinstance(part, IndexFile) else "-" for part in parts.all)


def test_what_was_saved_and_is_the_same_is_believed() -> None:
    """All of it, in the order of the log, and nothing is to be saved anew."""
    world = World()
    parts = world.taken(world.saved)
    assert kinds(parts) == "f" * len(world.names)
    assert [part.name for part in parts.all] == sorted(world.names)
    assert (parts.changed, parts.names_changed) == (False, False)
    assert parts.last is parts.files[-1]


def test_file_that_nobody_else_wrote_is_left_alone() -> None:
    """What has no name of an index file is neither searched nor deleted."""
    world = World()
    world.disk.open(f"{FOLDER}/notes.txt", create=True).write(0, [b"mine"])
    parts = world.taken(world.saved)
    assert len(parts.all) == len(world.names)
    assert "notes.txt" in names(world.disk)


@pytest.mark.parametrize("which", [0, 2])
def test_missing_file_is_a_gap_in_its_place(which: int) -> None:
    """Its stretch of the log is known by its neighbours, so that it alone is made anew."""
    world = World()
    world.disk.remove(f"{FOLDER}/{world.names[which]}")
    parts = world.taken(world.saved)
    assert kinds(parts) == "f" * which + "-" + "f" * (len(world.names) - which - 1)
    start, end = parts.bounds(which)
    [after] = parts.after(which + 1)
    assert end == after.header.begin + 1
    before = parts.all[which - 1] if which else None
    assert start == (before.header.end if isinstance(before, IndexFile) else world.log.min_offset)
    assert (world.metrics.value(REBUILT, "missing"), parts.changed, parts.names_changed) == (1, True, True)


def test_gaps_at_the_end_are_deleted_since_the_walk_of_the_tail_makes_them() -> None:
    """The last files are damaged: they are removed at once, and the rest is the whole index until then."""
    world = World()
    for name in world.names[-2:]:
        world.disk.flip_bit(f"{FOLDER}/{name}", 26)
    parts = world.parts()
    assert parts.take_stock(world.saved, clean=True, index_ms=0) is False
    assert kinds(parts) == "f" * (len(world.names) - 2)
    assert names(world.disk) == world.names[:-2]
    assert world.metrics.value(REBUILT, "damaged") == 2


def test_who_only_reads_deletes_counts_and_reports_nothing() -> None:
    """A check of a store may not change it; what is not believed is not searched all the same."""
    world = World()
    world.disk.flip_bit(f"{FOLDER}/{world.names[-1]}", 26)
    world.disk.flip_bit(f"{FOLDER}/{world.names[0]}", 26)
    parts = world.taken(world.saved, read_only=True)
    assert kinds(parts) == "-" + "f" * (len(world.names) - 2)
    assert names(world.disk) == world.names
    assert (world.metrics.value(REBUILT, "damaged"), parts.changed) == (0, False)


def test_without_what_was_saved_the_checkpoint_decides_after_a_kill() -> None:
    """RocketMQ's rule: what is newer than the checkpoint's index time may be half written, and is made anew."""
    world = World()
    files = [part for part in world.taken(world.saved).all if isinstance(part, IndexFile)]
    index_ms = files[2].header.end_ms
    parts = world.taken(None, clean=False, index_ms=index_ms)
    assert kinds(parts) == "fff"
    assert world.metrics.value(REBUILT, "unfinished") == len(files) - 3


def test_without_what_was_saved_all_is_believed_after_an_orderly_end() -> None:
    """As RocketMQ leaves its store."""
    world = World()
    assert kinds(world.taken(None, clean=True, index_ms=0)) == "f" * len(world.names)


def test_file_that_was_being_made_anew_at_the_stop_is_still_a_gap() -> None:
    """It may be half written whatever its header says, and was counted before."""
    world = World()
    saved = world.saved._replace(missing=frozenset({world.names[1]}))
    parts = world.taken(saved)
    assert kinds(parts)[:3] == "f-f"
    assert [gap.name for gap in parts.gaps] == [world.names[1]]
    assert world.metrics.value(REBUILT, "damaged") == 0


def test_file_with_entries_behind_the_end_of_the_log_is_not_believed() -> None:
    """After a crash that cut the log it names records that are others by now."""
    world = World()
    assert world.saved.files[world.names[-1]] is not None
    world.log.visible_end = world.log.visible_end // 2
    parts = world.taken(world.saved)
    assert 0 < len(parts.all) < len(world.names)
    assert all(part.header.end < world.log.visible_end for part in parts.files)
    assert world.metrics.value(REBUILT, "cut") == len(world.names) - len(parts.all)


def test_oldest_part_tells_whether_it_can_go() -> None:
    """A file whose last entry lies below the log's first record answers nothing any more; a gap by its stretch."""
    world = World()
    parts = world.taken(world.saved)
    end = parts.files[0].header.end
    assert (parts.first_ends_before(end), parts.first_ends_before(end + 1)) == (False, True)
    parts.all[0] = IndexGap(world.names[0])
    until = parts.bounds(0)[1]
    assert (parts.first_ends_before(until - 1), parts.first_ends_before(until)) == (False, True)


def test_index_of_gaps_alone_has_no_last_file() -> None:
    """And its one stretch is all of the log."""
    world = World()
    parts = world.parts()
    assert (parts.last, parts.files, parts.gaps) == (None, [], [])
    parts.all = [IndexGap("x")]
    assert parts.last is None
    assert parts.bounds(0) == (world.log.min_offset, world.log.visible_end)


def test_log_before_the_first_file_of_rocketmq_is_indexed() -> None:
    """RocketMQ had its index off at first: all keys are found at once, and the gap gets files, over a kill, too."""
    disk = SimDisk()
    sizes: dict[str, Any] = {"index_slots": 7, "index_entries": 12}
    store = open_store(disk, **sizes)
    store.create_topic("t", 1)
    for number in range(60):
        store.put("t", b"x", key=f"k{number}")
    store.close()
    found = names(disk)
    assert len(found) > 6
    for path in (*[f"{FOLDER}/{name}" for name in found[:4]], f"{ROOT}/pyddmq/index.json"):
        disk.remove(path)
    store = open_store(disk, **sizes)
    assert store.index.missing
    assert found_keys(store) == 60
    while store.index.step(4):
        at_once(disk, store.index.writing(now=True))
        disk.kill()
        store = open_store(disk, **sizes)
    assert store.index.missing == []
    assert found_keys(store) == 60
    assert len(names(disk)) >= len(found) - 1
    store.close()
    findings = StoreCheck(ROOT, disk, ManualClock()).run()
    assert [finding.kind for finding in findings if finding.severity != "note"] == []


def found_keys(store: Store) -> int:
    """How many of the keys are found."""
    return sum(len(by_key(store, "t", f"k{number}").run().found) for number in range(60))
