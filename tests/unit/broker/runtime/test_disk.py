"""One contract for the real, the private and the simulated disk; and what only one of them can do."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.runtime.disk import RealDisk
from broker.runtime.disks.private_disk import PrivateDisk
from broker.runtime.seams import Disk
from pyddmq.testing import PowerCut, SimDisk

Place = tuple[Disk, str]


@pytest.fixture(params=["real", "private", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A disk and an existing empty folder on it."""
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    if request.param == "private":
        return PrivateDisk(RealDisk(read_only=True)), str(tmp_path)
    disk = SimDisk()
    disk.make_folder("/d")
    return disk, "/d"


def test_file_is_written_and_read_at_offsets(place: Place) -> None:
    """Writes go where they are told; reads are shorter only at the end."""
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.write(2, [b"ab", bytearray(b"cd"), memoryview(b"ef")])
    assert file.size() == 8
    assert (file.read(0, 100), file.read(3, 2), file.read(8, 1)) == (b"\x00\x00abcdef", b"bc", b"")
    file.write(0, [b"x"])
    file.sync()
    file.close()
    assert disk.open(f"{root}/f").read(0, 3) == b"x\x00a"


def test_held_lock_is_seen_and_not_disturbed_by_looking(place: Place) -> None:
    """`locked` tells what `lock` would meet, and takes nothing."""
    disk, root = place
    path = f"{root}/lock"
    assert not disk.locked(path)
    assert not disk.exists(path)
    lock = disk.lock(path)
    assert disk.locked(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    lock.release()
    assert not disk.locked(path)


def test_lock_of_another_process_is_seen(tmp_path: Path) -> None:
    """As the owner of a store is by a tool."""
    path = str(tmp_path / "lock")
    program = (
        "import sys; from broker.runtime.disk import RealDisk; held = RealDisk().lock(sys.argv[1]); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert RealDisk(read_only=True).locked(path)
        process.communicate(b"")
    assert not RealDisk(read_only=True).locked(path)


def test_file_takes_many_and_large_buffers(place: Place) -> None:
    """More buffers than one system call takes, and more bytes than are joined."""
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    pieces = [bytes([number % 251]) * 700 for number in range(2500)]
    file.write(5, pieces)
    assert file.read(5, 2_000_000) == b"".join(pieces)


def test_view_sees_later_writes_and_outlives_the_file(place: Place) -> None:
    """A view is coherent with writes and stays readable after close; it cannot be written."""
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    assert bytes(file.view()) == b""
    file.allocate(4096)
    view = file.view()
    file.write(10, [b"seen"])
    assert bytes(view[10:14]) == b"seen"
    file.close()
    assert (bytes(view[10:14]), len(view), view.readonly) == (b"seen", 4096, True)


def test_size_is_set_by_allocate_and_truncate(place: Place) -> None:
    """New bytes read as zero; allocate never shrinks."""
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.write(0, [b"abcd"])
    file.allocate(8)
    file.allocate(2)
    assert file.read(0, 99) == b"abcd\x00\x00\x00\x00"
    file.truncate(2)
    file.truncate(4)
    assert file.read(0, 99) == b"ab\x00\x00"


def test_folder_entries_follow_creation_rename_and_removal(place: Place) -> None:
    """Names are listed in order; a rename takes the place of its target."""
    disk, root = place
    disk.make_folder(f"{root}/a/b/c")
    disk.make_folder(f"{root}/a/b/c")
    assert (disk.list(f"{root}/a"), disk.list(f"{root}/none")) == (["b"], [])
    for name in ("2", "1"):
        disk.open(f"{root}/a/{name}", create=True).write(0, [name.encode()])
    disk.replace(f"{root}/a/1", f"{root}/a/2")
    disk.sync_folder(f"{root}/a")
    assert disk.list(f"{root}/a") == ["2", "b"]
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(f"{root}/none")
    assert disk.open(f"{root}/a/2").read(0, 9) == b"1"
    disk.remove(f"{root}/a/2")
    assert (disk.exists(f"{root}/a/2"), disk.exists(f"{root}/a")) == (False, True)


def test_changes_of_a_private_disk_stay_with_it(tmp_path: Path) -> None:
    """What is written, renamed, made and deleted is seen there alone; the files below keep their bytes and names."""
    (tmp_path / "kept").write_bytes(b"a" * 8192)
    (tmp_path / "gone").write_bytes(b"b")
    disk, root = PrivateDisk(RealDisk(read_only=True)), str(tmp_path)
    file, other = disk.open(f"{root}/kept"), disk.open(f"{root}/kept")
    view = file.view()
    file.write(4096, [b"new"])
    assert (bytes(view[4095:4099]), other.read(4096, 3)) == (b"anew", b"new")
    file.truncate(9000)
    assert (other.size(), other.read(8191, 9)) == (9000, b"a" + bytes(8))
    disk.remove(f"{root}/gone")
    disk.make_folder(f"{root}/folder")
    disk.open(f"{root}/folder/made", create=True).write(0, [b"c"])
    assert (disk.list(root), disk.list(f"{root}/folder")) == (["folder", "kept"], ["made"])
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/gone")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["gone", "kept"]
    assert (tmp_path / "kept").read_bytes() == b"a" * 8192
    assert PrivateDisk(RealDisk(read_only=True)).open(f"{root}/kept").size() == 8192


def test_private_disk_shares_locks_with_readers_alone(tmp_path: Path) -> None:
    """An owner keeps it out, and it keeps owners out."""
    path = str(tmp_path / "lock")
    (tmp_path / "lock").write_bytes(b"lock")
    held = RealDisk().lock(path)
    with pytest.raises(BlockingIOError):
        PrivateDisk(RealDisk(read_only=True)).lock(path)
    held.release()
    lock = PrivateDisk(RealDisk(read_only=True)).lock(path)
    with pytest.raises(BlockingIOError):
        RealDisk().lock(path)
    lock.release()
    RealDisk().lock(path).release()


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda disk, root: disk.open(f"{root}/none"), FileNotFoundError),
        (lambda disk, root: disk.open(f"{root}/none/f", create=True), FileNotFoundError),
        (lambda disk, root: disk.remove(f"{root}/none"), FileNotFoundError),
        (lambda disk, root: disk.replace(f"{root}/none", f"{root}/f"), FileNotFoundError),
        (lambda disk, root: (disk.open(f"{root}/f", create=True), disk.make_folder(f"{root}/f")), NotADirectoryError),
    ],
)
def test_missing_things_raise_what_the_system_raises(
    place: Place, act: Callable[[Disk, str], object], kind: type[OSError]
) -> None:
    """Both disks fail alike."""
    with pytest.raises(kind):
        act(*place)


