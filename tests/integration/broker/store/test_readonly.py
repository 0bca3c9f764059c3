"""A store opened for reading: no change, no lock, a consistent prefix while its owner works on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import RecordGone, StoreFormatNewer, StoreUnreadable
from broker.features import ALL
from broker.format.record import split
from broker.options import StoreOptions
from broker.runtime.disk import RealDisk
from broker.runtime.disks.read_only_disk import ReadingDisk
from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk
from broker.runtime.store_metrics import UNITS_REPAIRED
from broker.store import Store
from broker.tools.readonly import ReadOnlyStore
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.broker.store.test_store_recovery import filled
from tests.integration.store_tools import ROOT, BusyDisk, append, bodies, open_store


def look(disk: Disk, root: str = ROOT, *, metrics: Metrics | None = None) -> ReadOnlyStore:
    """Open for reading."""
    return ReadOnlyStore.open(root, disk=disk, clock=ManualClock(), metrics=metrics)


def contents(store: ReadOnlyStore, topic: str = "t") -> dict[int, bytes | None]:
    """Body by queue offset."""
    return bodies(store, topic)  # type: ignore[arg-type]


def test_live_store_is_read_and_not_changed() -> None:
    """The owner holds the lock and goes on; reading makes no change at all."""
    disk = SimDisk()
    store = filled(disk, count=40)
    before = disk.operations
    seen = look(disk)
    assert contents(seen) == {number: b"body %d" % number for number in range(40)}
    assert seen.live
    assert disk.operations == before
    append(store, b"later")
    store.flush()
    assert len(contents(seen)) == 40
    assert contents(look(disk))[40] == b"later"


def test_closed_store_needs_no_scan() -> None:
    """What the checkpoint covers is taken from the queue files."""
    disk = SimDisk()
    filled(disk, count=40).close()
    seen = look(disk)
    assert not seen.live
    assert seen.scanned_from == seen.end
    assert contents(seen) == {number: b"body %d" % number for number in range(40)}


def test_staged_and_unwritten_messages_are_not_seen() -> None:
    """The prefix ends where the log's valid records do."""
    disk = SimDisk()
    store = filled(disk, count=3)
    append(store, b"staged")
    assert len(contents(look(disk))) == 3


def test_incomplete_batch_at_the_tail_is_not_seen() -> None:
    """Of a batch that is being written nothing is shown (D8)."""
    disk = SimDisk()
    store = filled(disk, count=2)
    positions = append(store, b"b0", b"b1", b"b2", atomic=True)
    store.flush()
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", positions[2].physical + 89)
    seen = look(disk)
    assert len(contents(seen)) == 2
    assert seen.end == positions[0].physical


def test_hole_is_told_and_passed() -> None:
    """Damage costs its own record."""
    disk = SimDisk()
    store = filled(disk, count=6)
    [unit] = store.topics["t"].queues[0].read(2, 1)
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", unit[0] + 90)
    seen = look(disk)
    assert seen.holes == [(unit[0], unit[0] + unit[1])]
    assert [offset for offset, body in contents(seen).items() if body is None] == [2]
    reported: list[tuple[int, int]] = []
    assert len(list(seen.records(damaged=lambda start, end: reported.append((start, end))))) == 5
    assert reported == seen.holes


def test_damaged_unit_is_mended_in_what_is_read_alone() -> None:
    """The right unit comes from the log; the file stays as it is."""
    disk, metrics = SimDisk(), Metrics()
    filled(disk, count=6).close()
    path = f"{ROOT}/consumequeue/t/0/{0:020d}"
    disk.flip_bit(path, 3 * 20 + 6)
    before = disk.operations
    assert contents(look(disk, metrics=metrics)) == {number: b"body %d" % number for number in range(6)}
    assert metrics.value(UNITS_REPAIRED) == 1
    assert disk.operations == before


@pytest.mark.parametrize("derived", [("pyddmq/checkpoint.json",), ("pyddmq/checkpoint.json", "config/topics.json")])
def test_copy_without_derived_files_is_read_from_the_log(derived: tuple[str, ...]) -> None:
    """Without a checkpoint the whole log is scanned."""
    disk = SimDisk()
    filled(disk, count=200).close()
    for name in derived:
        disk.remove(f"{ROOT}/{name}")
    assert contents(look(disk)) == {number: b"body %d" % number for number in range(200)}


