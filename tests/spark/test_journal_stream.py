"""Journals as a stream: each round once, over rolled, removed and torn files, and over a stop of the query."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.samples import EventKind, LagEvent, QueueSample

START_MS = 1_714_950_000_000


class Node:
    """Writes a journal, some rounds at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        epoch: int = 7,
        rounds_before: int = 0,
        file_bytes: int = 200,
        interval_ms: int = 10_000,
    ) -> None:
        limits = WriterLimits(file_bytes=file_bytes, free_bytes_min=0, interval_ms=interval_ms)
        self._journal = JournalWriter(
            RealDisk(), str(folder), JournalOrigin(cluster="c", node="n", epoch=epoch), limits
        )
        self._number = rounds_before

    def rounds(self, count: int, *, lag: bool = True) -> None:
        """Write so many."""
        for _ in range(count):
            now = START_MS + self._number * 10_000
            end = self._number * 7
            sample = QueueSample(time_ms=now, start=0, end=end, committed=self._number if lag else end)
            if self._number == 3:
                self._journal.note(LagEvent(time_ms=now, kind=EventKind.RESET, group="g", topic="t", queue=0))
            self._journal.write(now, [(("g", "t", queue), sample) for queue in range(2)])
            self._number += 1

    def killed_amid_a_round(self) -> None:
        """Begin the next round, and write no more."""
        self._journal.begin(START_MS + self._number * 10_000)

    def close(self) -> None:
        """End its file."""
        self._journal.close(START_MS + self._number * 10_000)


def stream(folder: Path, **options: str) -> Any:
    """Return a stream reader of rounds."""
    import pyarrow as pa

    from lag.spark.sources.journal_rows import ROWS
    from lag.spark.sources.journal_stream import JournalStream

    columns = pa.schema(list(ROWS["rounds"].items()))
    return JournalStream({"path": str(folder), **options}, "rounds", columns)


