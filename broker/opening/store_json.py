"""The small files at the root of a store: geometry, `lock`, `abort` and the two checkpoints.

`pyddmq/store.json` fixes the sizes of all files and the format version at creation (D4). `lock` and `abort` are
RocketMQ's. The checkpoint is kept twice: `checkpoint` in RocketMQ's form, for RocketMQ, and `pyddmq/checkpoint.json`,
checksummed and with what recovery needs to begin there instead of at the log's start.
"""

from __future__ import annotations

import os
import struct
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from typing import Any

from broker.errors import REPAIR_ADVICE, StoreFormatNewer, StoreGeometryDiffers, StoreUnreadable
from broker.format.record import QUEUE_ID_END
from broker.options import StoreOptions
from broker.runtime.file_writes import FileWrite
from broker.runtime.names import is_stored
from broker.runtime.sealed_file import SealedFile, read_whole, write_whole
from broker.runtime.seams import Disk

FORMAT_VERSION = 2
"""1 had fillers in queue files that hide messages from RocketMQ (`broker.queues.fillers`)."""
CHECKPOINT_BYTES = 4096
_CHECKPOINT = struct.Struct(">qqqqq")
_SEGMENT_BYTES_MAX = 1 << 31
_ENTRIES_MAX = 100_000_000
"""2 GB of units or index entries, far above what a configuration may ask for or RocketMQ has."""
_NUMBER_MAX = 1 << 51
"""No offset or moment gets this far: at a million messages a second it would take seventy years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What is fixed when a store is created; sizes in bytes unless named otherwise."""

    segment_bytes: int
    queue_file_units: int
    index_slots: int
    index_entries: int


def geometry_in(options: StoreOptions) -> Geometry:
    """Return the sizes that a store is configured to have."""
    return Geometry(**{field.name: getattr(options, field.name) for field in fields(Geometry)})


def check_geometry(root: str, asked: Geometry, *, disk: Disk, segment_bytes_found: int | None) -> bool:
    """Compare the store's geometry with the configured one, or write it for a new store.

    Returns:
        Whether the store is of an older format: what its files hold is to be rewritten, then `raise_format` called.

    Args:
        root: The store.
        asked: Configured sizes.
        disk: Where.
        segment_bytes_found: Size of an existing segment, for a store without `store.json` (one of RocketMQ's).

    Raises:
        StoreFormatNewer: Written by a newer version.
        StoreGeometryDiffers: Other sizes.
        StoreUnreadable: `store.json` is damaged.
        OSError: It cannot be written.
    """
    file = SealedFile(disk, f"{root}/pyddmq/store.json")
    found = file.load()
    if found is None:
        if segment_bytes_found is not None and segment_bytes_found != asked.segment_bytes:
            raise StoreGeometryDiffers(root, {"segment_bytes": (segment_bytes_found, asked.segment_bytes)})
        file.save({"format": FORMAT_VERSION, **asdict(asked)})
        return False
    version, sizes = sizes_of(found, root=root)
    wanted = asdict(asked)
    differences = {name: (size, wanted[name]) for name, size in asdict(sizes).items() if size != wanted[name]}
    if differences:
        raise StoreGeometryDiffers(root, differences)
    return version < FORMAT_VERSION


def raise_format(root: str, *, disk: Disk) -> int:
    """Note that no file has anything that only an older format has; returns that format. Raises StoreError, OSError."""
    file = SealedFile(disk, f"{root}/pyddmq/store.json")
    found = file.load()
    file.save({**found, "format": FORMAT_VERSION})
    return int(found["format"])


class AbortFile:
    """RocketMQ's `abort`: present while a store is open, with the process id as text."""

    def __init__(self, root: str, *, disk: Disk) -> None:
        self._root = root
        self._path = f"{root}/abort"
        self._disk = disk

    def exists(self) -> bool:
        """Whether the last owner did not close the store."""
        return self._disk.exists(self._path)

    def create(self) -> None:
        """Mark the store as open, durably. Raises OSError."""
        if not self.exists():
            write_whole(self._disk, self._path, str(os.getpid()).encode("ascii"))

    def remove(self) -> None:
        """Mark the store as closed, durably. Raises OSError."""
        self._disk.remove(self._path)
        self._disk.sync_folder(self._root)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCheckpoint:
    """Up to where the queue files can be believed.

    Attributes:
        log_end: Every record that ends at or before this offset is durable and has its unit in the queue files.
        last_record: Physical offset of the last of them, -1 for none; it must end at `log_end`.
        store_ms: Its store timestamp.
        queues: By topic, a list of [min offset, max offset] per queue id.
        index_ms: Store time up to which the index files are durable, ms since the epoch.
    """

    log_end: int
    last_record: int
    store_ms: int
    queues: dict[str, list[list[int]]]
    index_ms: int = 0


