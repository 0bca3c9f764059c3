"""AckLog: the files of one group's ack log, written, bounded and read.

What it guarantees, and which faults it survives: as the lag journal (`lag.journal.writer`). A batch is one block in one
write; a kill leaves whole ones; a start continues in a new file; a batch that cannot be written is dropped and counted,
and nothing else suffers. Files are numbered, and the oldest goes when there are more bytes than allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.runtime.seams import Disk, Syncs
from lag.acks.acks import AckBatch, decode, encode, sample
from lag.blocks import BlockGap, BlockReader, BlockWriter, FileHead, FileKind, GapKind

FOLDER: Final = "pyddmq/lag-acks"
"""Where a data directory has the ack logs: a folder for each group that has one."""
_NAME = re.compile(r"acks\.(\d{10})\.lag")
_FAR_MS = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AckLogLimits:
    """Bounds of one group's log.

    Attributes:
        one_in: One of so many messages is recorded, by the hash of its offset; 1: all.
        file_bytes: A file ends when it has so many.
        bytes_max: Of all files of the group; the oldest goes.
        free_bytes_min: Nothing is written while the disk has less.
    """

    one_in: int = 1
    file_bytes: int = 16 << 20
    bytes_max: int = 256 << 20
    free_bytes_min: int = 64 << 20


class AckLog:
    """Writes one group's log. Raises for nothing that the disk does.

    Attributes:
        written: Messages written.
        dropped: Messages that could not be written.
        trouble: Why the last batch was dropped; None: it was not.

    Args:
        disk: Where.
        folder: The group's folder; made when it is not there.
        head: Whose log it is: cluster, node, epoch, group; the rest is filled in.
        limits: Bounds.
        syncs: Syncs beside the loop; None: a file's end waits for its sync.
    """

    def __init__(
        self, disk: Disk, folder: str, head: FileHead, limits: AckLogLimits, *, syncs: Syncs | None = None
    ) -> None:
        assert head.kind is FileKind.ACKS, "the head of an ack log"
        self.written = self.dropped = 0
        self.trouble: str | None = None
        self._disk = disk
        self._folder = folder
        self._head = head
        self._limits = limits
        self._syncs = syncs
        self._sequence = 0
        self._file: BlockWriter | None = None

    def add(self, batch: AckBatch) -> None:
        """Write the messages of a batch that are recorded: one encode and one write."""
        batch = sample(batch, self._limits.one_in)
        if not batch.offsets:
            return
        payload = encode(batch)
        self._sequence += 1
        self.trouble = None
        try:
            file = self._file
            if file is not None and file.position >= self._limits.file_bytes:
                self._file = None
                file.end(self._syncs)
                file = None
            file = self._file = file or self._begin_file(min(batch.ended_ms))
            file.append(payload)
            self.written += len(batch.offsets)
        except OSError as error:
            self._give_up(error)
            self.dropped += len(batch.offsets)

    def close(self) -> None:
        """End the file; the next batch begins another. Raises OSError: its sync failed."""
        file, self._file = self._file, None
        if file is not None:
            file.end(None)

    def _begin_file(self, first_ms: int) -> BlockWriter:
        self._disk.make_folder(self._folder)
        if self._disk.free_bytes(self._folder) < self._limits.free_bytes_min:
            raise OSError(f"less than {self._limits.free_bytes_min} bytes are free: they are reserved for the store")
        names = log_names(self._disk, self._folder)
        self._make_room(names)
        path = f"{self._folder}/acks.{_number(names[-1]) + 1 if names else 1:010d}.lag"
        # Ends are not in order over batches: the bound is wide, and readers go by the rows.
        last_ms = first_ms + _FAR_MS
        head = replace(self._head, sequence=self._sequence - 1, first_ms=first_ms, last_ms=last_ms)
        return BlockWriter(self._disk, path, head)

    def _make_room(self, names: list[str]) -> None:
        """Delete the oldest files, so that one more is within the bound."""
        sizes = []
        for name in names:
            file = self._disk.open(f"{self._folder}/{name}")
            sizes.append(file.size())
            file.close()
        left = sum(sizes) + self._limits.file_bytes
        for name, size in zip(names, sizes, strict=True):
            if left <= self._limits.bytes_max:
                return
            self._disk.remove(f"{self._folder}/{name}")
            left -= size

    def _give_up(self, error: OSError) -> None:
        self.trouble = str(error)
        file, self._file = self._file, None
        if file is not None:
            file.give_up()


def read_acks(
    disk: Disk, folder: str, names: Sequence[str] | None = None
) -> Iterator[tuple[FileHead, AckBatch] | BlockGap]:
    """Yield the batches of one group's log in the order of their writing, with whose they are, and what is missing.

    Raises for nothing that files hold.

    Args:
        disk: Where; one that is open for reading alone will do.
        folder: The group's folder.
        names: The files that are read; all, when absent.
    """
    for name in log_names(disk, folder) if names is None else names:
        path = f"{folder}/{name}"
        file = BlockReader(disk, path)
        try:
            head, at = file.head, file.position
            if head is not None and head.kind is not FileKind.ACKS:
                yield BlockGap(GapKind.FOREIGN, path, 0, f"{path} is of kind {head.kind.name}, not an ack log")
                continue
            if head is not None:
                for payload in file:
                    try:
                        batch = decode(payload)
                    except ValueError as error:
                        file.fail(at, f"{error}")
                        break
                    at = file.position
                    yield head, batch
            if file.damage is not None:
                yield BlockGap(file.damage.kind, path, file.damage.position, file.damage.reason)
        finally:
            file.close()


def log_names(disk: Disk, folder: str) -> list[str]:
    """Return the names of a log's files in a folder, in the order of their writing."""
    return [name for name in disk.list(folder) if _NAME.fullmatch(name)]


def _number(name: str) -> int:
    return int(name.split(".")[1])