def test_segments_and_queue_files_deleted_beneath_are_gone_and_not_damage() -> None:
    """Retention may delete what has not been read yet."""
    disk = SimDisk()
    filled(disk, count=200).close()
    seen, fresh = look(disk), look(disk)
    units = seen.topics["t"].queues[0].read(0, 200)
    disk.remove(f"{ROOT}/commitlog/{0:020d}")
    for name in disk.list(f"{ROOT}/consumequeue/t/0")[:2]:
        disk.remove(f"{ROOT}/consumequeue/t/0/{name}")
    seen.log.forget_idle()
    seen.log.forget_idle()
    with pytest.raises(RecordGone):
        seen.read(units[0][0], units[0][1])
    assert seen.min_offset == 4096
    with pytest.raises(RecordGone):
        fresh.topics["t"].queues[0].read(0, 10)
    reported: list[tuple[int, int]] = []
    kept = [entry.queue_offset for entry in fresh.records(damaged=lambda *hole: reported.append(hole))]
    assert (kept[-1], reported) == (199, [])
    assert fresh.topics["t"].queues[0].min_offset == kept[0]


def test_rocketmqs_sizes_are_taken_from_the_files() -> None:
    """A store without `pyddmq/` is read with the sizes of its files."""
    disk = SimDisk()
    filled(disk, count=20, segment_bytes=8192).close()
    for name in disk.list(f"{ROOT}/pyddmq"):
        disk.remove(f"{ROOT}/pyddmq/{name}")
    seen = look(disk)
    assert seen.geometry.segment_bytes == 8192
    assert len(contents(seen)) == 20


def test_no_store_and_newer_store_are_told() -> None:
    """A sentence each, and nothing is made."""
    disk = SimDisk()
    with pytest.raises(StoreUnreadable, match="has no store"):
        look(disk)
    filled(disk).close()
    file = SealedFile(disk, f"{ROOT}/pyddmq/store.json")
    file.save({**file.load(), "format": 99})
    with pytest.raises(StoreFormatNewer, match="format 99"):
        look(disk)


def test_every_change_is_refused() -> None:
    """The disk for reading has no way to change anything."""
    disk = SimDisk()
    filled(disk).close()
    reading = ReadingDisk(disk)
    file = reading.open(f"{ROOT}/pyddmq/store.json")
    segment = reading.open(f"{ROOT}/commitlog/{0:020d}")
    changes: list[Callable[[], object]] = [
        lambda: file.write(0, [b"x"]),
        lambda: segment.write(0, [b"x"]),
        file.sync,
        lambda: file.truncate(0),
        lambda: segment.allocate(1 << 20),
        lambda: reading.make_folder("/new"),
        lambda: reading.replace(f"{ROOT}/abort", f"{ROOT}/other"),
        lambda: reading.remove(f"{ROOT}/checkpoint"),
        lambda: reading.sync_folder(ROOT),
        lambda: reading.lock(f"{ROOT}/lock"),
    ]
    for change in changes:
        with pytest.raises(OSError, match="reading only"):
            change()


def test_folder_without_write_permission_is_read_and_left_alone(tmp_path: Path) -> None:
    """On the real disk files are opened for reading; names, sizes and times of change stay."""
    root = str(tmp_path / "data")
    store = open_store(RealDisk(), root=root, segment_bytes=4096)
    store.create_topic("t", 1)
    append(store, *[b"x" * 100] * 50)
    store.flush()

    def state() -> list[tuple[str, int, int]]:
        found = [tmp_path, *tmp_path.rglob("*")]
        return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in found)

    paths = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    for path in paths:
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    before = state()
    seen = look(RealDisk(read_only=True), root)
    assert contents(seen) == dict.fromkeys(range(50), b"x" * 100)
    assert seen.live
    seen.close()
    assert state() == before
    for path in paths:
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    store.close()
    assert not look(RealDisk(read_only=True), root).live


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_prefix_is_consistent_whatever_the_owner_does_meanwhile(seed: int) -> None:
    """Appends, batches, checkpoints and rolls between any two readings: only whole messages, in order, none wrong."""
    random, disk, clock = Random(seed), SimDisk(), ManualClock()
    store = filled(disk, count=random.randint(0, 60), clock=clock)
    total = store.topics["t"].queues[0].max_offset

    def work() -> None:
        nonlocal total
        if random.random() < 0.2:
            count = random.randint(1, 6)
            append(store, *[b"body %d" % (total + place) for place in range(count)], atomic=random.random() < 0.5)
            store.flush()
            total += count
        if random.random() < 0.1:
            clock.advance(11)
            store.checkpoint()

    least = total
    seen = look(BusyDisk(disk, work))
    found = contents(seen)
    assert least <= len(found) <= total
    assert found == {number: b"body %d" % number for number in range(len(found))}
    assert seen.holes == []
    assert [bytes(split(seen.read(entry.physical, entry.size))[0]) for entry in seen.records()] == [*found.values()]


def test_options_are_those_of_the_store() -> None:
    """The sizes with which `Store.open` takes it."""
    disk = SimDisk()
    filled(disk).close()
    seen = look(disk)
    sizes = StoreOptions(segment_bytes=4096, queue_file_units=8, index_slots=4, index_entries=16)
    assert seen.options == sizes
    Store.open(
        ROOT, options=seen.options, features=ALL, disk=disk, clock=ManualClock(), random=Random(1), metrics=Metrics()
    ).close()
