"""`pyddmq_lag`: samples of consumption lag from the journals of nodes (docs/lag-journal.md), as a batch.

A partition is some files of one folder: each file can be read alone. Batches have just the columns of the schema that
is asked for. As a stream: `lag.spark.sources.journal_stream`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from broker.runtime.disk import RealDisk
from lag.blocks import BlockGap, BlockReader
from lag.journal.files import WIDTH_MS, Tier, live_files, parse
from lag.journal.reader import SLACK_MS, JournalReader
from lag.journal.scan import Block
from lag.spark.sources import options as read
from lag.spark.sources.bounds import narrowed, query_of
from lag.spark.sources.journal_rows import ROWS, Placed, batches, columns_of, gap_batch, spark_columns
from lag.spark.sources.journal_stream import JournalStream

NAME: Final = "pyddmq_lag"


@dataclass(frozen=True)
class JournalPart(InputPartition):
    """Files of one folder; none: all of it."""

    folder: str
    names: tuple[str, ...]


class LagSource(DataSource):
    """`spark.read.format("pyddmq_lag").option("path", FOLDERS).load()`.

    Options: `path`, journals' folders with commas between them; `rows`, `samples`, `events`, `gaps`, which says what
    is missing and why, or `rounds`, each whole in one row; `since` and `until`, moments; `group` and `topic`, names
    with commas; `finest`, `raw`, `minute` or `hour`, where coarser rows will do; `pushdown`, `true` where the session
    has `spark.sql.python.filterPushdown.enabled`.
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
        kind = PushedJournalReader if read.is_pushed(self.options) else JournalRows
        return kind(self.options, self._rows(), columns_of(schema, self._rows()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Raises OptionRefused."""
        rows = read.one_of(self.options, "rows", tuple(name for name in ROWS if name != "gaps"), "samples")
        return JournalStream(self.options, rows, columns_of(schema, rows))

    def _rows(self) -> str:
        return read.one_of(self.options, "rows", tuple(ROWS), "samples")


class JournalRows(DataSourceReader):
    """Reads journals; see `LagSource`."""

    def __init__(self, options: Mapping[str, str], rows: str, columns: pa.Schema) -> None:
        self._folders = read.paths(options, "the folder of a lag journal, `pyddmq/lag` of a node's data")
        self._rows = rows
        self._columns = columns
        finest = read.one_of(options, "finest", ("raw", "minute", "hour"), "raw")
        self._wanted = replace(query_of(options), finest=Tier[finest.upper()])

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
            gaps = [each for each in reader.blocks(self._wanted, by_columns=None) if isinstance(each, BlockGap)]
            yield gap_batch(partition.folder, gaps, self._columns)
            return
        yield from batches(self._blocks(reader, partition), self._rows, self._columns, self._wanted)

    def _blocks(self, reader: JournalReader, partition: JournalPart) -> Iterator[Placed]:
        file = parse(partition.names[0]) if partition.names else None
        number = file.first if file is not None and file.tier is Tier.RAW else 0
        # Of events no row is decoded, of samples no row is made.
        by_columns = {"samples": True, "events": None}.get(self._rows, False)
        for block in reader.blocks(self._wanted, by_columns=by_columns):
            if isinstance(block, Block):
                yield number, 0, block


class PushedJournalReader(JournalRows):
    """The same, that reads less where a query asks for less."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take what filters say of time, group and topic, and leave them all with Spark."""
        self._wanted = narrowed(self._wanted, filters, "time_ms")
        yield from filters


class _Some(RealDisk):
    """A disk whose folders have some files only."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(read_only=True)
        self._names = names

    def list(self, path: str) -> list[str]:
        """Return the names, whatever else is there."""
        return [name for name in super().list(path) if name in self._names]
