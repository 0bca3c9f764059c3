"""`pyddmq_acks`: what became of single messages, from the ack logs of groups (docs/lag-journal.md), as a batch.

A partition is a file. Rows are made column by column from decoded batches, as Arrow batches with just the columns of
the schema that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from broker.runtime.disk import RealDisk
from lag.acks.acks import AckBatch, Outcome
from lag.acks.log import FOLDER, log_names, read_acks
from lag.blocks import BlockGap, BlockReader, FileHead
from lag.spark.sources import options as read
from lag.spark.sources.bounds import narrowed, query_of
from lag.spark.sources.journal_rows import GAP_FIELDS, arrow_columns, gap_batch, spark_columns

NAME: Final = "pyddmq_acks"
BATCH_ROWS: Final = 50_000
SLACK_MS: Final = 3_600_000
"""Files follow each other in time but for this: messages end in any order, and clocks are set."""
FIELDS: Final = {
    "cluster": pa.string(),
    "node": pa.string(),
    "epoch": pa.string(),
    "group": pa.string(),
    "topic": pa.string(),
    "queue": pa.int64(),
    "offset": pa.int64(),
    "stored_ms": pa.int64(),
    "handed_ms": pa.int64(),
    "ended_ms": pa.int64(),
    "deliveries": pa.int64(),
    "outcome": pa.string(),
}
"""Columns and their Arrow types; `outcome` is the word of `lag.acks.acks.Outcome` in small letters."""
ROWS: Final = {"messages": FIELDS, "gaps": GAP_FIELDS}
_compute: Any = pc
"""Its functions are made as it is loaded, so no type checker knows them."""
_WORDS: Final = ("", *(outcome.name.lower() for outcome in Outcome))
"""By an outcome's number."""
_BY_ROW: Final = {"offset": 2, "stored_ms": 3, "handed_ms": 4, "ended_ms": 5, "deliveries": 6, "outcome": 7}
"""Which column of an `AckBatch` each is."""


@dataclass(frozen=True)
class AckPart(InputPartition):
    """A file of a folder; "" has none."""

    folder: str
    name: str


class AckSource(DataSource):
    """`spark.read.format("pyddmq_acks").option("path", FOLDERS).load()`.

    Options: `path`, with commas between them: data directories, their `pyddmq/lag-acks`, or folders of one group;
    `rows`, `messages` or `gaps`, which says what is missing and why; `since` and `until`, moments of the ends; `group`
    and `topic`, names with commas; `pushdown`, as of `pyddmq_lag`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> str:
        """Return all columns; a caller's own schema may have fewer, in any order."""
        return spark_columns(ROWS[self._rows()])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader. Raises OptionRefused."""
        columns = arrow_columns(schema, ROWS[self._rows()])
        return (PushedAcks if read.is_pushed(self.options) else Acks)(self.options, self._rows(), columns)

    def _rows(self) -> str:
        return read.one_of(self.options, "rows", tuple(ROWS), "messages")


def ack_folders(disk: RealDisk, path: str) -> list[str]:
    """Return the folders with ack logs that a path means: itself, those of its groups, or those of a data directory."""
    path = path.rstrip("/") or "/"
    if log_names(disk, path):
        return [path]
    for place in (path, f"{path}/{FOLDER}"):
        found = [f"{place}/{group}" for group in disk.list(place) if log_names(disk, f"{place}/{group}")]
        if found:
            return found
    return []


class Acks(DataSourceReader):
    """Reads ack logs; see `AckSource`."""

    def __init__(self, options: Mapping[str, str], rows: str, columns: pa.Schema) -> None:
        self._paths = read.paths(options, f"a data directory, or its {FOLDER}")
        self._rows = rows
        self._columns = columns
        self._wanted = query_of(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Take each file that may have what is asked for. Raises OptionRefused: a path has no ack log."""
        disk = RealDisk(read_only=True)
        parts: list[AckPart] = []
        for path in self._paths:
            folders = ack_folders(disk, path)
            if not folders:
                raise read.OptionRefused(
                    f"{path} has no ack log; pass the data directory of a node with a group whose ackLog is on"
                )
            for folder in folders:
                parts += self._files(disk, folder)
        # Spark asks a reader without partitions for one that means nothing.
        return parts or [AckPart(self._paths[0], "")]

    def _files(self, disk: RealDisk, folder: str) -> Iterator[AckPart]:
        names, wanted = log_names(disk, folder), self._wanted
        heads = [_head(disk, f"{folder}/{name}") for name in names]
        ends = [None if head is None else head.first_ms for head in heads[1:]] + [None]
        for name, head, end in zip(names, heads, ends, strict=True):
            if head is not None and not wanted.takes_name(head.group, ""):
                continue
            if head is not None and wanted.is_past(head.first_ms - SLACK_MS):
                continue
            if end is None or wanted.is_later(end + SLACK_MS):
                yield AckPart(folder, name)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield batches of the columns that are asked for."""
        assert isinstance(partition, AckPart), "partitions are made above"
        found = read_acks(RealDisk(read_only=True), partition.folder, (partition.name,))
        if self._rows == "gaps":
            gaps = [each for each in found if isinstance(each, BlockGap)]
            yield gap_batch(partition.folder, gaps, self._columns)
            return
        held: list[pa.RecordBatch] = []
        count = 0
        for each in found:
            if isinstance(each, BlockGap) or not self._wanted.takes_name(each[0].group, each[1].topic):
                continue
            batch = self._batch(*each)
            if batch.num_rows:
                held.append(batch)
                count += batch.num_rows
            if count >= BATCH_ROWS:
                yield _joined(held)
                held, count = [], 0
        if held:
            yield _joined(held)

    def _batch(self, head: FileHead, batch: AckBatch) -> pa.RecordBatch:
        count = len(batch.offsets)
        by_batch: dict[str, Any] = {
            "cluster": head.cluster,
            "node": head.node,
            "epoch": f"{head.epoch:016x}",
            "group": head.group,
            "topic": batch.topic,
            "queue": batch.queue,
        }
        arrays = []
        for name, kind in zip(self._columns.names, self._columns.types, strict=True):
            if name in by_batch:
                arrays.append(pa.repeat(pa.scalar(by_batch[name], kind), count))
            elif name == "outcome":
                arrays.append(pa.array(_WORDS, kind).take(pa.array(batch.outcomes, pa.int64())))
            else:
                arrays.append(pa.array(batch[_BY_ROW[name]], kind))
        made = pa.record_batch(arrays, schema=self._columns)
        since_ms, until_ms = self._wanted.since_ms, self._wanted.until_ms
        if since_ms is None and until_ms is None:
            return made
        ends = pa.array(batch.ended_ms, pa.int64())
        taken = pa.repeat(True, count)
        if since_ms is not None:
            taken = _compute.and_(taken, _compute.greater_equal(ends, since_ms))
        if until_ms is not None:
            taken = _compute.and_(taken, _compute.less(ends, until_ms))
        return made.filter(taken)


class PushedAcks(Acks):
    """The same, that reads less where a query asks for less."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take what filters say of ends, group and topic, and leave them all with Spark."""
        self._wanted = narrowed(self._wanted, filters, "ended_ms")
        yield from filters


def _head(disk: RealDisk, path: str) -> FileHead | None:
    reader = BlockReader(disk, path)
    reader.close()
    return reader.head


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one batch: a hundred small ones cost Spark a hundred messages."""
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
