"""AckJournal: the checksummed segments under `pyddmq/acks/` that make acks survive (D9, D10).

What it guarantees, and which faults it survives:

- A block that `append` returned from is in the page cache: it survives SIGKILL. After `sync` it survives power loss.
- A segment begins with a snapshot of everything, so only one segment is ever replayed. A new segment is synced, and
  its name made durable, before the one before it is released: a crash at any point leaves one that is whole. Both may
  continue beside the loop (`begin_segment`): the new one holds all that the one before it does, and what is appended
  meanwhile, so it counts wherever its snapshot came through.
- A torn tail is ignored; a damaged block in the middle is skipped by looking for the next valid one, and counted. What
  it held comes again (acks name their offsets, so losing one never finishes another).
- The snapshot is there twice, since every ack behind it depends on it: damage to one copy costs nothing.
- The space of a segment is claimed before it is used, and a spare of the same size is ready, so a full disk does
  not stop acks (D5). The released segment becomes the spare, so its space is never returned to the file system.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import structlog

from broker.errors import StoreFormatNewer
from broker.runtime.disks.unreadable import UNREADABLE, read_around
from broker.runtime.names import is_number
from broker.runtime.seams import Buffer, Disk, DiskFile
from broker.runtime.steps import run_now
from upstream.progress.journal_format import (
    BLOCK_HEADER,
    END_OF_BLOCKS,
    FORMAT_VERSION,
    MAGIC,
    Entry,
    JournalDamaged,
    Scanned,
    SegmentHeader,
    SnapshotCopy,
    SnapshotEnd,
    TrackerEntry,
    decode,
    encode,
    encode_block,
    read_block,
)

log = structlog.get_logger()

SEGMENT_BYTES = 2 << 20
SEGMENT_BYTES_MIN = 4096
_STEP_ENTRIES = 1024
_ZEROS = memoryview(bytes(1 << 18))
_SUFFIX = ".acks"
_SPARE = "spare"
_BLOCK_OVERHEAD = BLOCK_HEADER.size + len(END_OF_BLOCKS)


@dataclass(slots=True, kw_only=True)
class SegmentContent:
    """What one segment holds."""

    number: int
    entries: list[Entry] = field(default_factory=list)
    """Everything readable, in the order in which it was written."""
    whole: bool = False
    """Whether the snapshot at its beginning is there to its end, in one copy or the other."""
    intact: bool = False
    """Whether, besides, one copy of the snapshot is not damaged anywhere."""
    holes: int = 0
    """Damaged places with valid blocks behind them."""
    damaged_at: list[int] = field(default_factory=list)
    """Where in the file the damaged places begin."""
    end: int = 0
    """Where the last valid block ends."""
    torn: bool = False
    """Whether bytes that are no valid block stand behind the last valid one."""


class AckJournal:
    """The segments of one node's ack journal; `reading` once, then `begin_segment`, then `append`.

    Attributes:
        folder: Where it is kept.
        disk: What holds that.
    """

    def __init__(self, folder: str, disk: Disk, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Keep the journal in `folder`; a segment takes `segment_bytes` besides its snapshot."""
        if segment_bytes < SEGMENT_BYTES_MIN:
            raise ValueError(
                f"a segment of the ack journal has at least {SEGMENT_BYTES_MIN} bytes, not {segment_bytes}"
            )
        self.folder = folder
        self.disk = disk
        self._segment_bytes = segment_bytes
        self._number = 0
        self._file: DiskFile | None = None
        self._earlier: DiskFile | None = None
        """The segment before the current one, while that is not durable."""
        self.position = 0
        self.capacity = 0
        self._unreadable: set[int] = set()
        """Segments with pages that the disk does not give out: a part of one cannot be written either."""

    @property
    def number(self) -> int:
        """Number of the current segment; 0 before the first `begin_segment`."""
        return self._number

    def reading(self) -> Generator[None, None, SegmentContent | None]:
        """Read the segment that counts, in steps: the newest whose snapshot is intact, or whole, or else the newest.

        Returns:
            None for a journal that was never written.

        Raises:
            OSError: The folder or a file cannot be read.
            StoreFormatNewer: A newer version wrote it.
        """
        self.disk.make_folder(self.folder)
        numbers = segment_numbers(self.folder, self.disk)
        best: SegmentContent | None = None
        for number in reversed(numbers):
            content = yield from self._read_segment(number)
            # Without any whole snapshot the newest readable segment is all there is; acks that it names hold.
            if best is None or _worth(content) > _worth(best):
                best = content
            if best.intact:
                break
        self._number = numbers[-1] if numbers else 0
        if best is not None and best.whole and (len(numbers) == 1 or self._is_made_durable(best.number)):
            self._reclaim(best.number)
        return best

    @property
    def is_deleted(self) -> bool:
        """Whether the current segment's file was deleted, by another program. Raises OSError."""
        return self._file is not None and not self.disk.exists(self._segment_path(self._number))

    def begin_segment(self, snapshot: Sequence[Buffer], markers: Sequence[Buffer] = ()) -> None:
        """Begin a new segment with a snapshot of all that was appended, and with `markers`; `append` continues there.

        It is durable, and so is what is appended to it, when its file and then `folder` were synced after this. Call
        `give_up_earlier` then, and begin no other one before.

        Raises:
            OSError: ENOSPC leaves the journal as it was, to be tried again; after any other error nothing may be
                written any more.
        """
        assert self._earlier is None, "the segment before this one is not durable"
        number = self._number + 1
        buffers: list[Buffer] = []
        position = 0
        for payload in [encode(SegmentHeader(FORMAT_VERSION, number)), *snapshot, *_copy_of(snapshot), *markers]:
            buffers += (encode_block(number, position, payload), payload)
            position += BLOCK_HEADER.size + len(payload)
        buffers.append(END_OF_BLOCKS)
        self.disk.make_folder(self.folder)
        path = self._segment_path(number)
        is_new = not (self.disk.exists(path) or self.disk.exists(self._path(_SPARE)))
        try:
            file, capacity = self._written(number, position, buffers)
        except OSError as error:
            if is_new or self._file is not None or error.errno not in UNREADABLE or not self.disk.exists(path):
                raise
            # A page that the disk does not give out cannot be written in part. Nothing in that file counts, and nothing
            # was acknowledged in this life.
            log.warning("ack_spare_unreadable", error=str(error))
            self.disk.remove(path)
            file, capacity = self._written(number, position, buffers)
        self._earlier = self._file
        self._file, self._number, self.position, self.capacity = file, number, position, capacity

    def _written(self, number: int, position: int, buffers: Sequence[Buffer]) -> tuple[DiskFile, int]:
        """Return a claimed file with these bytes, which end at `position` without their end mark, and its size."""
        file, capacity, is_clean = self._claim(number, position)
        try:
            file.write(0, buffers)
            if not is_clean:
                _clear(file, position + len(END_OF_BLOCKS))
        except OSError:
            file.close()
            raise
        return file, capacity

    def give_up_earlier(self) -> None:
        """Make the segment before this one, which is durable now, the spare, and see to it that there is one."""
        self._close_earlier()
        self._reclaim(self._number)
        try:
            self.ensure_spare()
        except OSError:
            # The new segment is whole and in use, and a later call may have better luck.
            return

    def sync_earlier(self) -> None:
        """Sync the segment before the current one, whose own sync failed. Raises OSError; once is all."""
        if self._earlier is not None:
            self._earlier.sync()

    def append(self, payload: Buffer) -> bool:
        """Write one block, with one write call.

        Returns:
            False, with nothing written, when the segment is full: `begin_segment` then.

        Raises:
            OSError: The write failed; nothing may be written any more, but after ENOSPC, which asks for a new segment.
        """
        position = self.position
        if position + len(payload) + _BLOCK_OVERHEAD > self.capacity:
            return False
        self.file.write(position, (encode_block(self._number, position, payload), payload, END_OF_BLOCKS))
        self.position = position + BLOCK_HEADER.size + len(payload)
        return True

    def sync(self) -> None:
        """Make all appended blocks durable. Raises OSError; never to be tried again after that."""
        self.file.sync()

    @property
    def file(self) -> DiskFile:
        """The current segment."""
        assert self._file is not None, "asked before begin_segment"
        return self._file

    def ensure_spare(self) -> bool:
        """Claim the space of the next segment when it is not set aside yet; False when the disk is full.

        Raises:
            OSError: Anything but ENOSPC.
        """
        path = self._path(_SPARE)
        if self.disk.exists(path):
            return True
        with closing(self.disk.open(path, create=True)) as file:
            try:
                file.allocate(self._segment_bytes)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self.disk.remove(path)
                return False
        return True

    def close(self) -> None:
        """Close the current segment; what was appended and not synced stays in the page cache."""
        self._close_earlier()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _segment_path(self, number: int) -> str:
        return self._path(segment_name(number))

    def _read_segment(self, number: int) -> Generator[None, None, SegmentContent]:
        with closing(self.disk.open(self._segment_path(number))) as file:
            # What the disk does not give out is damage: blocks in it are passed over.
            data, bad = read_around(file, 0, file.size())
        content = yield from scanning_segment(number, data, folder=self.folder)
        if bad:
            self._unreadable.add(number)
            if bad[-1][1] > content.end:
                # Nothing behind the last block says whether there were others.
                content.holes += 1
                content.damaged_at.append(max(content.end, bad[-1][0]))
        return content

    def _claim(self, number: int, snapshot_bytes: int) -> tuple[DiskFile, int, bool]:
        """Return a file of the segment's name with its space claimed, from the spare where there is one.

        Last in the tuple: whether no block in it can carry this number. A spare of a life before this one may have been
        a segment of it, whose name did not survive a power loss, and so may what is left of an attempt.
        """
        path, spare = self._segment_path(number), self._path(_SPARE)
        wanted = snapshot_bytes + self._segment_bytes
        from_spare = self.disk.exists(spare)
        if from_spare:
            self.disk.replace(spare, path)
        file = self.disk.open(path, create=True)
        size = file.size()
        is_clean = not size or (from_spare and self._file is not None)
        try:
            if size < wanted:
                file.allocate(wanted)
                size = wanted
        except OSError as error:
            # A little room behind the snapshot is enough to continue with: acks matter more than even segments.
            if error.errno == errno.ENOSPC and size >= snapshot_bytes + SEGMENT_BYTES_MIN // 2:
                return file, size, is_clean
            file.close()
            if from_spare:
                self.disk.replace(path, spare)
            else:
                self.disk.remove(path)
            raise
        return file, size, is_clean

    def _close_earlier(self) -> None:
        if self._earlier is not None:
            self._earlier.close()
            self._earlier = None

    def _is_made_durable(self, number: int) -> bool:
        """Sync the segment that counts: a process that was killed may not have done it, and the others are released."""
        try:
            with closing(self.disk.open(self._segment_path(number))) as file:
                file.sync()
            self.disk.sync_folder(self.folder)
        except OSError:
            # The next segment is another file, and what is kept here until then is looked at again.
            return False
        return True

    def _reclaim(self, keep: int) -> None:
        """Turn segments other than `keep` into the spare, or delete them; trouble here costs space only."""
        spare = self._path(_SPARE)
        try:
            for number in segment_numbers(self.folder, self.disk):
                if number == keep:
                    continue
                path = self._segment_path(number)
                is_good = number not in self._unreadable and self._fits_as_spare(path)
                if is_good and not self.disk.exists(spare):
                    self.disk.replace(path, spare)
                else:
                    self.disk.remove(path)
        except OSError:
            # Whatever is left is looked at again when the next segment begins.
            return

    def _fits_as_spare(self, path: str) -> bool:
        with closing(self.disk.open(path)) as file:
            return self._segment_bytes <= file.size() <= 2 * max(self._segment_bytes, self.capacity)


