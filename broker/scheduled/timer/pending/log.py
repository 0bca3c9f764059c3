"""The timer log: RocketMQ's TimerLog, a chain of 52-byte units per slot of the wheel.

====== ==== =======================================================================================================
offset size field
====== ==== =======================================================================================================
0      4    52
4      8    position of the unit before in the same slot, -1 for none
12     4    magic: bits 1 timer, 2 roll, 4 delete
16     8    write time: the slot time of the moment at which it was enqueued, ms
24     4    slot time less write time, ms
28     8    commit-log offset of the record
36     4    its size; 0: the record was replaced or cancelled before it was due
40     4    Java's hash of the real topic
44     8    due time, ms (RocketMQ writes 0 and never reads it, D28)
====== ==== =======================================================================================================

Units stand in the order of the timer topic's queue, so a record's unit is found by bisection. A file holds as many
units as leave 16 bytes for a blank, and has its full size, sparse, from the start. All of it is derived from the commit
log: what follows the checkpoint is compared with its records, and damage has everything made again (`opening`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from broker.errors import StoreError
from broker.log.commit_log import segment_name
from broker.runtime.disks.unreadable import is_readable
from broker.runtime.file_writes import FileWrite
from broker.runtime.names import is_number
from broker.runtime.seams import Disk, DiskFile

UNIT = struct.Struct(">iqiqiqiiq")
UNIT_BYTES = UNIT.size
assert UNIT_BYTES == 52
_BLANK = struct.Struct(">iqi")
BLANK_MAGIC = 0xCBD43194 - (1 << 32)
MAGIC_TIMER = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
MAGIC_END = 1 << 4
_PREVIOUS_AT, _PHYSICAL_AT, SIZE_AT, _DUE_AT = 4, 28, 36, 44
_I64 = struct.Struct(">q")
_unpack = UNIT.unpack_from
_unpack_i64 = _I64.unpack_from
# NamedTuple's own constructor is a Python function; this one is not.
_new = tuple.__new__


class TimersDamaged(StoreError):
    """A unit or slot says what cannot be: log and wheel have to be made again from the commit log."""


class Unit(NamedTuple):
    """One unit; see the module's docstring. `slot_ms` is the time of its slot; `size` is 0 when it needs nothing."""

    previous: int
    magic: int
    slot_ms: int
    physical: int
    size: int
    topic_hash: int
    due_ms: int


class Taken(NamedTuple):
    """A timer that is being delivered: where its unit is, -1 for one that was refused when the store was opened."""

    position: int
    unit: Unit


