"""What a lag report costs: processor time of the whole command, without Spark and with it, DuckDB beside it.

    python -m bench.lag_report [--rounds 3] [--days 2] [--queues 1000] [--engines local,duckdb,spark] [--small 20000]

The same Parquet for all, one after the other in each round, since other work on the machine hits all alike then. CPU is
user and system time of a command and all processes below it. Small files are written by a journal and exported; large
ones are made as `pyddmq lag export` would write them: one sample a minute of each queue, of which three in ten move,
one in twenty stands still for hours, one in fifty loses messages, and one in a hundred is set back. What DuckDB
computes is said in `bench.lag_report_rival`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from bench.lag_journal import INTERVAL_MS, begun, moved
from broker.runtime.disk import RealDisk
from lag.export.export import export
from lag.export.names import ExportFile
from lag.export.place import ExportPlace
from lag.export.tables import GROUP_ROWS, schema_of
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits

BEGIN_MS: Final = 1_769_990_400_000
"""A midnight, UTC."""
MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000
SNAPSHOTS: Final = 1_440
"""Of a day."""
ENGINES: Final = ("local", "duckdb", "spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a command cost.

    Attributes:
        rows: Samples that it was over.
        seconds: Wall clock.
        cpu: Seconds of the processor, of the command and all processes below it.
        mb: Most memory of one of them.
    """

    rows: int
    seconds: float
    cpu: float
    mb: float


def generate(place: str, *, days: int, queues: int) -> int:
    """Write the samples of so many days, a file each; return how many.

    Args:
        place: An empty folder.
        days: How many.
        queues: 50 to a group, 8 to a topic.
    """
    for day in range(days):
        _write_day(place, day, queues)
    return days * SNAPSHOTS * queues


