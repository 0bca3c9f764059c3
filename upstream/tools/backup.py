"""A consistent copy of a data directory, also while a node has it open; and its restore.

What the copy holds: every message whose publish was answered before the copy began, and every ack answered before that.
Of what was answered meanwhile, a publish is there or not, and an ack is there only if its message is.

That follows from the order of copying. The log only grows, and all else speaks of records that are in it already:

1. committed offsets and ack journal, as one: the offsets must be the same before and after the journal was read, or the
   journal would take them for another program's (D10);
2. topics, geometry, checkpoint and other small files;
3. queue files, which hold at least what that checkpoint covers; what they hold beyond it is cut at the first opening;
4. the log, up to the end of its last valid record at that moment; zeros behind it;
5. whose the producers' names are, which is written before the first message of each.

`backup.json` is written last, with size and SHA-256 of every file; a folder without it is no backup. Index, timer log
and timer wheel are left out: they are made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from broker.errors import StoreError, StoreUnreadable
from broker.log.commit_log import SEGMENT_NAME_DIGITS
from broker.opening.reading import geometry_of
from broker.opening.recovery import ProgressCallback
from broker.queues.offsets import LMQ_FILE
from broker.queues.topics import Topics
from broker.runtime.disks.read_only_disk import ReadingDisk
from broker.runtime.names import is_number
from broker.runtime.sealed_file import read_whole, write_whole
from broker.runtime.seams import Clock, Disk, DiskFile
from broker.scheduled.timer.pending.state import without_files
from broker.tools.readonly import ReadOnlyStore
from upstream.progress.journal import scan_segment, segment_name, segment_numbers

MANIFEST = "backup.json"
FORMAT_VERSION = 1
NAME_BYTES_MAX = 255
"""Longest name of a file or folder on the file systems of Linux."""
_CHUNK_BYTES = 1 << 20
_ATTEMPTS_MAX = 100
_ACKS = "pyddmq/acks"
_OWNERS = "pyddmq/owners"
_OFFSETS_FILES = ("consumerOffset.json", LMQ_FILE)
_OFFSETS = tuple(path for name in _OFFSETS_FILES for path in (f"config/{name}", f"config/{name}.bak", f"pyddmq/{name}"))
_TOPICS = ("config/topics.json", "config/topics.json.bak", "pyddmq/topics.json", "pyddmq/topics_opened.json")
_LEFT_OUT = frozenset({*_OFFSETS_FILES, "topics.json", "topics_opened.json", "index.json", "timers.json"})
_FOLDERS = ("config", "pyddmq", "pyddmq/broadcast", "pyddmq/sinks")
"""What has small files."""

Link = Callable[[str, str], None]
"""Makes the second path a hard link of the first; raises OSError where it cannot."""


class BackupError(StoreError):
    """A backup or restore that cannot be made; the sentence says why and what to do."""


@dataclass(slots=True)
class Backup:
    """One copy being made, or read back.

    Attributes:
        root: The data directory.
        target: Folder of the copy, absolute.
        source: Disk of the data directory; only read.
        disk: Disk of the copy.
        clock: Stamps the manifest.
        link: Given, closed log files are linked instead of copied.
        progress: Called now and then with (bytes copied, bytes to copy).
    """

    root: str
    target: str
    source: Disk
    disk: Disk
    clock: Clock
    link: Link | None = None
    progress: ProgressCallback | None = None
    _done: int = 0
    _total: int = 0

    def make(self) -> dict[str, Any]:
        """Copy, and return the manifest.

        Raises:
            BackupError: The target is not empty, or the source does not hold still.
            StoreError: There is no store, or it cannot be read; `store check` says more.
            OSError: A file cannot be read or written.
        """
        started = self.clock.wall_ms()
        if geometry_of(self.root, disk=self.source) is None:
            raise StoreUnreadable(f"{self.root} has no store; pass the data directory of a node")
        _refuse_unless_empty(self.target, self.disk)
        files: dict[str, dict[str, Any]] = {}
        for path, data in self._small_files():
            files[path] = self._write(path, data)
        for path in self._queue_files():
            self._copy_named(path, files)
        # Opened only now: what the small files speak of is in the log by now.
        with closing(ReadOnlyStore.open(self.root, disk=self.source, clock=self.clock)) as store:
            self._copy_log(store, files)
            end = store.end
        owners = read_whole(self.source, f"{self.root}/{_OWNERS}")
        if owners is not None:
            files[_OWNERS] = self._write(_OWNERS, owners)
        # The copy was never closed by an owner: its first opening looks at the tail.
        files["abort"] = self._write("abort", b"0")
        manifest = {
            "format": FORMAT_VERSION,
            "source": self.root,
            "startedMs": started,
            "finishedMs": self.clock.wall_ms(),
            "logEnd": end,
            "files": files,
        }
        for folder in sorted({path.rpartition("/")[0] for path in files}):
            self.disk.sync_folder(f"{self.target}/{folder}".rstrip("/"))
        write_whole(self.disk, f"{self.target}/{MANIFEST}", json.dumps(manifest, indent=1).encode() + b"\n")
        return manifest

    # Small files

    def _small_files(self) -> Iterator[tuple[str, bytes]]:
        yield from self._offsets_and_journal().items()
        # A table and a twin of other versions would be taken for another program's (D6).
        yield from self._settled(_TOPICS, "the topics").items()
        paths = [
            f"{folder}/{name}"
            for folder in _FOLDERS
            for name in self.source.list(f"{self.root}/{folder}")
            if name.removesuffix(".bak").endswith(".json") and name.removesuffix(".bak") not in _LEFT_OUT
        ]
        yield from self._read_all([*paths, "checkpoint"]).items()
        data = without_files(self.root, disk=self.source, clock=self.clock)
        if data is not None:
            yield "pyddmq/timers.json", data

    def _offsets_and_journal(self) -> dict[str, bytes]:
        """Read both so that they belong together. Raises BackupError: they changed at every attempt."""
        for _ in range(_ATTEMPTS_MAX):
            offsets = self._read_all(_OFFSETS)
            journal = self._journal()
            if journal is not None and self._read_all(_OFFSETS) == offsets:
                return {**offsets, **journal}
        raise self._unsettled("offsets and ack journal")

    def _settled(self, paths: Sequence[str], what: str) -> dict[str, bytes]:
        """Read files of which none changes between. Raises BackupError: one did at every attempt."""
        for _ in range(_ATTEMPTS_MAX):
            found = self._read_all(paths)
            if self._read_all(paths) == found:
                return found
        raise self._unsettled(what)

    def _unsettled(self, what: str) -> BackupError:
        return BackupError(f"{what} of {self.root} changed at each of {_ATTEMPTS_MAX} attempts to read them; try again")

    def _read_all(self, paths: Sequence[str]) -> dict[str, bytes]:
        found = ((path, read_whole(self.source, f"{self.root}/{path}")) for path in paths)
        return {path: data for path, data in found if data is not None}

    def _journal(self) -> dict[str, bytes] | None:
        """Return the newest segment with an intact snapshot; all of them when none has one, None when they moved."""
        folder = f"{self.root}/{_ACKS}"
        numbers = segment_numbers(folder, self.source)
        found: dict[str, bytes] = {}
        for number in reversed(numbers):
            path = f"{_ACKS}/{segment_name(number)}"
            data = read_whole(self.source, f"{self.root}/{path}")
            if data is None:
                return None
            found[path] = data
            if scan_segment(number, data, folder=folder).intact:
                # Still of that name: its bytes were not being reused while they were read.
                return {path: data} if number in segment_numbers(folder, self.source) else None
        return found if numbers == segment_numbers(folder, self.source) else None

    # Large files

    def _queue_files(self) -> Iterator[str]:
        base = f"{self.root}/consumequeue"
        for topic in self.source.list(base):
            for queue in self.source.list(f"{base}/{topic}"):
                for name in self.source.list(f"{base}/{topic}/{queue}"):
                    if is_number(name) and len(name) == SEGMENT_NAME_DIGITS:
                        yield f"consumequeue/{topic}/{queue}/{name}"

    def _copy_named(self, path: str, files: dict[str, dict[str, Any]]) -> None:
        """Copy a file unless its owner has deleted it."""
        try:
            file = self.source.open(f"{self.root}/{path}")
        except FileNotFoundError:
            return
        with closing(file):
            files[path] = self._copy(path, file, file.size(), file.size())

    def _copy_log(self, store: ReadOnlyStore, files: dict[str, dict[str, Any]]) -> None:
        size = store.geometry.segment_bytes
        self._total = store.end - store.min_offset
        self.disk.make_folder(f"{self.target}/commitlog")
        for segment in [store.log.segments[number] for number in sorted(store.log.segments)]:
            path = f"commitlog/{segment.base:020d}"
            if segment.base >= store.end and segment.base:
                continue
            try:
                file = self.source.open(f"{self.root}/{path}")
            except FileNotFoundError:
                # Retention; what is behind it is copied all the same.
                continue
            with closing(file):
                used = min(max(store.end - segment.base, 0), size)
                files[path] = self._copy(path, file, used, size, closed=used == size)

    def _copy(self, path: str, file: DiskFile, used: int, size: int, *, closed: bool = False) -> dict[str, Any]:
        """Copy `used` bytes of an open file into one of `size` bytes, or link a closed one; return its line."""
        target = f"{self.target}/{path}"
        self.disk.make_folder(target.rpartition("/")[0])
        out = None
        if closed and self.link is not None:
            self.link(f"{self.root}/{path}", target)
        else:
            out = self.disk.open(target, create=True)
        digest = hashlib.sha256()
        try:
            for at in range(0, used, _CHUNK_BYTES):
                data = file.read(at, min(_CHUNK_BYTES, used - at))
                digest.update(data)
                if out is not None:
                    out.write(at, [data])
                self._advance(len(data))
            for at in range(used, size, _CHUNK_BYTES):
                digest.update(bytes(min(_CHUNK_BYTES, size - at)))
            if out is not None:
                out.truncate(size)
                out.sync()
        finally:
            if out is not None:
                out.close()
        return {"bytes": size, "sha256": digest.hexdigest()}

    def _write(self, path: str, data: bytes) -> dict[str, Any]:
        target = f"{self.target}/{path}"
        self.disk.make_folder(target.rpartition("/")[0])
        with closing(self.disk.open(target, create=True)) as file:
            file.write(0, [data])
            file.sync()
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def _advance(self, count: int) -> None:
        self._done += count
        if self.progress is not None:
            self.progress(self._done, self._total)


def read_manifest(folder: str, *, disk: Disk) -> dict[str, Any]:
    """Return the manifest of a backup.

    Raises:
        BackupError: The folder is no whole backup, or a newer version made it.
    """
    raw = read_whole(disk, f"{folder}/{MANIFEST}")
    try:
        manifest = json.loads(raw) if raw is not None else None
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise BackupError(
            f"{folder} is not a complete backup: {MANIFEST}, which is written last, is missing or damaged; "
            "pass a folder that `pyddmq store backup` finished"
        )
    if manifest.get("format") != FORMAT_VERSION:
        raise BackupError(
            f"{folder} was written by another version (format {manifest.get('format')}, this version knows "
            f"{FORMAT_VERSION}); restore it with the version that wrote it"
        )
    for path, line in manifest["files"].items():
        if not _is_inside(path):
            raise BackupError(
                f"{folder}/{MANIFEST} names {path[:200]!r}, which is not a store file; do not trust this backup"
            )
        size = line.get("bytes") if isinstance(line, dict) else None
        if type(size) is not int or size < 0 or type(line.get("sha256")) is not str:
            raise BackupError(
                f"{folder}/{MANIFEST} has no size and checksum of {path[:200]!r}; do not trust this backup"
            )
    return manifest


def _is_inside(path: str) -> bool:
    """Whether a path of a manifest is one below the folder, each part of it an ordinary name of a possible length."""
    return path.isprintable() and all(
        part not in ("", ".", "..") and len(part.encode()) <= NAME_BYTES_MAX for part in path.split("/")
    )


def restore(
    folder: str, root: str, *, disk: Disk, clock: Clock, progress: ProgressCallback | None = None
) -> dict[str, Any]:
    """Copy a backup into an empty or missing folder, comparing every sum; returns its manifest.

    What the backup says is not trusted, sums or no: its paths, its links, and the names in its files are looked at
    before the first byte is written.

    Raises:
        BackupError: It is no whole backup, a file is missing or differs from its sum, or `root` is not empty. Nothing
            was written if it is one that a `backup` cannot have made: with paths out of it, symbolic links, names that
            no topic can have.
        OSError: A file cannot be read or written.
    """
    manifest = read_manifest(folder, disk=disk)
    _refuse_unless_empty(root, disk)
    files: dict[str, dict[str, Any]] = manifest["files"]
    _refuse_links(folder, files, disk)
    _refuse_names(folder, disk, clock)
    total = sum(line["bytes"] for line in files.values())
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    for path, line in files.items():
        _restore_file(f"{folder}/{path}", f"{root}/{path}", line, disk, advance)
    for path in sorted({path.rpartition("/")[0] for path in files}):
        disk.sync_folder(f"{root}/{path}".rstrip("/"))
    return manifest


def _restore_file(source: str, target: str, line: dict[str, Any], disk: Disk, advance: Callable[[int], None]) -> None:
    """Copy one file and compare it."""
    try:
        file = disk.open(source)
    except FileNotFoundError as error:
        raise BackupError(f"{source} is missing; the backup is incomplete, use another") from error
    disk.make_folder(target.rpartition("/")[0])
    with closing(file), closing(disk.open(target, create=True)) as out:
        digest = hashlib.sha256()
        size = file.size()
        for at in range(0, size, _CHUNK_BYTES):
            data = file.read(at, min(_CHUNK_BYTES, size - at))
            digest.update(data)
            out.write(at, [data])
            advance(len(data))
        if size != line["bytes"] or digest.hexdigest() != line["sha256"]:
            raise BackupError(f"{source} is damaged: its checksum differs from {MANIFEST}; use another backup")
        out.sync()


def _refuse_links(folder: str, files: Iterable[str], disk: Disk) -> None:
    """Refuse a backup with symbolic links in it: no copy has any, and they lead to files that the sums do not cover."""
    looked_at: set[str] = set()
    for path in files:
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            each = "/".join(parts[:count])
            if each not in looked_at and disk.is_link(f"{folder}/{each}"):
                raise BackupError(
                    f"{folder}/{each} is a symbolic link, and backups contain none; do not trust this "
                    "backup. If you made the link, copy the folder with links followed"
                )
            looked_at.add(each)


def _refuse_names(folder: str, disk: Disk, clock: Clock) -> None:
    """Read what says which topics there are, as an opening would; it changes nothing."""
    reading = ReadingDisk(disk)
    try:
        Topics(folder, disk=reading, clock=clock, queue_file_units=1).load()
        geometry_of(folder, disk=reading)
    except StoreError as error:
        raise BackupError(f"{error}. This backup cannot be restored: it would not open") from error


def _refuse_unless_empty(folder: str, disk: Disk) -> None:
    if disk.list(folder):
        raise BackupError(f"{folder} is not empty; pass a new folder, or delete the remains of an interrupted run")
