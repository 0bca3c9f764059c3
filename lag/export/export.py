"""From journals to Parquet: what is not exported yet, and small files made one.

Export as often as wanted: what a file there contains already is passed over, so a run that was killed is simply made
again. The file of queues is written last; by it a snapshot counts as exported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from broker.runtime.seams import Disk
from lag.blocks import BlockGap, GapKind
from lag.export.names import TABLES, ExportFile, LiveFile, parse
from lag.export.place import ExportPlace
from lag.export.tables import GROUP_ROWS, TableBytes, arrow, conformed, schema_of
from lag.journal.files import Tier
from lag.journal.reader import JournalQuery, JournalReader
from lag.journal.scan import Block

FILE_ROWS: Final = 2_000_000
"""Rows of a file: it is made in memory, about 10 to 40 bytes a row."""
_ORDER = ("scheduled", "events", "queues")
assert set(_ORDER) == set(TABLES), "each table is written, that of queues last"


@dataclass(slots=True)
class ExportReport:
    """What an export did.

    Attributes:
        files: Files written.
        rows: Rows of queues in them.
        snapshots: Snapshots in them.
        known: Snapshots that were there already.
        coarse: Minutes and hours that were passed over: their samples are kept no more.
        gaps: What is missing in the journal.
    """

    files: int = 0
    rows: int = 0
    snapshots: int = 0
    known: int = 0
    coarse: int = 0
    gaps: list[BlockGap] = field(default_factory=list)


def date_of(time_ms: int) -> str:
    """Return the day of a moment, UTC, as 2026-11-23."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()


def export(disk: Disk, folder: str, place: ExportPlace, wanted: JournalQuery | None = None) -> ExportReport:
    """Export what a journal has and the place has not.

    Args:
        disk: Where the journal is; one that is open for reading alone will do.
        folder: The journal's folder, of a running node or a stopped one.
        place: Where the files go.
        wanted: By times; None: all.

    Raises:
        ExportFailed: The place cannot be listed or written; what was written stays, and counts.
    """
    wanted = wanted or JournalQuery()
    report = ExportReport()
    done: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for live in place.live("queues"):
        done.setdefault((live.file.node, live.file.epoch), []).append((live.first, live.last))
    run = _SnapshotRun(place, report)
    for block in JournalReader(disk, folder).blocks(wanted):
        if isinstance(block, BlockGap):
            report.gaps.append(block)
            if block.kind is not GapKind.SILENT:
                # A file says that it holds all from its first to its last: what is missing may yet be there elsewhere.
                run.end()
        elif not wanted.takes_moment(block.time_ms):
            continue
        elif block.tier is not Tier.RAW:
            report.coarse += 1
        elif _is_in(done.get((block.head.node, block.epoch), ()), block.sequence):
            report.known += 1
            run.end()
        else:
            run.add(block)
    run.end()
    return report


def _is_in(ranges: Iterable[tuple[int, int]], sequence: int) -> bool:
    return any(first <= sequence <= last for first, last in ranges)


class _SnapshotRun:
    """Snapshots that follow each other, of one start and day: one file per table."""

    def __init__(self, place: ExportPlace, report: ExportReport) -> None:
        self._place = place
        self._report = report
        self._file: ExportFile | None = None
        self._tables: dict[str, TableBytes] = {}

    def add(self, block: Block) -> None:
        """Add a snapshot."""
        date, file = date_of(block.time_ms), self._file
        if file is not None and (
            (file.date, file.node, file.epoch) != (date, block.head.node, block.epoch)
            or file.last + 1 != block.sequence
            or self._tables["queues"].rows >= FILE_ROWS
        ):
            self.end()
        if self._file is None:
            self._file = ExportFile("queues", date, block.head.node, block.epoch, block.sequence, block.sequence)
            self._tables = {table: TableBytes(table) for table in _ORDER}
        self._file = self._file._replace(last=block.sequence)
        for table in self._tables.values():
            table.add(block)
        self._report.snapshots += 1

    def end(self) -> None:
        """Write what was added."""
        file, self._file = self._file, None
        if file is None:
            return
        for table, made in self._tables.items():
            if made.rows or table == "queues":
                self._place.write(file._replace(table=table), made.end())
                self._report.files += 1
        self._report.rows += self._tables["queues"].rows


def compact(place: ExportPlace, date: str) -> int:
    """Make one file of those of a day that follow each other, for each node's start; return how many were made.

    Those that it contains stay for present readers; the next `compact` deletes them. Run it for days that are
    over.

    Raises:
        ExportFailed: The place cannot be listed, read or written; what was done stays, and counts.
    """
    made = 0
    spans = [(run[0].file[2:4], run[0].first, run[-1].last) for run in _runs(_live(place, "queues", date))]
    for table in TABLES:
        live = _live(place, table, date)
        counted = {each.file for each in live}
        for name in place.names(table):
            file = parse(name)
            if file is not None and file.date == date and file not in counted:
                place.remove(file)
        # Of what waits and what happened a snapshot often has nothing: that of queues says which were exported.
        for start, first, last in spans:
            run = [each for each in live if each.file[2:4] == start and first <= each.first and each.last <= last]
            if len(run) > 1:
                made += _merge(place, run, run[0].file._replace(first=first, last=last))
    return made


def _live(place: ExportPlace, table: str, date: str) -> list[LiveFile]:
    return [each for each in place.live(table) if each.file.date == date]


def _runs(live: list[LiveFile]) -> list[list[LiveFile]]:
    """Return files that follow each other without a hole, of one start and day."""
    runs: list[list[LiveFile]] = []
    for each in live:
        last = runs[-1][-1] if runs else None
        if last is not None and last.file[:4] == each.file[:4] and last.last + 1 == each.first:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _merge(place: ExportPlace, run: list[LiveFile], target: ExportFile) -> bool:
    """Write the rows of a run as one file; one of its files is in memory at a time.

    False: a later version wrote one of them, so that its columns would be lost.
    """
    pa = arrow()
    stream = pa.BufferOutputStream()
    waiting: list[Any] = []
    with pa.parquet.ParquetWriter(stream, schema_of(target.table), compression="zstd") as writer:
        for each in run:
            rows = conformed(place.read(each), target.table)
            if rows is None:
                return False
            waiting.append(rows)
            if each is run[-1] or sum(table.num_rows for table in waiting) >= GROUP_ROWS:
                writer.write_table(pa.concat_tables(waiting), row_group_size=GROUP_ROWS)
                waiting = []
    place.write(target, stream.getvalue())
    return True
