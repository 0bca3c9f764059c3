"""AckJournal: the checksummed segments under `pyddmq/acks/` that make acks survive (D9, D10).

What it guarantees, and which faults it survives:

- A block that `append` returned from is in the page cache: it survives SIGKILL. After `sync` it survives power loss.
- A segment begins with a snapshot of everything, so only one segment is ever replayed. A new segment is synced, and
  its name made durable, before the one before it is given up: a crash at any point leaves one that is whole.
- A torn tail is ignored; a damaged block in the middle is skipped by looking for the next valid one, and counted. What
  it held comes again (acks name their offsets, so losing one never finishes another).
- The space of a segment is claimed before it is used, and a spare of the same size stands ready, so a full disk does
  not stop acks (D5). The segment given up becomes the spare, so its space never leaves our hands.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from broker.errors import StoreFormatNewer
from broker.opening import run_to_end
from broker.seams import Buffer, Disk, DiskFile, Syncing, Syncs, Told
from upstream.journal_format import (
    BLOCK_HEADER,
    END_OF_BLOCKS,
    FORMAT_VERSION,
    MAGIC,
    Entry,
    Header,
    JournalDamaged,
    Scanned,
    SnapshotEnd,
    TrackerEntry,
    decode,
    encode_block,
    encode_header,
    read_block,
)

SEGMENT_BYTES = 2 << 20
SEGMENT_BYTES_MIN = 4096
_STEP_ENTRIES = 1024
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
    """Whether the snapshot at its beginning is there to its end."""
    holes: int = 0
    """Damaged places with valid blocks behind them."""
    damaged_at: list[int] = field(default_factory=list)
    """Where in the file the damaged places begin."""
    torn: bool = False
    """Whether bytes that are no valid block stand behind the last valid one."""


class AckJournal:
    """The segments of one node's ack journal; `read` once, then `roll`, then `append`."""

    def __init__(self, folder: str, disk: Disk, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Keep the journal in `folder`; a segment takes `segment_bytes` besides its snapshot."""
        if segment_bytes < SEGMENT_BYTES_MIN:
            raise ValueError(
                f"a segment of the ack journal has at least {SEGMENT_BYTES_MIN} bytes, not {segment_bytes}"
            )
        self._folder = folder
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._number = 0
        self._file: DiskFile | None = None
        self._position = 0
        self._capacity = 0

    @property
    def used_bytes(self) -> int:
        """Bytes written to the current segment."""
        return self._position

    @property
    def number(self) -> int:
        """Number of the current segment; 0 before the first `roll`."""
        return self._number

    def read(self) -> SegmentContent | None:
        """Do `reading` in one go."""
        return run_to_end(self.reading())

    def reading(self) -> Generator[None, None, SegmentContent | None]:
        """Read the segment that counts, in steps: the newest whose snapshot is whole, or else the newest.

        Returns:
            None for a journal that was never written.

        Raises:
            OSError: The folder or a file cannot be read.
            StoreFormatNewer: A newer version wrote it.
        """
        self._disk.make_folder(self._folder)
        numbers = self._numbers()
        best: SegmentContent | None = None
        for number in reversed(numbers):
            content = yield from self._read_segment(number)
            if content.whole:
                best = content
                break
            # Without any whole snapshot the newest readable segment is all there is; acks that it names hold.
            if best is None or (not best.entries and content.entries):
                best = content
        self._number = numbers[-1] if numbers else 0
        if best is not None and best.whole:
            self._reclaim(best.number)
        return best

    def roll(self, payloads: Sequence[Buffer]) -> None:
        """Begin a new segment with these blocks (a snapshot), make it durable, and give up all earlier ones.

        Raises:
            OSError: ENOSPC leaves the journal as it was, to be tried again; after any other error nothing may be
                written any more.
        """
        number = self._number + 1
        buffers: list[Buffer] = []
        position = 0
        for payload in [encode_header(number), *payloads]:
            buffers += (encode_block(number, position, payload), payload)
            position += BLOCK_HEADER.size + len(payload)
        buffers.append(END_OF_BLOCKS)
        file, capacity = self._claim(number, position)
        file.write(0, buffers)
        file.sync()
        self._disk.sync_folder(self._folder)
        if self._file is not None:
            self._file.close()
        self._file, self._number, self._position, self._capacity = file, number, position, capacity
        self._give_up_earlier()

    def append(self, payload: Buffer) -> bool:
        """Write one block, with one write call.

        Returns:
            False, with nothing written, when the segment is full: `roll` then.

        Raises:
            OSError: The write failed; nothing may be written any more, except after ENOSPC, which asks for a `roll`.
        """
        file = self._file
        assert file is not None, "append before roll"
        position = self._position
        if position + len(payload) + _BLOCK_OVERHEAD > self._capacity:
            return False
        file.write(position, (encode_block(self._number, position, payload), payload, END_OF_BLOCKS))
        self._position = position + BLOCK_HEADER.size + len(payload)
        return True

    def sync(self) -> None:
        """Make all appended blocks durable. Raises OSError; never to be tried again after that."""
        assert self._file is not None, "sync before roll"
        self._file.sync()

    @property
    def file(self) -> DiskFile:
        """The current segment."""
        assert self._file is not None, "asked before roll"
        return self._file

    def begin_sync(self, syncs: Syncs, done: Told) -> Syncing:
        """Begin to make the blocks appended so far durable; `done` is told, and of an error what `sync` says holds."""
        assert self._file is not None, "sync before roll"
        return syncs.begin(self._file, done)

    def ensure_spare(self) -> bool:
        """Claim the space of the next segment when it is not set aside yet; False when the disk is full.

        Raises:
            OSError: Anything but ENOSPC.
        """
        path = self._path(_SPARE)
        if self._disk.exists(path):
            return True
        file = self._disk.open(path, create=True)
        try:
            file.allocate(self._segment_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._disk.remove(path)
            return False
        finally:
            file.close()
        return True

    def close(self) -> None:
        """Close the current segment; what was appended and not synced stays in the page cache."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _segment_path(self, number: int) -> str:
        return self._path(f"{number:016d}{_SUFFIX}")

    def _numbers(self) -> list[int]:
        names = self._disk.list(self._folder)
        stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def _read_segment(self, number: int) -> Generator[None, None, SegmentContent]:
        file = self._disk.open(self._segment_path(number))
        try:
            data = file.read(0, file.size())
        finally:
            file.close()
        return (yield from scanning_segment(number, data, folder=self._folder))

    def _claim(self, number: int, snapshot_bytes: int) -> tuple[DiskFile, int]:
        """Return a file of the segment's name with its space claimed, from the spare where there is one."""
        path, spare = self._segment_path(number), self._path(_SPARE)
        wanted = snapshot_bytes + self._segment_bytes
        from_spare = self._disk.exists(spare)
        if from_spare:
            self._disk.replace(spare, path)
        file = self._disk.open(path, create=True)
        size = file.size()
        try:
            if size < wanted:
                file.allocate(wanted)
                size = wanted
        except OSError as error:
            # A little room behind the snapshot is enough to go on with: acks matter more than even segments.
            if error.errno == errno.ENOSPC and size >= snapshot_bytes + SEGMENT_BYTES_MIN // 2:
                return file, size
            file.close()
            if from_spare:
                self._disk.replace(path, spare)
            else:
                self._disk.remove(path)
            raise
        return file, size

    def _give_up_earlier(self) -> None:
        """Make the segment before this one the spare, and see to it that there is one."""
        self._reclaim(self._number)
        try:
            self.ensure_spare()
        except OSError:
            # The new segment is whole and in use, and a later call may have better luck.
            return

    def _reclaim(self, keep: int) -> None:
        """Turn segments other than `keep` into the spare, or delete them; trouble here costs space only."""
        spare = self._path(_SPARE)
        try:
            for number in self._numbers():
                if number == keep:
                    continue
                path = self._segment_path(number)
                if self._fits_as_spare(path) and not self._disk.exists(spare):
                    self._disk.replace(path, spare)
                else:
                    self._disk.remove(path)
        except OSError:
            # Whatever is left is looked at again when the next segment begins.
            return

    def _fits_as_spare(self, path: str) -> bool:
        file = self._disk.open(path)
        try:
            return self._segment_bytes <= file.size() <= 2 * self._segment_bytes
        finally:
            file.close()


def scan_segment(number: int, data: bytes, *, folder: str = "") -> SegmentContent:
    """Do `scanning_segment` in one go."""
    return run_to_end(scanning_segment(number, data, folder=folder))


def scanning_segment(number: int, data: bytes, *, folder: str = "") -> Generator[None, None, SegmentContent]:
    """Read all valid blocks of a segment, over damaged places, in steps of some blocks.

    The bytes behind the last block are zeros, or blocks of an earlier life of the file, whose sums are salted with
    another number.

    Raises:
        StoreFormatNewer: Its header says a newer format.
    """
    content = SegmentContent(number=number)
    view = memoryview(data)
    position = trackers = shown = 0
    while True:
        if len(content.entries) - shown >= _STEP_ENTRIES:
            shown = len(content.entries)
            yield
        payload = read_block(number, view, position)
        if payload is None:
            found = _next_block(number, data, view, position)
            if found is None:
                tail = data[position : position + len(END_OF_BLOCKS)]
                content.torn = any(tail)
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
                trackers += 1
            elif isinstance(entry, SnapshotEnd):
                content.whole = entry.trackers == trackers
            elif isinstance(entry, Header) and entry.version > FORMAT_VERSION:
                raise StoreFormatNewer(folder, entry.version, FORMAT_VERSION)
        if content.holes:
            # They say that earlier entries finished the origins; those may be what is missing. So these dead letters
            # are looked at again, but none from before a reset, which begins a new segment (D16).
            entries = [entry for entry in entries if not isinstance(entry, Scanned)]
        content.entries += entries


def _next_block(number: int, data: bytes, view: memoryview, position: int) -> int | None:
    """Return the position of the next valid block behind a bad place."""
    found = data.find(MAGIC, position + 1)
    while found >= 0:
        if read_block(number, view, found) is not None:
            return found
        found = data.find(MAGIC, found + 1)
    return None
