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


def test_costs_are_those_of_a_command_and_what_outlives_it(tmp_path: Path) -> None:
    """A process that was left behind counts, too; a command that fails is an error."""
    work = "sum(range(3_000_000))"
    alone = bench.cost_of([sys.executable, "-c", work], 2_000_000)
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {work!r}])"
    cost = bench.cost_of([sys.executable, "-c", child], 2_000_000)
    assert alone.cpu > 0.01
    assert cost.cpu > alone.cpu / 2
    assert cost.mb > 5
    with pytest.raises(OSError, match="ended with 7"):
        bench.cost_of([sys.executable, "-c", "raise SystemExit(7)"], 1)


def test_table_has_the_ratio_to_the_rival() -> None:
    """Of the medians of all rounds."""
    costs = {
        (2_000_000, "local"): [bench.Cost(rows=2_000_000, seconds=4.0, cpu=cpu, mb=1_000.0) for cpu in (6.0, 9.0, 5.0)],
        (2_000_000, "duckdb"): [bench.Cost(rows=2_000_000, seconds=2.0, cpu=4.0, mb=200.0)],
    }
    assert bench.table(costs).splitlines()[2] == "| 2,000,000 | local | 6.0 s | 1.5 | 4.0 s | 1,000 MB |"