def _copy_of(snapshot: Sequence[Buffer]) -> list[Buffer]:
    """Return the blocks that repeat a snapshot behind its end; an older version reads them as what it has already."""
    [end] = decode(memoryview(snapshot[-1]))
    assert isinstance(end, SnapshotEnd), "a snapshot closes with its end"
    begin_copy, end_copy = (encode(SnapshotCopy(end.trackers, is_end)) for is_end in (False, True))
    return [begin_copy, *snapshot[:-1], end_copy]


def segment_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:016d}{_SUFFIX}"


def segment_number(name: str) -> int | None:
    """Return the number of the segment that a file of this name is; None for any other file."""
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if is_number(stem) and name == segment_name(int(stem)) else None


def segment_numbers(folder: str, disk: Disk) -> list[int]:
    """Return the numbers of the segments in a folder, ascending. Raises OSError."""
    return sorted(number for name in disk.list(folder) if (number := segment_number(name)) is not None)


def _worth(content: SegmentContent) -> tuple[bool, bool, bool]:
    """Order segments by how much they may be relied on."""
    return content.intact, content.whole, bool(content.entries)


def _clear(file: DiskFile, position: int) -> None:
    """Overwrite what an earlier life left in a file from a position on."""
    size = file.size()
    for start in range(position, size, len(_ZEROS)):
        file.write(start, [_ZEROS[: size - start]])