class TimerLog:
    """The timer log of one store.

    Attributes:
        file_bytes: Size of its files.
        count: Number of the next unit; units count from the log's beginning, files that are gone included.
        first: Number of the oldest unit that is kept.
        generation: Number of rebuilds. Unit numbers and positions are valid in one generation only, so code that keeps
            one across a step of other work compares the generation, or keeps the position here.
        relocated: Number of the first unit that retention has still to look at (`TimerHold`): those before it are
            completed, or their records are in what is kept.
        marked: Positions of units that need nothing any more, and whose size is not 0 in the file before the next
            `write_marks`; who finds that out adds them.
    """

    def __init__(self, root: str, *, disk: Disk, file_bytes: int) -> None:
        self.file_bytes = self._file_bytes_new = file_bytes
        self.count = self.first = self.relocated = self.generation = 0
        self._folder = f"{root}/timerlog"
        self._disk = disk
        self._files: dict[int, DiskFile] = {}
        self._views: dict[int, memoryview] = {}
        self._made: set[int] = set()  # files that this process made: nothing in them has to come from the disk
        self._unsynced: set[int] = set()
        self.marked: set[int] = set()
        self._per_file = (file_bytes - _BLANK.size) // UNIT_BYTES
        # Number of the unit behind the one that was found last: those of a burst are asked for one after another.
        self._next = 0

    # Opening

    def open(self) -> bool:
        """Open the files that are there, and take their size over; return whether there are any.

        Raises:
            TimersDamaged: They differ in size, one is missing between two, or a stop came while the last was cut.
            OSError: One cannot be read.
        """
        names = sorted((name for name in self._disk.list(self._folder) if is_number(name)), key=int)
        sizes = set()
        for name in names:
            file = self._disk.open(f"{self._folder}/{name}")
            if name == names[-1] and not file.size():
                # A stop came between its name and its size: it has no unit, and is made when it is needed.
                file.close()
                break
            self._files[int(name)] = file
            sizes.add(file.size())
        if not self._files:
            return False
        size = sizes.pop()
        bases = sorted(self._files)
        if sizes or size < 2 * UNIT_BYTES or bases != list(range(bases[0], bases[0] + size * len(bases), size)):
            raise TimersDamaged("the files of the timer log do not fit together")
        if size < self.file_bytes and not size % UNIT_BYTES:
            # Full files have room for a blank besides; to believe this one would have all others made as small.
            raise TimersDamaged("a cut of the timer log was broken off")
        if bases[0] % size:
            raise TimersDamaged("a file of the timer log has a wrong name")
        self._take_size(size)
        self._files = {base // size: file for base, file in self._files.items()}
        self.first = self.count = min(self._files) * self._per_file
        # What a killed process wrote last may be in the page cache alone.
        self._unsynced.update(self._files)
        return True

    def _take_size(self, file_bytes: int) -> None:
        self.file_bytes = file_bytes
        self._per_file = (file_bytes - _BLANK.size) // UNIT_BYTES

    def reset(self) -> None:
        """Begin again with nothing, and files of the size that was asked for. Raises OSError."""
        self.close()
        self._take_size(self._file_bytes_new)
        for name in self._disk.list(self._folder):
            self._disk.remove(f"{self._folder}/{name}")
        if self._disk.exists(self._folder):
            self._disk.sync_folder(self._folder)
        self.count = self.first = self.relocated = self._next = 0
        self.generation += 1
        self.marked.clear()
        self._made.clear()

    def cut(self, count: int) -> None:
        """Make everything from a unit's number on empty. Raises OSError."""
        number, at = divmod(count, self._per_file)
        for each in [each for each in self._files if each > number or (each == number and not at)]:
            self._drop(each)
        if at and number in self._files:
            self._views.pop(number, None)
            # (A stop between the two leaves a size that `open` takes for damage.)
            self._files[number].truncate(at * UNIT_BYTES)
            self._files[number].truncate(self.file_bytes)
            self._unsynced.add(number)
        end = self.position(count)
        self.marked = {position for position in self.marked if position < end}
        self.count = count
        self.first = min(self.first, count)
        self.relocated = min(self.relocated, count)

    def in_files(self) -> int:
        """Return the number behind the last unit that the files have room for."""
        return (max(self._files) + 1) * self._per_file if self._files else 0

    # Positions

    def position(self, number: int) -> int:
        """Position of a unit: what slots and other units name it by."""
        return number // self._per_file * self.file_bytes + number % self._per_file * UNIT_BYTES

    def number(self, position: int) -> int:
        """Return the number of the unit at a position.

        Raises:
            TimersDamaged: No unit can be there.
        """
        file, at = divmod(position, self.file_bytes)
        place, rest = divmod(at, UNIT_BYTES)
        if rest or place > self._per_file or position < 0:
            raise TimersDamaged(f"no unit of the timer log begins at {position}")
        return file * self._per_file + place

    # Appending

    def append(self, units: bytes | bytearray) -> None:
        """Write whole units behind the last. Raises OSError: nothing, or some of them, were written; try again."""
        data = memoryview(units)
        count = self.count
        assert not len(data) % UNIT_BYTES, "whole units only: the place of each is its number"
        while data:
            number, place = divmod(count, self._per_file)
            part = data[: (self._per_file - place) * UNIT_BYTES]
            file = self._file(number)
            file.write(place * UNIT_BYTES, [part])
            count += len(part) // UNIT_BYTES
            # RocketMQ reads a file until its blank.
            if place * UNIT_BYTES + len(part) == self._per_file * UNIT_BYTES:
                at = self._per_file * UNIT_BYTES
                file.write(at, [_BLANK.pack(self.file_bytes - at, 0, BLANK_MAGIC)])
            self._unsynced.add(number)
            data = data[len(part) :]
        self.count = count

    def _file(self, number: int) -> DiskFile:
        file = self._files.get(number)
        if file is None:
            self._disk.make_folder(self._folder)
            path = f"{self._folder}/{segment_name(number * self.file_bytes)}"
            file = self._disk.open(path, create=True)
            try:
                file.truncate(self.file_bytes)
                # Its size before its name: the existing files show how large they are.
                file.sync()
                self._disk.sync_folder(self._folder)
            except OSError:
                file.close()
                self._disk.remove(path)
                raise
            self._files[number] = file
            self._made.add(number)
        return file

    def write_marks(self) -> None:
        """Write the marks. Whoever calls it made durable before what they follow from. Raises OSError."""
        for position in list(self.marked):
            self._write_at(position + SIZE_AT, bytes(4))
            self.marked.discard(position)

    def unmark(self, position: int, size: int) -> None:
        """Give a unit its record's size back. Raises OSError."""
        self.marked.discard(position)
        self._write_at(position + SIZE_AT, size.to_bytes(4, "big"))

    def relink(self, position: int, previous: int) -> None:
        """Have a unit follow another one in its slot, or none (-1). Raises OSError."""
        self._write_at(position + _PREVIOUS_AT, _I64.pack(previous))

    def set_due(self, position: int, due_ms: int) -> None:
        """Give a unit its due time. Raises OSError."""
        self._write_at(position + _DUE_AT, _I64.pack(due_ms))

    def _write_at(self, position: int, data: bytes) -> None:
        number, at = divmod(position, self.file_bytes)
        file = self._files.get(number)
        if file is not None:
            file.write(at, [data])
            self._unsynced.add(number)

    def write_anew(self, start: int, end: int) -> None:
        """Write the units numbered [start, end) once more, as they stand.

        Raises:
            TimersDamaged, OSError: As `raw`; a write fails.
        """
        for first, behind in self.runs(start, end, self._per_file):
            number, place = divmod(first, self._per_file)
            view = self.view(number)
            data = bytes(view[place * UNIT_BYTES : (place + behind - first) * UNIT_BYTES])
            self._files[number].write(place * UNIT_BYTES, [data])
            self._unsynced.add(number)

    def sync(self) -> None:
        """Make what was written durable. Raises OSError."""
        for number in sorted(self._unsynced):
            self._files[number].sync()
        self._unsynced.clear()

    def syncing(self) -> FileWrite:
        """`sync` in steps; what is written meanwhile waits for the next one. No file may go meanwhile."""
        for number in sorted(self._unsynced):
            self._unsynced.discard(number)
            yield self._files[number]

    # Reading

    def unit(self, position: int) -> Unit:
        """Return the unit at a position.

        Raises:
            TimersDamaged: There is none.
            OSError: The file cannot be mapped.
        """
        number, at = divmod(position, self.file_bytes)
        view = self.view(number)
        if position < 0 or at > self.last_at:
            raise TimersDamaged(f"no unit of the timer log begins at {position}")
        unit_bytes, previous, magic, write_ms, delay_ms, physical, size, topic_hash, due_ms = _unpack(view, at)
        if unit_bytes != UNIT_BYTES or not 0 < magic < MAGIC_END or physical < 0 or size < 0:
            raise TimersDamaged(f"the unit of the timer log at {position} is damaged")
        if position in self.marked:
            size = 0
        return _new(Unit, (previous, magic, write_ms + delay_ms, physical, size, topic_hash, due_ms))

    def chain(self, position: int, slot_ms: int, *, above: int, count_max: int) -> tuple[list[tuple[int, Unit]], int]:
        """Return the units of a slot from a position on back, and the position to continue at, -1 at the end.

        Args:
            position: Of one of its units.
            slot_ms: The slot's time.
            above: Only units behind this position; the chain may continue there.
            count_max: How many at most.

        Raises:
            TimersDamaged: The chain leaves the slot, or the log.
            OSError: A file cannot be mapped.
        """
        found: list[tuple[int, Unit]] = []
        first, end = self.position(self.first), self.position(self.count)
        while position > above and len(found) < count_max:
            if position >= end:
                raise TimersDamaged(f"the slot {slot_ms} refers to {position}, behind the end of the timer log")
            if position < first:
                return found, -1
            unit = self.unit(position)
            # A unit names the one before it in its slot: anything else would go round, or into another slot.
            if unit[2] != slot_ms or unit[0] >= position or position % self.file_bytes % UNIT_BYTES:
                raise TimersDamaged(f"the unit of the timer log at {position} is not one of the slot {slot_ms}")
            found.append((position, unit))
            position = unit[0]
        return found, position

    def raw(self, start: int, end: int) -> Iterator[tuple[int, ...]]:
        """Yield the units numbered [start, end) of one file as they stand: fields as in the module's docstring.

        Raises:
            TimersDamaged, OSError: As `bytes_of`.
        """
        return UNIT.iter_unpack(self.bytes_of(start, end))

    def bytes_of(self, start: int, end: int) -> memoryview:
        """Return the bytes of the units numbered [start, end) of one file, as they stand.

        Raises:
            TimersDamaged: The file is not there.
            OSError: It cannot be mapped.
        """
        number, place = divmod(start, self._per_file)
        assert end <= (number + 1) * self._per_file
        view = self.view(number)
        return view[place * UNIT_BYTES : (place + end - start) * UNIT_BYTES]

    def runs(self, start: int, end: int, count_max: int) -> Iterator[tuple[int, int]]:
        """Cut [start, end) into runs of bounded length within one file each."""
        while start < end:
            stop = min(end, start + count_max, (start // self._per_file + 1) * self._per_file)
            yield start, stop
            start = stop

    def find(self, physical: int) -> int | None:
        """Position of the unit of the record at a commit-log offset; None when it has none.

        Raises:
            TimersDamaged: A file is missing.
            OSError: A file cannot be mapped.
        """
        number = self._next
        if not self.first <= number < self.count or self._physical(number) != physical:
            number = self._bisect(physical)
            if number == self.count or self._physical(number) != physical:
                return None
        self._next = number + 1
        return self.position(number)

    def _bisect(self, physical: int) -> int:
        """Number of the first unit whose record is not before a commit-log offset."""
        low, high = self.first, self.count
        while low < high:
            middle = (low + high) // 2
            if self._physical(middle) < physical:
                low = middle + 1
            else:
                high = middle
        return low

    def _physical(self, unit: int) -> int:
        number, place = divmod(unit, self._per_file)
        view = self.view(number)
        return int(_unpack_i64(view, place * UNIT_BYTES + _PHYSICAL_AT)[0])

    def following(self, position: int) -> int | None:
        """Commit-log offset of the record of the unit behind a position; None for the last. Raises as `number`."""
        number = self.number(position) + 1
        return self._physical(number) if number < self.count else None

    def view(self, number: int) -> memoryview:
        """Return a mapped file; they are numbered from 0 on, those that are gone included.

        Raises:
            TimersDamaged: It is not there, or cannot be read whole.
            OSError: It cannot be mapped.
        """
        view = self._views.get(number)
        if view is not None:
            return view
        file = self._files.get(number)
        if file is None:
            raise TimersDamaged(f"file {segment_name(number * self.file_bytes)} of the timer log is missing")
        if number not in self._made and not is_readable(file, file.size()):
            # Looked at, such a page would end the process; the timer log is made again.
            raise TimersDamaged(f"the disk cannot read {segment_name(number * self.file_bytes)} of the timer log")
        view = self._views[number] = file.view()
        return view

    @property
    def last_at(self) -> int:
        """Where the last unit of a file begins in it."""
        return (self._per_file - 1) * UNIT_BYTES

    # Retention

    def drop_before(self, physical: int, *, keep: int) -> int:
        """Delete the files whose units all name records below a commit-log offset, never the last; return how many.

        Args:
            physical: The commit-log offset.
            keep: Position of the first unit that is still referenced: its file stays, and those behind it.

        Raises:
            OSError: One cannot be deleted.
        """
        dropped = 0
        for number in sorted(self._files)[:-1]:
            following = (number + 1) * self._per_file
            if following > self.count or self.position(following) > keep or self._physical(following - 1) >= physical:
                break
            self._drop(number)
            self.first = following
            dropped += 1
        return dropped

    def _drop(self, number: int) -> None:
        self._views.pop(number, None)
        self._unsynced.discard(number)
        self._files.pop(number).close()
        self._disk.remove(f"{self._folder}/{segment_name(number * self.file_bytes)}")
        self._disk.sync_folder(self._folder)

    def close(self) -> None:
        """Close the files."""
        self._views.clear()
        self._unsynced.clear()
        for file in self._files.values():
            file.close()
        self._files.clear()
