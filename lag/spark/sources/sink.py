"""`pyddmq`: rows as messages to a node, each stored once, however often Spark runs its task (docs/spark-messages.md).

A task numbers its rows as a deduplicating producer does (docs/deduplication.md). Its name is made of the query, the
batch and the partition, so that the same task run again, after a failure or after a restart of the query from its
checkpoint, sends the same numbers: what is stored already is answered with its receipt and not stored again.

Another run of the batch may divide its rows into other partitions, and a task does not know how many there are. So the
node keeps which partitions a batch was begun with (docs/deduplication.md#writes). A task first reads all rows of its
partition into a buffer, and declares their number and digest:

=====================  ============================================================================================
answer                 what the task does
=====================  ============================================================================================
send                   sends its rows; those that are stored already are repeats
stored                 sends nothing: the whole batch is stored
waits (code 50)        declares again: this run has not yet repeated all partitions that an earlier one began
differs (code 49)      fails before its first row: the batch was begun in other partitions, or with other rows
forgotten (code 48)    fails, or with `onForgotten` `send` sends: the node cannot recognize a repeat of these rows
=====================  ============================================================================================

When all tasks have ended, the driver declares the end with the digest of all partitions; only then Spark's own commit
follows. A batch write without `id` declares nothing: no other run can repeat it.
"""

from __future__ import annotations

import hashlib
import struct
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from lag.spark.sources import options as read
from lag.spark.sources import wire
from lag.spark.sources.node import NodeClient, NodeFailed, tls_of
from pyddmq.client.tls import Tls

# Rows of a task, encoded, until it is known that they may be sent: in memory, above some MiB in a file.

MEMORY_BYTES: Final = 16 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class RowBuffer:
    """Rows in the order in which they were added.

    Attributes:
        rows: How many.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._digest = hashlib.sha256()
        # It is closed at the end of `with`.
        self._file = SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115

    @property
    def digest(self) -> str:
        """Return 32 hex digits that the same rows in the same order always have."""
        return self._digest.hexdigest()[:32]

    def take(self, rows: Iterable[bytes]) -> None:
        """Add rows."""
        for row in rows:
            data = _LENGTH.pack(len(row)) + row
            self._digest.update(data)
            self._file.write(data)
            self.rows += 1

    def __iter__(self) -> Iterator[bytes]:
        """Return all rows from the first one on."""
        self._file.seek(0)
        for _ in range(self.rows):
            [length] = _LENGTH.unpack(self._file.read(_LENGTH.size))
            yield self._file.read(length)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


NAME: Final = "pyddmq"
TYPES: Final = {
    "topic": ("string",),
    "key": ("string",),
    "body": ("binary", "string"),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "delay_ms": ("bigint", "int"),
}
"""Columns that a frame may have; `body` it must, and `topic` unless the option names one."""
BATCH_MESSAGES: Final = 500
BATCH_BYTES: Final = 512 * 1024
PATIENCE_SECONDS: Final = 60
FORGOTTEN: Final = 48
DIFFERS: Final = 49
WAITS: Final = 50
PASSING: Final = frozenset((10, 12, 15, 20, 21, WAITS))
"""Result codes after which the same messages may be taken: docs/protocol.md."""
ON_FORGOTTEN: Final = ("fail", "send")
_STARTS: Final = 0x9F000000
"""Below a month in ms, as the start in a name is, with room for numbers above it."""
_PAUSE_FIRST: Final = 0.05
_PAUSE_MAX: Final = 1.0


class ShipmentRefused(Exception):
    """A node refuses messages, or was not there for as long as patience goes; the sentence says why."""


@dataclass(frozen=True)
class Declared:
    """One partition of one run of a batch, as the node knows it; the fields are those of Write (thrift)."""

    name: str
    producer: str
    batch: int
    run: str
    partition: int
    rows: int
    digest: str
    topic: str
    ends: bool = False

    def fields(self) -> list[bytes]:
        """Return them as they are sent."""
        return [
            wire.text(1, self.name),
            wire.text(2, self.producer),
            wire.i64(3, self.batch),
            wire.text(4, self.run),
            wire.i32(5, self.partition),
            wire.i64(6, self.rows),
            wire.text(7, self.digest),
            wire.boolean(8, self.ends),
            wire.text(9, self.topic),
        ]


@dataclass
class Sent(WriterCommitMessage):
    """What a task sent: messages, and how many of them were stored before; and what it declared, if anything."""

    messages: int
    repeated: int
    declared: Declared | None = None


@dataclass(frozen=True)
class SinkOptions:
    """Where to, and how.

    Attributes:
        node: `host:port` of the producer port, or `tls://host:port`.
        topic: Of rows without one; None: each has one.
        id: What names are made of besides partition (and batch of a stream).
        declares: Whether partitions are declared: another run may repeat them.
        run: Names this run of the batch, 32 hex digits.
        batch_messages: Messages of one call at most.
        patience: Seconds for which a call that may yet succeed is made again.
        resends: Whether rows that the node has forgotten are sent again.
        tls: For a node by TLS.
    """

    node: str
    topic: str | None
    id: str
    declares: bool
    run: str
    batch_messages: int
    patience: int
    resends: bool
    tls: Tls = field(default_factory=Tls)


class MessageSink(DataSource):
    """`frame.write.format("pyddmq").option("node", "host:9613").mode("append").save()`; `writeStream` likewise.

    Options: `node`, the producer port; `topic`, for frames without that column; `batchMessages`; `patience`, seconds;
    `id`: of a batch write, which run again under the same id stores its messages once; `onForgotten`: `fail` or `send`;
    for `node` as `tls://host:port` those of `lag.spark.sources.node`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what writes a frame. Raises OptionRefused."""
        name = self.options.get("id")
        return BatchSink(self._options(schema, overwrite, name or uuid.uuid4().hex, declares=bool(name)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return what writes a stream. Raises OptionRefused."""
        return StreamSink(self._options(schema, overwrite, self.options.get("id", ""), declares=True))

    def _options(self, schema: StructType, overwrite: bool, name: str, *, declares: bool) -> SinkOptions:
        if overwrite:
            raise read.OptionRefused("the sink only appends messages; write with mode append")
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        for column, kind in kinds.items():
            if column not in TYPES:
                raise read.OptionRefused(f"a message has no column {column!r}; use one of {', '.join(TYPES)}")
            if kind not in TYPES[column]:
                raise read.OptionRefused(f"column {column!r} is {TYPES[column][0]}, and the frame has {kind}")
        topic = self.options.get("topic")
        if "body" not in kinds or ("topic" not in kinds and not topic):
            raise read.OptionRefused("a message needs a body and a topic; pass both columns, or option 'topic'")
        made = SinkOptions(
            node=read.required(self.options, "node", "host:port of a node's producer port"),
            topic=topic,
            id=name,
            declares=declares,
            run=uuid.uuid4().hex,
            batch_messages=read.number(self.options, "batchMessages", BATCH_MESSAGES, at_least=1),
            patience=read.number(self.options, "patience", PATIENCE_SECONDS, at_least=0),
            resends=read.one_of(self.options, "onForgotten", ON_FORGOTTEN, "fail") == "send",
            tls=tls_of(self.options),
        )
        NodeClient(made.node)
        return made


