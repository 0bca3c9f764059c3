"""One index file in RocketMQ's layout: a hash table of `topic#key` to commit-log offsets.

====================== ==== ===========================================================================
offset                 size field (big-endian)
====================== ==== ===========================================================================
0                      8    store time of the first entry, ms
8                      8    store time of the last entry, ms
16                     8    commit-log offset of the first entry
24                     8    commit-log offset of the last entry
32                     4    slots in use
36                     4    number of the next entry; entries count from 1
40 + 4 s               4    slot s: number of its newest entry, 0 for none
40 + 4 slots + 20 n    20   entry n: i32 key hash, i64 commit-log offset, i32 seconds since the first
                            entry's store time (0 to 2^31 - 1), i32 entry before it in the slot
====================== ==== ===========================================================================

The file has its full size from the start, with the space claimed. Entries are written as they come, one after the
other; slots and header stay in memory until `save`, which makes both durable. So on disk the header counts only what
was saved, and entries behind that are nothing. Two sums (header with slots, entries) show whether a file is what was
saved: RocketMQ has no place for them, so they are kept elsewhere (`broker.index.index`).

Files are derived from the log: whatever is wrong with one raises `IndexDamaged`, and it is made again.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import NamedTuple

from broker.index.rows import Rows
from broker.runtime.accelerators import accelerated
from broker.runtime.file_writes import Steps
from broker.runtime.seams import Disk, DiskFile
from broker.runtime.steps import run_now
from broker.runtime.sums import crc32

HEADER = struct.Struct(">qqqqii")
HEADER_BYTES = HEADER.size
assert HEADER_BYTES == 40
SLOT_BYTES = 4
ENTRY = struct.Struct(">iqii")
ENTRY_BYTES = ENTRY.size
assert ENTRY_BYTES == 20
ENTRIES_PER_SLOT = 4
"""RocketMQ's proportion (5,000,000 slots, 20,000,000 entries) and ours: a file's size then determines both."""
_SECONDS_MAX = 0x7FFFFFFF
_PAGE_SLOTS = 16_384
_CHUNK_BYTES = 1 << 20
_SWAP = sys.byteorder == "little"
assert array("i").itemsize == SLOT_BYTES


class IndexDamaged(Exception):
    """An index file is not what was saved; it is rebuilt from the log.

    Attributes:
        file: Which one.
    """

    def __init__(self, file: IndexFile, why: str) -> None:
        super().__init__(why)
        self.file = file


class IndexFileHeader(NamedTuple):
    """Times in ms and commit-log offsets of the first and the last entry; `next_entry` is 1 for an empty file."""

    begin_ms: int
    end_ms: int
    begin: int
    end: int
    slots_used: int
    next_entry: int


class Sums(NamedTuple):
    """CRC-32 of header with slots, CRC-32 of the entries from number 1 on, and the header that they belong to."""

    head: int
    entries: int
    header: IndexFileHeader


EMPTY = IndexFileHeader(0, 0, 0, 0, 0, 1)


class IndexFile:
    """One file; `load` or `create` it before `put`.

    Attributes:
        path: Where it is.
        header: As saved, or, while the file is being written, as it is now.
        sums: As last saved; None for a file of RocketMQ's.
        verified: Its content was compared with `sums` by this process, or written by it.
        resized: It has another size than the store's index files, which a file of RocketMQ's may have.
    """

    def __init__(self, disk: Disk, path: str, *, slots: int, entries: int, header: IndexFileHeader = EMPTY) -> None:
        self.path = path
        self.header = header
        self.sums: Sums | None = None
        self.verified = False
        self._disk = disk
        self._slots_total = slots
        self._entries_total = entries
        self._entries_at = HEADER_BYTES + SLOT_BYTES * slots
        self._bytes = self._entries_at + ENTRY_BYTES * entries
        self.resized = False
        self._open: tuple[DiskFile, array[int]] | None = None
        self._dirty: set[int] = set()
        self._pending = bytearray()
        self._pending_from = 1
        self._entries_sum = 0

    @property
    def entries_at(self) -> int:
        """Where its entries begin, number 0 first."""
        return self._entries_at

    @property
    def name(self) -> str:
        """Its file name."""
        return self.path.rpartition("/")[2]

    @property
    def full(self) -> bool:
        """Whether no entry fits any more. Entry 0 is never used."""
        return self.header.next_entry >= self._entries_total

    # Opening

    def read_header(self) -> None:
        """Read the header and look whether it can be one.

        Raises:
            IndexDamaged: The file has another size, or the header cannot be right.
            OSError: It cannot be read.
        """
        with closing(self._disk.open(self.path)) as file:
            size = file.size()
            if size != self._bytes and not self._fit(size):
                raise IndexDamaged(self, f"it has {size} bytes, not {self._bytes}")
            header = IndexFileHeader(*HEADER.unpack(file.read(0, HEADER_BYTES)))
        if header.next_entry == 0:
            # RocketMQ counts from 1 in memory and writes the count with the first entry.
            header = header._replace(next_entry=1)
        sane = (
            1 <= header.next_entry <= self._entries_total
            and 0 <= header.slots_used < header.next_entry
            and 0 <= header.begin <= header.end
            and header.begin_ms >= 0
        )
        if not sane:
            raise IndexDamaged(self, "its header is wrong")
        self.header = header

    def _fit(self, size: int) -> bool:
        """Take the sizes from the file: RocketMQ may have written it with its own, in the proportion that both have."""
        slots, rest = divmod(size - HEADER_BYTES, SLOT_BYTES + ENTRIES_PER_SLOT * ENTRY_BYTES)
        if rest or slots <= 0:
            return False
        self._slots_total, self._entries_total = slots, slots * ENTRIES_PER_SLOT
        self._entries_at = HEADER_BYTES + SLOT_BYTES * slots
        self._bytes = size
        self.resized = True
        return True

    def create(self) -> None:
        """Make the file again at its full size, empty, for writing.

        Raises:
            OSError: ENOSPC or another failure; nothing is left of it.
        """
        # A file that is there goes first: a query may be reading it.
        self.remove()
        file = self._disk.open(self.path, create=True)
        try:
            file.allocate(self._bytes)
        except OSError:
            file.close()
            self._disk.remove(self.path)
            raise
        self.header = EMPTY
        self.sums = None
        self.verified = True
        self._open = file, array("i", bytes(SLOT_BYTES * self._slots_total))
        self._pending_from = 1
        self._entries_sum = 0

    def load(self) -> None:
        """Take the file for writing: its slots come into memory.

        Raises:
            IndexDamaged: It is not what was saved.
            OSError: It cannot be read.
        """
        run_now(self.verify())
        file = self._disk.open(self.path)
        slots = array("i", file.read(HEADER_BYTES, SLOT_BYTES * self._slots_total))
        if _SWAP:
            slots.byteswap()
        if max(slots) >= self.header.next_entry or min(slots) < 0:
            raise IndexDamaged(self, "a slot leads to no entry")
        self._entries_sum = self.sums.entries if self.sums is not None else run_now(_summing(file, *self._span()))
        self._open = file, slots
        self._pending_from = self.header.next_entry

    def verify(self, *, again: bool = False) -> Generator[None, None, None]:
        """Compare the file with its sums, yielding between pieces of a megabyte; once per process, or `again`.

        Raises:
            IndexDamaged: It is not what was saved.
            OSError: It cannot be read.
        """
        if self.sums is None or self._open is not None or (self.verified and not again):
            return
        with closing(self._disk.open(self.path)) as file:
            wanted = self.sums
            if IndexFileHeader(*HEADER.unpack(file.read(0, HEADER_BYTES))) != wanted.header:
                raise IndexDamaged(self, "its header differs from the saved one")
            for (start, end), total in (((0, self._entries_at), wanted.head), (self._span(), wanted.entries)):
                if (yield from _summing(file, start, end)) != total:
                    raise IndexDamaged(self, "its content differs from the saved one")
        self.verified = True

    def _span(self) -> tuple[int, int]:
        """First and last position of the counted entries in the file, the end excluded."""
        return self._entries_at + ENTRY_BYTES, self._entries_at + ENTRY_BYTES * self.header.next_entry

    # Writing

    @property
    def _being_written(self) -> tuple[DiskFile, array[int]]:
        assert self._open is not None, "the file is being written"
        return self._open

    def put(self, rows: Rows, start: int = 0) -> int:
        """Add entries until the file is full; it is being written.

        Args:
            rows: In log order.
            start: Index of the first of them to add.

        Returns:
            Index of the first that did not fit.
        """
        _, slots = self._being_written
        begin_ms, _, begin, _, used, number = self.header
        # `number` is of the next entry, and the first has number 1: the file is full at `_entries_total`.
        stop = min(rows.length, start + self._entries_total - number)
        if start >= stop:
            return start
        hashes, physicals, stamps = rows if stop - start == rows.length else (column[start:stop] for column in rows)
        if number == 1:
            begin, begin_ms = physicals[0], stamps[0]
        dirty = self._dirty if len(self._dirty) * _PAGE_SLOTS < self._slots_total else None
        data, first_ones = enter(hashes, physicals, stamps, slots, number, begin_ms, dirty)
        self._pending += data
        used, number = used + first_ones, number + len(hashes)
        assert number <= self._entries_total, "an entry has a place in the file"
        self.header = IndexFileHeader(begin_ms, stamps[-1], begin, physicals[-1], used, number)
        return stop

    def write(self) -> None:
        """Write the entries that were put; they count on disk only after `save`. Raises OSError."""
        if self._pending:
            file, _ = self._being_written
            data = bytes(self._pending)
            file.write(self._entries_at + ENTRY_BYTES * self._pending_from, [data])
            self._entries_sum = crc32(data, self._entries_sum)
            self._pending_from = self.header.next_entry
            self._pending.clear()

    def writing(self) -> Steps[Sums]:
        """Write entries, slots and header and sync the file, in steps; what is put meanwhile is for the next one.

        Raises:
            OSError: It could not be written or synced.
        """
        self.write()
        file, slots = self._being_written
        swapped = array("i", slots)
        if _SWAP:
            swapped.byteswap()
        table = swapped.tobytes()
        page_bytes = _PAGE_SLOTS * SLOT_BYTES
        for page in sorted(self._dirty):
            start = page * page_bytes
            file.write(HEADER_BYTES + start, [table[start : start + page_bytes]])
        self._dirty.clear()
        head = HEADER.pack(*self.header)
        file.write(0, [head])
        sums = Sums(crc32(table, crc32(head)), self._entries_sum, self.header)
        yield file
        self.sums = sums
        return sums

    def release(self) -> None:
        """Let go of the file and of what is in memory for writing; what was put since `save` is lost."""
        if self._open is not None:
            self._open[0].close()
        self._open = None
        self._pending.clear()
        self._dirty.clear()

    def remove(self) -> None:
        """Delete the file; harmless when it is gone. Raises OSError."""
        self.release()
        if self._disk.exists(self.path):
            self._disk.remove(self.path)

    # Reading

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the commit-log offsets of a hash, newest first.

        Args:
            key_hash: 0 to 2^31 - 1.
            begin_ms: Entries of records stored up to a second before this are left out.
            end_ms: So are those stored after this.

        Raises:
            IndexDamaged: A chain leads nowhere.
            OSError: The file cannot be read.
        """
        opened = self._open is None
        slots: array[int] | None = None
        if self._open is None:
            file = self._disk.open(self.path)
        else:
            file, slots = self._open
            self.write()
        # Read, not mapped: a file that another program cuts while it is mapped would kill the process.
        try:
            slot = key_hash % self._slots_total
            if slots is None:
                number = int.from_bytes(file.read(HEADER_BYTES + SLOT_BYTES * slot, SLOT_BYTES), "big", signed=True)
            else:
                number = slots[slot]
            first_ms = self.header.begin_ms
            last = self.header.next_entry
            while number:
                data = file.read(self._entries_at + ENTRY_BYTES * number, ENTRY_BYTES) if 0 < number < last else b""
                if len(data) < ENTRY_BYTES:
                    raise IndexDamaged(self, f"slot {slot} leads to entry {number}, not to one before {last}")
                # Entries lead to older ones alone (`0 < number < last`), so a damaged file cannot lead in a circle.
                last = number
                found, physical, seconds, number = ENTRY.unpack(data)
                if seconds < 0 or physical < 0:
                    raise IndexDamaged(self, f"entry {last} is wrong")
                # RocketMQ counts the first entry's seconds from the file before.
                at_ms = first_ms + (seconds * 1000 if last > 1 else 0)
                if at_ms < begin_ms - 1000:
                    return
                # The entry has whole seconds, rounded down; the record itself decides.
                if found == key_hash and at_ms <= end_ms:
                    yield physical
        finally:
            if opened:
                file.close()


