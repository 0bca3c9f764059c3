"""What a lag report costs by Spark: processor time per million samples, wall clock and memory, DuckDB beside it.

    python -m bench.lag_report [--days 2] [--queues 200] [--source-rows 200000]

Samples are made as `pyddmq lag export` would write them: one a minute of each queue, of which three in ten move and
one in twenty stands still for hours. The whole report is made over all days, and over half of them, to see that its
time is in proportion. Then the source `pyddmq_lag` reads a journal of so many rows, all columns.

DuckDB (in `.venv` if it was put there) makes a part of the report only: of each queue the share of samples in time, the
highest figures, how it stands at the end, and the 240 buckets of its line. It judges nothing: there are no windows,
statuses, causes and incidents in it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.lag_journal import INTERVAL_MS, begun, moved
from broker.runtime.disk import RealDisk
from lag.export.names import ExportFile
from lag.export.tables import GROUP_ROWS, schema_of
from lag.journal.writer import JournalWriter, Origin, WriterLimits
from lag.report.options import BUCKETS, Input, ReportOptions, Window
from lag.rules.limits import Limits
from lag.spark.jobs.report import make_report
from lag.spark.session import LONG_JVM, SessionOptions, session
from lag.spark.shipping import ship
from lag.spark.sources.journal import NAME

BEGIN_MS: Final = 1_769_990_400_000
"""A midnight, UTC."""
MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000
SNAPSHOTS: Final = 1_440
"""Of a day."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What some work cost.

    Attributes:
        rows: Rows that it was over.
        seconds: Wall clock.
        cpu: Seconds of the processor, of this process and all below it.
        java_mb: Most memory of one JVM among them, in MB: Spark's driver. It has had so much since it was started.
        python_mb: Likewise of one process of Python, this one or a worker of Spark's.
    """

    rows: int
    seconds: float
    cpu: float
    java_mb: float
    python_mb: float

    @property
    def per_million(self) -> float:
        """Seconds of the processor per million rows."""
        return self.cpu / self.rows * 1_000_000


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
    step = np.where(moves, 600 + queue % 100, 0)
    end = (day * SNAPSHOTS + minute) * step + 10_000
    lag = np.where(stands, 500 + (minute - 600) * 3, np.where(moves, (minute * 7 + queue) % 40, 0))
    end = end + np.where(stands, (minute - 600) * 3, 0)
    behind = lag > 0
    moved_ms = np.where(stands, BEGIN_MS + day * DAY_MS + 600 * MINUTE_MS, now - 40)
    usual: dict[str, Any] = {
        "time_ms": now, "start": np.zeros(count, np.int64), "end": end, "committed": end - lag,
        "finished": np.zeros(count, np.int64), "expired": np.zeros(count, np.int64), "started": end - lag,
        "start_ms": np.full(count, BEGIN_MS - DAY_MS), "committed_ms": np.where(stands, moved_ms, now - lag * 20),
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
            column = pa.array(usual[field.name], mask=~behind if field.name == "committed_ms" else None)
        elif pa.types.is_boolean(field.type):
            column = pa.array(np.zeros(count, bool))
        elif field.name.startswith("held") or field.name == "matched":
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
    writer = JournalWriter(RealDisk(), folder, Origin(cluster="c", node="n", epoch=1), WriterLimits())
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


def processes() -> Iterator[int]:
    """Yield this process and all below it."""
    parents = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    yield from found


def usage() -> tuple[float, float, float]:
    """Return the processor's seconds of these processes, ended children counted, and the most memory of one in MB.

    The memory is that of a JVM, and that of any other.
    """
    ticks, peaks = 0, {True: 0, False: 0}
    for each in processes():
        try:
            ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]))
            status = Path(f"/proc/{each}/status").read_text()
        except OSError:
            continue
        is_java = status.startswith("Name:\tjava\n")
        found = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
        peaks[is_java] = max([peaks[is_java], *found])
    return ticks / TICKS, peaks[True] / 1024, peaks[False] / 1024


def measured(rows: int, work: Callable[[], object]) -> Cost:
    """Do some work, and return what it cost."""
    # What this process needed before, to make the samples, is none of it.
    Path("/proc/self/clear_refs").write_text("5")
    before, began = usage()[0], time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    after, java_mb, python_mb = usage()
    return Cost(rows=rows, seconds=seconds, cpu=after - before, java_mb=java_mb, python_mb=python_mb)


def duckdb_part(place: str, days: int) -> None:
    """Make a part of the report by DuckDB, as this module's words say. Raises ImportError."""
    import duckdb

    width = Window(from_ms=BEGIN_MS, to_ms=BEGIN_MS + days * DAY_MS).width_ms(BUCKETS)
    files = [str(each) for each in sorted(Path(place).glob("queues/*/*.parquet"))[:days]]
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        connection.execute(
            'CREATE TEMP VIEW samples AS SELECT *, greatest("end" - greatest(committed, start), 0) AS lag, '
            'CASE WHEN "end" > committed THEN time_ms - committed_ms ELSE 0 END AS age_ms '
            f"FROM read_parquet({files!r})"
        )
        for query in (
            'SELECT "group", topic, queue, count(*), avg((age_ms <= 60000)::INT), max(lag), max(age_ms), '
            "arg_max(lag, time_ms), max(expired) - min(expired) FROM samples GROUP BY ALL",
            f'SELECT "group", topic, queue, (time_ms - {BEGIN_MS}) // {width} AS bucket, max(lag), max(age_ms) '
            "FROM samples GROUP BY ALL",
        ):
            connection.execute(query).fetchall()


