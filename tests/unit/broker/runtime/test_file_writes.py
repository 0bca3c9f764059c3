"""State files saved in steps: in order, one after the other, and what becomes of errors."""

from __future__ import annotations

import errno
from random import Random

import pytest

from broker.runtime.file_writes import FileWrite, FileWrites, SyncFailed, at_once, can_wait
from broker.runtime.sealed_file import SealedFile, writing_whole
from broker.runtime.seams import DiskFile
from broker.runtime.state_file import StateFile
from pyddmq.testing import ManualClock, ManualScheduler, PowerCut, SimDisk, SimSyncs
from tests.stopping import end_run

FILE = "/s/pyddmq/x.json"


class Beside:
    """FileWrites beside a manual loop."""

    def __init__(self, disk: SimDisk | None = None, seed: int = 1) -> None:
        self.disk = disk or SimDisk()
        self.disk.make_folder("/s/config")
        self.disk.make_folder("/s/pyddmq")
        self.scheduler = ManualScheduler(ManualClock())
        self.file_writes = FileWrites(self.disk)
        self.file_writes.syncs = SimSyncs(self.disk, self.scheduler, Random(seed))

    def run(self) -> None:
        """Let everything end that was begun."""
        self.scheduler.advance(1)


def load(disk: SimDisk) -> object:
    """What the file has."""
    return SealedFile(disk, FILE).load()


def noting(file: DiskFile, notes: list[object], name: str) -> FileWrite:
    """A file write of two syncs that notes its steps and how they ended."""
    for step in range(2):
        notes.append((name, step))
        try:
            yield file
        except SyncFailed as error:
            notes.append((name, error.errno))
            return
    notes.append((name, "ended"))


def test_file_writes_are_made_one_after_the_other() -> None:
    """In the order in which they came; nothing of the second happens before the first has ended."""
    made, notes = Beside(), list[object]()
    file = made.disk.open(FILE, create=True)
    for name in ("a", "b"):
        made.file_writes.add(noting(file, notes, name))
    assert notes == [("a", 0)]
    made.run()
    assert notes == [("a", 0), ("a", 1), ("a", "ended"), ("b", 0), ("b", 1), ("b", "ended")]


def test_without_syncs_a_file_write_is_made_at_once() -> None:
    """As before there was a loop."""
    made, notes = Beside(), list[object]()
    made.file_writes.syncs = None
    made.file_writes.add(noting(made.disk.open(FILE, create=True), notes, "a"))
    assert notes[-1] == ("a", "ended")


def test_finish_makes_the_rest_at_once() -> None:
    """All of it is durable when it returns."""
    made = Beside()
    sealed = SealedFile(made.disk, FILE)
    made.file_writes.add(sealed.writing({"a": 1}))
    made.file_writes.add(sealed.writing({"a": 2}))
    made.file_writes.finish()
    operations = made.disk.operations
    made.run()
    assert made.disk.operations == operations
    made.disk.crash(Random(1))
    assert load(made.disk) == {"a": 2}


def test_finish_hears_how_the_sync_ended_that_was_on_its_way() -> None:
    """Another one in its place might be told that all is well: the system tells a failure once."""
    made, notes = Beside(), list[object]()
    made.file_writes.add(noting(made.disk.open(FILE, create=True), notes, "a"))
    made.disk.fail("sync")
    made.file_writes.finish()
    assert notes == [("a", 0), ("a", errno.EIO)]


def test_finish_within_a_file_write_does_nothing() -> None:
    """What a step leads to may ask for it."""
    made, notes = Beside(), list[object]()
    file = made.disk.open(FILE, create=True)

    def writing() -> FileWrite:
        made.file_writes.finish()
        yield file
        made.file_writes.finish()
        notes.append("ended")

    for _ in range(2):
        made.file_writes.add(writing())
    made.run()
    made.file_writes.add(writing())
    made.file_writes.finish()
    assert notes == ["ended"] * 3