def test_closed_file_is_refused(place: Place) -> None:
    """A closed file does nothing any more; closing twice is harmless."""
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match=r"[Bb]ad file|closed"):
        file.write(0, [b"x"])


def test_lock_excludes_until_released(place: Place) -> None:
    """One holder at a time, also inside a process."""
    disk, root = place
    lock = disk.lock(f"{root}/lock")
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            disk.lock(f"{root}/lock")
    lock.release()
    lock.release()
    disk.lock(f"{root}/lock").release()


def test_free_bytes_is_positive(place: Place) -> None:
    """There is room."""
    disk, root = place
    assert disk.free_bytes(root) > 0


def test_real_lock_is_seen_by_other_processes(tmp_path: Path) -> None:
    """The lock is a POSIX byte-range lock on byte 0, which another process (Java's FileLock) meets."""
    path = tmp_path / "lock"
    lock = RealDisk().lock(str(path))
    script = "import fcntl,sys;fcntl.lockf(open(sys.argv[1],'r+'),fcntl.LOCK_EX|fcntl.LOCK_NB,1,0,0)"
    try:
        held = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=False)
        assert b"BlockingIOError" in held.stderr
    finally:
        lock.release()
    assert subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=False).returncode == 0


def test_simulated_kill_keeps_writes_and_frees_locks() -> None:
    """SIGKILL loses no write; old files and locks are dead."""
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.write(0, [b"kept"])
    disk.lock("/lock")
    disk.kill()
    with pytest.raises(OSError, match="closed"):
        file.read(0, 1)
    assert disk.open("/f").read(0, 9) == b"kept"
    disk.lock("/lock")


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_simulated_power_cut_keeps_what_was_synced_and_any_part_of_the_rest(seed: int) -> None:
    """Synced bytes survive; each unsynced sector is old or new; an unsynced name may be gone."""
    disk = SimDisk()
    disk.make_folder("/d")
    file = disk.open("/d/f", create=True)
    file.write(0, [b"o" * 4096])
    file.sync()
    disk.sync_folder("/d")
    file.write(100, [b"n" * 3000])
    disk.open("/d/new", create=True)
    disk.crash(Random(seed))
    content = disk.open("/d/f").read(0, 9999)
    assert len(content) == 4096
    assert content[:100] + content[3100:] == b"o" * (100 + 996)
    for start in range(0, 4096, 512):
        assert len(set(content[max(start, 100) : min(start + 512, 3100)])) <= 1
    assert set(disk.list("/d")) <= {"f", "new"}


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_write_that_a_power_cut_tears_is_torn_between_sectors(seed: int) -> None:
    """Also one that does not begin with a sector, behind one that survives."""
    disk = SimDisk()
    disk.make_folder("/d")
    file = disk.open("/d/f", create=True)
    file.write(0, [b"o" * 4096])
    file.sync()
    disk.sync_folder("/d")
    file.write(0, [b"m" * 100])
    file.write(100, [b"n" * 3000])
    disk.crash(Random(seed), modes=["prefix"])
    content = disk.open("/d/f").read(0, 9999)
    for start in range(0, 4096, 512):
        assert len(set(content[max(start, 100) : min(start + 512, 3100)])) <= 1