@contextmanager
def spark_session(folder: str, java_options: str = "") -> Iterator[Any]:
    """Return a session on two cores that can read journals, whose JVM is started with these options besides."""
    logged = f"-Dlog4j2.configurationFile={folder}/spark.log.properties {java_options}".strip()
    options = SessionOptions(master="local[2]", cores=2, ui=False, log_file=f"{folder}/spark.log",
                             settings={"spark.local.dir": folder, "spark.driver.memory": "3g",
                                       "spark.driver.extraJavaOptions": logged})  # fmt: skip
    spark = session(options)
    try:
        ship(spark)
        yield spark
    finally:
        spark.stop()


def line(name: str, cost: Cost) -> str:
    """Return a cost as a row of a table."""
    return (
        f"| {name} | {cost.rows / 1e6:.2f} M | {cost.seconds:.1f} s | {cost.cpu:.1f} s | {cost.per_million:.1f} s | "
        f"{cost.rows / cost.seconds / 1e6:.2f} M/s | {cost.java_mb:,.0f} MB | {cost.python_mb:,.0f} MB |"
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--days", type=int, default=2, help="2 or more; 30 of 1,000 queues are 43 M rows")
    parser.add_argument("--queues", type=int, default=200)
    parser.add_argument("--source-rows", type=int, default=200_000)
    parser.add_argument("--java-options", default=LONG_JVM, help="for Spark's JVM: --java-options=-XX:...")
    parser.add_argument("--folder", help="where files are made; a temporary one when absent")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(dir=given.folder)
    try:
        generate(folder, days=given.days, queues=given.queues)
        print("| what | rows | wall | CPU | CPU per million | rows per second | most memory: a JVM | Python |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        with spark_session(folder, given.java_options) as spark:
            # The first one of a session warms it up; it is told apart.
            sizes = [("first report", 1), ("report", max(1, given.days // 2)), ("report", given.days)]
            for name, days in sizes:
                window = Window(from_ms=BEGIN_MS, to_ms=BEGIN_MS + days * DAY_MS)
                options = ReportOptions(given=Input(exported=[folder]), window=window, limits=Limits(), compared=False)
                rows = days * SNAPSHOTS * given.queues
                print(line(name, measured(rows, partial(make_report, spark, options))), flush=True)
            rows = write_journal(f"{folder}/journal", given.source_rows)
            reading = spark.read.format(NAME).option("path", f"{folder}/journal").load()
            cost = measured(rows, lambda: reading.write.format("noop").mode("overwrite").save())
            print(line("source, all columns", cost), flush=True)
        try:
            print(line("part of it by DuckDB", measured(given.days * SNAPSHOTS * given.queues,
                                                        lambda: duckdb_part(folder, given.days))))  # fmt: skip
        except ImportError:
            print("DuckDB is not there: .venv/bin/pip install duckdb puts it beside")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