class BatchSink(DataSourceArrowWriter):
    """Writes a frame; its tasks are known by the write's id."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition."""
        partition = _task().partitionId()
        producer = name_of(self._options.id, str(partition))
        return send_all(self._options, Part(name_of(self._options.id), 0, partition, producer), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Declare the end."""
        end(self._options, messages)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes a stream; its tasks are known by the query, which a checkpoint keeps, and the number of the batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition of one batch."""
        task = _task()
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise ShipmentRefused(
                "this Spark does not pass the query and batch to tasks, so messages cannot be sent exactly once"
            )
        partition = task.partitionId()
        producer = name_of(self._options.id, query, batch, str(partition))
        part = Part(name_of(self._options.id, query), int(batch), partition, producer)
        return send_all(self._options, part, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Declare the end of a batch."""
        end(self._options, messages)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    return task


def name_of(*parts: str) -> str:
    """Return the name of a producer, 20 digits, that the same parts always have."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest().upper()
    return f"FE{digest[:10]}{int(digest[10:26], 16) % _STARTS:08X}"


class Part(NamedTuple):
    """Which rows a task has.

    Attributes:
        name: Names the write, the same in each run.
        batch: Its number; 0 of a batch write.
        partition: Its number.
        producer: Names who numbers the rows, the same for this partition in each run.
    """

    name: str
    batch: int
    partition: int
    producer: str


def send_all(options: SinkOptions, part: Part, iterator: Iterator[pa.RecordBatch]) -> Sent:
    """Send all rows of a partition, numbered from its producer's first number on. Raises SendRefused."""
    with NodeClient(options.node, tls=options.tls) as client, RowBuffer() as buffer:
        topics: list[str] = []
        buffer.take(_rows(options, iterator, topics))
        sent = Sent(buffer.rows, 0)
        if not buffer.rows:
            return sent
        if options.declares:
            sent.declared = Declared(
                **part._asdict(), run=options.run, rows=buffer.rows, digest=buffer.digest, topic=topics[0]
            )
            if _is_stored(client, options, sent.declared):
                sent.repeated = sent.messages
                return sent
        numbers = count(int(part.producer[12:], 16) << 16)
        for encoded in _calls(options, buffer):
            messages = [[row, wire.text(104, f"{part.producer}{next(numbers):012X}")] for row in encoded]
            sent.repeated += _repeated(client, options, messages)
    return sent


def end(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Declare the end of a batch, of what its tasks returned. Raises SendRefused."""
    found = [each.declared for each in messages if isinstance(each, Sent) and each.declared is not None]
    if not found:
        return
    found.sort(key=lambda each: each.partition)
    text = " ".join(f"{each.partition}:{each.rows}:{each.digest}" for each in found)
    digest, rows = hashlib.sha256(text.encode()).hexdigest()[:32], sum(each.rows for each in found)
    with NodeClient(options.node, tls=options.tls) as client:
        ending = replace(found[0], partition=len(found), rows=rows, digest=digest, ends=True)
        _is_stored(client, options, ending)


def _is_stored(client: NodeClient, options: SinkOptions, declared: Declared) -> bool:
    """Declare a partition, or the end; returns whether the batch is stored. Raises SendRefused."""
    arguments = [wire.structures(1, ()), wire.boolean(101, False), wire.structure(102, declared.fields())]
    result = _answer(client, options, arguments, expected=(FORGOTTEN, DIFFERS))
    code, text = result.get(1), result.get(2, b"").decode("utf-8", "replace")
    if code == DIFFERS:
        raise ShipmentRefused(
            f"{options.node} (code {code}): {text}. Run it with the same rows, number of cores "
            "(spark.master) and spark.sql settings as before, or under another id; nothing of this "
            "partition was sent"
        )
    if code == FORGOTTEN:
        if options.resends:
            return False
        raise ShipmentRefused(
            f"{options.node} (code {code}): {text}, and the node has forgotten their numbers; raise its "
            "deduplicationSec. To send them again, possibly twice, run once with option onForgotten=send"
        )
    if result.get(101, b"").decode() != declared.producer:
        raise ShipmentRefused(f"{options.node} is a node of an earlier version without partitions; upgrade it")
    return bool(result.get(106))


def _rows(options: SinkOptions, iterator: Iterator[pa.RecordBatch], topics: list[str]) -> Iterator[bytes]:
    """Encode rows; `topics` gets the first one's topic."""
    for batch in iterator:
        columns = {name: batch.column(place).to_pylist() for place, name in enumerate(batch.schema.names)}
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            fields = _fields(options, row)
            if not topics:
                topics.append(row.get("topic") or options.topic or "")
            yield b"".join(fields)


def _calls(options: SinkOptions, rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut rows into calls: always the same ones of the same rows, so that a call is stored as a whole or not at all."""
    held: list[bytes] = []
    size = 0
    for row in rows:
        if held and (len(held) >= options.batch_messages or size + len(row) > BATCH_BYTES):
            yield held
            held, size = [], 0
        held.append(row)
        size += len(row)
    if held:
        yield held


def _fields(options: SinkOptions, row: Mapping[str, Any]) -> list[bytes]:
    """Return the fields of a message (thrift/producer.thrift). Raises SendRefused: it has no body or topic."""
    topic, body = row.get("topic") or options.topic, row.get("body")
    if not topic or body is None:
        raise ShipmentRefused(
            f"a row without {'body' if topic else 'topic'}; each message needs both (key {row.get('key')!r})"
        )
    fields = [wire.text(1, topic), wire.text(7, body)]
    if row.get("key") is not None:
        fields.append(wire.text(2, row["key"]))
    if row.get("tags") is not None:
        fields.append(wire.text(5, row["tags"]))
    if row.get("properties"):
        fields.append(wire.texts(9, dict(row["properties"])))
    if row.get("delay_ms") is not None:
        fields.append(wire.i64(103, row["delay_ms"]))
    return fields


def _repeated(client: NodeClient, options: SinkOptions, messages: Sequence[Sequence[bytes]]) -> int:
    """Send messages until the node has them; returns how many it had already. Raises SendRefused."""
    result = _answer(client, options, [wire.structures(1, messages), wire.boolean(101, False)], expected=(FORGOTTEN,))
    if result.get(1) == FORGOTTEN:
        said = result.get(2, b"").decode("utf-8", "replace")
        text = "it has forgotten what this task sent before; raise its deduplicationSec"
        raise ShipmentRefused(f"{options.node} (code {FORGOTTEN}): {text}. {said}")
    return len(messages) if result.get(106) else 0


def _answer(
    client: NodeClient, options: SinkOptions, arguments: Sequence[bytes], *, expected: Sequence[int]
) -> dict[int, Any]:
    """Call sendBatchSync until the node has done it; returns its result. Raises SendRefused."""
    until, pause = time.monotonic() + options.patience, _PAUSE_FIRST
    while True:
        try:
            result = client.call("sendBatchSync", arguments).get(0)
            if not isinstance(result, dict):
                raise NodeFailed(f"{options.node} returned an empty answer to a send")
            code = result.get(1)
            if code == 0 or code in expected:
                return result
            said = result.get(2, b"").decode("utf-8", "replace")
        except NodeFailed as failed:
            code, said = None, str(failed)
        if code is not None and code not in PASSING:
            raise ShipmentRefused(f"{options.node} refuses messages (code {code}): {said}")
        if time.monotonic() + pause > until:
            raise ShipmentRefused(f"{options.node} did not accept messages for {options.patience} s: {said}")
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_MAX)
