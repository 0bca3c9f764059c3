"""The timer wheel: RocketMQ's TimerWheel, 32 bytes per slot, two rounds of a week in one file that is never cleared.

====== ==== ==============================================================
offset size field
====== ==== ==============================================================
0      8    slot time in units of the precision
8      8    position of the slot's first unit in the timer log
16     8    position of its last unit
24     4    number of timers, less that of deletes
28     4    0
====== ==== ==============================================================

A slot whose time is another than the one asked for is a leftover of an earlier round, and empty. The file is sparse
and mapped, never read whole (D38). Changes are in memory until `write`; its caller has made the units durable
that they name.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker.runtime.disks.unreadable import is_readable
from broker.runtime.file_writes import FileWrite
from broker.runtime.seams import Disk, DiskFile
from broker.scheduled.timer.names import PRECISIONS_MS

SLOT = struct.Struct(">qqqii")
SLOT_BYTES = SLOT.size
assert SLOT_BYTES == 32
_BLOCK_SLOTS = 512
_ZEROS = bytes(_BLOCK_SLOTS * SLOT_BYTES)
_unpack = SLOT.unpack_from
_unpack_time = struct.Struct(">q").unpack_from


class Slot(NamedTuple):
    """A slot: positions of its first and last unit, number of timers less deletes."""

    first: int
    last: int
    timers: int


class TimerWheel:
    """The wheel of one store.

    Attributes:
        slots: Slots of half a round.
        precision_ms: Width of a slot.
        changed: How many slots wait to be written.
    """

    def __init__(self, root: str, *, disk: Disk, slots: int, precision_ms: int) -> None:
        self.slots = slots
        self.precision_ms = precision_ms
        self._root = root
        self._path = f"{root}/timerwheel"
        self._disk = disk
        self._file: DiskFile | None = None
        self._view = memoryview(b"")
        self._dirty: dict[int, tuple[int, Slot]] = {}
        self._unsynced = False

    @property
    def round_ms(self) -> int:
        """Length of a round: two slots that far apart share their place."""
        return 2 * self.slots * self.precision_ms

    def open(self) -> bool:
        """Map the file; False when it is not there, has another size, or cannot be read whole. Raises OSError."""
        if not self._disk.exists(self._path):
            return False
        file = self._disk.open(self._path)
        # A page that the disk does not give out would end the process when it is looked at; wheels are made again.
        if file.size() != 2 * self.slots * SLOT_BYTES or not is_readable(file, file.size()):
            file.close()
            return False
        self._file, self._view = file, file.view()
        # What a killed process wrote last may be in the page cache alone.
        self._unsynced = True
        return True

    def reset(self) -> None:
        """Begin again with empty slots. Raises OSError."""
        self.close()
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
        file = self._disk.open(self._path, create=True)
        try:
            file.truncate(2 * self.slots * SLOT_BYTES)
            self._disk.sync_folder(self._root)
        except OSError:
            file.close()
            self._disk.remove(self._path)
            raise
        self._file, self._view = file, file.view()
        self._unsynced = True

    def get(self, slot_ms: int) -> Slot | None:
        """Return a slot by its time in ms, None when it is empty."""
        time = slot_ms // self.precision_ms
        index = time % (2 * self.slots)
        changed = self._dirty.get(index)
        if changed is not None:
            return changed[1] if changed[0] == time else None
        found, first, last, count, _ = _unpack(self._view, index * SLOT_BYTES)
        return Slot(first, last, count) if found == time else None

    def next_used(self, slot_ms: int, end_ms: int) -> int:
        """Time of the first slot of [slot_ms, end_ms) that is not empty; `end_ms` when all of them are."""
        precision, places, view, dirty = self.precision_ms, 2 * self.slots, self._view, self._dirty
        # A slot is named by the moment at which it begins, so its number is a plain division.
        time, end = slot_ms // precision, end_ms // precision
        if end - time > places:
            # More than a round: a place has one time, and one look at each suffices.
            times = (_unpack_time(view, index * SLOT_BYTES)[0] for index in range(places) if index not in dirty)
            found = [each for each in (*times, *(each for each, _ in dirty.values())) if time <= each < end]
            return min(found) * precision if found else end_ms
        while time < end:
            index = time % places
            # Not over the end of the ring: what follows there is an earlier time.
            block = min(_BLOCK_SLOTS, end - time, places - index)
            # Most of a wheel was never used: whole blocks of it are zero.
            if _ZEROS.startswith(view[index * SLOT_BYTES : (index + block) * SLOT_BYTES]) and not any(
                index <= each < index + block for each in dirty
            ):
                time += block
                continue
            for each in range(time, time + block):
                index = each % places
                # Another time at this place is a slot of an earlier round.
                used = _unpack_time(view, index * SLOT_BYTES)[0] == each or index in dirty
                if used and self.get(each * precision) is not None:
                    return each * precision
            time += block
        return end_ms

    def precision_near(self, moment_ms: int) -> int:
        """Width of the slots in the file, in ms, found from their times, the latest of which is near a moment."""
        latest = 0
        for index in range(0, 2 * self.slots, _BLOCK_SLOTS):
            block = self._view[index * SLOT_BYTES : (index + _BLOCK_SLOTS) * SLOT_BYTES]
            if not _ZEROS.startswith(block):
                latest = max(latest, *(time for time, *_ in SLOT.iter_unpack(block)))
        if not latest:
            return self.precision_ms
        # Two of them differ by more than a round is of all time.
        return min(PRECISIONS_MS, key=lambda each: abs(latest * each - moment_ms))

    def leads_out(self, read_ms: int, end: int) -> bool:
        """Whether a slot from a moment on names what is no unit below a position of the timer log.

        A power loss may leave such slots: torn, or ahead of a timer log that lost its end.
        """
        time_from, view = read_ms // self.precision_ms, self._view
        for index in range(0, 2 * self.slots, _BLOCK_SLOTS):
            block = view[index * SLOT_BYTES : (index + _BLOCK_SLOTS) * SLOT_BYTES]
            if _ZEROS.startswith(block):
                continue
            for place, (time, first, last, _, _) in enumerate(SLOT.iter_unpack(block), index):
                # `first` and `last` are positions in the timer log, and a chain leads from the last back to the first.
                if time >= time_from and not 0 <= first <= last < end and place not in self._dirty:
                    return True
        return any(time >= time_from and slot.last >= end for time, slot in self._dirty.values())

    def put(self, slot_ms: int, slot: Slot) -> None:
        """Set a slot."""
        time = slot_ms // self.precision_ms
        self._dirty[time % (2 * self.slots)] = (time, slot)

    def empty(self, slot_ms: int) -> None:
        """Make a slot empty, as one that was never used."""
        if self.get(slot_ms) is not None:
            self._dirty[slot_ms // self.precision_ms % (2 * self.slots)] = (-1, Slot(-1, -1, 0))

    @property
    def changed(self) -> int:
        """How many slots wait to be written."""
        return len(self._dirty)

    def write(self) -> None:
        """Write what changed. Raises OSError: what was not written waits on."""
        self.write_taken(self.take())

    def take(self) -> dict[int, tuple[int, Slot]]:
        """Return what changed, as it is now."""
        return dict(self._dirty)

    def write_taken(self, taken: dict[int, tuple[int, Slot]]) -> None:
        """Write what `take` returned; what changed since then waits on, as what was not written. Raises OSError."""
        file = self._file
        if not taken or file is None:
            return
        self._unsynced = True
        run: list[bytes] = []
        start = 0
        for index in sorted(taken):
            if run and index != start + len(run):
                _write(file, start, run)
                run = []
            if not run:
                start = index
            time, (first, last, count) = taken[index]
            run.append(SLOT.pack(time, first, last, count, 0))
        _write(file, start, run)
        dirty = self._dirty
        for index, slot in taken.items():
            if dirty.get(index) is slot:
                del dirty[index]

    def sync(self) -> None:
        """Make what was written durable, by an earlier process, too. Raises OSError."""
        if self._file is not None and self._unsynced:
            self._file.sync()
            self._unsynced = False

    def syncing(self) -> FileWrite:
        """`sync` in steps."""
        if self._file is not None and self._unsynced:
            self._unsynced = False
            yield self._file

    def close(self) -> None:
        """Close the file; what changed is forgotten."""
        self._dirty.clear()
        self._view = memoryview(b"")
        if self._file is not None:
            self._file.close()
            self._file = None


def _write(file: DiskFile, start: int, run: list[bytes]) -> None:
    file.write(start * SLOT_BYTES, [b"".join(run)])
