"""`pyddmq_messages`: the messages of a store's files (stopped, live, a backup, of a real RocketMQ) or of a node.

This module has the source, and how files are read; `node_batch` and `node_stream` read a running node. The planner
looks each queue's range up once and cuts it by bytes of the log; a partition carries offsets, and of a live store the
places of those records that only the log's tail has. Columns that the schema does not ask for are not made: a count by
key reads no body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from broker.errors import BodyUnusable
from broker.format.body import is_packed, unpack
from broker.format.properties import parse_properties
from broker.format.record import strip_own
from lag.spark.sources import options as read
from lag.spark.sources.bounds import Bounds, bounds_of
from lag.spark.sources.node_batch import NodeMessages, PushedNodeMessages
from lag.spark.sources.store_files import LocatedRecord, StoreFiles
from lag.spark.sources.store_tail import Units

NAME: Final = "pyddmq_messages"
BATCH_ROWS: Final = 8_192
BATCH_BYTES: Final = 16 * 1024 * 1024
PARTITION_BYTES: Final = 64 * 1024 * 1024
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A body that unpacks to more is given as it is stored."""


@dataclass(frozen=True)
class QueuePart(InputPartition):
    """Offsets of one queue: from `first` on, below `end`; `tail` has the units that its files had not yet."""

    root: str
    topic: str
    queue: int
    first: int
    end: int
    tail: Units | None = None


def _body(found: LocatedRecord) -> bytes:
    body = found.record[found.body_at : found.body_end]
    if found.flags and is_packed(found.record):
        try:
            return unpack(body, found.flags, BODY_BYTES_MAX)
        except BodyUnusable:
            pass
    return bytes(body)


Rows = Sequence[LocatedRecord]
Properties = Sequence[dict[str, str]]


def _integers(values: list[int]) -> pa.Array:
    return pa.array(values, pa.int64())


def _property(name: str) -> Callable[[QueuePart, Rows, Properties], pa.Array]:
    return lambda part, rows, properties: pa.array([each.get(name) for each in properties], pa.string())


def _maps(part: QueuePart, rows: Rows, properties: Properties) -> pa.Array:
    """Return maps, from one column of all names and one of all values: Arrow takes a row of pairs thrice as slowly."""
    names: list[str] = []
    values: list[str] = []
    begins = [0]
    for each in properties:
        names += each
        values += each.values()
        begins.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(begins, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )


_TEXTS: Final = pa.map_(pa.string(), pa.string())
COLUMNS: Final[dict[str, tuple[str, pa.DataType, Callable[[QueuePart, Rows, Properties], pa.Array]]]] = {
    "topic": ("string", pa.string(), lambda part, rows, _: pa.repeat(pa.scalar(part.topic, pa.string()), len(rows))),
    "queue": ("bigint", pa.int64(), lambda part, rows, _: pa.repeat(pa.scalar(part.queue, pa.int64()), len(rows))),
    "offset": ("bigint", pa.int64(), lambda part, rows, _: _integers([each.offset for each in rows])),
    "stored_ms": ("bigint", pa.int64(), lambda part, rows, _: _integers([each.stored_ms for each in rows])),
    "due_ms": ("bigint", pa.int64(), lambda part, rows, _: _integers([each.due_ms for each in rows])),
    "born_ms": ("bigint", pa.int64(), lambda part, rows, _: _integers([each.born_ms for each in rows])),
    "id": ("string", pa.string(), _property("UNIQ_KEY")),
    "keys": ("string", pa.string(), _property("KEYS")),
    "tags": ("string", pa.string(), _property("TAGS")),
    "attempts": ("bigint", pa.int64(), lambda part, rows, _: _integers([each.attempts for each in rows])),
    "size": ("bigint", pa.int64(), lambda part, rows, _: _integers([len(each.record) for each in rows])),
    "body": ("binary", pa.binary(), lambda part, rows, _: pa.array([_body(each) for each in rows], pa.binary())),
    "properties": ("map<string,string>", _TEXTS, _maps),
}
"""Of each column its types, for Spark and Arrow, and how it is made of all records of a batch and their properties."""
_FROM_BLOCK: Final = frozenset(("id", "keys", "tags", "properties"))


class MessageSource(DataSource):
    """`spark.read.format("pyddmq_messages").option("path", STORE).option("topic", TOPIC).load()`.

    Options: `path`, a store's folder (of a node its data folder, while it runs, too); `topic`, names with commas, none:
    all; `queue`, numbers with commas; `since` and `until`, moments of storing; `group`: only what it has not committed;
    `spans`, `{"topic": {"queue": [first, end]}}`: only these offsets; `partitionBytes`; `verify`, `false` to leave out
    the records' sums; `pushdown`, as of `pyddmq_lag`.

    With `node`, `host:port` of a running one, in place of `path`, and then as a stream too (docs/spark-messages.md):
    `group`, a low-level one; `topic`, `queue`, `since`, `until`, `pushdown` likewise; `startingOffsets`;
    `failOnDataLoss`; `partitionMessages`; `patience`, seconds; `cluster`; of a stream `maxOffsetsPerTrigger` and
    `commitGroup`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> str:
        """Return all columns; a caller's own schema may have fewer, in any order."""
        return ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in COLUMNS.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader. Raises OptionRefused."""
        columns = self._columns(schema)
        pushed = read.is_pushed(self.options)
        if self._is_node():
            return (PushedNodeMessages if pushed else NodeMessages)(self.options, columns)
        return (PushedMessages if pushed else Messages)(self.options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Raises OptionRefused."""
        columns = self._columns(schema)
        if not self._is_node():
            raise read.OptionRefused("a stream reads from a running node; use option 'node' instead of 'path'")
        try:
            from lag.spark.sources.node_stream import NodeStream
        except ImportError as error:
            raise read.OptionRefused(f"a stream of messages needs PySpark 4.2 or newer: {error}") from error
        return NodeStream(self.options, columns)

    def _is_node(self) -> bool:
        if "node" in self.options and "path" in self.options:
            raise read.OptionRefused("options 'node' and 'path' exclude each other; remove one")
        return "node" in self.options

    @staticmethod
    def _columns(schema: StructType) -> list[str]:
        return read.check_columns(schema, {name: column[0] for name, column in COLUMNS.items()})


