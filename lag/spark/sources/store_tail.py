"""The tail of a live store's log: the part between the node's last checkpoint and its visible end.

A running node writes the units of its queues at checkpoints (16 MiB of log, or 10 s). What came since is in the log
alone, so it is found there: one scan, from the end that the checkpoint covers to the visible end, by the reader of the
node's own start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import RECORD_OVERHEAD_BYTES, RecordSummary, prepared_offset
from broker.log.commit_log import CommitLog
from broker.log.scan import LogScan
from broker.opening.store_json import CheckpointFile
from broker.queues.consume_queue import UNIT
from broker.runtime.disk import RealDisk


class Units(NamedTuple):
    """Units of a queue's offsets from `first` on, packed; one of size 0 has no record."""

    first: int
    data: bytes

    @property
    def end(self) -> int:
        """Offset behind the last one."""
        return self.first + len(self.data) // UNIT.size

    def unit(self, offset: int) -> tuple[int, int]:
        """Return place and size of the record at an offset, which is one of them."""
        physical, size, _ = UNIT.unpack_from(self.data, (offset - self.first) * UNIT.size)
        return physical, size

    def between(self, first: int, end: int) -> Units | None:
        """Return those in [first, end); None: there are none."""
        first, end = max(first, self.first), min(end, self.end)
        if first >= end:
            return None
        return Units(first, self.data[(first - self.first) * UNIT.size : (end - self.first) * UNIT.size])


@dataclass(frozen=True, slots=True)
class Tail:
    """What a live store has now.

    Attributes:
        visible: Its visible end.
        bounds: Of each queue that the checkpoint names, its first offset, and where its units in files end.
        units: Of each queue with records in the log's tail, those; they begin where the files end.
    """

    visible: int
    bounds: Mapping[tuple[str, int], tuple[int, int]]
    units: Mapping[tuple[str, int], Units]


def read_tail(root: str, log: CommitLog, visible: int) -> Tail:
    """Scan a live store's log from its last checkpoint on.

    Without a checkpoint, which is a store's first seconds, all of the log is its tail.

    Args:
        root: The store's folder.
        log: Its log, opened after `visible` was read.
        visible: Its visible end, read before: what the checkpoint covers since then is in the queues' files.
    """
    checkpoint = CheckpointFile(root, disk=RealDisk(read_only=True)).load()
    start = 0 if checkpoint is None else checkpoint.log_end
    bounds = {
        (topic, queue): (low, high)
        for topic, queues in ({} if checkpoint is None else checkpoint.queues).items()
        for queue, (low, high) in enumerate(queues)
    }
    found: dict[tuple[str, int], tuple[int, bytearray]] = {}
    for entry in _records(log, start, visible):
        if not entry.indexed:
            continue
        key = entry.topic.decode(), entry.queue_id
        if key not in found:
            found[key] = bounds[key][1] if key in bounds else entry.queue_offset, bytearray()
        first, data = found[key]
        gap = entry.queue_offset - first - len(data) // UNIT.size
        if 0 <= gap * RECORD_OVERHEAD_BYTES <= visible - start:
            # Offsets whose records are lost; more than the log can have held are not counted.
            data += UNIT.pack(entry.physical, 0, 0) * gap
            data += UNIT.pack(entry.physical, entry.size, 0)
    units = {key: Units(first, bytes(data)) for key, (first, data) in found.items() if data}
    return Tail(visible, bounds, units)


def replaced_since(log: CommitLog, start: int, end: int) -> Iterator[int]:
    """Yield the positions of records whose place those of a part of the log have taken, as they say.

    Args:
        log: The store's log.
        start: Position of the first record.
        end: What reaches behind it does not count.
    """
    for entry in _records(log, start, end):
        try:
            replaced = prepared_offset(log.read(entry.physical, entry.size))
        except (DamagedRecord, RecordGone):
            continue
        if replaced:
            # -1 names the record at 0, since 0 says that there is none.
            yield max(0, replaced)


def _records(log: CommitLog, start: int, end: int) -> Iterator[RecordSummary]:
    """Yield the valid records from one on that end at a position or before it."""
    walk = LogScan(log, max(start, log.min_offset))
    for entry in walk.entries() if walk.end < end else ():
        if walk.end > end:
            return
        yield entry
        if walk.end == end:
            return
