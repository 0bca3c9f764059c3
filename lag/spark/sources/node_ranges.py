"""Messages of a running node: ranges of queues, how one is read to its end, and the columns made of it.

Messages of a range that do not come are distinguished: what the group's tags rule out or is damaged is passed over, as
for any fetcher; what retention took, and a queue that vanished, is lost data.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lag.spark.sources import options as read
from lag.spark.sources.node import NO_SUCH_QUEUE, NodeClient, NodeFailed, NodeRefused, QueueOffsets, number_of, tls_of
from pyddmq.client.tls import Tls

FETCH_COUNT: Final = 10_000
"""Messages of one fetch; a node bounds its reply to 1 MiB besides."""
BATCH_ROWS: Final = 8_192
BATCH_BYTES: Final = 16 * 1024 * 1024
PARTITION_MESSAGES: Final = 100_000
PATIENCE_SECONDS: Final = 30
_PAUSE: Final = 0.05
_said = logging.getLogger("pyddmq_spark")
"""Goes to the log of the process, which Spark shows; a sentence for people."""


class DataLost(Exception):
    """Messages that were asked for are gone; the sentence says which, and what may be done."""


@dataclass(frozen=True)
class NodeOptions:
    """Which group of which node is read, and how.

    Attributes:
        node: `host:port` of the consumer port, or `tls://host:port`.
        group: A low-level group of it.
        cluster: Expected brokerCluster of the node; another one raises. Empty means any.
        topics: None: all of the group.
        queues: Numbers; None: all.
        fail_on_data_loss: Whether lost messages are an error; else a warning in the log.
        patience: Seconds for which a node that gives no answer, or no messages, is waited for.
        partition_messages: Offsets of one partition at most.
        tls: For a node by TLS.
    """

    node: str
    group: str
    cluster: str
    topics: frozenset[str] | None
    queues: frozenset[int] | None
    fail_on_data_loss: bool
    patience: int
    partition_messages: int
    tls: Tls = field(default_factory=Tls)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> NodeOptions:
        """Read them. Raises OptionRefused."""
        found = cls(
            node=read.required(options, "node", "host:port of a node's consumer port"),
            group=read.required(options, "group", "a group of the node whose topics have `actions: [LowLevel]`"),
            cluster=options.get("cluster", ""),
            topics=read.names(options, "topic"),
            queues=read.numbers(options, "queue"),
            fail_on_data_loss=read.one_of(options, "failOnDataLoss", ("true", "false"), "true") == "true",
            patience=read.number(options, "patience", PATIENCE_SECONDS, at_least=0),
            partition_messages=read.number(options, "partitionMessages", PARTITION_MESSAGES, at_least=1),
            tls=tls_of(options),
        )
        # Its address is checked here, where the error is the driver's.
        NodeClient(found.node)
        return found

    def client(self) -> NodeClient:
        """Return a connection to the node."""
        return NodeClient(self.node, cluster=self.cluster, patience=self.patience, tls=self.tls)

    def check(self, client: NodeClient) -> None:
        """Ask whether the group has what is asked for. Raises NodeRefused, NodeFailed, OptionRefused."""
        found = client.standings(self.group)
        # Without any, the node says why: no such group, or one that is not low level.
        client.check(self.group, sorted(found if self.topics is None else self.topics) or [""])
        numbers = {number_of(qid) for queues in self.standings(client).values() for qid in queues}
        if self.queues is not None and self.queues - numbers:
            missing = ", ".join(map(str, sorted(self.queues - numbers)))
            raise read.OptionRefused(f"option 'queue' has {missing}, which no topic of group {self.group!r} has")

    def standings(self, client: NodeClient) -> dict[str, dict[str, QueueOffsets]]:
        """Return where the queues stand that are asked for and there. Raises NodeRefused, NodeFailed."""
        found = client.standings(self.group)
        return {
            topic: {
                qid: standing
                for qid, standing in queues.items()
                if self.queues is None or number_of(qid) in self.queues
            }
            for topic, queues in found.items()
            if self.topics is None or topic in self.topics
        }

    def lost(self, sentence: str) -> None:
        """Tell of data that is lost. Raises DataLost."""
        if self.fail_on_data_loss:
            raise DataLost(f"{sentence}. With option failOnDataLoss set to false this is a warning")
        _said.warning("%s", sentence)


@dataclass(frozen=True)
class NodePart(InputPartition):
    """Offsets of one queue: from `first` on, below `end`."""

    options: NodeOptions
    topic: str
    qid: str
    first: int
    end: int

    @property
    def queue(self) -> int:
        """The queue's number."""
        return number_of(self.qid)


