"""Files of blocks: a head that says whose file it is, then blocks with a sum, written at the end and never changed.

What it guarantees, and which faults it survives:

- A block that was written is in the page cache: it survives a kill. Half a block is distinguished from a whole one by
  its length and its sum, and nothing behind it is believed.
- A reader raises for nothing that a file holds: it gives the blocks before the damage, then names it (`BlockDamage`).
- The first 16 bytes keep their form in every version, and carry a sum, so that a file of a newer version is
  distinguished from a damaged one, and a file of another program from both.
- A block's sum covers its position and the sum of the head: a block of another file, or of another place, is none.

Layout, little endian: magic (4), version (2), kind (1), 0 (1), length of the body (4), CRC-32 of all of that and the
body (4), body; then per block: length of the payload (4), CRC-32 (4), payload. docs/lag-journal.md has the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from broker.runtime.seams import Buffer, Disk, DiskFile, Syncs
from broker.runtime.sums import crc32
from lag.varints import Taker, put_signed, put_text, put_varint

MAGIC: Final = b"\xa5PLJ"
VERSION: Final = 1
PAYLOAD_BYTES_MAX: Final = 1 << 28
"""A longer block is damage: some millions of queues, each whole."""
EPOCH_MAX: Final = (1 << 64) - 1

_FIXED = struct.Struct("<4sHBBI")
_SUM = struct.Struct("<I")
_EPOCH = struct.Struct("<Q")
_BLOCK = struct.Struct("<II")
_SALT = struct.Struct("<IQI")  # sum of the head, position of the block, length of its payload
_READ_BYTES = 1 << 18
_HEAD_BYTES_MAX = 1 << 16
PREAMBLE_BYTES: Final = _FIXED.size + _SUM.size
assert PREAMBLE_BYTES == 16, "which is the part that every version keeps"


class FileKind(IntEnum):
    """What a file of blocks holds."""

    RAW = 1
    MINUTE = 2
    HOUR = 3
    ACKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHead:
    """Whose file it is.

    Attributes:
        kind: What it holds.
        cluster: Name of the cluster.
        node: Name of the node that wrote it.
        epoch: Random number of that node's start, 64 bits.
        sequence: That of the first block.
        first_ms: No block is of an earlier moment.
        last_ms: No block is of a later moment.
        interval_ms: How far apart snapshots are meant to be; 0: they are not regular.
        group: The group that it is about; "" all.
    """

    kind: FileKind
    cluster: str
    node: str
    epoch: int
    sequence: int
    first_ms: int
    last_ms: int
    interval_ms: int = 0
    group: str = ""


class GapKind(Enum):
    """What is wrong with a file, or missing between two."""

    TORN = "torn"
    """It ends within a block: its writer was stopped, or is at it."""
    DAMAGED = "damaged"
    """Bytes are not what was written."""
    FOREIGN = "foreign"
    """Another program's file."""
    NEWER = "newer"
    """Of a version that this reader does not know."""
    UNREADABLE = "unreadable"
    """The disk does not give it out, or it is gone."""
    DROPPED = "dropped"
    """Snapshots could not be written."""
    SILENT = "silent"
    """Nothing was recorded for longer than three intervals."""


class BlockGap(NamedTuple):
    """What is missing where it is among what is read.

    Attributes:
        kind: Why.
        path: The file; between two files, the later one.
        position: Byte of the file from which on nothing was read; 0 where that means nothing.
        reason: A sentence for people.
        from_ms: Moment of the last snapshot before it; null: there is none.
        to_ms: Moment of the next snapshot behind it; null: there is none.
    """

    kind: GapKind
    path: str
    position: int
    reason: str
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDamage:
    """Why a file was not read to its end.

    Attributes:
        kind: What is wrong.
        position: Byte of the file at which the first block that is not read begins.
        reason: A sentence for people.
    """

    kind: GapKind
    position: int
    reason: str


