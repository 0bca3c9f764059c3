"""The tail of a live store's log: what lies between the node's last checkpoint and its visible end.

A running node writes the units of its queues at checkpoints (16 MiB of log, or 10 s). What came since stands in the log
alone, so it is found there: one scan, from the end that the checkpoint covers to the visible end. A record counts as it
does for the node's own start: its own position, its lengths and its sum are right. A damaged place hides what follows
it in its file until the next checkpoint.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.format.record import RECORD_OVERHEAD_BYTES, RecordSummary, check, prepared_offset
from broker.runtime.json_sum import unsealed
from lag.spark.sources.numbered_files import NumberedFiles

UNIT: Final = struct.Struct(">qiq")
"""A unit of a consume queue: commit-log offset, size, hash of the tag, which is 0 here."""
_CHECKPOINT: Final = "pyddmq/checkpoint.json"


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


def read_tail(root: str, visible: int) -> Tail:
    """Scan a live store's log from its last checkpoint on.

    Without a checkpoint, which is a store's first seconds, all of the log is its tail.

    Args:
        root: The store's folder.
        visible: Its visible end, read before: what the checkpoint covers since then is in the queues' files.
    """
    start, bounds = _checkpoint(f"{root}/{_CHECKPOINT}")
    found: dict[tuple[str, int], tuple[int, bytearray]] = {}
    for entry in _records(NumberedFiles(f"{root}/commitlog"), start, visible):
        if not entry.indexed:
            continue
        key = entry.topic.decode(), entry.queue_id
        if key not in found:
            found[key] = bounds[key][1] if key in bounds else entry.queue_offset, bytearray()
        first, data = found[key]
        gap = entry.queue_offset - first - len(data) // UNIT.size
        if 0 <= gap * RECORD_OVERHEAD_BYTES <= visible - start:
            # Offsets whose records are lost; more than the log can have held are nobody's.
            data += UNIT.pack(entry.physical, 0, 0) * gap
            data += UNIT.pack(entry.physical, entry.size, 0)
    units = {key: Units(first, bytes(data)) for key, (first, data) in found.items() if data}
    return Tail(visible, bounds, units)


def replaced_since(root: str, start: int, end: int) -> Iterator[int]:
    """Yield the positions of records whose place those of a part of the log have taken, as they say.

    Args:
        root: The store's folder.
        start: Position of the first record.
        end: What reaches behind it does not count.
    """
    log = NumberedFiles(f"{root}/commitlog")
    for entry in _records(log, start, end):
        record = log.view(entry.physical, entry.size)
        replaced = 0 if record is None else prepared_offset(record)
        if replaced:
            # -1 names the record at 0, since 0 says that there is none.
            yield max(0, replaced)


def _records(log: NumberedFiles, start: int, end: int) -> Iterator[RecordSummary]:
    """Yield the valid records from one on that end at a position or before it."""
    at = max(start, log.start)
    while at < end:
        file = log.file_from(at)
        if file is None:
            return
        base, view = file
        place, limit = max(at - base, 0), min(len(view), end - base)
        while (entry := check(view, place, limit, base + place)) is not None:
            yield entry
            place += entry.size
        at = base + len(view)


def _checkpoint(path: str) -> tuple[int, dict[tuple[str, int], tuple[int, int]]]:
    """Return the end of the log that a checkpoint covers, and the queues' bounds; nothing of one that is damaged."""
    try:
        with open(path, "rb") as file:
            found: Any = unsealed(file.read())
        bounds = {
            (str(name), number): (_offset(low), _offset(high))
            for name, queues in found["queues"].items()
            for number, (low, high) in enumerate(queues)
        }
        return _offset(found["log_end"]), bounds
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0, {}


def _offset(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError("no offset is like that")
    return value
