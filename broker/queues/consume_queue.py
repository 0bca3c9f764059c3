"""The consume queue: 20-byte units (i64 physical offset, i32 record size, i64 tags code), one per queue offset.

Units are derived data: everything in them can be had from the commit log. New ones live in memory and reach the queue's
files lazily (`write_tail`), in RocketMQ's form: files of a fixed number of units, each named by the byte offset of its
first unit, created at full size. What the files hold is believed only up to the checkpoint; recovery derives the rest
again and overwrites it.

A unit whose record is lost in a damaged part of the log is a filler: the offset exists and holds nothing. Readers get
`FILLER` for it, skip it and finish its offset. The files hold it in a form that RocketMQ reads, too
(`broker.queues.fillers`): those that this process made are known by their offsets, older ones by the checker.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial

from broker.errors import RecordGone, StoreError
from broker.queues.open_files import OpenFiles
from broker.queues.unit_sums import UnitSums
from broker.runtime.disks.unreadable import Unreadable, ignored, read_around, write_around
from broker.runtime.file_writes import FileWrite, Single
from broker.runtime.names import is_number, queue_folder
from broker.runtime.seams import Disk, DiskFile

UNIT = struct.Struct(">qiq")
UNIT_BYTES = UNIT.size
Unit = tuple[int, int, int]
FILLER_SIZE = 0x7FFFFFFF
FILLER: Unit = (0, FILLER_SIZE, 0)
FILLER_BYTES = UNIT.pack(*FILLER)
_ZEROS_BYTES = 1 << 16
_PLACES_MAX = 16
"""Units that a queue remembers: about one for each group."""
Checker = Callable[["ConsumeQueue", int, list[Unit]], list[Unit]]


def repeated(unit: Unit | None) -> bytes:
    """Return the filler beside a unit as it is in a file; `FILLER` where no unit of the queue has a record."""
    return FILLER_BYTES if unit is None else UNIT.pack(unit[0], unit[1], 0)


class ConsumeQueue:
    """One queue of a topic; visible offsets are [min_offset, max_offset).

    Attributes:
        next_offset: Offset that the next staged unit gets; equal to `max_offset` when nothing is staged.
        tail: Packed units that no file holds yet, visible ones and then staged ones. The encoder stages a unit by
            adding it here and to `next_offset`; the flush shows what is staged: `max_offset` becomes `next_offset`.
        checked_from: Units from here on were made or checked by this process; older ones pass `checker` when read, and
            so do those of a block whose sum is wrong when it is read back. Once a page of a file cannot be read, all
            units in files are taken for older ones: the page may hold zeros in place of some.
        base_offset: First offset of this life of the topic; an earlier one, deleted since, had those below.
        void_from: Where that earlier life ended; the offsets from there to `base_offset` never held anything.
        checker: Compares units read from files with their records and returns them as they should be.
    """

    def __init__(
        self,
        topic: str,
        queue_id: int,
        *,
        root: str,
        disk: Disk,
        file_units: int,
        unreadable: Unreadable = ignored,
        open_files: OpenFiles | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.file_units = file_units
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self.checked_from = 0
        self._lost_from = -1
        self.checker: Checker | None = None
        self._disk = disk
        self._unreadable = unreadable
        self._folder = queue_folder(root, topic, queue_id)
        self._files = OpenFiles() if open_files is None else open_files
        self._unsynced: dict[int, DiskFile] = {}
        self._unsynced_folders: list[str] = []
        self._has_sure_names = False  # its folders were synced, or will be with the next sync
        self._held: tuple[int, ...] = ()  # the files that are being synced beside the loop
        self._sums = UnitSums()
        self._files_base = 0  # first offset that the files may hold
        self._fillers: list[range] = []  # of this process, ascending
        self._places: dict[int, tuple[int, int]] = {}
        self.tail = bytearray()
        self._tail_base = 0  # offset of the first unit in `tail`
        self.begin_life(0, void_from=0)

    # Reading

    def read(self, offset: int, count: int) -> list[Unit]:
        """Return the units of `offset` to `offset + count`, ends excluded, as far as they are visible.

        Fillers are returned as they are.

        Raises:
            RecordGone: `offset` is below `min_offset`.
            OSError: The queue's file cannot be read.
        """
        # Files hold what is below `_tail_base`, memory the rest; a read may begin in the one and end in the other.
        assert self._tail_base <= self.max_offset <= self.next_offset, "what is visible was written or is in memory"
        end = min(offset + count, self.max_offset)
        base = self._tail_base
        if offset >= base:
            return list(UNIT.iter_unpack(self.tail[(offset - base) * UNIT_BYTES : (end - base) * UNIT_BYTES]))
        if offset < self.min_offset:
            raise RecordGone(-1)
        units = list(UNIT.iter_unpack(self._read_files(offset, min(end, base))))
        if self.checker is not None and (
            offset < self.checked_from or not self._sums.right(offset, min(end, base), self._read_files)
        ):
            units = self.checker(self, offset, units)
        for gap in self._fillers:
            # The files have neighbours' units there (`_as_filed`), which must not be delivered twice.
            for place in range(max(gap.start, offset), min(gap.stop, offset + len(units))):
                units[place - offset] = FILLER
        if end > base:
            units.extend(UNIT.iter_unpack(self.tail[: (end - base) * UNIT_BYTES]))
        return units

    def place(self, offset: int) -> tuple[int, int]:
        """Return commit-log offset and size of one unit: for figures, which ask for the same offset again and again.

        Raises:
            RecordGone, OSError: As `read`.
            IndexError: `offset` is not visible.
        """
        known = self._places.get(offset)
        if known is None:
            physical, size, _ = self.read(offset, 1)[0]
            if len(self._places) >= _PLACES_MAX:
                self._places.clear()
            known = self._places[offset] = physical, size
        return known

    def may_have_lost(self) -> None:
        """Note that a power loss may have taken messages from its end, which consumers may have."""
        self._lost_from = self.max_offset

    @property
    def reused_from(self) -> int | None:
        """Its end at the start if it may have had another one before, until something is appended."""
        return self._lost_from if self._lost_from == self.max_offset else None

    def identity(self, offset: int, *, checked: bool = True) -> int:
        """Commit-log offset of the record at a visible offset, -1 if there is none; unchecked is the cheaper by far."""
        try:
            physical, size, _ = (self.read if checked else self.read_unchecked)(offset, 1)[0]
        except (StoreError, OSError, IndexError):
            return -1
        return physical if size not in (0, FILLER_SIZE) else -1

    def _read_around(self, file: DiskFile, start: int, size: int) -> bytes:
        """Read; what the disk does not return is zeros, which are damage, and reported."""
        data, bad = read_around(file, start, size)
        if bad:
            self._unreadable("consumequeue", self._folder, len(bad))
            self._doubt_files()
        return data

    def _write_around(self, file: DiskFile, start: int, data: bytes) -> None:
        """Write; a page that cannot be read loses its other units, which are made again when they are read."""
        if write_around(file, start, data):
            self._unreadable("consumequeue", self._folder, 1)
            self._doubt_files()

    def _doubt_files(self) -> None:
        self.checked_from = max(self.checked_from, self._tail_base)

    def _read_files(self, offset: int, end: int) -> bytes:
        """Return the bytes of the units [offset, end)."""
        parts: list[bytes] = []
        while offset < end:
            number, place = divmod(offset, self.file_units)
            count = min(end - offset, self.file_units - place)
            file = self._file(number)
            data = self._read_around(file, place * UNIT_BYTES, count * UNIT_BYTES) if file is not None else b""
            # A file that is missing or too short is damage: its units come out as empty and fail their check.
            parts.append(data if len(data) == count * UNIT_BYTES else _padded(data, count))
            offset += count
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # Appending

    def forget_staged(self) -> None:
        """Drop the units that are not visible."""
        del self.tail[(self.max_offset - self._tail_base) * UNIT_BYTES :]
        self.next_offset = self.max_offset

    # Recovery

    def begin_life(self, base: int, *, void_from: int) -> None:
        """Begin without a unit at the first offset of a life of the topic; an earlier one ended at `void_from`."""
        self.base_offset, self.void_from = base, void_from
        self.start_at(base, base)

    def start_at(self, minimum: int, offset: int) -> None:
        """Begin with files holding [minimum, offset) and an empty tail at `offset`."""
        assert 0 <= minimum <= offset, "a queue ends at or behind its first offset"
        self.min_offset = minimum
        self.max_offset = self.next_offset = self._tail_base = self.checked_from = offset
        self._files_base = minimum
        self._fillers.clear()
        self._places.clear()
        self._sums.start_at(offset)
        self.tail.clear()

    def restore(self, offset: int, unit: bytes) -> int:
        """Add the unit of a record found in the log, visible at once; gaps before it become fillers.

        Returns:
            The number of fillers added; -1 when the offset exists already (the unit is not added).
        """
        # Recovery meets a record twice where the log was written on after a cut: the first one has the offset.
        gap = offset - self.next_offset
        if gap < 0:
            return -1
        if gap:
            self.tail += FILLER_BYTES * gap
            self._fillers.append(range(self.next_offset, offset))
        self.tail += unit
        self.next_offset = self.max_offset = offset + 1
        return gap

    def lose_until(self, end: int) -> int:
        """Note that the queue had offsets up to `end`, whose last records are lost; returns how many are new here."""
        gap = end - self.next_offset
        if gap <= 0:
            return 0
        if self.max_offset == self.base_offset:
            # No record is left beside which a filler could stand.
            self.start_at(end, end)
        else:
            self.tail += FILLER_BYTES * gap
            self._fillers.append(range(self.next_offset, end))
            self.next_offset = self.max_offset = end
        return gap

    def advance_minimum(self, log_minimum: int, *, all_there: bool = False) -> bool:
        """Move `min_offset` past units whose records lie before `log_minimum`, or that are missing.

        Args:
            log_minimum: Commit-log offset of the first byte that is kept.
            all_there: Every unit should be in the files: stop at one that is not.

        Returns:
            False when it stopped: whether that record is kept is unknown.
        """
        self._places.clear()
        while log_minimum and self.min_offset < self.max_offset:
            for physical, size, _ in self.read_unchecked(self.min_offset, 1024):
                if not size and all_there:
                    return False
                if physical >= log_minimum and size != FILLER_SIZE:
                    return True
                self.min_offset += 1
        return True

    def record_at(self, log_offset: int) -> Unit | None:
        """Return the unit of the first record that is at `log_offset` or behind it, None when there is none.

        Raises:
            OSError: The queue's file cannot be read.
        """
        offset, _ = self._next_record(self.first_at(log_offset), self.max_offset)
        return self.read(offset, 1)[0] if offset < self.max_offset else None

    def first_at(self, log_offset: int) -> int:
        """Return the first offset whose record is at `log_offset` or behind it; `max_offset` when there is none.

        Units without a record that are right before it count as its own.

        Raises:
            OSError: The queue's file cannot be read.
        """
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            offset, physical = self._next_record(middle, high)
            if physical is None or physical >= log_offset:
                high = middle
            else:
                low = offset + 1
        return low

    def _next_record(self, offset: int, end: int) -> tuple[int, int | None]:
        """First offset from `offset` on with a record, and where that is; None when only empty units are left."""
        count = 1
        while offset < end:
            for physical, size, _ in self.read(offset, min(count, end - offset)):
                if size not in (0, FILLER_SIZE):
                    return offset, physical
                offset += 1
            count = 1024
        return end, None

    def end_in_files(self) -> int:
        """Return one past the highest offset that the files hold, also of other writers; 0 when there is no file.

        Raises:
            OSError: A file cannot be read.
        """
        names = [name for name in self._disk.list(self._folder) if is_number(name)]
        file = self._file(self._number(names[-1])) if names else None
        if file is None:
            return 0
        used = len(self._read_around(file, 0, self.file_units * UNIT_BYTES).rstrip(b"\x00"))
        return self._number(names[-1]) * self.file_units + -(-used // UNIT_BYTES)

    def read_unchecked(self, offset: int, count: int) -> list[Unit]:
        """Return what `read` does, as the files have it: for looks at the form of units alone. Raises the same."""
        checker, self.checker = self.checker, None
        try:
            return self.read(offset, count)
        finally:
            self.checker = checker

    def neighbour(self, offset: int) -> Unit | None:
        """Return the unit at an offset, unchecked; None when the offset is not visible."""
        return self.read_unchecked(offset, 1)[0] if self.min_offset <= offset < self.max_offset else None

    def last_unit(self) -> Unit | None:
        """Return the newest visible unit, unchecked; None when the queue is empty."""
        return self.neighbour(self.max_offset - 1)

    # Files

    def write_tail(self) -> int:
        """Write the visible units that no file holds yet; durable after `sync`. Returns their number.

        Raises:
            OSError: ENOSPC when a new file cannot be claimed (units written so far stay written, the others stay in
                memory), or another failure.
        """
        written = 0
        while self._tail_base < self.max_offset:
            number, place = divmod(self._tail_base, self.file_units)
            count = min(self.max_offset - self._tail_base, self.file_units - place)
            file = self._file_to_write(number)
            data = self._as_filed(bytes(self.tail[: count * UNIT_BYTES]))
            assert len(data) == count * UNIT_BYTES, "a filler has the size of the unit in whose place it is"
            self._write_around(file, place * UNIT_BYTES, data)
            self._sums.add(data, minimum=self.min_offset)
            self._unsynced[number] = file
            del self.tail[: count * UNIT_BYTES]
            self._tail_base += count
            written += count
        return written

    def _as_filed(self, data: bytes) -> bytes:
        """Return the first units of the tail as the file holds them: fillers repeat a unit beside them."""
        base = self._tail_base
        for gap in self._fillers:
            # Places in `data`; empty for gaps that older files have, or that are not visible yet.
            start, end = max(gap.start, base) - base, min(gap.stop, base + len(data) // UNIT_BYTES) - base
            if start < end:
                beside = self.neighbour(gap.stop if gap.stop < self.max_offset else gap.start - 1)
                data = b"".join(
                    (data[: start * UNIT_BYTES], repeated(beside) * (end - start), data[end * UNIT_BYTES :])
                )
        return data

    def sync(self) -> None:
        """Make what `write_tail` wrote durable."""
        for folder in self._unsynced_folders:
            self._disk.sync_folder(folder)
        self._unsynced_folders.clear()
        for file in self._unsynced.values():
            file.sync()
        self._unsynced.clear()
        self._files.trim()

    @property
    def is_unsynced(self) -> bool:
        """Whether something was written that is not durable."""
        return bool(self._unsynced or self._unsynced_folders)

    def begin_sync(self) -> list[Single]:
        """Return the files and folders to sync; `end_sync` follows. No file may be removed meanwhile."""
        unsynced: list[Single] = [*self._unsynced_folders, *self._unsynced.values()]
        self._held = tuple(self._unsynced)
        self._unsynced_folders.clear()
        self._unsynced.clear()
        return unsynced

    def end_sync(self) -> None:
        """Let the synced files be closed."""
        self._held = ()
        self._files.trim()

    def remove_later_files(self) -> None:
        """Remove the files that hold nothing but offsets from `max_offset` on, or below the oldest that counts.

        Raises:
            OSError: A file cannot be removed.
        """
        keep = -(-self.max_offset // self.file_units)
        removed = False
        for name in self._disk.list(self._folder):
            if is_number(name) and not self._files_base // self.file_units <= self._number(name) < keep:
                self._files.close(self, self._number(name))
                self._disk.remove(f"{self._folder}/{name}")
                removed = True
        if removed:
            self._disk.sync_folder(self._folder)

    def cut_files(self) -> None:
        """Remove what the files hold from `max_offset` on, so that old units can never be taken for new ones.

        Reads the rest of the queue's last file. Durable after `sync`.

        Raises:
            OSError: A file cannot be changed.
        """
        self.remove_later_files()
        number, place = divmod(self.max_offset, self.file_units)
        if place and (file := self._file(number)) is not None:
            for start in range(place * UNIT_BYTES, self.file_units * UNIT_BYTES, _ZEROS_BYTES):
                count = min(_ZEROS_BYTES, self.file_units * UNIT_BYTES - start)
                data, bad = read_around(file, start, count)
                if bad or data.strip(b"\x00"):
                    self._write_around(file, start, bytes(count))
                    self._unsynced[number] = file

    def dropping_files(self) -> FileWrite:
        """Delete the files that hold nothing from `min_offset` on, but never the last one, as RocketMQ does.

        Raises:
            OSError: One cannot be deleted.
        """
        names = [name for name in self._disk.list(self._folder) if is_number(name)]
        gone = [name for name in names[:-1] if self._number(name) < self.min_offset // self.file_units]
        for name in gone:
            number = self._number(name)
            self._unsynced.pop(number, None)
            self._files.close(self, number)
            self._disk.remove(f"{self._folder}/{name}")
        if gone:
            yield self._folder

    def removing_files(self) -> FileWrite:
        """Close and remove all files: the topic is deleted. Raises OSError.

        Later reads raise RecordGone. Missing files would be taken for damage, and rebuilt.
        """
        self.start_at(self.max_offset, self.max_offset)
        self.close()
        self._unsynced.clear()
        self._unsynced_folders.clear()
        self._has_sure_names = False
        names = self._disk.list(self._folder)
        for name in names:
            self._disk.remove(f"{self._folder}/{name}")
        if names:
            # A queue that never had a message has no folder.
            yield self._folder

    def overwrite(self, offset: int, data: bytes) -> None:
        """Overwrite units in the files, from an offset on; durable after `sync`. Raises OSError."""
        at = 0
        while at < len(data):
            number, place = divmod(offset + at // UNIT_BYTES, self.file_units)
            part = data[at : at + (self.file_units - place) * UNIT_BYTES]
            file = self._file_to_write(number)
            self._write_around(file, place * UNIT_BYTES, part)
            self._unsynced[number] = file
            at += len(part)

    def void_above(self, offset: int) -> int:
        """How many offsets from `offset` on never held anything: those between two lives of the topic."""
        return max(0, self.base_offset - max(offset, self.void_from))

    @property
    def end_of_files(self) -> int:
        """One past the last visible offset whose unit the files hold."""
        return self._tail_base

    def units_in_files(self, offset: int, end: int) -> list[Unit]:
        """Units [offset, end) as the files hold them. Raises OSError."""
        return list(UNIT.iter_unpack(self._read_files(offset, end)))

    def file_start(self, offset: int) -> int:
        """First offset of the file that an offset is in."""
        return offset // self.file_units * self.file_units

    def _number(self, name: str) -> int:
        return int(name) // (self.file_units * UNIT_BYTES)

    def is_in_use(self, number: int) -> bool:
        """Whether a file is not synced yet, or is being synced, and so may not be closed."""
        return number in self._unsynced or number in self._held

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number * self.file_units * UNIT_BYTES:020d}"

    def _file(self, number: int) -> DiskFile | None:
        """Return a file for reading; None when it is not there."""
        file = self._files.find(self, number)
        if file is None and self._disk.exists(path := self._path(number)):
            file = self._opened(number, partial(self._disk.open, path))
        return file

    def _opened(self, number: int, open_it: Callable[[], DiskFile]) -> DiskFile:
        return self._files.opened(self, number, open_it, partial(self.is_in_use, number))

    def _file_to_write(self, number: int) -> DiskFile:
        """Return a file of its full size, made where it is missing."""
        file = self._files.find(self, number)
        if file is not None:
            return file
        path = self._path(number)
        if not self._disk.exists(path):
            return self._opened(number, partial(self._create, path, number))
        file = self._opened(number, partial(self._disk.open, path))
        if not self._has_sure_names:
            # Its maker may have been killed before the name was durable.
            self._have_names_synced()
        if file.size() != self.file_units * UNIT_BYTES:
            file.truncate(self.file_units * UNIT_BYTES)
        return file

    def _create(self, path: str, number: int) -> DiskFile:
        self._disk.make_folder(self._folder, durable=False)
        self._have_names_synced()
        file = self._disk.open(path, create=True)
        try:
            file.allocate(self.file_units * UNIT_BYTES)
            missing = min(self._files_base, (number + 1) * self.file_units) - number * self.file_units
            if missing > 0:
                # RocketMQ reads a queue that starts inside a file from its fillers on. Units of a file that was lost
                # stay empty instead: they fail their check when they are read, and are made again.
                file.write(0, [FILLER_BYTES * missing])
        except OSError:
            file.close()
            self._disk.remove(path)
            raise
        return file

    def _have_names_synced(self) -> None:
        """Have the next sync make the names of files durable, and of the folders the first time."""
        folders = [self._folder]
        if not self._has_sure_names:
            topic_folder = self._folder.rpartition("/")[0]
            folders += [topic_folder, topic_folder.rpartition("/")[0]]
            self._has_sure_names = True
        self._unsynced_folders += [each for each in folders if each not in self._unsynced_folders]

    def close(self) -> None:
        """Close the files."""
        self._files.close_all_of(self)


def syncing(queues: Sequence[ConsumeQueue]) -> FileWrite:
    """Sync the files and folders of several queues side by side; what is written meanwhile waits for the next sync."""
    unsynced = [each for queue in queues for each in queue.begin_sync()]
    try:
        if unsynced:
            yield list(dict.fromkeys(unsynced))
    finally:
        for queue in queues:
            queue.end_sync()


def _padded(data: bytes, count: int) -> bytes:
    """Return the whole units in `data`, and empty ones up to `count`."""
    return data[: len(data) // UNIT_BYTES * UNIT_BYTES].ljust(count * UNIT_BYTES, b"\x00")