class Messages(DataSourceReader):
    """Reads a store's files; see `MessageSource`."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._root = read.required(options, "path", "a store's folder, which has commitlog and consumequeue")
        self._topics = read.names(options, "topic")
        self._queues = read.numbers(options, "queue")
        self._group = options.get("group")
        self._since_ms = read.moment_ms(options, "since")
        self._until_ms = read.moment_ms(options, "until")
        self._partition_bytes = read.number(options, "partitionBytes", PARTITION_BYTES, at_least=1)
        self._verify = read.one_of(options, "verify", ("true", "false"), "true") == "true"
        self._spans = read.spans(options, "spans")
        self._columns = tuple(columns)
        self._bounds = Bounds({}, {}, {})

    def partitions(self) -> Sequence[InputPartition]:
        """Look the queues' ranges up, once, and cut them by bytes of the log."""
        files = StoreFiles(self._root)
        committed = None if self._group is None else files.committed(self._group)
        topics = files.topics() if self._topics is None else sorted(self._topics)
        if self._spans is not None:
            topics = [topic for topic in topics if topic in self._spans]
        for topic in topics:
            if self._topics is not None and not files.queues(topic):
                raise read.OptionRefused(
                    f"topic {topic!r} does not exist in {self._root}; it has {_some(files.topics())}"
                )
        named = self._bounds.texts.get("topic")
        parts = [
            part
            for topic in topics
            if named is None or topic in named
            for queue in files.queues(topic)
            if self._queues is None or queue in self._queues
            for part in self._cut(files, topic, queue, None if committed is None else committed.get((topic, queue)))
        ]
        # Spark asks a reader without partitions for one that means nothing.
        return parts or [QueuePart(self._root, "", 0, 0, 0)]

    def _cut(self, files: StoreFiles, topic: str, queue: int, committed: int | None) -> Iterator[QueuePart]:
        low, high = self._bounds.low, self._bounds.high
        if not low.get("queue", queue) <= queue <= high.get("queue", queue):
            return
        first, end = files.range(topic, queue)
        first, end = max(first, low.get("offset", first)), min(end, high.get("offset", end) + 1)
        if committed is not None:
            first = max(first, committed)
        if self._spans is not None:
            span = self._spans[topic].get(queue, (0, 0))
            first, end = max(first, span[0]), min(end, span[1])
        times = [each for each in (self._since_ms, low.get("stored_ms")) if each is not None]
        if times:
            first = max(first, files.offset_at(topic, queue, max(times)))
        times = [
            each
            for each in (self._until_ms, None if "stored_ms" not in high else high["stored_ms"] + 1)
            if each is not None
        ]
        if times:
            end = min(end, files.offset_at(topic, queue, min(times)))
        if first >= end:
            return
        count = max(1, -(-files.bytes_between(topic, queue, first, end) // self._partition_bytes))
        step = -(-(end - first) // count)
        for at in range(first, end, step):
            stop = min(at + step, end)
            yield QueuePart(self._root, topic, queue, at, stop, files.tail_of(topic, queue, at, stop))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield batches of the columns that are asked for."""
        assert isinstance(partition, QueuePart), "partitions are made above"
        if partition.first >= partition.end:
            return
        files = StoreFiles(self._root)
        batch: list[LocatedRecord] = []
        held = 0
        part, verify = partition, self._verify
        for found in files.read(part.topic, part.queue, part.first, part.end, verify=verify, tail=part.tail):
            batch.append(found)
            held += len(found.record)
            if len(batch) >= BATCH_ROWS or held >= BATCH_BYTES:
                yield self._batch(partition, batch)
                batch, held = [], 0
        if batch:
            yield self._batch(partition, batch)

    def _batch(self, part: QueuePart, rows: Rows) -> pa.RecordBatch:
        properties: Properties = ()
        if not _FROM_BLOCK.isdisjoint(self._columns):
            properties = [parse_properties(strip_own(bytes(each.record[each.block_at :]))) for each in rows]
        arrays = [COLUMNS[name][2](part, rows, properties) for name in self._columns]
        return pa.record_batch(arrays, names=list(self._columns))


class PushedMessages(Messages):
    """The same, that reads less where a query asks for less."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take what filters say of topic, queue, offset and time, and leave them all with Spark."""
        self._bounds = bounds_of(filters)
        yield from filters


def _some(names: Sequence[str]) -> str:
    """Name a few, so that a store of thousands of topics gives a sentence."""
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown or "none"
