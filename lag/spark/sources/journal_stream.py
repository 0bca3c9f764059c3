"""`pyddmq_lag` as a stream: what nodes append to their journals, from where the checkpoint says.

An offset names, of each folder, a raw file by its number and a byte in it, where a block begins. Numbers order files
over all starts of a node, and files only grow, so an offset stays right. The end of the newest file may be torn: what
is not whole is waited for. A file that has a successor does not grow any more; one that retention took is passed over.
A folder that has less than an offset says was begun anew, as with a new disk, or restored: it is read from its begin.

With `silence`, an offset also names, of a folder that has not grown for that long, when it became silent. So a silent
node is a batch of its own, once, also over a restart of the query.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from broker.runtime.disk import RealDisk
from lag.blocks import BlockReader, FileHead
from lag.journal.files import JournalFile, Tier, parse
from lag.journal.reader import JournalQuery
from lag.journal.scan import SILENT_INTERVALS, Block, scan_part
from lag.journal.snapshots import SnapshotDecoder
from lag.report.engine.reading import labels_of
from lag.spark.sources import options as read
from lag.spark.sources.journal_rows import Placed, batches, silent_batch

BYTES_PER_TRIGGER: Final = 8 << 20
"""Of each folder, by default: some hours of a node with hundreds of queues."""
ROW_BYTES: Final = 16
"""What a row of a queue counts at least: one in which nothing changes has none, and in Spark as many as others."""
Offset = dict[str, dict[str, int]]
"""By folder: `file`, and `position` in it; file 0 is before all. `silent`: Unix ms, where the node is silent."""


@dataclass(frozen=True)
class StreamPart(InputPartition):
    """Blocks of one file that begin in [begin, end); or, with `silent_ms`, no block but that the node is silent."""

    folder: str
    file: int
    begin: int
    end: int
    silent_ms: int | None = None


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads journals as they grow. Options as those of the batch, but `finest`, `until` and `pushdown`; and `starting`.

    `starting` is `earliest` or `latest`, for a query without a checkpoint; `bytesPerTrigger` bounds a batch of each
    folder. `silence`, for `rows` `rounds`: seconds without a round after which a row says that the node is silent.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        rows: str,
        columns: pa.Schema,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._folders = read.paths(options, "the folder of a lag journal, `pyddmq/lag` of a node's data")
        self._rows = rows
        self._columns = columns
        self._from_latest = read.one_of(options, "starting", ("earliest", "latest"), "earliest") == "latest"
        self._bytes = read.number(options, "bytesPerTrigger", BYTES_PER_TRIGGER, at_least=1)
        self._wanted = JournalQuery(
            since_ms=read.moment_ms(options, "since"),
            groups=read.names(options, "group"),
            topics=read.names(options, "topic"),
        )
        self._silence_ms = read.number(options, "silence", 0, at_least=0) * 1_000 if rows == "rounds" else 0
        self._labels = labels_of(RealDisk(read_only=True), self._folders) if rows == "rounds" else {}
        self._now_ms = now_ms
        self._silent_from: dict[str, tuple[tuple[int, int], int | None]] = {}
        """By folder an end that was read up to, and when the node is silent without a round behind it."""
        self._last: Offset | None = None
        """Where a query ends that takes what is there now."""

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        if self._from_latest:
            return self._ends({}, None)
        return {folder: {"file": 0, "position": 0} for folder in self._folders}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Bound a batch."""
        return ReadMaxBytes(self._bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a query that takes what is there now."""
        self._last = self._ends({}, None)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return how far a batch from `start` goes: to ends of whole blocks."""
        return self._ends(start, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the work: a part of a file each."""
        parts = [part for folder in self._folders for part in self._parts(folder, _at(start, folder), _at(end, folder))]
        for folder in self._folders:
            silent_ms = end.get(folder, {}).get("silent")
            if silent_ms is not None and silent_ms != start.get(folder, {}).get("silent"):
                file, position = _at(end, folder)
                parts.append(StreamPart(folder, file, position, position, silent_ms))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield batches of the columns that are asked for."""
        assert isinstance(partition, StreamPart), "partitions are made above"
        if partition.silent_ms is not None:
            last = _last_round(partition.folder, (partition.file, partition.end))
            if last is not None:
                head = self._named(partition.folder, last.head)
                yield silent_batch(head, partition.file, partition.end, partition.silent_ms, self._columns)
            return
        blocks = self._blocks(partition, by_columns=self._rows == "samples")
        yield from batches(blocks, self._rows, self._columns, self._wanted)

    def _blocks(self, part: StreamPart, *, by_columns: bool) -> Iterator[Placed]:
        path = _path(part.folder, part.file)
        for position, block in scan_part(RealDisk(read_only=True), path, part.begin, part.end, by_columns=by_columns):
            yield part.file, position, replace(block, head=self._named(part.folder, block.head))

    def _named(self, folder: str, head: FileHead) -> FileHead:
        label = self._labels.get(folder, {}).get((head.cluster, head.node))
        return head if label is None else replace(head, node=label)

    def _parts(self, folder: str, start: tuple[int, int], end: tuple[int, int]) -> Iterator[StreamPart]:
        if end < start:
            # The folder was begun anew in between.
            start = (0, 0)
        for number in _raw_files(folder):
            if start[0] <= number <= end[0]:
                begin = start[1] if number == start[0] else 0
                stop = end[1] if number == end[0] else 1 << 62
                if begin < stop:
                    yield StreamPart(folder, number, begin, stop)

    def _ends(self, start: Mapping[str, Any], bytes_max: int | None) -> dict[str, Any]:
        found = {}
        for folder in self._folders:
            begin = _there(folder, _at(start, folder))
            last = None if self._last is None else _at(self._last, folder)
            file, position = max(begin, _end(folder, begin, bytes_max, last))
            found[folder] = {"file": file, "position": position}
            if self._silence_ms and (file, position) == begin:
                found[folder] |= self._silent(folder, begin, start.get(folder, {}))
        return found

    def _silent(self, folder: str, at: tuple[int, int], begin: Mapping[str, int]) -> dict[str, int]:
        """Return since when a folder that has nothing new is silent; empty: it is not."""
        if "silent" in begin:
            return {"silent": begin["silent"]}
        known = self._silent_from.get(folder)
        if known is None or known[0] != at:
            last, silent_ms = _last_round(folder, at), None
            if last is not None:
                # One that samples seldom is not silent between two rounds.
                silent_ms = last.time_ms + max(self._silence_ms, SILENT_INTERVALS * last.head.interval_ms)
            known = self._silent_from[folder] = at, silent_ms
        return {} if known[1] is None or self._now_ms() < known[1] else {"silent": known[1]}


def _at(offset: Mapping[str, Any], folder: str) -> tuple[int, int]:
    """Return file and position of a folder; one that an offset does not have begins with it."""
    found = offset.get(folder, {})
    return int(found.get("file", 0)), int(found.get("position", 0))


def _there(folder: str, at: tuple[int, int]) -> tuple[int, int]:
    """Return a place in a folder; its begin where the folder was begun anew: files only grow, and so do numbers."""
    numbers = _raw_files(folder)
    if not numbers or at[0] < numbers[-1]:
        return at
    if at[0] > numbers[-1]:
        return 0, 0
    try:
        file = RealDisk(read_only=True).open(_path(folder, at[0]))
    except OSError:
        return at
    size = file.size()
    file.close()
    return at if at[1] <= size else (0, 0)


def _raw_files(folder: str) -> list[int]:
    files = (parse(name) for name in RealDisk(read_only=True).list(folder))
    return sorted(file.first for file in files if file is not None and file.tier is Tier.RAW)


def _end(folder: str, begin: tuple[int, int], bytes_max: int | None, last: tuple[int, int] | None) -> tuple[int, int]:
    """Return the end of the whole blocks behind `begin`, at most so many bytes further, and not behind `last`.

    The listing comes before the reading: of a file with a successor in it, all is there.
    """
    at, left = begin, bytes_max
    for number in _raw_files(folder):
        if number < begin[0] or (last is not None and number > last[0]):
            continue
        position = begin[1] if number == begin[0] else 0
        stop = last[1] if last is not None and number == last[0] else None
        end, taken = _whole_blocks(folder, number, position, left, stop)
        at = (number, max(position, end))
        if left is not None:
            left -= taken
            if left <= 0:
                break
    return at


def _last_round(folder: str, at: tuple[int, int]) -> Block | None:
    """Return the last round before an end; null where there is none."""
    for number in reversed(_raw_files(folder)):
        end = at[1] if number == at[0] else 1 << 62
        parts = scan_part(RealDisk(read_only=True), _path(folder, number), 0, end, by_columns=False)
        # A node that is killed in its first round leaves a file without any.
        if number <= at[0] and (last := deque(parts, 1)):
            return last[0][1]
    return None


def _whole_blocks(folder: str, number: int, begin: int, bytes_max: int | None, stop: int | None) -> tuple[int, int]:
    """Return where the whole blocks of a file from `begin` on end, and their bytes; one at least is taken."""
    reader, decoder = BlockReader(RealDisk(read_only=True), _path(folder, number)), SnapshotDecoder()
    try:
        if reader.head is None:
            return begin, 0
        end, taken = max(reader.position, begin), 0
        reader.position = end
        for payload in reader:
            if stop is not None and reader.position > stop:
                break
            end = reader.position
            if bytes_max is not None:
                with suppress(ValueError):  # reported when the block is read
                    taken += max(len(payload), ROW_BYTES * decoder.count(decoder.open(payload)))
                if taken >= bytes_max:
                    break
        return end, taken
    finally:
        reader.close()


def _path(folder: str, number: int) -> str:
    return f"{folder}/{JournalFile(Tier.RAW, number, number).name}"
