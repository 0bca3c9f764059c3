"""Every consume-queue unit against its record, while the log is walked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from broker.format.record import RecordSummary
from broker.log.commit_log import CommitLog
from broker.opening.unit_check import unit_of
from broker.queues.consume_queue import FILLER_BYTES, UNIT, UNIT_BYTES, Unit, repeated
from broker.runtime.disks.read_only_disk import NumberedFile, ReadingDisk
from broker.runtime.names import queue_path
from broker.tools.check.findings import Severity, StoreFinding
from broker.tools.readonly import GIVEN

_BLOCK_UNITS = 4096
_FINDINGS_PER_QUEUE_MAX = 50


@dataclass(slots=True)
class Patch:
    """Units that a queue's file should hold: `data` from queue offset `offset` on; `fillers`: some have no record."""

    topic: str
    queue_id: int
    offset: int
    data: bytearray
    fillers: bool = False


class QueueCheck:
    """One queue while the log is walked.

    Attributes:
        first: Queue offset of the first record; -1 before it.
        next: Queue offset that the next record should have; -1 before the first.
        units: Units compared.
        fillers: Offsets that hold nothing.
        patches: What has to be written into the files so that they are right.

    Args:
        root: The store.
        topic: The topic's name.
        queue_id: The queue's number.
        log: The log that is walked.
        disk: Where the files are.
        file_units: Units of a file.
        believed: Queue offsets whose units the files should hold.
        live: An owner may delete old files meanwhile.
    """

    def __init__(
        self,
        root: str,
        topic: str,
        queue_id: int,
        *,
        log: CommitLog,
        disk: ReadingDisk,
        file_units: int,
        believed: range,
        live: bool,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.units = 0
        self.first = self.next = -1
        self.fillers = 0
        self.patches: list[Patch] = []
        self._root = root
        self._log = log
        self._disk = disk
        self._live = live
        self._low, self._high = believed.start, believed.stop
        self._folder = queue_path(topic, queue_id)
        self._file_units = file_units
        self._block = b""
        self._block_at = -1
        self._reported = 0
        self._last: Unit | None = None

    def take(self, entry: RecordSummary) -> Iterator[StoreFinding]:
        """Compare a record with its unit."""
        offset = entry.queue_offset
        unit = unit_of(entry, GIVEN.unit_codes)
        if self.next < 0:
            self.first = offset
            if self._low < offset:
                yield from self._gap(self._low, min(offset, self._high), unit)
        elif offset > self.next:
            yield from self._gap(self.next, offset, unit)
        elif offset < self.next:
            yield self._finding(
                "offset_taken",
                offset,
                severity=Severity.NOTE,
                text=f"an earlier record has queue offset {offset}, which the record at {entry.physical} claims",
                costs="it is not delivered",
            )
            return
        self.next, self._last = offset + 1, unit
        if not self._low <= offset < self._high:
            return
        self.units += 1
        wanted = UNIT.pack(*unit)
        found = self._unit(offset)
        if found == wanted:
            return
        missing = not found.strip(b"\x00")
        fresh = self._patch(offset, wanted)
        if fresh:
            yield self._finding(
                "unit_missing" if missing else "unit_wrong",
                offset,
                text=f"the unit of queue offset {offset} is {'empty' if missing else 'not that of its record'} "
                "(and possibly later ones)",
                costs="no data; it is rebuilt from the log when it is read",
                repair="rebuilt from the log",
            )

    def finish(self) -> Iterator[StoreFinding]:
        """Compare what the files hold behind the last record."""
        start = max(self.next, self._low)
        if start < self._high:
            yield from self._gap(start, self._high, self._last)

    def _gap(self, start: int, end: int, beside: Unit | None) -> Iterator[StoreFinding]:
        """Look at offsets for which no record was met: fillers, or records that are gone.

        Args:
            start: First offset.
            end: One past the last.
            beside: The unit that fillers there repeat; None where the queue has no record.
        """
        lost = old = 0
        filler = repeated(beside)
        for offset in range(start, end):
            unit = self._unit(offset) if self._low <= offset < self._high else filler
            if unit == filler:
                lost += 1
                continue
            if unit == FILLER_BYTES:
                lost, old = lost + 1, old + 1
                self._patch(offset, filler, is_filler=True)
                continue
            physical, size, _ = UNIT.unpack(unit)
            if (size > 0 and 0 <= physical < self._log.min_offset) or (self._live and not size and self.next < 0):
                # Retention deletes the oldest.
                continue
            lost += 1
            if self._patch(offset, filler, is_filler=True):
                yield self._finding(
                    "unit_without_record",
                    offset,
                    text=f"the unit of queue offset {offset} has no valid record (and possibly later ones)",
                    costs="its message is in a damaged part of the log, or lost; readers skip it",
                    repair="replaced by a filler",
                )
        self.fillers += lost
        if old:
            yield self._finding(
                "filler_old",
                start,
                severity=Severity.NOTE,
                text=f"{old} queue offsets from {start} on have fillers of format 1",
                costs="no data here; RocketMQ would not serve the messages after them in their log file",
                repair="rewritten",
                count=old,
            )
        if lost:
            yield self._finding(
                "offsets_empty",
                start,
                severity=Severity.NOTE,
                text=f"{lost} queue offsets from {start} to {end - 1} are empty: the log has no records for them",
                costs="they are skipped",
                count=lost,
            )

    def _patch(self, offset: int, unit: bytes, *, is_filler: bool = False) -> bool:
        """Note what the file should hold; True when this begins a new row of units."""
        last = self.patches[-1] if self.patches else None
        if last is not None and last.offset + len(last.data) // UNIT_BYTES == offset:
            last.data += unit
            last.fillers = last.fillers or is_filler
            return False
        self.patches.append(Patch(self.topic, self.queue_id, offset, bytearray(unit), is_filler))
        self._reported += 1
        return self._reported <= _FINDINGS_PER_QUEUE_MAX

    def _unit(self, offset: int) -> bytes:
        """Return the 20 bytes that the file holds for an offset; zeros where it holds none."""
        place = offset - self._block_at
        if self._block_at < 0 or not 0 <= place < _BLOCK_UNITS or place * UNIT_BYTES >= len(self._block):
            number, first = divmod(offset, self._file_units)
            count = min(_BLOCK_UNITS, self._file_units - first)
            path = f"{self._root}/{self._folder}/{number * self._file_units * UNIT_BYTES:020d}"
            data = NumberedFile(self._disk, path).read(first * UNIT_BYTES, count * UNIT_BYTES)
            self._block, self._block_at, place = data.ljust(count * UNIT_BYTES, b"\x00"), offset, 0
        return self._block[place * UNIT_BYTES : (place + 1) * UNIT_BYTES]

    def _finding(
        self,
        kind: str,
        offset: int,
        *,
        text: str,
        costs: str,
        severity: Severity = Severity.WARNING,
        repair: str = "",
        count: int = 1,
    ) -> StoreFinding:
        number, place = divmod(offset, self._file_units)
        return StoreFinding(
            kind=kind,
            severity=severity,
            file=f"{self._folder}/{number * self._file_units * UNIT_BYTES:020d}",
            position=place * UNIT_BYTES,
            text=text,
            costs=costs,
            count=count,
            repair=repair,
        )
