"""A store's files, read from outside: consume queues and the commit log, in RocketMQ's layout.

It is read alone, and while a node writes. A running node writes the units of its queues at checkpoints (16 MiB of log
or 10 s), so it is read up to the last of these, and never beyond what the node shows. Nothing is believed: positions
come from the queue's units, and each record is compared with its unit (size, own position, queue, offset) and with its
sum before anything of it is used. So a torn or foreign record, a filler (docs/storage.md) and a unit whose record is
gone give nothing.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.errors import DamagedRecord
from broker.format.record import locate, queue_id, queue_offset, store_timestamp, sum_matches
from broker.runtime.disk import RealDisk
from lag.visible_end import FILE, read_visible_end

UNIT: Final = struct.Struct(">qiq")
"""A unit of a consume queue: commit-log offset, size, hash of the tag."""
RECORD_MIN: Final = 91


class StoreUnreadable(Exception):
    """The files are not those of a store, or cannot be read; the sentence says which."""


class Files:
    """Files of one size in one folder, named by the position of their first byte: the log, or one queue."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        names = os.listdir(folder) if os.path.isdir(folder) else []
        self._starts = sorted(int(name) for name in names if name.isdigit() and len(name) == 20)
        self._maps: dict[int, mmap.mmap] = {}

    @property
    def start(self) -> int:
        """Position of the first byte that is there; 0 where there is none."""
        return self._starts[0] if self._starts else 0

    @property
    def end(self) -> int:
        """Position behind the last file, which may be filled in part only."""
        if not self._starts:
            return 0
        return self._starts[-1] + os.stat(self._path(self._starts[-1])).st_size

    def view(self, position: int, size: int) -> memoryview | None:
        """Return bytes that lie in one file; None: they are not there, or not in one."""
        place = bisect_right(self._starts, position) - 1
        if place < 0 or size <= 0:
            return None
        start = self._starts[place]
        mapped = self._maps.get(start)
        if mapped is None or position - start + size > len(mapped):
            mapped = self._map(start)
        if mapped is None or position - start + size > len(mapped):
            return None
        return memoryview(mapped)[position - start : position - start + size]

    def _map(self, start: int) -> mmap.mmap | None:
        """Map a file as long as it is now; None: it is empty, or retention took it meanwhile."""
        try:
            descriptor = os.open(self._path(start), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if not os.fstat(descriptor).st_size:
                return None
            mapped = self._maps[start] = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        return mapped

    def _path(self, start: int) -> str:
        return f"{self._folder}/{start:020d}"


class Found(NamedTuple):
    """A record and where its parts are.

    Attributes:
        offset: Its offset in the queue.
        physical: Its position in the commit log.
        record: All of it.
        body: Positions of the body.
        block: Positions of the property block.
    """

    offset: int
    physical: int
    record: memoryview
    body: tuple[int, int]
    block: tuple[int, int]


class StoreFiles:
    """A store's folder.

    Args:
        root: The folder, which has `commitlog` and `consumequeue`.

    Raises:
        StoreUnreadable: It is no store.
    """

    def __init__(self, root: str) -> None:
        for name in ("commitlog", "consumequeue"):
            if not os.path.isdir(f"{root}/{name}"):
                raise StoreUnreadable(f"{root} is no store's folder: it has no folder {name}")
        self._root = root
        self._log = Files(f"{root}/commitlog")
        self._queues: dict[tuple[str, int], Files] = {}
        self._disk = RealDisk(read_only=True)

    def visible_end(self) -> int | None:
        """Return the position in the log up to which a running node lets others read; None: no node has the store.

        What lies beyond it is not synced, or waits for its moment. Once the node is gone, what is whole counts, as for
        the node's own next start.
        """
        state = read_visible_end(self._disk, f"{self._root}/{FILE}")
        if state is None or not state.is_live or not self._disk.locked(f"{self._root}/lock"):
            return None
        return state.offset

    def topics(self) -> list[str]:
        """Return the names of the topics that have queues."""
        return sorted(name for name in os.listdir(f"{self._root}/consumequeue") if self.queues(name))

    def queues(self, topic: str) -> list[int]:
        """Return the numbers of a topic's queues; none: there is no such topic."""
        folder = f"{self._root}/consumequeue/{topic}"
        if "/" in topic or not os.path.isdir(folder):
            return []
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())

    def range(self, topic: str, queue: int) -> tuple[int, int]:
        """Return the offsets that a queue has now: the first one that is kept, and its end."""
        files = self._files(topic, queue)
        first, last = files.start // UNIT.size, files.end // UNIT.size
        # Files are made ahead, with zeros: the end is behind the last unit that has a size.
        visible = self.visible_end()
        end = _first(first, last, lambda offset: not self._is_there(topic, queue, offset, visible))
        return _first(first, end, lambda offset: self._position(topic, queue, offset) >= self._log.start), end

    def offset_at(self, topic: str, queue: int, time_ms: int) -> int:
        """Return the first offset of a queue stored at or after a moment; its end when there is none."""
        first, end = self.range(topic, queue)
        return _first(first, end, lambda offset: (self.stored_ms(topic, queue, offset) or 0) >= time_ms)

    def stored_ms(self, topic: str, queue: int, offset: int) -> int | None:
        """Return when the message at an offset was stored; None: its record cannot be read."""
        found = next(self.read(topic, queue, offset, offset + 1), None)
        return None if found is None else store_timestamp(found.record)

    def bytes_between(self, topic: str, queue: int, first: int, end: int) -> int:
        """Return about how much log lies between two offsets of a queue, other queues' records included."""
        if end <= first:
            return 0
        return max(0, self._position(topic, queue, end - 1) - self._position(topic, queue, first))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return what a group committed, by topic and queue, as `config/consumerOffset.json` has it.

        Raises:
            StoreUnreadable: There is no such file, or it is no JSON of that form.
        """
        path = f"{self._root}/config/consumerOffset.json"
        try:
            with open(path, encoding="utf-8") as file:
                table = json.load(file)["offsetTable"]
            return {
                (name.rpartition("@")[0], int(queue)): int(offset)
                for name, queues in table.items()
                if name.rpartition("@")[2] == group
                for queue, offset in queues.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreUnreadable(f"{path} does not say what groups committed: {error}") from error

    def read(self, topic: str, queue: int, first: int, end: int, *, verify: bool = True) -> Iterator[Found]:
        """Yield the records of a queue's offsets in order; those that are not there, or not whole, are left out."""
        files, log = self._files(topic, queue), self._log
        visible = self.visible_end()
        at = first
        while at < end:
            # Units in steps, so that no step holds more than some pages of the file.
            count = min(end - at, 4096)
            units = files.view(at * UNIT.size, count * UNIT.size)
            if units is None:
                count, units = 1, files.view(at * UNIT.size, UNIT.size)
                if units is None:
                    at += 1
                    continue
            for offset, (physical, size, _) in enumerate(UNIT.iter_unpack(units), at):
                if size < RECORD_MIN or (visible is not None and physical + size > visible):
                    continue
                record = log.view(physical, size)
                found = None if record is None else _whole(record, physical, queue, offset, verify=verify)
                if found is not None:
                    yield found
            at += count

    def _files(self, topic: str, queue: int) -> Files:
        files = self._queues.get((topic, queue))
        if files is None:
            files = self._queues[topic, queue] = Files(f"{self._root}/consumequeue/{topic}/{queue}")
        return files

    def _is_there(self, topic: str, queue: int, offset: int, visible: int | None) -> bool:
        unit = self._files(topic, queue).view(offset * UNIT.size, UNIT.size)
        if unit is None:
            return False
        physical, size, _ = UNIT.unpack(unit)
        return size > 0 and (visible is None or physical + size <= visible)

    def _position(self, topic: str, queue: int, offset: int) -> int:
        unit = self._files(topic, queue).view(offset * UNIT.size, UNIT.size)
        return 0 if unit is None else int(UNIT.unpack(unit)[0])


def _whole(record: memoryview, physical: int, queue: int, offset: int, *, verify: bool) -> Found | None:
    """Return a record that is what its unit says and whole; else None."""
    try:
        view, body_at, body_end, block_at, block_end = locate(record)
    except (DamagedRecord, struct.error, IndexError):
        return None
    if queue_id(view) != queue or queue_offset(view) != offset or struct.unpack_from(">q", view, 28)[0] != physical:
        return None
    if verify and not sum_matches(view):
        return None
    return Found(offset, physical, view, (body_at, body_end), (block_at, block_end))


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from `low` on of which something holds, that holds from there on; `high`: of none."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
