"""Syncs in the background: that they end, tell how, and cover what was written before them and no more."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from random import Random

import pytest

import broker.runtime.disks.linux_aio
from broker.runtime.disk import RealDisk, RealFile
from broker.runtime.disks.linux_aio import LinuxAio, SyncsAtOnce, syncs_of
from broker.runtime.seams import Syncing
from pyddmq.testing import ManualClock, ManualScheduler, PowerCut, SimDisk, SimSyncs
from tests.loops import LOOPS


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    """A runner of each kind of loop."""
    return asyncio.Runner(loop_factory=request.param)


def test_linux_syncs_files_and_folders_beside_the_loop(runner: asyncio.Runner, tmp_path: Path) -> None:
    """Many at once, more than the kernel was asked to take; each is told, and none before `begin` has returned."""

    async def run() -> list[OSError | None]:
        disk = RealDisk()
        syncs, end = syncs_of(asyncio.get_running_loop(), disk)
        assert isinstance(syncs, LinuxAio)
        reported: list[OSError | None] = []
        last = asyncio.Event()

        def done(error: OSError | None) -> None:
            reported.append(error)
            if len(reported) == 101:
                last.set()

        for number in range(100):
            file = disk.open(f"{tmp_path}/{number}", create=True)
            file.write(0, [b"x" * 5_000])
            syncs.begin(file, done)
            file.close()
        syncs.begin_folder(str(tmp_path), done)
        assert not reported
        await last.wait()
        end()
        return reported

    with runner:
        assert runner.run(run()) == [None] * 101


def test_linux_tells_what_failed(runner: asyncio.Runner, tmp_path: Path) -> None:
    """With the path, as a sync in the loop's thread would; one who fails when told keeps nobody from being told."""

    async def run() -> list[OSError | None]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        disk = RealDisk()
        syncs = LinuxAio(loop, disk)
        reported: list[OSError | None] = []
        last = asyncio.Event()

        def done(error: OSError | None) -> None:
            reported.append(error)
            if len(reported) == 4:
                last.set()
            raise RuntimeError

        syncs.begin(RealFile(1 << 20, "none"), done)
        syncs.begin_folder(f"{tmp_path}/missing", done)
        for _ in range(2):
            syncs.begin(disk.open(f"{tmp_path}/file", create=True), done)
        await last.wait()
        syncs.close()
        syncs.close()
        return reported

    with runner:
        found = sorted(0 if error is None else error.errno or 0 for error in runner.run(run()))
    assert found == [0, 0, errno.ENOENT, errno.EBADF]


def test_after_the_end_nobody_is_told_by_the_kernel(runner: asyncio.Runner, tmp_path: Path) -> None:
    """What was on its way is waited for and forgotten."""

    async def run() -> int:
        disk = RealDisk()
        syncs = LinuxAio(asyncio.get_running_loop(), disk)
        reported: list[OSError | None] = []
        syncs.begin(disk.open(f"{tmp_path}/file", create=True), reported.append)
        syncs.close()
        for _ in range(3):
            await asyncio.sleep(0)
        return len(reported)

    with runner:
        assert runner.run(run()) == 0


def test_who_waits_is_told_before_the_others(runner: asyncio.Runner, tmp_path: Path) -> None:
    """Those that have ended meanwhile are told in the next turn, each once."""

    async def run() -> list[str]:
        disk = RealDisk()
        syncs, end = syncs_of(asyncio.get_running_loop(), disk)
        reported: list[str] = []
        all_told = asyncio.Event()

        def begin(name: str) -> Syncing:
            def done(error: OSError | None) -> None:
                reported.append(name)
                if len(reported) == 3:
                    all_told.set()

            return syncs.begin(disk.open(f"{tmp_path}/{name}", create=True), done)

        begun = [begin(name) for name in ("first", "second", "third")]
        begun[1].wait()
        assert reported == ["second"]
        begun[1].wait()
        await all_told.wait()
        begun[0].wait()
        end()
        return reported

    with runner:
        reported = runner.run(run())
    assert (reported[0], sorted(reported)) == ("second", ["first", "second", "third"])


def test_who_waits_for_several_is_told_of_each(runner: asyncio.Runner, tmp_path: Path) -> None:
    """The kernel gives out each result once, perhaps while another one is waited for or told."""

    async def run(is_told_first: bool) -> list[int]:
        disk = RealDisk()
        syncs, end = syncs_of(asyncio.get_running_loop(), disk)
        reported: list[int] = []
        begun: list[Syncing] = []
        first = asyncio.Event()

        def done(number: int) -> None:
            reported.append(number)
            if is_told_first and len(reported) == 1:
                wait_for_all()
                first.set()

        def wait_for_all() -> None:
            for each in reversed(begun):
                each.wait()

        def begin(number: int) -> Syncing:
            return syncs.begin(disk.open(f"{tmp_path}/{number}", create=True), lambda error: done(number))

        begun += [begin(number) for number in range(20)]
        if is_told_first:
            await first.wait()
        else:
            wait_for_all()
        end()
        return sorted(reported)

    with runner:
        assert [runner.run(run(is_told_first)) for is_told_first in (False, True)] == [list(range(20))] * 2