def encode_head(head: FileHead) -> bytes:
    """Return the bytes that a file begins with."""
    assert 0 <= head.epoch <= EPOCH_MAX, "an epoch is a number of 64 bits"
    assert head.sequence >= 0, "sequences count from 0"
    assert head.first_ms <= head.last_ms, "a file's moments are in order"
    body = bytearray()
    for text in (head.node, head.cluster, head.group):
        put_text(body, text)
    body += _EPOCH.pack(head.epoch)
    put_varint(body, head.sequence)
    put_signed(body, head.first_ms)
    put_varint(body, head.last_ms - head.first_ms)
    put_varint(body, head.interval_ms)
    assert len(body) <= _HEAD_BYTES_MAX, "names are short"
    fixed = _FIXED.pack(MAGIC, VERSION, head.kind, 0, len(body))
    return b"".join((fixed, _SUM.pack(crc32(body, crc32(fixed))), body))


def encode_block(salt: int, position: int, payload: Buffer) -> bytes:
    """Return what precedes the payload of the block at `position`; `salt` is the CRC-32 of the head's bytes."""
    size = len(payload)
    assert 0 < size <= PAYLOAD_BYTES_MAX, "a block holds something, and not everything"
    return _BLOCK.pack(size, _sum(salt, position, payload))


def _sum(salt: int, position: int, payload: Buffer) -> int:
    return crc32(payload, crc32(_SALT.pack(salt, position, len(payload))))


def salt_of(head: bytes) -> int:
    """Return what the sums of a file's blocks begin with; from its head as it is in the file."""
    return crc32(head)


class BlockWriter:
    """One file that grows block by block; a kill leaves whole blocks, and a tail that readers pass over.

    Attributes:
        path: The file.
        position: Bytes of its head and whole blocks.
        file: Its file on the disk, to be synced.

    Args:
        disk: Where.
        path: The file, which is created.
        head: Whose file it is.

    Raises:
        OSError: Its head cannot be written; the file is not there then.
    """

    def __init__(self, disk: Disk, path: str, head: FileHead) -> None:
        start = encode_head(head)
        self.path = path
        self.position = 0
        self._disk = disk
        self._first = len(start)
        self._salt = salt_of(start)
        self.file = disk.open(path, create=True)
        try:
            self.file.write(0, [start])
        except OSError:
            self.give_up()
            raise
        self.position = self._first

    def append(self, payload: Buffer) -> None:
        """Write a block. Raises OSError: what there is of it is behind `position`."""
        start = encode_block(self._salt, self.position, payload)
        self.file.write(self.position, [start, payload])
        self.position += len(start) + len(payload)

    def end(self, syncs: Syncs | None) -> None:
        """Close it; it is synced beside the loop, or without `syncs` at once. Raises OSError: that sync failed."""
        try:
            if syncs is None:
                self.file.sync()
            else:
                # It may be closed at once; readers report what a failed sync loses.
                syncs.begin(self.file, _ignore)
                syncs.begin_folder(self.path.rpartition("/")[0], _ignore)
        finally:
            self.file.close()

    def give_up(self) -> None:
        """Close it without what was half written, and remove it if it has no block. Readers name a tail that stays."""
        with suppress(OSError):
            self.file.truncate(self.position)
        self.file.close()
        if self.position <= self._first:
            with suppress(OSError):
                self._disk.remove(self.path)


def _ignore(_error: OSError | None) -> None:
    """Of a failed sync nothing follows: what was to be durable can be read until the power is lost."""