def _checked(found: QueueCheckpoint) -> QueueCheckpoint:
    """Return a checkpoint whose values are what they should be; a right sum does not say who made it."""
    numbers = [found.log_end, found.store_ms, found.index_ms, found.last_record + 1]
    for name, bounds in found.queues.items():
        if not is_stored(name) or len(bounds) > QUEUE_ID_END:
            raise ValueError(f"invalid topic name {name[:100]!r}")
        for minimum, maximum in bounds:
            numbers += (minimum, maximum - minimum, maximum)
    if not all(type(each) is int and 0 <= each <= _NUMBER_MAX for each in numbers):
        raise ValueError("a number is outside of any store")
    return found


def sizes_of(found: Any, *, root: str) -> tuple[int, Geometry]:
    """Return format and sizes that `pyddmq/store.json` says.

    Raises:
        StoreFormatNewer: A newer version wrote it.
        StoreUnreadable: It says something else.
    """
    try:
        version = found["format"]
        if type(version) is int and version > FORMAT_VERSION:
            raise StoreFormatNewer(root, version, FORMAT_VERSION)
        sizes = {field.name: found[field.name] for field in fields(Geometry)}
    except (TypeError, KeyError, IndexError) as error:
        raise StoreUnreadable(f"{root}/pyddmq/store.json has an invalid structure; {REPAIR_ADVICE}") from error
    counts = [value for name, value in sizes.items() if name != "segment_bytes"]
    if (
        not all(type(each) is int for each in (version, *sizes.values()))
        or not 0 < sizes["segment_bytes"] <= _SEGMENT_BYTES_MAX
        or not all(0 < each <= _ENTRIES_MAX for each in counts)
    ):
        raise StoreUnreadable(f"{root}/pyddmq/store.json has sizes that no file has; {REPAIR_ADVICE}")
    return version, Geometry(**sizes)


def rocketmq_times(checkpoint: QueueCheckpoint) -> bytes:
    """Return the first 40 bytes of RocketMQ's `checkpoint` file that say the same."""
    ms = checkpoint.store_ms
    return _CHECKPOINT.pack(ms, ms, checkpoint.index_ms, 0, checkpoint.log_end)


class CheckpointFile:
    """Reads and writes both checkpoints.

    Attributes:
        damaged: Set by `load`: there is one, and its sum is wrong.
    """

    def __init__(self, root: str, *, disk: Disk) -> None:
        self._disk = disk
        self._path = f"{root}/checkpoint"
        self._sealed = SealedFile(disk, f"{root}/pyddmq/checkpoint.json")
        self.damaged = False

    def load(self) -> QueueCheckpoint | None:
        """Return the checkpoint; None when it is missing or damaged, for then everything can be derived again."""
        try:
            data: dict[str, Any] | None = self._sealed.load()
        except StoreUnreadable:
            self.damaged = True
            return None
        if data is None:
            return None
        try:
            return _checked(QueueCheckpoint(**data))
        except (AttributeError, TypeError, ValueError):
            self.damaged = True
            return None

    def index_ms(self) -> int:
        """Return RocketMQ's index time, ms since the epoch; 0 when there is no checkpoint. Raises OSError."""
        raw = read_whole(self._disk, self._path) or b""
        return int(_CHECKPOINT.unpack_from(raw)[2]) if len(raw) >= _CHECKPOINT.size else 0

    def writing(self, checkpoint: QueueCheckpoint) -> FileWrite:
        """Write both, ours first, in steps. Raises OSError."""
        # Not by `asdict`, which copies the queues.
        yield from self._sealed.writing({field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)})
        times = rocketmq_times(checkpoint)
        with closing(self._disk.open(self._path, create=True)) as file:
            if file.size() != CHECKPOINT_BYTES:
                file.truncate(CHECKPOINT_BYTES)
            file.write(0, [times.ljust(CHECKPOINT_BYTES, b"\x00")])
            yield file