def _write_day(place: str, day: int, queues: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, count = schema_of("queues"), SNAPSHOTS * queues
    queue = np.tile(np.arange(queues, dtype=np.int64), SNAPSHOTS)
    minute = np.repeat(np.arange(SNAPSHOTS, dtype=np.int64), queues)
    now = BEGIN_MS + day * DAY_MS + minute * MINUTE_MS + queue // 30
    moves, stands = queue % 10 < 3, (queue % 20 == 7) & (minute >= 600)
    # One in fifty loses 400 messages every six hours, and one in a hundred is set back by 5,000 each day.
    lost = np.where(queue % 50 == 13, (day * 4 + minute // 360) * 400, 0)
    behind = np.where((queue % 100 == 52) & (minute >= 300), np.maximum(0, 5_000 - (minute - 300) * 50), 0)
    step = np.where(moves, 600 + queue % 100, 0)
    end = (day * SNAPSHOTS + minute) * step + 10_000
    lag = np.where(stands, 500 + (minute - 600) * 3, np.where(moves, (minute * 7 + queue) % 40, 0))
    lag = lag + behind
    end = end + np.where(stands, (minute - 600) * 3, 0)
    has_lag = lag > 0
    moved_ms = np.where(stands, BEGIN_MS + day * DAY_MS + 600 * MINUTE_MS, now - 40)
    usual: dict[str, Any] = {
        "time_ms": now, "start": np.zeros(count, np.int64), "end": end, "committed": end - lag,
        "finished": np.zeros(count, np.int64), "expired": lost, "started": end - lag,
        "start_ms": np.full(count, BEGIN_MS - DAY_MS), "committed_ms": np.where(stands, moved_ms, now - lag * 20),
        "started_ms": np.where(stands, moved_ms, now - lag * 15),
        "end_ms": now - 10, "moved_ms": moved_ms, "answered_ms": moved_ms, "asked_ms": now - 500,
        "holders": np.where(stands, 0, 2), "queue": queue % 8, "sequence": day * SNAPSHOTS + minute,
    }  # fmt: skip
    texts = {
        "cluster": ["c"], "node": ["n"], "epoch": [f"{1:016x}"],
        "group": [f"group-{number // 50}" for number in range(queues)],
        "topic": [f"topic-{number // 8}" for number in range(queues)],
    }  # fmt: skip
    columns = []
    for field in schema:
        if field.name in texts:
            words = texts[field.name]
            number = queue if len(words) > 1 else np.zeros(count, np.int64)
            column = pa.DictionaryArray.from_arrays(pa.array(number, pa.int32()), pa.array(words)).cast(pa.string())
        elif field.name in usual:
            column = pa.array(
                usual[field.name], mask=~has_lag if field.name in ("committed_ms", "started_ms") else None
            )
        elif pa.types.is_boolean(field.type):
            column = pa.array(np.zeros(count, bool))
        elif field.name.startswith(("held", "out_", "sink_")) or field.name in ("matched", "base", "succeeded_ms"):
            column = pa.nulls(count, field.type)
        else:
            column = pa.array(np.zeros(count, np.int64))
        columns.append(column.cast(field.type))
    date = datetime.fromtimestamp((BEGIN_MS + day * DAY_MS) / 1000, UTC).date().isoformat()
    first = day * SNAPSHOTS
    name = ExportFile(table="queues", date=date, node="n", epoch=1, first=first, last=first + SNAPSHOTS - 1).name
    path = Path(place, name)
    path.parent.mkdir(parents=True)
    write_table: Any = pq.write_table
    write_table(pa.table(columns, schema=schema), path, compression="zstd", row_group_size=GROUP_ROWS)


def write_journal(folder: str, rows: int, queues: int = 1_000) -> int:
    """Write a lag journal of so many samples or a few more; return how many."""
    writer = JournalWriter(RealDisk(), folder, JournalOrigin(cluster="c", node="n", epoch=1), WriterLimits())
    random = Random(7)
    samples = begun(queues, random)
    count = -(-rows // queues)
    for number in range(count):
        samples = moved(samples, random, BEGIN_MS + number * INTERVAL_MS, 0.3, polled=True)
        writer.begin(BEGIN_MS + number * INTERVAL_MS)
        writer.add(samples)
        if not writer.end():
            raise OSError(f"the journal was not written: {writer.trouble}")
    writer.close(BEGIN_MS + count * INTERVAL_MS)
    return count * queues


def cost_of(command: Sequence[str], rows: int) -> Cost:
    """Run a command, and return what it and all below it cost.

    Raises:
        OSError: It failed.
    """
    began = time.perf_counter()
    measured = [sys.executable, "-m", "bench.child_cost", *command]
    done = subprocess.run(measured, capture_output=True, text=True, check=True)
    code, cpu, mb = done.stdout.split()
    if int(code) not in range(4) or "Traceback" in done.stderr:
        raise OSError(f"{' '.join(command)} ended with {code}: {done.stderr[-2_000:]}")
    return Cost(rows=rows, seconds=time.perf_counter() - began, cpu=float(cpu), mb=float(mb))


def command_of(engine: str, place: str, end_ms: int) -> list[str]:
    """Return the command that makes a report, or what DuckDB makes of it, from `BEGIN_MS` to a moment."""
    if engine == "duckdb":
        return [sys.executable, "-m", "bench.lag_report_rival", place, str(BEGIN_MS), str(end_ms)]
    begin, end = (datetime.fromtimestamp(each / 1000, UTC).isoformat() for each in (BEGIN_MS, end_ms))
    window = ["--since", begin, "--until", end, "--no-compare", "--out", f"{place}/report.html"]
    return [sys.executable, "-m", "pyddmq", "lag", "report", "--exported", place, "--engine", engine, *window]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--days", type=int, default=2, help="large sizes are one day and so many; 30 are 43 M rows")
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--small", type=int, default=20_000, help="samples of the small size")
    parser.add_argument("--engines", default=",".join(ENGINES), help="with commas between them")
    parser.add_argument("--folder", help="where files are made; a temporary one when absent")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(dir=given.folder)
    try:
        small = write_journal(f"{folder}/journal", given.small, queues=200)
        export(RealDisk(read_only=True), f"{folder}/journal", ExportPlace(f"{folder}/small"))
        sizes = [("small", small, BEGIN_MS + small // 200 * INTERVAL_MS)]
        for days in sorted({1, given.days}):
            rows = generate(f"{folder}/{days}", days=days, queues=given.queues)
            sizes.append((str(days), rows, BEGIN_MS + days * DAY_MS))
        costs: dict[tuple[int, str], list[Cost]] = {}
        for number in range(given.rounds):
            for name, rows, end_ms in sizes:
                for engine in given.engines.split(","):
                    found = cost_of(command_of(engine, f"{folder}/{name}", end_ms), rows)
                    costs.setdefault((rows, engine), []).append(found)
                    print(f"round {number + 1}: {engine}, {rows:,} rows: {found.cpu:.1f} s", file=sys.stderr)
        print(table(costs))
    finally:
        shutil.rmtree(folder)


def table(costs: dict[tuple[int, str], list[Cost]]) -> str:
    """Return medians as rows of a table, with the ratio to DuckDB's."""
    lines = [
        "| rows | engine | CPU | beside DuckDB | wall | most memory of a process |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (rows, engine), found in costs.items():
        cpu, seconds, mb = (median(getattr(each, name) for each in found) for name in ("cpu", "seconds", "mb"))
        rival = costs.get((rows, "duckdb"))
        ratio = f"{cpu / median(each.cpu for each in rival):.1f}" if rival else "-"
        lines.append(f"| {rows:,} | {engine} | {cpu:.1f} s | {ratio} | {seconds:.1f} s | {mb:,.0f} MB |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
