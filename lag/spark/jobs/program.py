"""`report` as a program: for `spark-submit` with the zip, and for `pyddmq lag report`.

    spark-submit --master ... --py-files pyddmq_spark.zip report.py --journal DIR[,DIR...] --from TIME --out FILE

where report.py is `from pyddmq_spark.lag.spark.jobs.program import main; raise SystemExit(main())`. The
first argument may be another job: `watch`, `residence`, `backlog` or `compact`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

from broker.errors import StoreUnreadable
from broker.runtime.disk import RealDisk
from lag.journal.reader import JournalReader
from lag.report.data import LagReportData
from lag.report.engine.reading import samples_at_most
from lag.report.options import Input, ReportOptions, ReportWindow
from lag.report.page.files import FORMATS, rendered, with_ages
from lag.rules.limits import LagLimits, for_samples, with_target
from lag.spark.jobs import backlog_program, compact_program, watch
from lag.spark.jobs.arguments import FAILED, SPARK_ERRORS, WRONG, first_sentence, folders, listed
from lag.spark.jobs.backlog import BacklogOptions, make_backlog
from lag.spark.jobs.positions import positions
from lag.spark.jobs.progress import progress
from lag.spark.jobs.report import make_report
from lag.spark.jobs.residence_program import main as residence
from lag.spark.jobs.text_program import add_text_options, log_file, write_text
from lag.spark.session import LONG_JVM, QUICK_JVM, SessionOptions, session
from lag.spark.shipping import ship
from lag.spark.sources.options import OptionRefused, moment_ms

# About how many samples a report is of, by the files alone: what Spark's own JVM is started with depends on it.
#
# Most of the processor time of a small report is the JVM's second compiler, at code that has run when it is done. Of
# millions of samples it pays. So it is left out where there are few, and the garbage is then collected in one thread.

OTHERS: Final = {
    "watch": watch.main,
    "residence": residence,
    "backlog": backlog_program.main,
    "compact": compact_program.main,
}
"""Other jobs, by the first argument."""
EXPORTED_BYTES: Final = 3
"""Of a sample, at least, in exported Parquet, as they were seen (docs/performance.md)."""
FEW: Final = 3_000_000
"""Up to so many samples the second compiler costs more than it brings."""


def are_few(given: Input, since_ms: int, until_ms: int) -> bool:
    """Whether there are few samples from one moment to before another. What is not on this machine's disks is much."""
    if any("://" in place for place in given.exported):
        return False
    journals = samples_at_most(RealDisk(read_only=True), given.journals, since_ms, until_ms)
    exported = sum(size for place in given.exported for size in _exported_sizes(place, since_ms, until_ms))
    return journals + exported // EXPORTED_BYTES <= FEW


def _exported_sizes(place: str, since_ms: int, until_ms: int) -> Iterator[int]:
    day, last = _day(since_ms), _day(until_ms)
    while day <= last:
        folder = f"{place}/queues/date={day.isoformat()}"
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            yield _size(f"{folder}/{name}")
        day += timedelta(days=1)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _day(time_ms: int) -> date:
    return datetime.fromtimestamp(max(0, time_ms) / 1000, UTC).date()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a report, or what the first word says (`watch`, ...). Exit code 0, 1 failed, 2 wrong."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in OTHERS:
        return OTHERS[words[0]](words[1:])
    parser = argparse.ArgumentParser(prog="pyddmq lag report", description="Report on consumption lag over a window.")
    parser.add_argument("--journal", default="", help="folders of lag journals, separated by commas")
    parser.add_argument("--exported", default="", help="or folders of exported Parquet, separated by commas")
    parser.add_argument("--data", default=None, help="a store's folder, to count backlogs by age from its messages")
    parser.add_argument(
        "--progress", default=None, help="file of the finished messages of groups, for --data (docs/cli.md)"
    )
    parser.add_argument("--from", dest="begin", required=True, help="start of the window: ISO 8601, or Unix ms")
    parser.add_argument("--to", dest="end", default=None, help="end of the window; default now")
    seconds = LagLimits().target_ms / 1000
    parser.add_argument("--target", type=float, default=seconds, help="maximum age of a message, in seconds")
    parser.add_argument("--title", default="Consumption lag")
    parser.add_argument("--no-compare", action="store_true", help="do not compare with the preceding period")
    parser.add_argument("--parquet", default="", help="folder for figures by queue and part of the window, by date")
    add_text_options(parser, FORMATS, "html")
    given = parser.parse_args(words)
    now_ms = int(time.time() * 1000)
    every_ms = (JournalReader(RealDisk(read_only=True), each).interval_ms() for each in folders(given.journal))
    try:
        options = ReportOptions(
            given=Input(
                journals=folders(given.journal),
                exported=listed(given.exported),
                groups=None if given.group is None else frozenset(listed(given.group)),
            ),
            window=ReportWindow(
                from_ms=moment_ms({"--from": given.begin}, "--from") or 0,
                to_ms=now_ms if given.end is None else moment_ms({"--to": given.end}, "--to") or 0,
            ),
            limits=for_samples(with_target(given.target), max(every_ms, default=0)),
            title=given.title,
            compared=not given.no_compare,
            made_ms=now_ms,
            parquet=given.parquet,
        )
        backlog = None if given.data is None else backlog_of(given.data, options, given.progress)
    except (OptionRefused, StoreUnreadable, ValueError) as error:
        print(f"pyddmq lag report: {error}", file=sys.stderr)
        return WRONG
    try:
        report = made(options, backlog, master=given.master, log=given.log)
    except (OptionRefused, *SPARK_ERRORS) as error:
        print(f"pyddmq lag report: {first_sentence(error)}", file=sys.stderr)
        return FAILED
    return write_text("report", rendered(report, given.format), given.out)


def backlog_of(data: str, options: ReportOptions, progress_file: str | None) -> BacklogOptions:
    """Return what of a store's backlog is counted by age.

    Raises:
        StoreUnreadable: There is no store.
        OptionRefused: The file of what groups finished is not one.
    """
    found = positions(data, options.given.groups, None, progress_file, known_only=False)
    return BacklogOptions(data=os.path.abspath(data), positions=found, read_ms=options.made_ms, top=1)


def made(
    options: ReportOptions, backlog: BacklogOptions | None, *, master: str | None, log: str | None
) -> LagReportData:
    """Make a report by Spark.

    Raises:
        OptionRefused: Nothing was exported to a place.
        PySparkException, Py4JError, RuntimeError: Spark cannot run, or failed.
    """
    log = log_file(log)
    spark = session(SessionOptions(master=master, ui=False, log_file=log, java_options=_java_options(options, master)))
    ship(spark)
    with progress(spark, "report"):
        report = make_report(spark, options)
        if backlog is not None:
            report = with_ages(report, make_backlog(spark, backlog))
    print(f"the log of Spark is in {log}", file=sys.stderr)
    return report


def _java_options(options: ReportOptions, master: str | None) -> str:
    """Return what Spark's own JVM is started with, which does the work where that is done here."""
    window = options.window
    since_ms = window.from_ms - (window.length_ms if options.compared else 0)
    is_here = master is None or master.startswith("local[") or master == "local"
    if not is_here:
        return ""
    return QUICK_JVM if are_few(options.given, since_ms, window.to_ms) else LONG_JVM