def test_file_write_that_raises_leaves_the_next_one_its_turn() -> None:
    """Its exception reaches the loop."""
    made, notes = Beside(), list[object]()
    file = made.disk.open(FILE, create=True)

    def writing() -> FileWrite:
        yield file
        raise ValueError("no")

    made.file_writes.add(writing())
    made.file_writes.add(noting(file, notes, "b"))
    with pytest.raises(ValueError, match="no"):
        made.run()
    made.run()
    assert notes[-1] == ("b", "ended")


def test_abandoned_file_writes_change_nothing_any_more() -> None:
    """As after a stop."""
    made, notes = Beside(), list[object]()
    file = made.disk.open(FILE, create=True)
    for name in ("a", "b"):
        made.file_writes.add(noting(file, notes, name))
    made.file_writes.abandon()
    made.run()
    made.file_writes.finish()
    assert notes == [("a", 0)]


@pytest.mark.parametrize("beside", [False, True])
def test_full_disk_can_wait_at_a_write_and_at_no_sync_of_what_is_believed(beside: bool) -> None:
    """A sync that finds the disk full has lost what was written; that of a spare file lost nothing that counts."""
    found: dict[str, bool] = {}

    def in_place(file: DiskFile, name: str) -> FileWrite:
        try:
            file.write(0, [b"x"])
            yield file
        except OSError as error:
            found[name] = can_wait(error)

    def whole(name: str) -> FileWrite:
        try:
            yield from writing_whole(made.disk, FILE, b"x")
        except OSError as error:
            found[name] = can_wait(error)

    made = Beside()
    if not beside:
        made.file_writes.syncs = None
    file = made.disk.open("/s/wheel", create=True)
    for operation in ("write", "sync"):
        made.disk.fail(operation, error=errno.ENOSPC)
        made.file_writes.add(in_place(file, f"in place, {operation}"))
        made.run()
    for operation in ("write", "sync", "sync_folder"):
        made.disk.fail(operation, error=errno.ENOSPC)
        made.file_writes.add(whole(f"whole, {operation}"))
        made.run()
    assert found == {
        "in place, write": True,
        "in place, sync": False,
        "whole, write": True,
        "whole, sync": True,
        "whole, sync_folder": False,
    }


def test_both_ways_make_the_same_changes() -> None:
    """Beside the loop and at once: byte for byte, in the same number of changes."""
    made, at_once_disk = Beside(), Beside().disk
    for value in range(3):
        beside = StateFile(made.disk, "/s", "x.json")
        made.file_writes.add(beside.writing({"a": value}))
        made.run()
        at_once(at_once_disk, StateFile(at_once_disk, "/s", "x.json").writing({"a": value}))
    assert made.disk.operations == at_once_disk.operations
    for path in (FILE, "/s/config/x.json", "/s/config/x.json.bak"):
        assert made.disk.open(path).read(0, 999) == at_once_disk.open(path).read(0, 999)


@pytest.mark.parametrize("power", [False, True])
def test_stop_at_every_change_leaves_the_file_before_or_the_one_after(power: bool) -> None:
    """A kill or power loss while a file is saved beside the loop, finished at some moment or not."""
    seen = set()
    for changes in range(14):
        for finished_after in (0.0, 0.001, 0.003, 9.0):
            made = Beside(seed=changes)
            file = StateFile(made.disk, "/s", "x.json")
            file.save({"a": 1})
            made.disk.stop_after(changes)
            ended = False
            try:
                made.file_writes.add(file.writing({"a": 2}))
                made.scheduler.advance(finished_after)
                made.file_writes.finish()
                ended = True
            except PowerCut:
                pass
            end_run(made.disk, changes, power=power)
            again = StateFile(made.disk, "/s", "x.json")
            found = again.load()
            assert found == {"a": 2} or (found == {"a": 1} and not ended)
            assert not again.changed_outside
            seen.add(found["a"])
    assert seen == {1, 2}