def taken(reader: Any, start: Any, end: Any) -> list[int]:
    """Return the moments of the rounds of a batch, in ten seconds from the start."""
    rows = [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
    rows.sort(key=lambda row: (row["file"], row["position"]))
    return [(row["time_ms"] - START_MS) // 10_000 for row in rows]


def limit(reader: Any) -> Any:
    """Return the limit that Spark would hand in."""
    return reader.getDefaultReadLimit()


def all_batches(reader: Any, start: Any) -> tuple[list[list[int]], Any]:
    """Return batches until nothing comes any more, and the last offset."""
    found: list[list[int]] = []
    while True:
        end = reader.latestOffset(start, limit(reader))
        if end == start:
            return found, end
        assert reader.latestOffset(start, limit(reader)) == end
        found.append(taken(reader, start, json.loads(json.dumps(end))))
        start = end


def test_rounds_come_once_and_in_order_however_small_batches_are(tmp_path: Path) -> None:
    """Over many files, and with a bound below one round."""
    node = Node(tmp_path)
    node.rounds(30)
    assert len(os.listdir(tmp_path)) > 3
    for size in ("1", "300", "1000000"):
        reader = stream(tmp_path, bytesPerTrigger=size)
        found, _ = all_batches(reader, reader.initialOffset())
        assert [each for batch in found for each in batch] == list(range(30))
    assert len(found) == 1


def test_torn_tail_is_waited_for(tmp_path: Path) -> None:
    """Half a block is nothing; when the rest is there it is one."""
    node = Node(tmp_path, file_bytes=1 << 20)
    node.rounds(5)
    [name] = os.listdir(tmp_path)
    whole = (tmp_path / name).read_bytes()
    reader = stream(tmp_path)
    for cut in (1, 5, 20):
        (tmp_path / name).write_bytes(whole[:-cut])
        found, end = all_batches(reader, reader.initialOffset())
        assert found == [[0, 1, 2, 3]]
        (tmp_path / name).write_bytes(whole)
        assert all_batches(reader, end)[0] == [[4]]


def test_file_that_a_killed_node_left_torn_ends_where_the_next_one_begins(tmp_path: Path) -> None:
    """Nobody waits for what never comes; numbers order files over starts."""
    Node(tmp_path, file_bytes=1 << 20).rounds(5)
    [name] = os.listdir(tmp_path)
    os.truncate(tmp_path / name, os.path.getsize(tmp_path / name) - 3)
    reader = stream(tmp_path)
    _, end = all_batches(reader, reader.initialOffset())
    Node(tmp_path, epoch=8, rounds_before=5).rounds(3)
    assert [each for batch in all_batches(reader, end)[0] for each in batch] == [5, 6, 7]


def test_files_that_retention_took_are_passed_over(tmp_path: Path) -> None:
    """Those before an offset, at it, and between two."""
    node = Node(tmp_path)
    node.rounds(12)
    reader = stream(tmp_path, bytesPerTrigger="1")
    start = reader.latestOffset(reader.initialOffset(), limit(reader))
    names = sorted(os.listdir(tmp_path))
    for name in names[:-2]:
        os.remove(tmp_path / name)
    found = [each for batch in all_batches(reader, start)[0] for each in batch]
    assert found == sorted(set(found))
    assert found[-1] == 11


@pytest.mark.parametrize("file_bytes", [200, 1 << 20])
def test_journal_that_was_begun_anew_is_read_from_its_begin(tmp_path: Path, file_bytes: int) -> None:
    """As after a disk was replaced: its numbers begin at 1 again, and its newest file is shorter."""
    Node(tmp_path / "lag", file_bytes=file_bytes).rounds(30)
    reader = stream(tmp_path / "lag")
    _, end = all_batches(reader, reader.initialOffset())
    shutil.rmtree(tmp_path / "lag")
    assert all_batches(stream(tmp_path / "lag"), end) == ([], end), "nothing is there yet"
    Node(tmp_path / "lag", epoch=8, rounds_before=30).rounds(5)
    found, end = all_batches(stream(tmp_path / "lag", bytesPerTrigger="1"), end)
    assert [each for batch in found for each in batch] == [30, 31, 32, 33, 34]
    assert all_batches(stream(tmp_path / "lag"), end) == ([], end)


def test_latest_and_available_now_are_fixed_when_they_are_asked(tmp_path: Path) -> None:
    """What comes later is for the next query."""
    node = Node(tmp_path)
    node.rounds(6)
    reader = stream(tmp_path, starting="latest")
    start = reader.initialOffset()
    assert all_batches(reader, start)[0] == []
    reader = stream(tmp_path, bytesPerTrigger="1")
    reader.prepareForTriggerAvailableNow()
    node.rounds(6)
    found, end = all_batches(reader, reader.initialOffset())
    assert [each for batch in found for each in batch] == list(range(6))
    assert [each for batch in all_batches(stream(tmp_path), end)[0] for each in batch] == list(range(6, 12))


@pytest.mark.usefixtures("shipped")
def test_query_goes_on_by_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    """Two queries over one checkpoint give each sample once; events come as rows of their own."""
    node = Node(tmp_path / "lag")
    node.rounds(8)

    def run(rows: str) -> None:
        loaded = spark.readStream.format("pyddmq_lag").option("path", str(tmp_path / "lag")).option("rows", rows).load()
        query = (
            loaded.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{rows}"))
            .trigger(availableNow=True)
            .start(str(tmp_path / rows))
        )
        assert query.awaitTermination(60)

    run("samples")
    node.rounds(4)
    run("samples")
    run("events")
    found = spark.read.parquet(str(tmp_path / "samples")).select("sequence", "queue", "end").collect()
    assert sorted(tuple(row) for row in found) == [(at, queue, at * 7) for at in range(12) for queue in range(2)]
    [event] = spark.read.parquet(str(tmp_path / "events")).collect()
    assert (event.kind, event.group, event.time_ms) == ("reset", "g", START_MS + 30_000)


@pytest.mark.parametrize("newest", ["rounds", "head", "nothing"])
def test_silent_node_is_a_row_of_its_own_once(tmp_path: Path, newest: str) -> None:
    """When all is read and nothing came for as long; kept in the offset, until the next round.

    A node that is killed in its first round leaves a file without one, and a power loss one without a head.
    """
    node = Node(tmp_path)
    node.rounds(3)
    if newest == "head":
        Node(tmp_path, epoch=8, rounds_before=3).killed_amid_a_round()
    elif newest == "nothing":
        (tmp_path / "raw.0000000099.lag").touch()
    now = [START_MS + 20_000]
    import pyarrow as pa

    from lag.spark.sources.journal_rows import ROWS
    from lag.spark.sources.journal_stream import JournalStream

    def again() -> Any:
        columns = pa.schema(list(ROWS["rounds"].items()))
        return JournalStream({"path": str(tmp_path), "silence": "60"}, "rounds", columns, lambda: now[0])

    def silent(start: Any, end: Any) -> list[tuple[str, bool, int]]:
        parts = again().partitions(start, end)
        rows = [row for part in parts for batch in again().read(part) for row in batch.to_pylist()]
        return [(row["node"], row["silent"], (row["time_ms"] - START_MS) // 1_000) for row in rows]

    reader = again()
    found, end = all_batches(reader, reader.initialOffset())
    assert found == [[0, 1, 2]]
    now[0] += 59_999
    assert all_batches(again(), end) == ([], end)
    now[0] += 1
    quiet = again().latestOffset(end, limit(reader))
    assert silent(end, quiet) == [("n", True, 80)]
    now[0] += 600_000
    assert again().latestOffset(quiet, limit(reader)) == quiet
    Node(tmp_path, epoch=9, rounds_before=3).rounds(1)
    back = again().latestOffset(quiet, limit(reader))
    assert silent(quiet, back) == [("n", False, 30)]
    assert silent(back, again().latestOffset(back, limit(reader))) == [("n", True, 90)]


def test_node_that_samples_seldom_is_silent_after_three_rounds_without_one(tmp_path: Path) -> None:
    """`lag.every` may be up to an hour: it is not silent between two rounds."""
    import pyarrow as pa

    from lag.spark.sources.journal_rows import ROWS
    from lag.spark.sources.journal_stream import JournalStream

    Node(tmp_path, interval_ms=120_000).rounds(1)
    now = START_MS
    columns = pa.schema(list(ROWS["rounds"].items()))
    reader = JournalStream({"path": str(tmp_path), "silence": "60"}, "rounds", columns, lambda: now)
    _, end = all_batches(reader, reader.initialOffset())
    now += 359_999
    assert reader.latestOffset(end, limit(reader)) == end
    now += 1
    assert reader.latestOffset(end, limit(reader))[str(tmp_path)]["silent"] == now


def test_nodes_of_one_name_are_two(tmp_path: Path) -> None:
    """`brokerName` has a default: rounds of two folders are of one node only where the names differ, as in reports."""
    import pyarrow as pa

    from lag.spark.sources.journal_rows import ROWS
    from lag.spark.sources.journal_stream import JournalStream

    folders = [str(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        Node(Path(folder)).rounds(2)
    now = START_MS
    options = {"path": ",".join(folders), "silence": "60"}
    reader = JournalStream(options, "rounds", pa.schema(list(ROWS["rounds"].items())), lambda: now)

    def nodes(start: Any, end: Any) -> list[tuple[str, bool]]:
        parts = reader.partitions(start, end)
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        return sorted((row["node"], row["silent"]) for row in rows)

    start = reader.initialOffset()
    end = reader.latestOffset(start, limit(reader))
    assert nodes(start, end) == [(f"n ({folder})", False) for folder in folders for _ in range(2)]
    now += 3_600_000
    assert nodes(end, reader.latestOffset(end, limit(reader))) == [(f"n ({folder})", True) for folder in folders]


def test_rounds_in_which_nothing_changes_fill_a_batch_as_others(tmp_path: Path) -> None:
    """They have hardly a byte in the journal; of 1,000 idle queues two days of it were one batch of gigabytes."""
    limits = WriterLimits(free_bytes_min=0)
    journal = JournalWriter(RealDisk(), str(tmp_path), JournalOrigin(cluster="c", node="n", epoch=1), limits)
    for number in range(40):
        now = START_MS + 10_000 * number
        idle = QueueSample(time_ms=now, start=0, end=9, committed=9)
        assert journal.write(now, [(("g", "t", queue), idle) for queue in range(100)])
    reader = stream(tmp_path, bytesPerTrigger="16000")
    found, _ = all_batches(reader, reader.initialOffset())
    assert [each for batch in found for each in batch] == list(range(40))
    assert {len(batch) for batch in found} == {10}