def cut(part: NodePart) -> Iterator[NodePart]:
    """Cut a range into parts of about one size."""
    count = -(-(part.end - part.first) // part.options.partition_messages)
    if count <= 0:
        return
    step = -(-(part.end - part.first) // count)
    for first in range(part.first, part.end, step):
        yield replace(part, first=first, end=min(first + step, part.end))


def messages_of(client: NodeClient, part: NodePart, count_max: int = FETCH_COUNT) -> Iterator[list[dict[int, Any]]]:
    """Yield the messages of a range as they come, as dicts by field id.

    Args:
        client: A connection to the node.
        part: The range.
        count_max: Messages of one fetch.

    Raises:
        DataLost: Some are gone, and that is an error here.
        NodeFailed: No answer, or no messages, for as long as patience goes.
        NodeRefused: The group is not to be had any more.
    """
    options, at = part.options, part.first
    where = f"{part.topic} queue {part.queue} of {options.node}"
    quiet_since = time.monotonic()
    while at < part.end:
        try:
            fetched = client.fetch(options.group, part.topic, part.qid, at, min(count_max, part.end - at))
        except NodeRefused as refused:
            if refused.code != NO_SUCH_QUEUE:
                raise
            options.lost(f"{where} no longer exists: offsets {at} to {part.end - 1} are lost")
            return
        if fetched.next_offset < at:
            options.lost(f"{where} ends at {fetched.next_offset}: offsets {at} to {part.end - 1} are lost")
            return
        found = fetched.messages
        if (found[0][4] if found else fetched.next_offset) > at:
            _report_loss(client, part, at, where)
        if found and found[-1][4] >= part.end:
            found = [message for message in found if message[4] < part.end]
        if found:
            yield found
        if fetched.next_offset > at:
            at, quiet_since = fetched.next_offset, time.monotonic()
        elif time.monotonic() - quiet_since >= options.patience:
            raise NodeFailed(
                f"{where} returns nothing from offset {at}, and has messages up to {part.end - 1}; check "
                f"whether group {options.group!r} is paused, or its maxTps is too low"
            )
        else:
            time.sleep(_PAUSE)


def _report_loss(client: NodeClient, part: NodePart, at: int, where: str) -> None:
    """Report when the messages between an offset and the first one received were deleted, not only passed over."""
    standing = client.standings(part.options.group).get(part.topic, {}).get(part.qid)
    if standing is not None and standing.start > at:
        gone = min(standing.start, part.end)
        part.options.lost(f"{where} now begins at {standing.start}: offsets {at} to {gone - 1} are lost")


# Columns

_Messages = Sequence[dict[int, Any]]


def _texts(values: list[bytes | None]) -> pa.Array:
    """Return strings; what is no UTF-8 has U+FFFD in its place. Arrow looks at a whole column at once."""
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if each is None else each.decode("utf-8", "replace") for each in values], pa.string())


def _maps(messages: _Messages) -> pa.Array:
    names: list[bytes | None] = []
    values: list[bytes | None] = []
    begins = [0]
    for each in messages:
        properties = each.get(5)
        if properties:
            names += properties
            values += properties.values()
        begins.append(len(names))
    return pa.MapArray.from_arrays(pa.array(begins, pa.int32()), _texts(names), _texts(values))


def _integers(field: int) -> Callable[[_Messages], pa.Array]:
    return lambda messages: pa.array([each.get(field) for each in messages], pa.int64())


def _nothing(kind: pa.DataType) -> Callable[[_Messages], pa.Array]:
    return lambda messages: pa.nulls(len(messages), kind)


MAKERS: Final[dict[str, Callable[[_Messages], pa.Array]]] = {
    "offset": _integers(4),
    "stored_ms": _integers(101),
    "due_ms": _nothing(pa.int64()),
    "born_ms": _integers(102),
    "id": _nothing(pa.string()),
    "keys": lambda messages: _texts([each.get(1) for each in messages]),
    "tags": lambda messages: _texts([each.get(3) for each in messages]),
    "attempts": _nothing(pa.int64()),
    "size": _nothing(pa.int64()),
    "body": lambda messages: pa.array([each.get(2) for each in messages], pa.binary()),
    "properties": _maps,
}
"""How a column is made of a batch's messages. A node does not send ids, attempts and sizes: they are null."""


def batches(part: NodePart, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read a range, as batches of some columns. Raises as `messages_of`."""
    with part.options.client() as client:
        held: list[dict[int, Any]] = []
        size = 0
        for found in messages_of(client, part):
            held += found
            size += sum(len(message.get(2, b"")) for message in found)
            if len(held) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield _batch(part, held, columns)
                held, size = [], 0
        if held:
            yield _batch(part, held, columns)


def _batch(part: NodePart, messages: _Messages, columns: Sequence[str]) -> pa.RecordBatch:
    arrays = []
    for name in columns:
        if name == "topic":
            arrays.append(pa.repeat(pa.scalar(part.topic, pa.string()), len(messages)))
        elif name == "queue":
            arrays.append(pa.repeat(pa.scalar(part.queue, pa.int64()), len(messages)))
        else:
            arrays.append(MAKERS[name](messages))
    return pa.record_batch(arrays, names=list(columns))
