"""The commit log: all records of all topics in arrival order, in preallocated segments of one size.

Guarantees:

- A segment's file is named by its first offset, 20 digits, and has its full size before the first byte is written to
  it, so that an append never runs out of disk space half-way (D5).
- No record crosses a segment's end: a blank record fills the rest and the next segment begins. 8 bytes for it always
  stay free.
- Records are staged in memory and written by `write`, one system call per segment touched; nothing staged can be read.
- A failed write or sync leaves the log unusable for writing; the owner must not call `write` again (fail-stop).

Three ends, and never in another order: `visible_end` <= what is on the disk <= `end`. `reserve` and `stage` move `end`
alone, since an append must know its offsets before it is written; the caller that made the bytes durable moves
`visible_end`. So a reader never sees what a power loss may still take away. (Reading the staged bytes as well would
show messages that are then lost.)

A file gets its size under another name and is renamed: a segment with its own name is whole, whenever a stop comes.
Records are looked at through mapped files, without a copy, and a place is compared before it is believed: units and
indexes that name it are derived, and may be wrong. Mapped segments are remembered only while they are read:
`forget_idle` drops those untouched since it was last called, so that memory stays flat while a large log streams
through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from broker.errors import DamagedRecord, RecordGone
from broker.format.locating import Place, locate_usual
from broker.format.record import (
    BLANK,
    BLANK_BYTES,
    CLAIM,
    MAGIC_BLANK,
    MAGICS,
    RECORD_OVERHEAD_BYTES,
    Located,
    Locator,
    locate,
    sum_matches,
)
from broker.log.log_pages import NOT_GIVEN, LogPages, Segment
from broker.runtime.disks.unreadable import BadStretch, good_parts
from broker.runtime.file_writes import FileWrite, at_once
from broker.runtime.names import is_number
from broker.runtime.seams import Buffer, Disk

SEGMENT_NAME_DIGITS = 20
_CHUNK_BYTES = 1 << 20
_COLD_ROUNDS = 60  # about as many seconds: what was written before that may have left the page cache
_unpack_claim = CLAIM.unpack_from


def segment_name(base: int) -> str:
    """File name of the segment that begins at commit-log offset `base`."""
    return f"{base:020d}"


class CommitLog:
    """Segments of one store.

    Attributes:
        end: Where the next record will be staged.
        visible_end: End of what may be read.
        cold_end: Records below were neither written nor scanned by this process, or lie in or below a full segment that
            was mapped a minute or more after it was left: their sum is checked when read (D2).
        pages: Which bytes of the mapped segments can be looked at.
        segments: Segment by number (base // segment_bytes).

    Args:
        root: The store.
        disk: Where.
        segment_bytes: Size of each segment.
        finish_writes: Ends a claim that is under way in steps; called before another one.
        unreadable: Called with the commit-log offsets [start, end) that the disk cannot read.
    """

    def __init__(
        self,
        root: str,
        *,
        disk: Disk,
        segment_bytes: int,
        finish_writes: Callable[[], None] = lambda: None,
        unreadable: Callable[[int, int], object] = lambda start, end: None,
    ) -> None:
        self.folder = f"{root}/commitlog"
        self._spare_path = f"{root}/pyddmq/segment.new"
        self._finish_writes = finish_writes
        self._disk = disk
        self.segment_bytes = segment_bytes
        self._start_max = segment_bytes - RECORD_OVERHEAD_BYTES
        self.segments: dict[int, Segment] = {}
        self.pages = LogPages(self.segments, segment_bytes, self.view, unreadable)
        self.end = 0
        self.visible_end = 0
        self.cold_end = 0
        self._views: dict[int, memoryview] = {}
        self._idle_views: dict[int, memoryview] = {}
        self._rounds = 0  # calls of `forget_idle`
        self._present = 0  # number of the segment in use in the last round
        self._left_in: dict[int, int] = {}  # by segment: the round in which the next one was seen in use
        self._dirty: list[Segment] = []
        self._unsynced: list[Segment] = []

    # Opening

    def open(self) -> list[tuple[str, int]]:
        """Open the segment files; `end` and `visible_end` are left for recovery to set.

        An empty last file is deleted, as RocketMQ does. Returns name and size of each file that has another size.
        """
        strange: list[tuple[str, int]] = []
        names = [name for name in self._disk.list(self.folder) if is_number(name) and len(name) == SEGMENT_NAME_DIGITS]
        for name in names:
            path = f"{self.folder}/{name}"
            file = self._disk.open(path)
            size = file.size()
            if size == self.segment_bytes and int(name) % self.segment_bytes == 0:
                self.segments[int(name) // self.segment_bytes] = Segment(int(name), file)
                continue
            file.close()
            if size == 0 and name == names[-1]:
                self._disk.remove(path)
            else:
                strange.append((name, size))
        return strange

    @property
    def min_offset(self) -> int:
        """Commit-log offset of the first byte that is kept."""
        return min(self.segments) * self.segment_bytes if self.segments else self.end

    @property
    def capacity_end(self) -> int:
        """End of the last segment that is claimed without a gap from `end` on."""
        number = self.end // self.segment_bytes
        while number in self.segments:
            number += 1
        return number * self.segment_bytes

    # Appending

    def reserve(self, sizes: list[int], *, contiguous: bool) -> list[int]:
        """Decide where records of these sizes go and claim the segments they need; nothing is staged yet.

        Args:
            sizes: Record sizes in bytes, each at most `segment_bytes` - 8.
            contiguous: All of them one after the other in one segment.

        Returns:
            The commit-log offset of each record.

        Raises:
            OSError: A segment could not be claimed; the log is as it was.
        """
        cursor = self.end
        total = sum(sizes)
        # 0 at the very end of a segment: the next record begins a new one.
        room = -cursor % self.segment_bytes
        if total + BLANK_BYTES <= room and cursor // self.segment_bytes in self.segments:
            positions = list(accumulate(sizes, initial=cursor))
            del positions[-1]
            return positions
        positions = []
        for size in [total] if contiguous else sizes:
            number, used = divmod(cursor, self.segment_bytes)
            # The blank must still fit behind the record.
            if used + size + BLANK_BYTES > self.segment_bytes:
                number += 1
                cursor = number * self.segment_bytes
            if number not in self.segments:
                self.claim(number)
            positions.append(cursor)
            cursor += size
        assert not positions or positions[0] >= self.end, "nothing is written over"
        if contiguous:
            cursor = positions[0]
            positions = list(accumulate(sizes, initial=cursor))
            del positions[-1]
        return positions

    def claim(self, number: int) -> None:
        """Create a segment file at full size, unless it is there; durable when this returns.

        Raises:
            OSError: ENOSPC or another failure; no segment was added.
        """
        self._finish_writes()
        if number not in self.segments:
            at_once(self._disk, self.claiming(number))

    def claiming(self, number: int) -> FileWrite:
        """`claim` of a segment that is not there, in steps; it is added with the last. Raises the same."""
        base = number * self.segment_bytes
        path = f"{self.folder}/{segment_name(base)}"
        file = self._disk.open(self._spare_path, create=True)
        try:
            # A leftover of an earlier attempt may hold old bytes.
            file.truncate(0)
            file.allocate(self.segment_bytes)
            yield file
            self._disk.replace(self._spare_path, path)
            yield self.folder
            # Opened again, so that its errors name it as it is called now.
            renamed = self._disk.open(path)
        except OSError:
            file.close()
            if self._disk.exists(self._spare_path):
                self._disk.remove(self._spare_path)
            raise
        finally:
            file.close()
        self.segments[number] = Segment(base, renamed)

    def adopt(self, path: str, number: int) -> None:
        """Make a segment of a file that has its full size already, all zero; durable when this returns.

        Raises:
            OSError: The file cannot be put in place; no segment was added.
        """
        base = number * self.segment_bytes
        self._disk.replace(path, f"{self.folder}/{segment_name(base)}")
        self._disk.sync_folder(self.folder)
        self.segments[number] = Segment(base, self._disk.open(f"{self.folder}/{segment_name(base)}"))

    def remove(self, number: int) -> None:
        """Delete a segment's file; durable once `folder` is synced, and then to be followed by `forget`.

        Until then its records can be read: the open file outlives its name.

        Raises:
            OSError: It could not be deleted.
        """
        self._disk.remove(f"{self.folder}/{segment_name(number * self.segment_bytes)}")

    def forget(self, number: int) -> None:
        """Let go of a removed segment: views handed out stay readable, other reads of it raise RecordGone."""
        self._views.pop(number, None)
        self._idle_views.pop(number, None)
        self.pages.forget(number)
        self.segments.pop(number).file.close()

    def stage(self, physicals: list[int], sizes: list[int], buffers: list[Buffer]) -> None:
        """Stage records where `reserve` put them; a segment that is left gets its blank record.

        Args:
            physicals: Their offsets.
            sizes: Their sizes in bytes.
            buffers: Their bytes, the same number of buffers for each record, or, in one segment, however divided.
        """
        first = physicals[0]
        last_end = physicals[-1] + sizes[-1]
        assert first >= self.end, "records are staged behind all others"
        if last_end <= (first // self.segment_bytes + 1) * self.segment_bytes:
            if first != self.end:
                self._stage_blank(self.end)
            self._stage_run(first, buffers, last_end - first)
            return
        per_record = len(buffers) // len(physicals)
        assert per_record * len(physicals) == len(buffers), "records of two segments have buffers of their own"
        for place, (physical, size) in enumerate(zip(physicals, sizes, strict=True)):
            if physical != self.end:
                self._stage_blank(self.end)
            self._stage_run(physical, buffers[place * per_record : (place + 1) * per_record], size)

    def _stage_run(self, position: int, buffers: list[Buffer], size: int) -> None:
        segment = self.segments[position // self.segment_bytes]
        if not segment.staged:
            segment.staged_at = position
            self._dirty.append(segment)
        segment.staged.extend(buffers)
        segment.staged_bytes += size
        self.end = position + size

    def _stage_blank(self, end: int) -> None:
        left = -end % self.segment_bytes
        if not left:
            return
        segment = self.segments[end // self.segment_bytes]
        if not segment.staged:
            segment.staged_at = end
            self._dirty.append(segment)
        segment.staged.append(BLANK.pack(left, MAGIC_BLANK))
        segment.staged_bytes += BLANK_BYTES

    def write(self) -> int:
        """Write what is staged, without sync; returns the number of bytes written.

        Raises:
            OSError: A write failed; the log must not be written to any more.
        """
        written = 0
        for segment in self._dirty:
            at = segment.staged_at - segment.base
            assert 0 <= at < at + segment.staged_bytes <= self.segment_bytes, "what is written stays in its segment"
            segment.file.write(at, segment.staged)
            written += segment.staged_bytes
            segment.staged = []
            segment.staged_bytes = 0
            if not segment.unsynced:
                segment.unsynced = True
                self._unsynced.append(segment)
        self._dirty.clear()
        return written

    def sync(self) -> bool:
        """Sync every segment written to since the last sync, oldest first; returns whether there was one.

        Raises:
            OSError: A sync failed; what was written since the last one may be lost, and must not be synced again.
        """
        if not self._unsynced:
            return False
        for segment in self._unsynced:
            segment.file.sync()
            segment.unsynced = False
        self._unsynced.clear()
        return True

    @property
    def unsynced(self) -> Segment | None:
        """The oldest segment that was written to since it was last synced."""
        return self._unsynced[0] if self._unsynced else None

    def synced(self, segment: Segment) -> None:
        """Note that a segment was synced beside this object, and not written to since that began."""
        if segment.unsynced:
            segment.unsynced = False
            self._unsynced.remove(segment)

    def cut(self, end: int) -> Iterator[bool]:
        """Make everything from `end` on empty, durably; yields per segment whether anything was there.

        Raises:
            OSError: A file cannot be changed.
        """
        self._views.clear()
        self._idle_views.clear()
        for number in sorted(self.segments):
            segment = self.segments[number]
            if segment.base + self.segment_bytes <= end:
                continue
            found = self._zero(segment, max(end - segment.base, 0), probe=segment.base >= end)
            if found and segment.base >= end:
                # A whole segment behind the end: its file goes.
                segment.file.close()
                del self.segments[number]
                self._disk.remove(f"{self.folder}/{segment_name(segment.base)}")
                self._disk.sync_folder(self.folder)
            elif found:
                segment.file.sync()
            yield found

    def write_anew(self, number: int, start: int, data: bytes, bad: list[BadStretch]) -> None:
        """Write bytes of a segment once more, as they were read; durable after the next `sync`.

        What could not be read (`bad`) is left alone: it may be readable another time.

        Bytes whose sync failed can still be read after a restart, while the system holds their pages for clean: a sync
        alone would not write them. They are written in place; a stop half-way changes nothing.

        Raises:
            OSError: The write, or the sync of the segment before, failed.
        """
        if data.count(0) == len(data):
            return
        segment = self._written_again(number)
        for at, part in good_parts(start, data, bad):
            segment.file.write(at, [part])

    def void(self, physical: int, size: int) -> None:
        """Zero a record; durable after the next `sync`. Raises OSError, as `write_anew`."""
        number, start = divmod(physical, self.segment_bytes)
        self._written_again(number).file.write(start, [bytes(size)])

    def _written_again(self, number: int) -> Segment:
        segment = self.segments[number]
        if not segment.unsynced:
            self.sync()
            segment.unsynced = True
            self._unsynced.append(segment)
        return segment

    def _zero(self, segment: Segment, start: int, *, probe: bool) -> bool:
        """Zero a segment from a place on, or with `probe` only look; returns whether anything was not zero."""
        found = False
        zeros = bytes(_CHUNK_BYTES)
        for at in range(start, self.segment_bytes, _CHUNK_BYTES):
            count = min(_CHUNK_BYTES, self.segment_bytes - at)
            empty = zeros if count == _CHUNK_BYTES else bytes(count)
            data, bad = self.pages.read_around(segment.base // self.segment_bytes, at, count)
            if bad or data != empty:
                found = True
                if probe:
                    break
                segment.file.write(at, [empty])
        return found

    # Reading

    def read(self, physical: int, size: int) -> memoryview:
        """Return a record's bytes after comparing its size, magic and own position; cold ones after their sum, too.

        Raises:
            DamagedRecord: Other bytes stand there.
            RecordGone: The segment is not kept any more.
        """
        number, start = divmod(physical, self.segment_bytes)
        view = self._views.get(number)
        if view is None:
            view = self._map(number, physical)
        if start > self._start_max:
            raise DamagedRecord(physical, "its position is outside of the log")
        if physical < self.pages.unsure_end and not self.pages.is_sure(physical, size):
            raise DamagedRecord(physical, NOT_GIVEN)
        total, magic, own = _unpack_claim(view, start)
        if total != size or own != physical or magic not in MAGICS:
            raise DamagedRecord(physical, "its size, magic or position is wrong")
        if physical + size > self.visible_end or start + size > self.segment_bytes or size < RECORD_OVERHEAD_BYTES:
            raise DamagedRecord(physical, "its end is outside of the log")
        record = view[start : start + size]
        if physical < self.cold_end and not sum_matches(record):
            raise DamagedRecord(physical, "its checksum is wrong", sum_wrong=True)
        return record

    def locate(self, places: Sequence[Place], unusual: Locator = locate) -> list[Located]:
        """Find bodies and property blocks of the records at these (physical offset, size), compared as `read` does.

        Where the accelerator runs, one look at each header does all: a quarter of the cost of `read` and `split`.

        Args:
            places: Where; what follows in a place is not looked at.
            unusual: What looks into a record of another layout than this broker's, or with a packed body. What
                it raises is raised.

        Raises:
            DamagedRecord: Other bytes stand in one of the places.
            RecordGone: The segment of one of them is not kept any more.
        """
        segment_bytes = self.segment_bytes
        if not isinstance(places, list):
            places = list(places)
        found: list[Located] = []
        at, count, sure = 0, len(places), -1
        while at < count:
            number = places[at][0] // segment_bytes
            base = number * segment_bytes
            view = self.view(number)
            if number != sure and base < self.pages.unsure_end:
                self.pages.be_sure(places, at, base)
                sure = number
            at = locate_usual(places, at, view, base, self.visible_end, self.cold_end, found)
            if at < count and 0 <= places[at][0] - base < segment_bytes:
                # Without the accelerator any; else of another layout or without our sum, packed, or wrong in some way.
                found.append(unusual(self.read(places[at][0], places[at][1])))
                at += 1
        return found

    def view(self, number: int) -> memoryview:
        """Return the mapped segment of that number; look only at what `pages.is_sure`.

        Raises:
            RecordGone: The segment does not exist.
        """
        view = self._views.get(number)
        return self._map(number, number * self.segment_bytes) if view is None else view

    def _map(self, number: int, physical: int) -> memoryview:
        view = self._idle_views.pop(number, None)
        if view is None:
            segment = self.segments.get(number)
            if segment is None:
                if 0 <= physical < self.min_offset:
                    raise RecordGone(physical)
                raise DamagedRecord(physical, "its segment is missing")
            view = segment.file.view()
            full = (number + 1) * self.segment_bytes <= self.visible_end
            if full and self._rounds - self._left_in.get(number, 0) >= _COLD_ROUNDS:
                # It may come from the disk now, and the sums decide (D2).
                self.cold_end = max(self.cold_end, (number + 1) * self.segment_bytes)
        self._views[number] = view
        return view

    def forget_idle(self) -> None:
        """Unmap the segments that were not read since the last call but one; views handed out stay readable."""
        self._idle_views = self._views
        self._views = {}
        self._rounds += 1
        present = self.visible_end // self.segment_bytes
        for number in range(self._present, present):
            self._left_in[number] = self._rounds
        self._present = present
        if self._rounds % _COLD_ROUNDS == 0:
            self.pages.age(self.visible_end)

    def chill(self, end: int) -> None:
        """Note that what is below a commit-log offset was not written by this process, and may be cold."""
        self.cold_end = end
        self.pages.unsure_end = max(self.pages.unsure_end, end)

    def close(self) -> None:
        """Close the files."""
        self._views.clear()
        self._idle_views.clear()
        for segment in self.segments.values():
            segment.file.close()
