"""The file sizes of any store, and its log opened for reading alone: what tools and Spark's sources begin with."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

from broker.errors import RecordGone, StoreUnreadable
from broker.index.file import ENTRIES_PER_SLOT, ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from broker.log.commit_log import SEGMENT_NAME_DIGITS, CommitLog
from broker.log.log_pages import Segment
from broker.opening.store_json import Geometry, sizes_of
from broker.options import StoreOptions
from broker.queues.consume_queue import UNIT_BYTES
from broker.runtime.disks.read_only_disk import NumberedFile
from broker.runtime.names import is_number
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk

_INDEX_BYTES_PER_SLOT = SLOT_BYTES + ENTRIES_PER_SLOT * ENTRY_BYTES


def geometry_of(root: str, *, disk: Disk, default: StoreOptions | None = None) -> Geometry | None:
    """Tell the file sizes of a store; nothing is changed.

    A store of this broker says them in `pyddmq/store.json`. In one of RocketMQ's they are those that most files
    of the commit log, of a consume queue and of the index have. What it has no file of is taken from `default`.

    Args:
        root: The store.
        disk: Where.
        default: Sizes for what the store has no file of; those of `StoreOptions()` if not given.

    Returns:
        The sizes; None without a store.

    Raises:
        StoreFormatNewer: A newer version wrote it.
        StoreUnreadable: `store.json` is damaged.
        OSError: A file cannot be read.
    """
    found: dict[str, Any] | None = SealedFile(disk, f"{root}/pyddmq/store.json").load()
    if found is not None:
        return sizes_of(found, root=root)[1]
    return geometry_of_files(root, disk=disk, default=default)


def geometry_of_files(root: str, *, disk: Disk, default: StoreOptions | None = None) -> Geometry | None:
    """Return the sizes by the files alone, without `store.json`; None without a log file.

    Raises:
        OSError: A file cannot be read.
    """
    segment_bytes = usual_size(disk, f"{root}/commitlog")
    if not segment_bytes:
        return None
    default = default or StoreOptions()
    queue_bytes = _first_queue_size(disk, f"{root}/consumequeue")
    index_bytes = usual_size(disk, f"{root}/index")
    slots, rest = divmod(index_bytes - HEADER_BYTES, _INDEX_BYTES_PER_SLOT)
    known = index_bytes > HEADER_BYTES and not rest
    return Geometry(
        segment_bytes=segment_bytes,
        queue_file_units=queue_bytes // UNIT_BYTES or default.queue_file_units,
        index_slots=slots if known else default.index_slots,
        index_entries=slots * ENTRIES_PER_SLOT if known else default.index_entries,
    )


def has_queue_files(root: str, *, disk: Disk) -> bool:
    """Whether files of consume queues show their size. Raises OSError."""
    return _first_queue_size(disk, f"{root}/consumequeue") > 0


def check_sizes(root: str, geometry: Geometry, *, disk: Disk) -> None:
    """Check whether the sizes of log and queue files in `store.json` are those of any file.

    Its sum is right, so an operator wrote them, or it came from another store. By its sizes whole files would be taken
    for broken ones, and be moved, cut and grown.

    Raises:
        StoreUnreadable: Two files or more agree on another size, and none has the one that it names.
        OSError: A file cannot be read.
    """
    queue_sizes: Counter[int] = Counter()
    for topic in disk.list(f"{root}/consumequeue"):
        for queue in disk.list(f"{root}/consumequeue/{topic}"):
            if is_number(queue):
                queue_sizes += _sizes(disk, f"{root}/consumequeue/{topic}/{queue}")
    named_and_found = {
        "commit-log": (geometry.segment_bytes, _sizes(disk, f"{root}/commitlog")),
        "queue": (geometry.queue_file_units * UNIT_BYTES, queue_sizes),
    }
    for kind, (reported, sizes) in named_and_found.items():
        usual, count = max(sizes.items(), key=lambda item: item[1], default=(reported, 0))
        if reported not in sizes and count > 1:
            raise StoreUnreadable(
                f"{root}/pyddmq/store.json says that {kind} files have {reported:,} bytes, but {count} existing "
                f"files have {usual:,}: restore the file that belongs to this store, or move it away and "
                "run `pyddmq store check --repair`, which uses the sizes of the files"
            )


def open_log_for_reading(root: str, geometry: Geometry, *, disk: Disk) -> tuple[CommitLog, list[str]]:
    """Return the commit log with the segments that are there now, and the names of files of another size.

    Raises:
        OSError: The folder cannot be read.
    """
    log = CommitLog(root, disk=disk, segment_bytes=geometry.segment_bytes)
    strange: list[str] = []
    for name in disk.list(log.folder):
        if not is_number(name) or len(name) != SEGMENT_NAME_DIGITS:
            continue
        file = NumberedFile(disk, f"{log.folder}/{name}")
        size = file.size()
        number, rest = divmod(int(name), log.segment_bytes)
        if size == log.segment_bytes and not rest:
            log.segments[number] = Segment(int(name), _SegmentFile(log, number, disk, f"{log.folder}/{name}"))
        elif size:
            strange.append(name)
    return log, strange


class _SegmentFile(NumberedFile):
    """A segment that its owner may delete: it then leaves the log."""

    def __init__(self, log: CommitLog, number: int, disk: Disk, path: str) -> None:
        super().__init__(disk, path)
        self._log = log
        self._number = number

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; nothing when the file is deleted."""
        data = super().read(offset, size)
        if not data:
            self._log.segments.pop(self._number, None)
        return data

    def view(self) -> memoryview:
        """Return a view. Raises RecordGone when the file is deleted."""
        view = super().view()
        if not view:
            self._log.segments.pop(self._number, None)
            raise RecordGone(self._number * self._log.segment_bytes)
        return view


def usual_size(disk: Disk, folder: str) -> int:
    """Size in bytes that most files with a name of digits have, empty ones left out; 0 when there is none."""
    sizes = _sizes(disk, folder)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def _sizes(disk: Disk, folder: str) -> Counter[int]:
    """How many files with a name of digits have which size in bytes, empty ones left out."""
    sizes: Counter[int] = Counter()
    for name in disk.list(folder):
        if not is_number(name):
            continue
        # Retention of a live store may take one meanwhile.
        with contextlib.suppress(FileNotFoundError), contextlib.closing(disk.open(f"{folder}/{name}")) as file:
            sizes[file.size()] += 1
    del sizes[0]
    return sizes


def _first_queue_size(disk: Disk, folder: str) -> int:
    for topic in disk.list(folder):
        for queue in disk.list(f"{folder}/{topic}"):
            if is_number(queue) and (size := usual_size(disk, f"{folder}/{topic}/{queue}")):
                return size
    return 0
