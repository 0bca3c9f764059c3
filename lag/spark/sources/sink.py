"""`pyddmq`: rows as messages to a node, each stored once, however often Spark runs its task (docs/spark-messages.md).

A task numbers its rows as a deduplicating producer does (docs/deduplication.md). Its name is made of the query, the
batch and the partition, so that the same task run again, after a failure or after a restart of the query from its
checkpoint, sends the same numbers: what is stored already is answered with its receipt and not stored again.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

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
from lag.spark.sources.node import NodeClient, NodeFailed
from lag.spark.sources.tls import TlsOptions

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
PASSING: Final = frozenset((10, 12, 15, 20, 21))
"""Result codes after which the same messages may be taken: docs/protocol.md."""
FORGOTTEN: Final = 48
_STARTS: Final = 0x9F000000
"""Below a month in ms, as the start in a name is, with room for numbers above it."""
_PAUSE_FIRST: Final = 0.05
_PAUSE_MAX: Final = 1.0


class SendRefused(Exception):
    """A node refuses messages, or was not there for as long as patience goes; the sentence says why."""


@dataclass
class Sent(WriterCommitMessage):
    """What a task sent: messages, and how many of them were stored before."""

    messages: int
    repeated: int


@dataclass(frozen=True)
class SinkOptions:
    """Where to, and how.

    Attributes:
        node: `host:port` of the producer port, or `tls://host:port`.
        topic: Of rows without one; None: each has one.
        id: What names are made of besides partition (and batch of a stream).
        batch_messages: Messages of one call at most.
        patience: Seconds for which a call that may yet succeed is made again.
        tls: For a node by TLS.
    """

    node: str
    topic: str | None
    id: str
    batch_messages: int
    patience: int
    tls: TlsOptions = field(default_factory=TlsOptions)


class MessageSink(DataSource):
    """`frame.write.format("pyddmq").option("node", "host:9613").mode("append").save()`; `writeStream` likewise.

    Options: `node`, the producer port; `topic`, for frames without that column; `batchMessages`; `patience`, seconds;
    `id`: of a batch write, which run again under the same id sends the same messages; for `node` as `tls://host:port`
    those of `lag.spark.sources.tls`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what writes a frame. Raises OptionRefused."""
        return BatchSink(self._options(schema, overwrite, self.options.get("id") or uuid.uuid4().hex))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return what writes a stream. Raises OptionRefused."""
        return StreamSink(self._options(schema, overwrite, self.options.get("id", "")))

    def _options(self, schema: StructType, overwrite: bool, name: str) -> SinkOptions:
        if overwrite:
            raise read.OptionRefused("messages are only ever added: write with mode append")
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        for column, kind in kinds.items():
            if column not in TYPES:
                raise read.OptionRefused(f"there is no column {column!r} in a message; there are {', '.join(TYPES)}")
            if kind not in TYPES[column]:
                raise read.OptionRefused(f"column {column!r} is {TYPES[column][0]}, and the frame has {kind}")
        topic = self.options.get("topic")
        if "body" not in kinds or ("topic" not in kinds and not topic):
            raise read.OptionRefused("a message has a body and a topic: give both columns, or option 'topic'")
        made = SinkOptions(
            node=read.required(self.options, "node", "host:port of a node's producer port"),
            topic=topic,
            id=name,
            batch_messages=read.number(self.options, "batchMessages", BATCH_MESSAGES, at_least=1),
            patience=read.number(self.options, "patience", PATIENCE_SECONDS, at_least=0),
            tls=TlsOptions.of(self.options),
        )
        NodeClient(made.node)
        return made


class BatchSink(DataSourceArrowWriter):
    """Writes a frame; its tasks are known by the write's id."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition."""
        return send_all(self._options, name_of(self._options.id, str(_task().partitionId())), iterator)


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
            raise SendRefused("this Spark does not tell a task its query and batch: messages cannot be sent just once")
        name = name_of(self._options.id, query, batch, str(task.partitionId()))
        return send_all(self._options, name, iterator)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    return task


def name_of(*parts: str) -> str:
    """Return the name of a producer, 20 digits, that the same parts always have."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest().upper()
    return f"FE{digest[:10]}{int(digest[10:26], 16) % _STARTS:08X}"


def send_all(options: SinkOptions, name: str, iterator: Iterator[pa.RecordBatch]) -> Sent:
    """Send all rows, numbered from the name's first number on. Raises SendRefused."""
    sent = Sent(0, 0)
    numbers = count(int(name[12:], 16) << 16)
    with NodeClient(options.node, tls=options.tls) as client:
        for calls in _calls(options, iterator):
            messages = [[*fields, wire.text(104, f"{name}{next(numbers):012X}")] for fields in calls]
            sent.repeated += _sent(client, options, messages)
            sent.messages += len(messages)
    return sent


def _calls(options: SinkOptions, iterator: Iterator[pa.RecordBatch]) -> Iterator[list[list[bytes]]]:
    """Cut rows into calls: always the same ones of the same rows, so that a call is stored as a whole or not at all."""
    held: list[list[bytes]] = []
    size = 0
    for batch in iterator:
        columns = {name: batch.column(place).to_pylist() for place, name in enumerate(batch.schema.names)}
        for row in zip(*columns.values(), strict=True):
            fields = _fields(options, dict(zip(columns, row, strict=True)))
            length = sum(map(len, fields))
            if held and (len(held) >= options.batch_messages or size + length > BATCH_BYTES):
                yield held
                held, size = [], 0
            held.append(fields)
            size += length
    if held:
        yield held


def _fields(options: SinkOptions, row: Mapping[str, Any]) -> list[bytes]:
    """Return the fields of a message (thrift/producer.thrift). Raises SendRefused: it has no body or topic."""
    topic, body = row.get("topic") or options.topic, row.get("body")
    if not topic or body is None:
        raise SendRefused(
            f"a row without {'body' if topic else 'topic'}: each message has both (key {row.get('key')!r})"
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


def _sent(client: NodeClient, options: SinkOptions, messages: Sequence[Sequence[bytes]]) -> int:
    """Send messages until the node has them; returns how many it had already. Raises SendRefused."""
    until, pause = time.monotonic() + options.patience, _PAUSE_FIRST
    while True:
        try:
            result = client.call("sendBatchSync", [wire.structures(1, messages), wire.boolean(101, False)]).get(0)
            if not isinstance(result, dict):
                raise NodeFailed(f"{options.node} answered a send with nothing")
            code = result.get(1)
            if code == 0:
                return len(messages) if result.get(106) else 0
            said = result.get(2, b"").decode("utf-8", "replace")
        except NodeFailed as failed:
            code, said = None, str(failed)
        if code == FORGOTTEN:
            text = "it has forgotten what this task sent before: raise its deduplicationSec"
            raise SendRefused(f"{options.node} (code {code}): {text}. {said}")
        if code is not None and code not in PASSING:
            raise SendRefused(f"{options.node} refuses messages (code {code}): {said}")
        if time.monotonic() + pause > until:
            raise SendRefused(f"{options.node} did not take messages for {options.patience} s: {said}")
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_MAX)