class BlockReader:
    """One file, read once from its begin to the first damage or its end; holds no more than a few blocks.

    Attributes:
        head: Whose file it is; None: `damage` says why that is not known.
        damage: Why it was not read to its end; None: not yet, or it was.
        position: Where the next block begins.

    Args:
        disk: Where.
        path: The file.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.head: FileHead | None = None
        self.damage: BlockDamage | None = None
        self.position = 0
        self._path = path
        self._salt = 0
        self._file: DiskFile | None = None
        self._data = b""
        self._data_at = 0
        try:
            self._file = disk.open(path)
            self._open()
        except OSError as error:
            self._fail(GapKind.UNREADABLE, f"{path} cannot be read: {error}")

    def _open(self) -> None:
        start = self._bytes(0, PREAMBLE_BYTES)
        if not MAGIC.startswith(start[: len(MAGIC)]):
            self._fail(
                GapKind.FOREIGN, f"{self._path} is not a file of this journal: it begins with {start[:4].hex(' ')}"
            )
            return
        if len(start) < PREAMBLE_BYTES:
            self._fail(GapKind.TORN, f"{self._path} ends within its head")
            return
        _, version, kind, _, size = _FIXED.unpack_from(start)
        # A size from a file is bounded before memory is taken; a larger one fails the sum below.
        body = self._bytes(PREAMBLE_BYTES, size) if size <= _HEAD_BYTES_MAX else b""
        if len(body) < size <= _HEAD_BYTES_MAX:
            self._fail(GapKind.TORN, f"{self._path} ends within its head")
            return
        if _SUM.unpack_from(start, _FIXED.size)[0] != crc32(body, crc32(start[: _FIXED.size])):
            self._fail(GapKind.DAMAGED, f"the head of {self._path} has a wrong checksum")
            return
        if version != VERSION or kind not in tuple(FileKind):
            self._fail(
                GapKind.NEWER,
                f"{self._path} has version {version}, kind {kind}; this reader knows version {VERSION}: upgrade it",
            )
            return
        try:
            self.head = _decode_head(FileKind(kind), body)
        except ValueError as error:
            self._fail(GapKind.DAMAGED, f"the head of {self._path} cannot be read: {error}")
            return
        self._salt = salt_of(start + body)
        self.position = PREAMBLE_BYTES + size

    def __iter__(self) -> Iterator[bytes]:
        """Yield the payloads of the whole blocks; then `damage` says whether that was all."""
        while self.damage is None:
            try:
                payload = self._next()
            except OSError as error:
                self._fail(GapKind.UNREADABLE, f"{self._path} cannot be read: {error}")
                return
            if payload is None:
                return
            yield payload

    def fail(self, position: int, reason: str) -> None:
        """Say that the block at `position`, whose sum is right, holds what no writer makes."""
        self._fail(GapKind.DAMAGED, f"{self._path}, block at byte {position}: {reason}", position)

    def close(self) -> None:
        """Close the file; harmless twice."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next(self) -> bytes | None:
        at = self.position
        start = self._bytes(at, _BLOCK.size)
        if not start:
            return None
        if len(start) < _BLOCK.size:
            self._fail(GapKind.TORN, f"{self._path} ends within a block at byte {at}")
            return None
        size, found = _BLOCK.unpack(start)
        if not size and not found:
            self._fail(GapKind.TORN, f"{self._path} has zeros from byte {at} on, as a power loss leaves them")
            return None
        if not 0 < size <= PAYLOAD_BYTES_MAX:
            self._fail(GapKind.DAMAGED, f"{self._path} has no block at byte {at}: a length of {size}")
            return None
        payload = self._bytes(at + _BLOCK.size, size)
        if len(payload) < size:
            self._fail(GapKind.TORN, f"{self._path} ends within a block at byte {at}")
            return None
        if found != _sum(self._salt, at, payload):
            self._fail(GapKind.DAMAGED, f"{self._path}, block at byte {at}: its checksum is wrong")
            return None
        self.position = at + _BLOCK.size + size
        assert self.position > at, "each block moves the reader on"
        return payload

    def _bytes(self, at: int, size: int) -> bytes:
        """Return up to so many bytes; of a file that is read in steps, through what was read ahead."""
        start = at - self._data_at
        if start < 0 or start + size > len(self._data):
            assert self._file is not None, "a closed file is not read any further"
            # Never as much memory as a damaged length says: only what is there.
            there = max(self._file.size() - at, 0)
            self._data, self._data_at, start = self._file.read(at, min(max(size, _READ_BYTES), there)), at, 0
        return self._data[start : start + size]

    def _fail(self, kind: GapKind, reason: str, position: int | None = None) -> None:
        self.damage = BlockDamage(kind=kind, position=self.position if position is None else position, reason=reason)


def _decode_head(kind: FileKind, body: bytes) -> FileHead:
    """Return the head from its body. Raises ValueError: it is none."""
    taker = Taker(body)
    node, cluster, group = taker.text(), taker.text(), taker.text()
    (epoch,) = _EPOCH.unpack(taker.raw(_EPOCH.size))
    sequence, first_ms = taker.varint(), taker.signed()
    last_ms, interval_ms = first_ms + taker.varint(), taker.varint()
    if taker.at != len(body):
        raise ValueError(f"{len(body) - taker.at} bytes behind its end")
    return FileHead(
        kind=kind,
        cluster=cluster,
        node=node,
        epoch=epoch,
        sequence=sequence,
        first_ms=first_ms,
        last_ms=last_ms,
        interval_ms=interval_ms,
        group=group,
    )
