"""The visible end of a live store: up to where another process may read its commit log, in a file of 128 bytes.

Beyond it lie records that are not synced, or that wait for their moment: a power loss may take them, and no consumer
has seen them. A reader beside the node (a report, a Spark job) stops there.

Layout, little endian: two copies of 64 bytes each: magic (4), version (2), live (1), 0 (1), sequence (8), commit-log
offset (8), wall clock in Unix ms (8), epoch (8), CRC-32 of all of that (4), zeros. Writes alternate between the copies,
so while one is being written the other is whole: a reader takes the whole copy with the higher sequence, which is at
most one write old. Without a whole copy it reads again.

Written by one system call of 64 bytes, never synced: after a power loss the store is recovered before
anything is believed of it, and a reader believes nothing of a store whose lock is free. A write that fails leaves
the end behind, which does no harm.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from broker.runtime.seams import Clock, Disk, DiskFile
from broker.runtime.sums import crc32

FILE: Final = "pyddmq/visible-end"
"""Where a data directory has it."""
MAGIC: Final = b"\xa5PVE"
VERSION: Final = 1
_COPY = struct.Struct("<4sHBBQQqQ")
_SUM = struct.Struct("<I")
COPY_BYTES: Final = 64
FILE_BYTES: Final = 2 * COPY_BYTES
assert _COPY.size + _SUM.size <= COPY_BYTES, "a copy is a line of the processor's cache"
_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleEndState:
    """What the file says.

    Attributes:
        offset: Commit-log offset up to which records may be read, itself not included.
        time_ms: When it was set, wall clock of the node.
        epoch: Number of the start that set it.
        sequence: Number of the write, over all starts.
        is_live: The node has not said that it stops.
    """

    offset: int
    time_ms: int
    epoch: int
    sequence: int
    is_live: bool


class VisibleEnd:
    """Written by a node. Raises for nothing that the disk does.

    Attributes:
        trouble: Why it is not kept any more; None: it is.

    Args:
        disk: Where.
        path: The file; its folder exists.
        clock: Its wall clock stamps each write.
        epoch: Number of this start; no other has it.
    """

    def __init__(self, disk: Disk, path: str, clock: Clock, epoch: int) -> None:
        self.trouble: str | None = None
        self._clock = clock
        self._epoch = epoch
        self._offset = -1
        self._sequence = 0
        self._file: DiskFile | None = None
        # Made once: nothing is allocated per write.
        self._copy = bytearray(COPY_BYTES)
        self._summed = memoryview(self._copy)[: _COPY.size]
        self._buffers = [self._copy]
        try:
            before = read_visible_end(disk, path)
            self._sequence = 0 if before is None else before.sequence
            self._file = disk.open(path, create=True)
            if self._file.size() != FILE_BYTES:
                self._file.truncate(FILE_BYTES)
        except OSError as error:
            self._give_up(error)

    def set(self, offset: int, *, live: bool = True) -> None:
        """Say up to where the commit log may be read; one system call.

        Args:
            offset: Commit-log offset behind the last record that is shown; never lower than before.
            live: The node does not stop.
        """
        assert offset >= self._offset, "what may be read of the log only grows"
        file = self._file
        if file is None:
            return
        self._offset = offset
        self._sequence = sequence = self._sequence + 1
        _COPY.pack_into(self._copy, 0, MAGIC, VERSION, live, 0, sequence, offset, self._clock.wall_ms(), self._epoch)
        _SUM.pack_into(self._copy, _COPY.size, crc32(self._summed))
        try:
            file.write(sequence % 2 * COPY_BYTES, self._buffers)
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Say that the node stops, where anything was set, and close the file."""
        if self._offset >= 0:
            self.set(self._offset, live=False)
        self.abandon()

    def abandon(self) -> None:
        """Close the file and say nothing, as a kill does; harmless twice."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _give_up(self, error: OSError) -> None:
        self.trouble = str(error)
        self.abandon()


def read_visible_end(disk: Disk, path: str) -> VisibleEndState | None:
    """Return what the file says now; None: it is not there, or no copy of it is whole.

    Raises:
        OSError: It is there and cannot be read.
    """
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        for _ in range(_TRIES):
            data = file.read(0, FILE_BYTES)
            found = [state for at in (0, COPY_BYTES) if (state := _decode(data[at : at + COPY_BYTES])) is not None]
            if found:
                return max(found, key=lambda state: state.sequence)
        return None
    finally:
        file.close()


def _decode(data: bytes) -> VisibleEndState | None:
    if len(data) < COPY_BYTES or _SUM.unpack_from(data, _COPY.size)[0] != crc32(data[: _COPY.size]):
        return None
    magic, version, live, _, sequence, offset, time_ms, epoch = _COPY.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        return None
    return VisibleEndState(offset=offset, time_ms=time_ms, epoch=epoch, sequence=sequence, is_live=bool(live))