def scan_segment(number: int, data: bytes, *, folder: str = "") -> SegmentContent:
    """Do `scanning_segment` in one go."""
    return run_now(scanning_segment(number, data, folder=folder))


def scanning_segment(number: int, data: bytes, *, folder: str = "") -> Generator[None, None, SegmentContent]:
    """Read all valid blocks of a segment, over damaged places, in steps of some blocks.

    The bytes behind the last block are zeros, or blocks of an earlier life of the file, whose sums are salted with
    another number.

    Raises:
        StoreFormatNewer: Its header says a newer format.
    """
    content = SegmentContent(number=number)
    view = memoryview(data)
    position = shown = 0
    declared: set[int] = set()
    copy_holes: int | None = None
    """How many holes there were when the second copy of the snapshot began; None outside of it."""
    while True:
        if len(content.entries) - shown >= _STEP_ENTRIES:
            shown = len(content.entries)
            yield
        payload = read_block(number, view, position)
        if payload is None:
            found = _next_block(number, data, view, position)
            if found is None:
                tail = data[position : position + len(END_OF_BLOCKS)]
                content.end, content.torn = position, any(tail)
                return content
            content.holes += 1
            content.damaged_at.append(position)
            position = found
            continue
        begin = position
        position += BLOCK_HEADER.size + len(payload)
        try:
            entries = list(decode(payload))
        except JournalDamaged:
            content.holes += 1
            content.damaged_at.append(begin)
            continue
        for entry in entries:
            if isinstance(entry, TrackerEntry):
                declared.add(entry.tracker_id)
            elif isinstance(entry, SnapshotEnd):
                content.whole = entry.trackers == len(declared)
                content.intact = content.whole and not content.holes
            elif isinstance(entry, SnapshotCopy):
                is_all = entry.trackers == len(declared)
                if entry.is_end:
                    content.whole |= is_all
                    content.intact |= is_all and copy_holes == content.holes
                copy_holes = None if entry.is_end else content.holes
                entries = []  # It is alone in its block.
            elif isinstance(entry, SegmentHeader) and entry.version > FORMAT_VERSION:
                raise StoreFormatNewer(folder, entry.version, FORMAT_VERSION)
        if content.holes:
            # They say that earlier entries finished the origins; those may be what is missing. So these dead letters
            # are looked at again, but none from before a reset, which begins a new segment (D16).
            entries = [entry for entry in entries if not isinstance(entry, Scanned)]
        if copy_holes != content.holes or not content.intact:
            # The second copy declares every tracker again, as it was; it is needed only where the first is damaged.
            # Behind a damaged place in it nothing is left out: its end may have been there.
            content.entries += entries


def _next_block(number: int, data: bytes, view: memoryview, position: int) -> int | None:
    """Return the position of the next valid block behind a bad place."""
    found = data.find(MAGIC, position + 1)
    while found >= 0:
        if read_block(number, view, found) is not None:
            return found
        found = data.find(MAGIC, found + 1)
    return None
