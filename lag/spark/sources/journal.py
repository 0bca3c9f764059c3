"""`pyddmq_lag`: samples of consumption lag from the journals of nodes (docs/lag-journal.md), as a batch.

A partition is some files of one folder: each file can be read alone. Rows are made column by column from decoded
blocks, as Arrow batches with just the columns of the schema that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from broker.runtime.disk import RealDisk
from lag.blocks import BlockReader, Gap
from lag.journal.columns import QUEUE_COLUMNS
from lag.journal.files import WIDTH_MS, Tier, live_files, parse
from lag.journal.reader import SLACK_MS, EventRow, JournalReader, Wanted
from lag.journal.scan import Block
from lag.journal.summaries import QUEUE_SUMMARIES
from lag.samples import QueueSample
from lag.spark.sources import options as read
from lag.spark.sources.bounds import bounds_of, common, later, sooner

NAME: Final = "pyddmq_lag"
BATCH_ROWS: Final = 50_000
_ARROW: Final = {
    "int": pa.int64(),
    "int | None": pa.int64(),
    "str | None": pa.string(),
    "float | None": pa.float64(),
    "bool": pa.bool_(),
}
_KEY_FIELDS: Final = {
    "cluster": pa.string(),
    "node": pa.string(),
    "group": pa.string(),
    "topic": pa.string(),
    "queue": pa.int64(),
    "epoch": pa.string(),
    "sequence": pa.int64(),
}
_SPARK: Final = {pa.int64(): "bigint", pa.string(): "string", pa.float64(): "double", pa.bool_(): "boolean"}
_SUMMARY_FIELDS: Final = {
    "tier": pa.string(),
    "row_samples": pa.int64(),
    "row_lag_max": pa.int64(),
    "row_age_max_ms": pa.int64(),
}
FIELDS: Final = {
    **_KEY_FIELDS,
    **{field.name: _ARROW[str(field.type)] for field in fields(QueueSample)},
    **_SUMMARY_FIELDS,
}
"""Columns and their Arrow types: of which snapshot a row is, the names of `lag.samples`, and what a row sums up.