def test_what_was_synced_at_once_is_told_once() -> None:
    """By whom waits, or in the next turn."""
    disk, scheduler = SimDisk(), ManualScheduler(ManualClock())
    disk.make_folder("/d")
    for syncs in (SyncsAtOnce(scheduler, disk), SimSyncs(disk, scheduler, Random(1))):
        reported: list[OSError | None] = []
        syncs.begin(disk.open("/d/f", create=True), reported.append).wait()
        assert reported == [None]
        scheduler.advance(1)
        assert reported == [None]


def test_file_with_a_sync_of_its_own_is_synced_by_that(runner: asyncio.Runner, tmp_path: Path) -> None:
    """A disk that is put around the real one sees its syncs."""
    synced = []

    class Seen(RealFile):
        def sync(self) -> None:
            synced.append(self.path)
            raise OSError(errno.EIO, "no")

    async def run() -> OSError | None:
        loop = asyncio.get_running_loop()
        disk = RealDisk()
        syncs = LinuxAio(loop, disk)
        reported: asyncio.Future[OSError | None] = loop.create_future()
        syncs.begin(Seen(disk.open(f"{tmp_path}/file", create=True).descriptor, "seen"), reported.set_result)
        error = await reported
        syncs.close()
        return error

    with runner:
        error = runner.run(run())
    assert error is not None
    assert (synced, error.errno) == (["seen"], errno.EIO)


def test_folder_of_a_disk_with_a_sync_of_its_own_is_synced_by_that(runner: asyncio.Runner) -> None:
    """The kernel is not asked for a folder that only a simulated disk has."""

    async def run() -> OSError | None:
        loop = asyncio.get_running_loop()
        disk = SimDisk()
        disk.make_folder("/nowhere/else")
        syncs = LinuxAio(loop, disk)
        reported: asyncio.Future[OSError | None] = loop.create_future()
        syncs.begin_folder("/nowhere/else", reported.set_result)
        error = await reported
        syncs.close()
        return error

    with runner:
        assert runner.run(run()) is None


def test_without_the_calls_it_syncs_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And tells in the next turn, as the others do; a loop without descriptors is no obstacle."""
    disk, scheduler = SimDisk(), ManualScheduler(ManualClock())
    disk.make_folder("/d")
    syncs = SyncsAtOnce(scheduler, disk)
    reported: list[OSError | None] = []
    disk.fail("sync_folder")
    syncs.begin(disk.open("/d/f", create=True), reported.append)
    syncs.begin_folder("/d", reported.append)
    assert (disk.synced_files, reported) == (1, [])
    scheduler.run_until_idle()
    assert reported[0] is None
    assert isinstance(reported[1], OSError)

    async def run() -> bool:
        syncs, end = syncs_of(asyncio.get_running_loop(), RealDisk())
        end()
        return isinstance(syncs, SyncsAtOnce)

    monkeypatch.setattr(broker.runtime.disks.linux_aio, "_CALLS", {})
    assert asyncio.run(run())


def _simulated(seed: int = 1) -> tuple[SimDisk, ManualScheduler, SimSyncs]:
    disk, scheduler = SimDisk(), ManualScheduler(ManualClock())
    disk.make_folder("/d")
    return disk, scheduler, SimSyncs(disk, scheduler, Random(seed))


def test_simulated_sync_covers_what_was_written_before_it_when_it_ends() -> None:
    """Not before, and not what came later; a sync at once in between is no obstacle."""
    reported: list[OSError | None] = []
    for when, kept in (("before", b""), ("after", b"one"), ("again", b"onetwo")):
        disk, scheduler, syncs = _simulated()
        file = disk.open("/d/f", create=True)
        disk.sync_folder("/d")
        file.write(0, [b"one"])
        syncs.begin(file, reported.append)
        file.write(3, [b"two"])
        if when == "again":
            file.sync()
        if when != "before":
            scheduler.advance(1)
            assert reported.pop() is None
        disk.crash(Random(1), modes=("none",))
        scheduler.advance(1)
        assert not reported
        assert disk.open("/d/f").read(0, 10) == kept


def test_simulated_folder_sync_covers_the_names_before_it() -> None:
    """A name of later may be gone after a power loss."""
    seen = set()
    for seed in range(20):
        disk, scheduler, syncs = _simulated(seed)
        reported: list[OSError | None] = []
        disk.open("/d/first", create=True)
        syncs.begin_folder("/d", reported.append)
        disk.open("/d/second", create=True)
        scheduler.advance(1)
        assert reported == [None]
        disk.crash(Random(seed))
        seen.add(tuple(disk.list("/d")))
    assert seen == {("first",), ("first", "second")}


def test_simulated_sync_fails_and_is_cut_when_it_ends() -> None:
    """What a failed one was for is never durable, what was written later may be; a power cut takes its place."""
    disk, scheduler, syncs = _simulated()
    file = disk.open("/d/f", create=True)
    disk.sync_folder("/d")
    reported: list[OSError | None] = []
    file.write(0, [b"one"])
    syncs.begin(file, reported.append)
    disk.fail("sync")
    scheduler.advance(1)
    assert isinstance(reported[0], OSError)
    file.write(3, [b"two"])
    file.sync()
    syncs.begin(file, reported.append)
    disk.stop_after(0)
    with pytest.raises(PowerCut):
        scheduler.advance(1)
    disk.crash(Random(1))
    assert disk.open("/d/f").read(0, 10) == b"\x00\x00\x00two"
