"""Mends what `broker.tools.check` finds, with the store's lock held.

Guarantees: nothing valid is overwritten (only bytes that the check found to be no record, units that differ from their
records, and JSON that cannot be read), what is overwritten is kept under `pyddmq/set-aside/` first, and a kill between
any two changes leaves a store that opens and that can be repaired again.

Order: sizes of log files; units that have no record become fillers; then holes are filled, so that no unit ever points
at a filling; other units; small files. At the end the store is opened and closed, which cuts a torn tail, adds topics,
makes queue files and index files again where needed, and writes a new checkpoint.
Where neither `store.json` nor a queue file shows the size of queue files, that is left to the next start of the node,
which takes its configured size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import asdict

from broker.errors import StoreUnreadable
from broker.features import ALL
from broker.format.record import (
    BLANK,
    BLANK_BYTES,
    CRC_BYTES,
    HEADER,
    HEADER_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    RECORD_OVERHEAD_BYTES,
    SYS_ROLLBACK,
    crc_property,
)
from broker.log.commit_log import CommitLog, segment_name
from broker.log.log_pages import Segment
from broker.opening.opening import take_lock
from broker.opening.reading import geometry_of_files, has_queue_files
from broker.opening.store_json import FORMAT_VERSION
from broker.options import StoreOptions
from broker.queues.consume_queue import UNIT_BYTES
from broker.runtime.bundle import Runtime
from broker.runtime.names import is_number, queue_folder
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk
from broker.runtime.state_file import StateFile
from broker.runtime.steps import noted, run_now
from broker.runtime.sums import crc32
from broker.scheduled.timer.pending.log import SIZE_AT
from broker.scheduled.timer.pending.log import UNIT as TIMER_UNIT
from broker.store import Store
from broker.tools.check import StoreCheck, StoreFinding
from broker.tools.check.queues import Patch
from broker.tools.check.records import RecordCheck
from broker.tools.check.small_files import STATE_FILES
from broker.tools.interchange import adopted

FILLING_TOPIC = b"SELF_TEST_TOPIC"
"""Topic of the records that fill holes; marked as rolled back, they stand in no queue and no index."""
SET_ASIDE = "pyddmq/set-aside"

_FILLING_BYTES_MAX = 1 << 20
_FILLING_BYTES_MIN = RECORD_OVERHEAD_BYTES + len(FILLING_TOPIC)
_CHUNK_BYTES = 1 << 20
_TIMER_UNITS = 20_000
"""Units of the timer log that are read at once."""
_HOST = b"\x7f\x00\x00\x01\x00\x00\x00\x00"

Then = Callable[[Store], None]


def repair(
    root: str,
    runtime: Runtime,
    *,
    findings_of: Callable[[StoreCheck], Collection[StoreFinding]],
    then: Then,
) -> list[StoreFinding]:
    """Repair a store that no process has open; what cannot be repaired is left as it is.

    Args:
        root: The store.
        runtime: Its disk has the files, its clock stamps JSON files; the store is opened with it.
        findings_of: Runs the check, over more files than the broker's where there are any.
        then: Called with the open store at the end.

    Returns:
        What was found with the lock held, and mended as far as each says.

    Raises:
        StoreInUse: Another process has it open.
        StoreError: It cannot be opened even now.
        OSError: A file cannot be read or written; the same command continues where this one stopped.
    """
    disk = runtime.disk
    lock = take_lock(root, disk)
    try:
        check = StoreCheck(root, disk, runtime.clock, ours=True)
        findings = list(findings_of(check))
        assert check.records is not None
        are_sizes_known = _mend(root, {finding.kind for finding in findings}, findings, check.records, disk=disk)
    finally:
        lock.release()
    options = adopted(root, StoreOptions(), disk=disk)
    if not are_sizes_known:
        return findings
    opening = Store.opening(root, options=options, features=ALL, runtime=runtime)
    with closing(run_now(noted(opening, lambda _: None))) as store:
        while store.index.step():
            pass
        then(store)
    return findings


def _mend(root: str, kinds: set[str], findings: list[StoreFinding], records: RecordCheck, *, disk: Disk) -> bool:
    """Mend the files; whether their sizes are known, which the store cannot be opened without."""
    aside = _Aside(root, disk)
    are_sizes_known = True
    if kinds & {"store_json_damaged", "store_json_missing"}:
        geometry = geometry_of_files(root, disk=disk)
        are_sizes_known = geometry is not None and has_queue_files(root, disk=disk)
        aside.file("pyddmq/store.json", move=not are_sizes_known)
        if geometry is not None and are_sizes_known:
            SealedFile(disk, f"{root}/pyddmq/store.json").save({"format": FORMAT_VERSION, **asdict(geometry)})
    for name, size in records.wrong_sizes.items():
        _set_size(root, name, size, records.geometry.segment_bytes, aside, disk=disk)
    units = records.geometry.queue_file_units
    for patch in records.patches:
        if patch.fillers:
            _write_units(root, patch, units, disk=disk)
    # First: a hole that is filled is not found again.
    _empty_timer_units(root, records.holes, disk=disk)
    _fill_holes(root, records, aside, disk=disk)
    for patch in records.patches:
        if are_sizes_known and not patch.fillers:
            _write_units(root, patch, units, disk=disk)
    for finding in findings:
        if finding.kind == "queue_file_size":
            with closing(disk.open(f"{root}/{finding.file}")) as file:
                file.truncate(units * UNIT_BYTES)
                file.sync()
        elif finding.kind in {"index_damaged", "index_entry_wrong"}:
            disk.remove(f"{root}/{finding.file}")
            disk.sync_folder(f"{root}/index")
        elif finding.kind == "sealed_damaged":
            aside.file(finding.file, move=True)
    for name in STATE_FILES:
        files = (f"config/{name}", f"config/{name}.bak", f"pyddmq/{name}")
        if any(
            finding.file in files and finding.kind in {"file_damaged", "file_missing", "twin_damaged", "backup_damaged"}
            for finding in findings
        ):
            _mend_state_file(root, name, aside, disk=disk)
    return are_sizes_known


class _Aside:
    """Keeps what is about to be overwritten."""

    def __init__(self, root: str, disk: Disk) -> None:
        self._root = root
        self._disk = disk
        self._folder = f"{root}/{SET_ASIDE}"

    def file(self, path: str, *, move: bool = False) -> None:
        """Keep a whole file, or move it there."""
        source = f"{self._root}/{path}"
        if not self._disk.exists(source):
            return
        target = path.replace("/", "-")
        if move:
            self._disk.make_folder(self._folder)
            self._disk.replace(source, f"{self._folder}/{target}")
            self._disk.sync_folder(self._folder)
            self._disk.sync_folder(source.rpartition("/")[0])
            return
        with closing(self._disk.open(source)) as file:
            size = file.size()
        self.part(path, 0, size, target)

    def part(self, path: str, start: int, end: int, name: str) -> None:
        """Keep bytes [start, end) of a file, unless they are all zero."""
        with closing(self._disk.open(f"{self._root}/{path}")) as source:
            chunks = range(start, end, _CHUNK_BYTES)
            if not any(source.read(at, min(_CHUNK_BYTES, end - at)).strip(b"\x00") for at in chunks):
                return
            self._disk.make_folder(self._folder)
            with closing(self._disk.open(f"{self._folder}/{name}", create=True)) as target:
                target.truncate(0)
                for at in chunks:
                    target.write(at - start, [source.read(at, min(_CHUNK_BYTES, end - at))])
                target.sync()
            self._disk.sync_folder(self._folder)


def _set_size(root: str, name: str, size: int, segment_bytes: int, aside: _Aside, *, disk: Disk) -> None:
    path = f"commitlog/{name}"
    if int(name) % segment_bytes:
        aside.file(path, move=True)
        return
    if size > segment_bytes:
        aside.part(path, segment_bytes, size, f"commitlog-{name}-rest")
    with closing(disk.open(f"{root}/{path}")) as file:
        if size > segment_bytes:
            file.truncate(segment_bytes)
        else:
            file.allocate(segment_bytes)
        file.sync()


def _write_units(root: str, patch: Patch, file_units: int, *, disk: Disk) -> None:
    folder = queue_folder(root, patch.topic, patch.queue_id)
    disk.make_folder(folder)
    offset, data = patch.offset, bytes(patch.data)
    while data:
        number, place = divmod(offset, file_units)
        count = min(len(data) // UNIT_BYTES, file_units - place)
        assert count > 0, "whole units, and each round writes some"
        with closing(disk.open(f"{folder}/{number * file_units * UNIT_BYTES:020d}", create=True)) as file:
            if file.size() != file_units * UNIT_BYTES:
                file.truncate(file_units * UNIT_BYTES)
            file.write(place * UNIT_BYTES, [data[: count * UNIT_BYTES]])
            file.sync()
        offset, data = offset + count, data[count * UNIT_BYTES :]
    disk.sync_folder(folder)


def _mend_state_file(root: str, name: str, aside: _Aside, *, disk: Disk) -> None:
    state = StateFile(disk, root, name)
    try:
        content = state.load()
    except StoreUnreadable:
        content = None
    for path in (f"config/{name}", f"config/{name}.bak"):
        aside.file(path)
    if content is None:
        for path in (f"config/{name}", f"config/{name}.bak", f"pyddmq/{name}"):
            aside.file(path, move=True)
        return
    # The second time moves the version that the first one wrote to the backup's place.
    state.save(content)
    state.save(content)


# Holes


def _empty_timer_units(root: str, holes: Sequence[tuple[int, int]], *, disk: Disk) -> None:
    """Give units of the timer log whose record was in a hole the size 0, as those of cancelled timers have.

    RocketMQ would take the record that fills the hole for a timer, fail at its missing TIMER_ENQUEUE_MS, and try again
    without end. A record of size 0 it passes over.
    """
    folder = f"{root}/timerlog"
    for name in disk.list(folder) if holes else ():
        if not is_number(name):
            continue
        with closing(disk.open(f"{folder}/{name}")) as file:
            for start in range(0, file.size(), _TIMER_UNITS * TIMER_UNIT.size):
                data = file.read(start, _TIMER_UNITS * TIMER_UNIT.size)
                whole = memoryview(data)[: len(data) // TIMER_UNIT.size * TIMER_UNIT.size]
                for place, unit in enumerate(TIMER_UNIT.iter_unpack(whole)):
                    unit_bytes, physical, size = unit[0], unit[5], unit[6]
                    if unit_bytes == TIMER_UNIT.size and size and any(low <= physical < high for low, high in holes):
                        file.write(start + place * TIMER_UNIT.size + SIZE_AT, [bytes(4)])
            file.sync()


def _fill_holes(root: str, records: RecordCheck, aside: _Aside, *, disk: Disk) -> None:
    """Put records that no queue has into the holes, and empty log files in the place of missing ones (D3)."""
    size = records.geometry.segment_bytes
    log = CommitLog(root, disk=disk, segment_bytes=size)
    disk.make_folder(f"{root}/pyddmq")
    try:
        for start, end in records.holes:
            for number in range(start // size, -(-end // size)):
                base = number * size
                path = f"commitlog/{segment_name(base)}"
                if disk.exists(f"{root}/{path}"):
                    log.segments[number] = Segment(base, disk.open(f"{root}/{path}"))
                else:
                    log.claim(number)
                first, last = max(start, base), min(end, base + size)
                assert first < last, "a hole reaches into each of its files"
                aside.part(path, first - base, last - base, f"commitlog-{first:020d}-{last - first}")
                _fill(log.segments[number], first, last, size, records.hole_ms[start])
                log.segments.pop(number).file.close()
    finally:
        log.close()


def _fill(segment: Segment, start: int, end: int, segment_bytes: int, store_ms: int) -> None:
    """Fill [start, end) of one segment with records, or up to its end with a blank."""
    if end == segment.base + segment_bytes:
        if end - start >= BLANK_BYTES:
            segment.file.write(start - segment.base, [BLANK.pack(end - start, MAGIC_BLANK)])
            segment.file.sync()
        return
    at = start
    while (left := end - at) >= _FILLING_BYTES_MIN:
        # Never a rest too small for a record: the last but one leaves half of the largest.
        size = left if left <= _FILLING_BYTES_MAX else min(_FILLING_BYTES_MAX, left - _FILLING_BYTES_MAX // 2)
        segment.file.write(at - segment.base, [filling(at, size, store_ms)])
        at += size
    segment.file.sync()


def filling(physical: int, size: int, store_ms: int) -> bytes:
    """Return a valid record of `size` bytes, 106 or more, that is in no queue: it is marked as rolled back."""
    ends_in_sum = size >= _FILLING_BYTES_MIN + CRC_BYTES
    block_bytes = CRC_BYTES if ends_in_sum else 0
    body = bytes(size - _FILLING_BYTES_MIN - block_bytes)
    head = HEADER.pack(
        size,
        MAGIC_V1,
        crc32(body) & 0x7FFFFFFF,
        0,
        0,
        0,
        physical,
        SYS_ROLLBACK,
        store_ms,
        _HOST,
        store_ms,
        _HOST,
        0,
        0,
        len(body),
    )
    assert len(head) == HEADER_BYTES
    tail = bytes([len(FILLING_TOPIC)]) + FILLING_TOPIC + block_bytes.to_bytes(2, "big")
    record = head + body + tail
    return record + crc_property(crc32(record) & 0x7FFFFFFF) if ends_in_sum else record