def test_simulated_power_cut_has_every_outcome() -> None:
    """Over seeds: lost, kept, torn and reordered writes, and names lost and kept."""
    outcomes = set()
    for seed in range(200):
        disk = SimDisk()
        disk.make_folder("/d")
        file = disk.open("/d/f", create=True)
        file.write(0, [bytes(1024)])
        file.sync()
        disk.sync_folder("/d")
        file.write(0, [b"a" * 512])
        file.write(512, [b"b" * 512])
        disk.open("/d/new", create=True)
        disk.crash(Random(seed))
        content = disk.open("/d/f").read(0, 1024)
        outcomes.add((content[:1], content[512:513], disk.exists("/d/new")))
    assert outcomes == {(a, b, new) for a in (b"\x00", b"a") for b in (b"\x00", b"b") for new in (True, False)}


def test_simulated_rename_never_comes_back_under_both_names() -> None:
    """A durable rename of a fresh file leaves no trace of the old name."""
    for seed in range(50):
        disk = SimDisk()
        disk.make_folder("/a")
        disk.make_folder("/b")
        disk.open("/a/f", create=True).write(0, [b"x"])
        disk.replace("/a/f", "/b/f")
        disk.sync_folder("/b")
        disk.crash(Random(seed))
        assert (disk.list("/a"), disk.list("/b")) == ([], ["f"])


def test_simulated_faults_strike_once_where_told() -> None:
    """An injected error hits the chosen operation and is counted."""
    disk = SimDisk()
    file = disk.open("/f", create=True)
    other = disk.open("/g", create=True)
    disk.fail("write", error=errno.EIO, path_part="f", skip=1)
    file.write(0, [b"1"])
    other.write(0, [b"2"])
    with pytest.raises(OSError, match="Input/output"):
        file.write(1, [b"3"])
    file.write(1, [b"4"])
    assert (file.read(0, 9), disk.faults_hit) == (b"14", {"write": 1})


def test_simulated_capacity_is_claimed_by_allocate() -> None:
    """Writes inside claimed space never run out; others do."""
    disk = SimDisk(capacity_bytes=1000)
    file = disk.open("/f", create=True)
    file.allocate(900)
    assert disk.free_bytes("/") == 100
    file.write(0, [bytes(900)])
    other = disk.open("/g", create=True)
    with pytest.raises(OSError, match="No space"):
        other.allocate(101)
    assert other.size() == 0
    with pytest.raises(OSError, match="No space"):
        other.write(0, [bytes(101)])
    disk.remove("/f")
    other.write(0, [bytes(101)])


def test_simulated_stop_ends_everything_until_the_power_is_back() -> None:
    """After the chosen change nothing works, as on a machine that stopped."""
    disk = SimDisk()
    file = disk.open("/f", create=True)
    disk.stop_after(1)
    file.write(0, [b"1"])
    with pytest.raises(PowerCut):
        file.write(1, [b"2"])
    with pytest.raises(PowerCut):
        disk.list("/")
    disk.kill()
    assert disk.open("/f").read(0, 1) == b"1"


def test_simulated_failed_sync_leaves_what_no_later_sync_makes_durable() -> None:
    """As on Linux: the bytes can be read, also after a kill; they go with the power unless they are rewritten."""
    for anew in (False, True):
        disk = SimDisk()
        file = disk.open("/f", create=True)
        file.write(0, [b"old"])
        file.sync()
        disk.sync_folder("/")
        disk.fail("sync")
        file.write(0, [b"new"])
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        disk.kill()
        file = disk.open("/f")
        assert file.read(0, 3) == b"new"
        if anew:
            file.write(0, [b"new"])
        file.sync()
        disk.crash(Random(1))
        assert disk.open("/f").read(0, 3) == (b"new" if anew else b"old")


def test_simulated_stop_may_count_some_files_only() -> None:
    """A stop that waits for changes of one file lets all others pass."""
    disk = SimDisk()
    one, other = disk.open("/one", create=True), disk.open("/other", create=True)
    disk.stop_after(1, path_part="one")
    for _ in range(3):
        other.write(0, [b"x"])
    one.write(0, [b"x"])
    with pytest.raises(PowerCut):
        one.write(0, [b"x"])
