"""`pyddmq_messages` from a running node, as a stream: offsets by topic and queue, kept by Spark's checkpoint.

What a query finished is acked to the node, so that it shows in every lag report (D48). Spark calls `commit` only when
the next batch with messages is planned: not when a query is idle, nor after its last batch. But it asks for the latest
offset after each batch that ended, and of one that failed never before it was run again. So `latestOffset` acks up to
the offsets handed to it, which all finished batches reach, and `commit` what it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from lag.spark.sources import options as read
from lag.spark.sources.node import NodeClient, QueueOffsets, number_of
from lag.spark.sources.node_batch import STARTS, start_of
from lag.spark.sources.node_ranges import NodeOptions, NodePart, batches, cut

Offsets = dict[str, dict[str, int]]
"""Next offset by qid, by topic, in the order of their names: Spark compares the text."""
NOBODY: Final = "none"
_said = logging.getLogger("pyddmq_spark")
"""Goes to the log of the process, which Spark shows; a sentence for people."""


class NodeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a node's queues as they grow; see `MessageSource`."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._options = NodeOptions.of(options)
        self._starts = read.one_of(options, "startingOffsets", STARTS, "committed")
        self._per_trigger = read.number(options, "maxOffsetsPerTrigger", 0, at_least=1)
        group = options.get("commitGroup", self._options.group).strip()
        self._commit_group = None if group in ("", NOBODY) else group
        for name in ("since", "until"):
            if name in options:
                raise read.OptionRefused(f"option {name!r} is only for batches; a stream begins at startingOffsets")
        self._columns = tuple(columns)
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._acked: Offsets = {}
        self._refused: Offsets = {}
        self._is_checked = False
        self._reported: set[tuple[str, str]] = set()

    # What Spark asks for in turn

    def initialOffset(self) -> Offsets:
        """Return where a query without a checkpoint begins."""
        with self._options.client() as client:
            return _ordered(
                {
                    topic: {qid: start_of(self._starts, each) for qid, each in queues.items()}
                    for topic, queues in self._standings(client).items()
                }
            )

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what `maxOffsetsPerTrigger` says."""
        return ReadMaxRows(self._per_trigger) if self._per_trigger else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: where the queues end now."""
        with self._options.client() as client:
            self._target = _ends(self._standings(client))

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Ack all before `start`, which is finished, and return how far the next batch reaches."""
        with self._options.client() as client:
            self._ack(client, start)
            standings = self._standings(client)
        self._report_vanished(start, standings)
        self._latest = _ends(standings)
        ends = self._latest if self._target is None else self._target
        reached: Offsets = {topic: dict(queues) for topic, queues in start.items()}
        room: dict[tuple[str, str], int] = {}
        for topic, queues in ends.items():
            for qid, end in queues.items():
                # A queue that the query has never seen came since: all of it is new.
                standing = standings.get(topic, {}).get(qid)
                first = start.get(topic, {}).get(qid, 0 if standing is None else standing.start)
                reached.setdefault(topic, {})[qid] = min(first, end)
                room[topic, qid] = max(0, end - first)
        bound = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        for (topic, qid), count in shared(room, bound).items():
            reached[topic][qid] += count
        return _ordered(reached)

    def reportLatestOffset(self) -> Offsets | None:
        """Return where the queues ended when it was looked last."""
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Cut the range between two offsets; what of it was deleted is reported."""
        with self._options.client() as client:
            standings = self._standings(client)
        parts: list[InputPartition] = []
        for topic, queues in end.items():
            for qid, last in queues.items():
                first = start.get(topic, {}).get(qid)
                standing = standings.get(topic, {}).get(qid)
                parts += cut(self._part(topic, qid, first, last, standing))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield batches of the columns that are asked for."""
        assert isinstance(partition, NodePart), "partitions are made above"
        yield from batches(partition, self._columns)

    def commit(self, end: Offsets) -> None:
        """Ack what is finished."""
        with self._options.client() as client:
            self._ack(client, end)

    # How

    def _standings(self, client: NodeClient) -> dict[str, dict[str, QueueOffsets]]:
        if not self._is_checked:
            self._options.check(client)
            if self._commit_group not in (None, self._options.group):
                topics = self._options.standings(client)
                client.check(str(self._commit_group), sorted(topics))
            self._is_checked = True
        return self._options.standings(client)

    def _report_vanished(self, start: Offsets, standings: Mapping[str, Mapping[str, QueueOffsets]]) -> None:
        """Tell, once, of queues that a query has read and that are not there any more. Raises DataLost."""
        for topic, queues in start.items():
            for qid, offset in queues.items():
                if qid not in standings.get(topic, {}) and (topic, qid) not in self._reported:
                    self._reported.add((topic, qid))
                    where = f"{topic} queue {number_of(qid)} of {self._options.node}"
                    self._options.lost(f"{where} no longer exists: its messages from offset {offset} are lost")

    def _part(self, topic: str, qid: str, first: int | None, last: int, standing: QueueOffsets | None) -> NodePart:
        """Return what of a queue is read; empty: nothing."""
        where = f"{topic} queue {number_of(qid)} of {self._options.node}"
        if standing is None:
            if first is None or first < last:
                self._options.lost(f"{where} no longer exists: offsets {first or 0} to {last - 1} are lost")
            return NodePart(self._options, topic, qid, last, last)
        if first is None:
            first = standing.start
        elif first > last or first > standing.end:
            self._options.lost(
                f"{where} ends at {standing.end}, and the query had reached {first}: the topic was created again, or "
                "the log lost its end"
            )
            first = standing.start
        elif first < min(standing.start, last):
            gone = min(standing.start, last)
            self._options.lost(f"{where} now begins at {standing.start}: offsets {first} to {gone - 1} are lost")
            first = gone
        return NodePart(self._options, topic, qid, first, max(first, last))

    def _ack(self, client: NodeClient, offsets: Offsets) -> None:
        if self._commit_group is None or offsets == self._acked:
            return
        is_new = offsets != self._refused
        if client.ack(self._commit_group, offsets) or (is_new and self._acked_later(client, offsets)):
            self._acked = offsets
            return
        # Tried again with each trigger. Spark's own checkpoint is not concerned.
        self._refused = offsets
        if is_new:
            _said.warning(
                "%s did not accept all positions of group %r: another fetcher has its queues, it was "
                "reset, or it is not low level. Its lag does not include what this query has finished",
                self._options.node,
                self._commit_group,
            )

    def _acked_later(self, client: NodeClient, offsets: Offsets) -> bool:
        """Ack again once the node has started: while it starts it refuses all acks, and does not say why."""
        self._standings(client)
        return client.ack(str(self._commit_group), offsets)


def shared(room: Mapping[tuple[str, str], int], bound: int | None) -> dict[tuple[str, str], int]:
    """Share out how many offsets a batch takes of each queue: each in proportion to what it has."""
    total = sum(room.values())
    if bound is None or total <= bound:
        return dict(room)
    found = {queue: count * bound // total for queue, count in room.items()}
    left = bound - sum(found.values())
    for queue in sorted(room, key=lambda queue: (found[queue] - room[queue], queue)):
        if left <= 0:
            break
        if found[queue] < room[queue]:
            found[queue] += 1
            left -= 1
    return found


def _ends(standings: Mapping[str, Mapping[str, QueueOffsets]]) -> Offsets:
    return _ordered({topic: {qid: each.end for qid, each in queues.items()} for topic, queues in standings.items()})


def _ordered(offsets: Offsets) -> Offsets:
    return {topic: dict(sorted(queues.items())) for topic, queues in sorted(offsets.items())}
