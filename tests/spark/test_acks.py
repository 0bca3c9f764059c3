"""Ack logs on Spark: rows are what was written, and times are those of a plain count over the same messages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.acks.acks import AckBatch, Outcome
from lag.acks.log import FOLDER, AckLog, AckLogLimits
from lag.blocks import FileHead, FileKind, GapKind

HOUR_MS = 3_600_000
START_MS = 1_714_953_600_000
"""A full hour."""
pytestmark = pytest.mark.usefixtures("shipped")
Row = tuple[int, int, int | None, int, int, int]


def rows_of(queue: int, count: int = 400) -> list[Row]:
    """Messages over two hours: each fifth was never handed out by this process, each tenth is a dead letter."""
    found: list[Row] = []
    for number in range(count):
        stored = START_MS + number * 2 * HOUR_MS // count
        handed = None if number % 5 == 0 else stored + 10 + number * 7 % 101
        ended = stored + 200 + number * 31 % 997
        outcome = Outcome.DEAD_LETTERED if number % 10 == 3 else Outcome.SUCCEEDED
        found.append((number + queue, stored, handed, ended, 1 + number % 3, outcome))
    return found


def write(data: Path, group: str, *, file_bytes: int = 2000) -> None:
    """Write the log of a group with two queues, in several files."""
    head = FileHead(kind=FileKind.ACKS, cluster="c", node="n", epoch=7, sequence=0, first_ms=0, last_ms=0, group=group)
    limits = AckLogLimits(file_bytes=file_bytes, free_bytes_min=0)
    log = AckLog(RealDisk(), f"{data}/{FOLDER}/{group}", head, limits)
    for at in range(0, 400, 50):
        for queue in (0, 1):
            log.add(AckBatch("t", queue, *zip(*rows_of(queue)[at : at + 50], strict=True)))
    log.close()


def read(spark: Any, data: Path, **options: str) -> Any:
    """Read ack logs as a table."""
    return spark.read.format("pyddmq_acks").options(path=str(data), **options).load()


def test_rows_are_what_was_written(spark: Any, tmp_path: Path) -> None:
    """In all columns, whichever folder is named; a schema of one's own has fewer."""
    write(tmp_path, "g")
    names = ("queue", "offset", "stored_ms", "handed_ms", "ended_ms", "deliveries", "outcome")
    wanted = {(queue, *row[:5], Outcome(row[5]).name.lower()) for queue in (0, 1) for row in rows_of(queue)}
    for place in (tmp_path, tmp_path / FOLDER / "g"):
        rows = read(spark, place).collect()
        assert {tuple(row[name] for name in names) for row in rows} == wanted
        assert len(rows) == len(wanted) == 800
    row = rows[0]
    assert (row.cluster, row.node, row.epoch, row.group, row.topic) == ("c", "n", f"{7:016x}", "g", "t")
    few = spark.read.format("pyddmq_acks").schema("outcome string, `offset` bigint").options(path=str(tmp_path)).load()
    assert few.columns == ["outcome", "offset"]
    assert few.where("outcome = 'dead_lettered'").count() == 80


def test_options_and_filters_choose(spark: Any, tmp_path: Path) -> None:
    """Ends, groups and topics, pushed down or not; a file that a filter leaves no row of is not read."""
    write(tmp_path, "g")
    write(tmp_path, "other")
    middle = START_MS + HOUR_MS
    wanted = sum(middle <= row[3] < middle + 60_000 for queue in (0, 1) for row in rows_of(queue))
    assert 0 < wanted < 800
    assert read(spark, tmp_path, since=str(middle), until=str(middle + 60_000), group="g").count() == wanted
    for pushdown in ("true", "false"):
        rows = read(spark, tmp_path, pushdown=pushdown)
        rows = rows.where(f"`group` = 'g' and ended_ms >= {middle} and ended_ms < {middle + 60_000}")
        assert rows.count() == wanted
    assert read(spark, tmp_path, topic="u").count() == 0
    everything = read(spark, tmp_path / FOLDER / "g").rdd.getNumPartitions()
    late = read(spark, tmp_path / FOLDER / "g", since=str(START_MS + 9 * HOUR_MS)).rdd.getNumPartitions()
    assert 1 == late < everything


def test_damage_is_a_gap_and_all_else_is_read(spark: Any, tmp_path: Path) -> None:
    """A flipped byte costs the rest of its file."""
    write(tmp_path, "g")
    first, *_ = sorted((tmp_path / FOLDER / "g").iterdir())
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    [gap] = read(spark, tmp_path, rows="gaps").collect()
    assert (gap.kind, gap.path) == (GapKind.DAMAGED.value, str(first))
    assert 400 < read(spark, tmp_path).count() < 800


def test_path_without_a_log_is_told(spark: Any, tmp_path: Path) -> None:
    """With what would be right."""
    with pytest.raises(Exception, match="has no ack log; pass the data directory"):
        read(spark, tmp_path).count()


def nearest(values: list[int], share: float) -> int:
    """The message at that place of all, as it is counted without Spark."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 100) // 100) - 1)]


def test_residence_is_that_of_a_plain_count(spark: Any, tmp_path: Path) -> None:
    """Counts, percentiles and extremes of each hour and outcome; what has no first hand-out is not in that time."""
    from lag.spark.jobs.residence import ResidenceOptions, rendered, residence

    write(tmp_path, "g")
    options = ResidenceOptions(paths=[str(tmp_path)], from_ms=START_MS, to_ms=START_MS + 3 * HOUR_MS)
    found = residence(spark, options)
    messages = [row for queue in (0, 1) for row in rows_of(queue)]
    keys = {(row[3] // HOUR_MS * HOUR_MS, Outcome(row[5]).name.lower()) for row in messages}
    assert [(row["window_ms"], row["outcome"]) for row in found.rows] == sorted(keys)
    assert len(keys) > 3
    for row in found.rows:
        mine = [
            each
            for each in messages
            if (each[3] // HOUR_MS * HOUR_MS, Outcome(each[5]).name.lower()) == (row["window_ms"], row["outcome"])
        ]
        assert (row["cluster"], row["group"], row["topic"]) == ("c", "g", "t")
        assert (row["messages"], row["deliveries"]) == (len(mine), sum(each[4] for each in mine))
        handed = [each[2] - each[1] for each in mine if each[2] is not None]
        ended = [each[3] - each[1] for each in mine]
        for name, values in (("handed", handed), ("ended", ended)):
            assert row[f"{name}_messages"] == len(values)
            assert row[f"{name}_max_ms"] == max(values, default=None)
            for share in (0.5, 0.95, 0.99):
                assert row[f"{name}_p{round(share * 100)}_ms"] == nearest(values, share)
    assert found.gaps == []
    assert json.loads(rendered(found, "json"))["rows"] == [dict(row) for row in found.rows]
    listed = list(csv.DictReader(io.StringIO(rendered(found, "csv"))))
    assert [int(row["messages"]) for row in listed] == [row["messages"] for row in found.rows]
    assert rendered(found, "markdown").startswith("| from | cluster | group | topic | outcome | messages |")
    table = rendered(found, "table").splitlines()
    assert len(table) == 1 + len(found.rows)
    assert "dead_lettered" in table[1]