def _enter_each(  # noqa: PLR0917 - what compiled functions take by name costs more
    hashes: list[int],
    physicals: list[int],
    stamps: list[int],
    slots: array[int],
    number: int,
    begin_ms: int,
    dirty: set[int] | None,
) -> tuple[bytes, int]:
    """Put entries into the slots; `broker.index.rows_accelerator` does the same.

    Args:
        hashes: Their key hashes.
        physicals: Their commit-log offsets.
        stamps: Their store timestamps, ms.
        slots: The table.
        number: Number of the first of them.
        begin_ms: Store time of the file's first entry.
        dirty: Gets the pages of slots that change, unless it is None.

    Returns:
        Their bytes in the file, and how many slots were empty.
    """
    made, used = bytearray(), 0
    for key_hash, physical, stamp in zip(hashes, physicals, stamps, strict=True):
        place = key_hash % len(slots)
        before = slots[place]
        slots[place] = number
        number += 1
        used += not before
        if dirty is not None:
            dirty.add(place // _PAGE_SLOTS)
        seconds = min(max((stamp - begin_ms) // 1000, 0), _SECONDS_MAX)
        made += ENTRY.pack(key_hash, physical, seconds, before)
    return bytes(made), used


enter = accelerated("broker.index.rows_accelerator", "enter", _enter_each)


def _summing(file: DiskFile, start: int, end: int) -> Generator[None, None, int]:
    """Return the CRC-32 of a stretch of a file, yielding between pieces of a megabyte."""
    total = 0
    for at in range(start, end, _CHUNK_BYTES):
        total = crc32(file.read(at, min(_CHUNK_BYTES, end - at)), total)
        yield
    return total
