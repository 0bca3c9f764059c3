"""`pyddmq_messages` from a running node, as a batch: the planner asks for positions once, partitions carry ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from lag.spark.sources import options as read
from lag.spark.sources.bounds import Bounds, bounds_of
from lag.spark.sources.node import NodeClient, QueueOffsets
from lag.spark.sources.node_ranges import NodeOptions, NodePart, batches, cut, messages_of

STARTS: Final = ("earliest", "latest", "committed")


class NodeMessages(DataSourceReader):
    """Reads a node's queues up to where they end when the query is planned; see `MessageSource`."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._options = NodeOptions.of(options)
        self._starts = read.one_of(options, "startingOffsets", STARTS, "earliest")
        self._since_ms = read.moment_ms(options, "since")
        self._until_ms = read.moment_ms(options, "until")
        self._columns = tuple(columns)
        self._bounds = Bounds({}, {}, {})

    def partitions(self) -> Sequence[InputPartition]:
        """Ask where the queues stand, once, and cut their ranges."""
        named = self._bounds.texts.get("topic")
        with self._options.client() as client:
            self._options.check(client)
            parts: list[InputPartition] = [
                part
                for topic, queues in self._options.standings(client).items()
                if named is None or topic in named
                for qid, standing in queues.items()
                for part in self._cut(client, topic, qid, standing)
            ]
        # Spark asks a reader without partitions for one that means nothing.
        return parts or [NodePart(self._options, "", "_0", 0, 0)]

    def _cut(self, client: NodeClient, topic: str, qid: str, standing: QueueOffsets) -> Iterator[NodePart]:
        low, high = self._bounds.low, self._bounds.high
        whole = NodePart(self._options, topic, qid, standing.start, standing.end)
        if not low.get("queue", whole.queue) <= whole.queue <= high.get("queue", whole.queue):
            return
        first = start_of(self._starts, standing)
        if first < standing.start:
            gone = f"offsets {first} to {standing.start - 1} are lost"
            self._options.lost(f"{topic} queue {whole.queue} now begins at {standing.start}: {gone}")
        first = max(first, standing.start, low.get("offset", first))
        end = min(standing.end, high.get("offset", standing.end) + 1)
        times = [each for each in (self._since_ms, low.get("stored_ms")) if each is not None]
        if times and first < end:
            first = offset_at(client, NodePart(self._options, topic, qid, first, end), max(times))
        times = [
            each
            for each in (self._until_ms, None if "stored_ms" not in high else high["stored_ms"] + 1)
            if each is not None
        ]
        if times and first < end:
            end = offset_at(client, NodePart(self._options, topic, qid, first, end), min(times))
        yield from cut(NodePart(self._options, topic, qid, first, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield batches of the columns that are asked for."""
        assert isinstance(partition, NodePart), "partitions are made above"
        if partition.first < partition.end:
            yield from batches(partition, self._columns)


class PushedNodeMessages(NodeMessages):
    """The same, that reads less where a query asks for less."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take what filters say of topic, queue, offset and time, and leave them all with Spark."""
        self._bounds = bounds_of(filters)
        yield from filters


def start_of(starts: str, standing: QueueOffsets) -> int:
    """Return the offset that one of STARTS means for a queue."""
    if starts == "latest":
        return standing.end
    return standing.committed if starts == "committed" else standing.start


def offset_at(client: NodeClient, part: NodePart, time_ms: int) -> int:
    """Return the first offset of a range that was stored at or after a moment; its end when there is none.

    Halves the range by asking for single messages: 20 calls of a millisecond for a million.
    """
    low, high = part.first, part.end
    while low < high:
        middle = (low + high) // 2
        probe = NodePart(part.options, part.topic, part.qid, middle, high)
        first = next(messages_of(client, probe, 1), None)
        # The time of messages that the group does not get is unknown: taken as late as what follows.
        if first is None or first[0].get(101, 0) >= time_ms:
            high = middle
        else:
            low = first[0][4] + 1
    return low
