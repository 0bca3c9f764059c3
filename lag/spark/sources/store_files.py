"""A store's files, read from outside: consume queues and the commit log, in RocketMQ's layout.

It is read alone, and while a node writes. A live store is read up to the node's visible end and never beyond it: what
the queues' files do not have yet is found by one scan of the log's tail (`lag.spark.sources.store_tail`). Nothing is
believed: positions come from the queue's units, and each record is compared with its unit (size, own position, topic,
queue, offset) and with its sum before anything of it is used. So a torn or foreign record, a filler (docs/storage.md)
and a unit whose record is gone give nothing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from broker.errors import DamagedRecord, RecordGone, StoreUnreadable
from broker.format.record import (
    HEADER,
    HEADER_BYTES,
    MAGIC_V1,
    RECORD_OVERHEAD_BYTES,
    born_timestamp,
    locate,
    physical_offset,
    prepared_offset,
    queue_id,
    queue_offset,
    reconsume_times,
    store_timestamp,
    sum_matches,
    sys_flag,
    topic_of,
)
from broker.log.commit_log import CommitLog
from broker.opening.reading import geometry_of, open_log_for_reading
from broker.opening.store_json import geometry_in
from broker.options import StoreOptions
from broker.queues.consume_queue import UNIT, ConsumeQueue
from broker.runtime.disk import RealDisk
from broker.runtime.disks.read_only_disk import ReadingDisk
from broker.runtime.json_keys import parse_loose
from broker.runtime.names import is_number, queue_folder
from broker.runtime.sealed_file import sealed_lines, sum_text
from lag.spark.sources.due import consumable_ms
from lag.spark.sources.store_tail import Tail, Units, read_tail
from lag.visible_end import FILE, read_visible_end

_OFFSET_FILES: Final = ("lmqConsumerOffset.json", "consumerOffset.json")
"""Of two that were written at the same time the last one counts."""
_V6_HOSTS: Final = 0x30
_unpack_header = HEADER.unpack_from
_Whole = tuple[int, int, int, int, int, int, int, int]
"""What is known of a record that was looked at: the fields of `LocatedRecord` from `body_at` on."""


class NothingCommitted(StoreUnreadable):
    """The store has no file of committed offsets."""


def committed_offsets(root: str) -> dict[tuple[str, str, int], int]:
    """Return the committed offsets of a store by group, topic and queue.

    A RocketMQ with `enableLmq=true` writes a file of its own: where both exist, the one that was written last counts,
    with what only the other has.

    Raises:
        NothingCommitted: There is neither file.
        StoreUnreadable: A file is no JSON of that form.
    """
    found: list[tuple[int, int, dict[tuple[str, str, int], int]]] = []
    for order, name in enumerate(_OFFSET_FILES):
        path = f"{root}/config/{name}"
        try:
            with open(path, encoding="utf-8") as file:
                content = parse_loose(file.read())
            offsets = {
                (key.rpartition("@")[2], key.rpartition("@")[0], int(queue)): int(offset)
                for key, queues in content["offsetTable"].items()
                for queue, offset in queues.items()
            }
            found.append((int(content.get("dataVersion", {}).get("timestamp", 0)), order, offsets))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreUnreadable(f"{path} has no readable offsets of groups: {error}") from error
    if not found:
        text = f"{root}/config has no {_OFFSET_FILES[-1]}: no group has committed an offset in this store"
        raise NothingCommitted(text)
    found.sort(key=lambda each: each[:2])
    return {key: offset for *_, offsets in found for key, offset in offsets.items()}


class LocatedRecord(NamedTuple):
    """A record and where its parts are.

    Attributes:
        offset: Its offset in the queue.
        record: All of it.
        log: The log that it is in.
        body_at: Where the body begins,
        body_end: and ends.
        block_at: Where the property block begins; it ends with the record.
        flags: RocketMQ's sysFlag.
        born_ms: When the producer made it, Unix ms.
        stored_ms: When the broker stored it, Unix ms.
        attempts: How often it was delivered before.
        replaced: Position in the log of the record that it replaces; 0: of none.
    """

    offset: int
    record: memoryview
    log: CommitLog
    body_at: int
    body_end: int
    block_at: int
    flags: int
    born_ms: int
    stored_ms: int
    attempts: int
    replaced: int

    @property
    def due_ms(self) -> int:
        """When it could first be consumed, Unix ms: when it was stored or, if it waited for its time, was due."""
        return consumable_ms(self.record, self.log) if self.replaced else self.stored_ms


class StoreFiles:
    """A store's folder. Whether it is live, and what its log's tail has, is looked up once, when it is first asked for.

    Args:
        root: The folder, which has `commitlog` and `consumequeue`.

    Raises:
        StoreUnreadable: It is no store.
    """

    def __init__(self, root: str) -> None:
        for name in ("commitlog", "consumequeue"):
            if not os.path.isdir(f"{root}/{name}"):
                raise StoreUnreadable(f"{root} is not a store: it has no folder {name}")
        self._root = root
        self._disk = ReadingDisk(RealDisk(read_only=True))
        self._geometry = geometry_of(root, disk=self._disk) or geometry_in(StoreOptions())
        self.log = self._open_log()
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}

    def _open_log(self) -> CommitLog:
        log, _ = open_log_for_reading(self._root, self._geometry, disk=self._disk)
        log.visible_end = (max(log.segments, default=-1) + 1) * log.segment_bytes
        return log

    def visible_end(self) -> int | None:
        """Return the position in the log up to which a running node lets others read; None: no node has the store.

        Bytes beyond it are not synced, or wait for their moment. Once the node is gone, what is whole counts, as for
        the node's own next start.
        """
        state = read_visible_end(self._disk, f"{self._root}/{FILE}")
        if state is None or not state.is_live or not self._disk.locked(f"{self._root}/lock"):
            return None
        return state.offset

    @cached_property
    def tail(self) -> Tail | None:
        """What a live store has beyond its queues' files, up to its visible end; None: no node has the store."""
        visible = self.visible_end()
        if visible is None:
            return None
        # The listing from before may lack the file that the node has begun since.
        self.log = self._open_log()
        self._queues.clear()
        return read_tail(self._root, self.log, visible)

    def topics(self) -> list[str]:
        """Return the names of the topics that have queues."""
        return sorted(name for name in {*os.listdir(f"{self._root}/consumequeue"), *self._new()} if self.queues(name))

    def queues(self, topic: str) -> list[int]:
        """Return the numbers of a topic's queues; none: there is no such topic."""
        folder = f"{self._root}/consumequeue/{topic}"
        if "/" in topic:
            return []
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted({*(int(name) for name in names if name.isdigit()), *self._new().get(topic, ())})

    def _new(self) -> dict[str, set[int]]:
        """Topics and queues that only the log's tail has; not those that were deleted since: they are in no table."""
        found: dict[str, set[int]] = {}
        for topic, queue in () if self.tail is None else self.tail.units:
            if topic in self._table:
                found.setdefault(topic, set()).add(queue)
        return found

    @cached_property
    def _table(self) -> frozenset[str]:
        """Names of the topics in `config/topics.json`, and of those made since; none where it cannot be read."""
        try:
            raw = self._bytes("config/topics.json")
            names = set(parse_loose(raw.decode("utf-8"))["topicConfigTable"] if raw else ())
            for line in sealed_lines(self._bytes("pyddmq/topics_opened.json")):
                names.update(line["topics"] if line["base"] == (sum_text(raw) if raw else "") else ())
            return frozenset(names)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return frozenset()

    def _bytes(self, name: str) -> bytes:
        path = Path(self._root, name)
        return path.read_bytes() if path.exists() else b""

    def tail_of(self, topic: str, queue: int, first: int, end: int) -> Units | None:
        """Return those units of offsets of a queue that stand in the log's tail alone; None: there are none."""
        units = None if self.tail is None else self.tail.units.get((topic, queue))
        return None if units is None else units.between(first, end)

    def range(self, topic: str, queue: int) -> tuple[int, int]:
        """Return the offsets that a queue has now: the first one that is kept, and its end."""
        tail = self.tail
        units = None if tail is None else tail.units.get((topic, queue))
        bounds = None if tail is None else tail.bounds.get((topic, queue))
        files = self._queue(topic, queue)
        # Files are made ahead, with zeros: the end is behind the last unit that has a size.
        first, end = bounds or (files.min_offset, files.max_offset)
        if bounds is None and units is not None:
            first = end = units.first
        end = _first(first, end, lambda offset: not self._is_there(topic, queue, offset))
        if units is not None:
            end = units.end
        return _first(first, end, lambda offset: self._position(topic, queue, offset) >= self.log.min_offset), end

    def offset_at(self, topic: str, queue: int, time_ms: int) -> int:
        """Return the first offset of a queue stored at or after a moment; its end when there is none."""
        first, end = self.range(topic, queue)

        def is_later(offset: int) -> bool:
            # One that cannot be read is as late as what follows.
            stored_ms = self.stored_ms(topic, queue, offset, end)
            return stored_ms is None or stored_ms >= time_ms

        return _first(first, end, is_later)

    def stored_ms(self, topic: str, queue: int, offset: int, end: int) -> int | None:
        """Return when the first message from an offset on that can be read was stored; None: none below `end` can."""
        tail = self.tail_of(topic, queue, offset, end)
        found = next(self.read(topic, queue, offset, end, tail=tail), None)
        return None if found is None else found.stored_ms

    def bytes_between(self, topic: str, queue: int, first: int, end: int) -> int:
        """Return about how much log is between two offsets of a queue, other queues' records included."""
        if end <= first:
            return 0
        return max(0, self._position(topic, queue, end - 1) - self._position(topic, queue, first))

    def position(self, topic: str, queue: int, offset: int) -> int:
        """Return the place in the log of the record at an offset of a queue, which is within `range`."""
        return self._position(topic, queue, offset)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return what a group committed, by topic and queue. Raises as `committed_offsets`."""
        return {
            (topic, queue): offset
            for (each, topic, queue), offset in committed_offsets(self._root).items()
            if each == group
        }

    def read(
        self, topic: str, queue: int, first: int, end: int, *, verify: bool = True, tail: Units | None = None
    ) -> Iterator[LocatedRecord]:
        """Yield the records of a queue's offsets in order; those that are not there, or not whole, are left out.

        Args:
            topic: Its topic.
            queue: Its number.
            first: The first offset, and
            end: the one behind the last: within `range` as the planner found it.
            verify: Compare the sums.
            tail: The units of those offsets that only the log's tail has (`tail_of`).
        """
        log, name = self.log, topic.encode()
        for offset, physical, size in self._units(topic, queue, first, end, tail):
            if size < RECORD_OVERHEAD_BYTES:
                continue
            try:
                record = log.read(physical, size)
            except (DamagedRecord, RecordGone):
                continue
            found = _whole(record, physical, name, queue, offset)
            if found is not None and (not verify or sum_matches(record)):
                yield LocatedRecord(offset, record, log, *found)

    def _units(
        self, topic: str, queue: int, first: int, end: int, tail: Units | None
    ) -> Iterator[tuple[int, int, int]]:
        """Yield offset, place and size of a queue's units, in steps: none holds more than some pages of the file."""
        files = self._queue(topic, queue)
        at = max(first, files.min_offset)
        end_of_files = min(end, files.max_offset) if tail is None else min(end, tail.first)
        while at < end_of_files:
            units = files.read_unchecked(at, min(end_of_files - at, 4096))
            for offset, (physical, size, _) in enumerate(units, at):
                yield offset, physical, size
            at += len(units)
        rest = None if tail is None else tail.between(at, end)
        if rest is not None:
            for offset, (physical, size, _) in enumerate(UNIT.iter_unpack(rest.data), rest.first):
                yield offset, physical, size

    def _queue(self, topic: str, queue: int) -> ConsumeQueue:
        """Return a queue with all offsets that its files have room for."""
        files = self._queues.get((topic, queue))
        if files is None:
            units = self._geometry.queue_file_units
            files = ConsumeQueue(topic, queue, root=self._root, disk=self._disk, file_units=units)
            names = [name for name in self._disk.list(queue_folder(self._root, topic, queue)) if is_number(name)]
            if names:
                files.start_at(int(names[0]) // UNIT.size, int(names[-1]) // UNIT.size + units)
            self._queues[topic, queue] = files
        return files

    def _is_there(self, topic: str, queue: int, offset: int) -> bool:
        physical, size, _ = self._queue(topic, queue).neighbour(offset) or (0, 0, 0)
        return size > 0 and (self.tail is None or physical + size <= self.tail.visible)

    def _position(self, topic: str, queue: int, offset: int) -> int:
        tail = self.tail_of(topic, queue, offset, offset + 1)
        if tail is not None:
            return tail.unit(offset)[0]
        unit = self._queue(topic, queue).neighbour(offset)
        return 0 if unit is None else unit[0]


def _whole(record: memoryview, physical: int, topic: bytes, queue: int, offset: int) -> _Whole | None:
    """Return what is known of a record that is what its unit says and whole; else None. Its sum is not looked at."""
    (total, magic, _, number, _, queue_at, position, flags, born_ms, _, stored_ms, _, attempts, replaced, length) = (
        _unpack_header(record)
    )
    if magic != MAGIC_V1 or flags & _V6_HOSTS:
        return _unusual(record, physical, topic, queue, offset)
    # Nearly every record: one look at its header gives all of it.
    end = HEADER_BYTES + length
    if total != len(record) or not HEADER_BYTES <= end <= total - 3:
        return None
    topic_end = end + 1 + record[end]
    if number != queue or queue_at != offset or position != physical or record[end + 1 : topic_end] != topic:
        return None
    return HEADER_BYTES, end, min(topic_end + 2, total), flags, born_ms, stored_ms, attempts, replaced


def _unusual(record: memoryview, physical: int, topic: bytes, queue: int, offset: int) -> _Whole | None:
    """The same of a record of any layout."""
    try:
        view, body_at, body_end, block_at, _ = locate(record)
    except (DamagedRecord, struct.error, IndexError):
        return None
    if queue_id(view) != queue or queue_offset(view) != offset or physical_offset(view) != physical:
        return None
    if topic_of(view) != topic:
        return None
    times = born_timestamp(view), store_timestamp(view)
    return body_at, body_end, block_at, sys_flag(view), *times, reconsume_times(view), prepared_offset(view)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from `low` on of which something holds, that holds from there on; `high`: of none."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