`tier` is raw, minute or hour; `row_samples` how many a row stands for, whose last one it has; `row_lag_max` and
`row_age_max_ms` are the extremes of all of them, null of a raw one.
"""
_GAP_FIELDS: Final = {
    "folder": pa.string(),
    "kind": pa.string(),
    "path": pa.string(),
    "position": pa.int64(),
    "reason": pa.string(),
    "from_ms": pa.int64(),
    "to_ms": pa.int64(),
}
_EVENT_FIELDS: Final = {
    "cluster": pa.string(),
    "node": pa.string(),
    "time_ms": pa.int64(),
    "kind": pa.string(),
    "group": pa.string(),
    "topic": pa.string(),
    "queue": pa.int64(),
    "detail": pa.string(),
}
ROWS: Final = {"samples": FIELDS, "events": _EVENT_FIELDS, "gaps": _GAP_FIELDS}
"""What may be asked for, and the columns of each."""


@dataclass(frozen=True)
class JournalPart(InputPartition):
    """Files of one folder; none: all of it."""

    folder: str
    names: tuple[str, ...]


class LagSource(DataSource):
    """`spark.read.format("pyddmq_lag").option("path", FOLDERS).load()`.

    Options: `path`, journals' folders with commas between them; `rows`, `samples`, `events` or `gaps`, which says what
    is missing and why; `since` and `until`, moments; `group` and `topic`, names with commas; `finest`, `raw`, `minute`
    or `hour`, where coarser rows will do; `pushdown`, `true` where the session has
    `spark.sql.python.filterPushdown.enabled`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> str:
        """Return all columns; a caller's own schema may have fewer, in any order."""
        return ", ".join(f"`{name}` {_SPARK[kind]}" for name, kind in ROWS[self._rows()].items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader. Raises OptionRefused."""
        pushed = read.one_of(self.options, "pushdown", ("true", "false"), "false") == "true"
        return (PushedJournalReader if pushed else JournalRows)(
            self.options, self._rows(), columns_of(schema, self._rows())
        )

    def _rows(self) -> str:
        return read.one_of(self.options, "rows", tuple(ROWS), "samples")


def columns_of(schema: StructType, rows: str) -> pa.Schema:
    """Return the columns of a schema that a caller gives. Raises OptionRefused: it has others."""
    known = ROWS[rows]
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            raise read.OptionRefused(f"there is no column {field.name!r}; there are {', '.join(known)}")
        if field.dataType.simpleString() != _SPARK[kind]:
            raise read.OptionRefused(
                f"column {field.name!r} is {_SPARK[kind]}, and the schema has it as {field.dataType.simpleString()}"
            )
    return pa.schema([(field.name, known[field.name]) for field in schema.fields])


class JournalRows(DataSourceReader):
    """Reads journals; see `LagSource`."""

    def __init__(self, options: Mapping[str, str], rows: str, columns: pa.Schema) -> None:
        path = read.required(options, "path", "the folder of a lag journal, `pyddmq/lag` of a node's data")
        self._folders = tuple(each.strip() for each in path.split(",") if each.strip())
        self._rows = rows
        self._columns = columns
        self._wanted = Wanted(
            since_ms=read.moment_ms(options, "since"),
            until_ms=read.moment_ms(options, "until"),
            groups=read.names(options, "group"),
            topics=read.names(options, "topic"),
            finest=Tier[read.one_of(options, "finest", ("raw", "minute", "hour"), "raw").upper()],
        )

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the work: a file each, or, of gaps, which lie between files, a folder each."""
        if self._rows == "gaps":
            return [JournalPart(folder, ()) for folder in self._folders]
        parts = [part for folder in self._folders for part in self._files(folder)]
        # Without any, a query would end without a word of why.
        return parts or [JournalPart(self._folders[0], ("",))]

    def _files(self, folder: str) -> Iterator[JournalPart]:
        disk = RealDisk(read_only=True)
        files = [file for name in disk.list(folder) if (file := parse(name)) is not None]
        for file in live_files(files, self._wanted.finest):
            if self._may_have(disk, f"{folder}/{file.name}", max(SLACK_MS, WIDTH_MS[file.tier])):
                yield JournalPart(folder, (file.name,))

    def _may_have(self, disk: RealDisk, path: str, slack_ms: int) -> bool:
        reader = BlockReader(disk, path)
        reader.close()
        head, wanted = reader.head, self._wanted
        if head is None:
            return False
        return wanted.is_later(head.last_ms + slack_ms) and not wanted.is_past(head.first_ms - slack_ms)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield batches of the columns that are asked for."""
        assert isinstance(partition, JournalPart), "partitions are made above"
        reader = JournalReader(
            _Some(partition.names) if partition.names else RealDisk(read_only=True), partition.folder
        )
        if self._rows == "gaps":
            gaps = [each for each in reader.blocks(self._wanted) if isinstance(each, Gap)]
            yield self._gaps(partition.folder, gaps)
            return
        if self._rows == "events":
            yield self._events(reader)
            return
        table = _Rows(self._columns, self._wanted)
        for block in reader.blocks(self._wanted):
            if isinstance(block, Block):
                table.add(block)
                if table.count >= BATCH_ROWS:
                    yield table.take()
        if table.count:
            yield table.take()

    def _events(self, reader: JournalReader) -> pa.RecordBatch:
        rows = [each for each in reader.read(self._wanted) if isinstance(each, EventRow)]
        columns = []
        for name in self._columns.names:
            if name in ("cluster", "node"):
                values = [getattr(row, name) for row in rows]
            else:
                values = [row.event.kind.value if name == "kind" else getattr(row.event, name) for row in rows]
            columns.append(pa.array(values, self._columns.field(name).type))
        return pa.record_batch(columns, schema=self._columns)

    def _gaps(self, folder: str, gaps: Sequence[Gap]) -> pa.RecordBatch:
        columns = []
        for name in self._columns.names:
            if name == "folder":
                values = [folder] * len(gaps)
            else:
                values = [gap.kind.value if name == "kind" else getattr(gap, name) for gap in gaps]
            columns.append(pa.array(values, self._columns.field(name).type))
        return pa.record_batch(columns, schema=self._columns)


class PushedJournalReader(JournalRows):
    """The same, that reads less where a query asks for less."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take what filters say of time, group and topic, and leave them all with Spark."""
        found = bounds_of(filters)
        wanted = self._wanted
        high = found.high.get("time_ms")
        self._wanted = replace(
            wanted,
            since_ms=later(wanted.since_ms, found.low.get("time_ms")),
            until_ms=sooner(wanted.until_ms, None if high is None else high + 1),
            groups=common(wanted.groups, found.texts.get("group")),
            topics=common(wanted.topics, found.texts.get("topic")),
        )
        yield from filters


class _Some(RealDisk):
    """A disk whose folders have some files only."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(read_only=True)
        self._names = names

    def list(self, path: str) -> list[str]:
        """Return the names, whatever else is there."""
        return [name for name in super().list(path) if name in self._names]


class _Rows:
    """Rows under way to a batch, column by column: what blocks decode to is turned round once a block."""

    def __init__(self, columns: pa.Schema, wanted: Wanted) -> None:
        self._columns = columns
        self._wanted = wanted
        self._places = {name: place for place, name in enumerate(QUEUE_COLUMNS)}
        # Values of the last sample stand first in a summary.
        extra = {column.name: place for place, column in enumerate(QUEUE_SUMMARIES.columns)}
        self._summary_places = self._places | {
            f"row_{name}": extra[name] for name in ("samples", "lag_max", "age_max_ms")
        }
        self._values: dict[str, list[Any]] = {name: [] for name in columns.names}
        self.count = 0

    def add(self, block: Block) -> None:
        """Add the rows of a block that are asked for."""
        wanted = self._wanted
        rows = block.queues
        if wanted != Wanted():
            rows = [each for each in rows if wanted.takes_moment(each[1]) and wanted.takes_name(each[0][0], each[0][1])]
        if not rows:
            return
        keys, moments, values = zip(*rows, strict=True)
        turned = list(zip(*values, strict=True))
        groups, topics, queues = zip(*keys, strict=True)
        by_row = {"time_ms": moments, "group": groups, "topic": topics, "queue": queues}
        by_block = {
            "cluster": block.head.cluster,
            "node": block.head.node,
            "epoch": f"{block.epoch:016x}",
            "sequence": block.sequence,
            "tier": block.tier.name.lower(),
            "row_samples": 1,
            "row_lag_max": None,
            "row_age_max_ms": None,
        }
        places = self._places if block.tier is Tier.RAW else self._summary_places
        for name, column in self._values.items():
            place = places.get(name)
            if place is not None:
                column.extend(turned[place])
            elif name in by_row:
                column.extend(by_row[name])
            else:
                column.extend([by_block[name]] * len(rows))
        self.count += len(rows)

    def take(self) -> pa.RecordBatch:
        """Return the batch, and begin another."""
        arrays = [pa.array(self._values[field.name], field.type) for field in self._columns]
        for column in self._values.values():
            column.clear()
        count, self.count = self.count, 0
        assert all(len(array) == count for array in arrays), "columns are of one length"
        return pa.record_batch(arrays, schema=self._columns)
