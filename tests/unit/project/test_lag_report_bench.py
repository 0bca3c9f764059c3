"""The benchmark of lag reports: what it makes is an export, and what it counts is there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.export.names import live_files
from lag.export.tables import schema_of
from lag.journal.reader import JournalReader, QueueRow

QUEUES = 8
bench: Any = pytest.importorskip("bench.lag_report", exc_type=ImportError)
SNAPSHOTS: int = bench.SNAPSHOTS


def test_days_are_exports_that_count(tmp_path: Path) -> None:
    """A file a day, by its name and shape; each queue once a minute, its lag no loss and nothing ahead."""
    parquet = pytest.importorskip("pyarrow.parquet")
    assert bench.generate(str(tmp_path), days=2, queues=QUEUES) == 2 * SNAPSHOTS * QUEUES
    files = sorted(tmp_path.glob("queues/*/*.parquet"))
    names = [file.relative_to(tmp_path).as_posix() for file in files]
    assert [(each.is_whole, each.first, each.last) for each in live_files(names)] == [
        (True, 0, 1_439),
        (True, 1_440, 2_879),
    ]
    table = parquet.ParquetFile(files[1]).read()
    assert table.schema.equals(schema_of("queues"))
    rows = table.select(["group", "topic", "queue", "sequence", "start", "committed", "end"]).to_pylist()
    assert len({tuple(row.values())[:4] for row in rows}) == SNAPSHOTS * QUEUES
    assert all(row["start"] <= row["committed"] <= row["end"] for row in rows)


def test_journal_has_as_many_rows(tmp_path: Path) -> None:
    """Or a few more: whole snapshots."""
    count = bench.write_journal(str(tmp_path / "lag"), 25, queues=10)
    assert count == 30
    read = JournalReader(RealDisk(), str(tmp_path / "lag")).read()
    assert sum(isinstance(each, QueueRow) for each in read) == count


def test_costs_are_counted() -> None:
    """Of this process and those below it."""
    cost = bench.measured(2_000_000, lambda: sum(range(3_000_000)))
    assert cost.seconds > 0
    assert cost.python_mb > 10
    # Spark's tests may have been before this one in the same process, and their Java still runs.
    assert cost.java_mb == 0 or "pyspark" in sys.modules
    text = bench.line("work", bench.Cost(rows=2_000_000, seconds=4.0, cpu=6.0, java_mb=1_000.0, python_mb=200.0))
    assert text == "| work | 2.00 M | 4.0 s | 6.0 s | 3.0 s | 0.50 M/s | 1,000 MB | 200 MB |"
