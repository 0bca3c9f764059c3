"""`pyddmq lag report`: consumption lag over a window, by this process or Spark, as a page, Markdown, CSV or JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from lag.journal.reader import JournalReader
from lag.report.data import LagReportData
from lag.report.options import Input, ReportOptions, ReportWindow
from lag.report.page.files import FORMATS, rendered
from lag.rules.limits import LagLimits, for_samples, limits_from, with_target
from lag.rules.statuses import Level
from proxy.cli.errors import CliError
from proxy.cli.lag.lag_backlog_command import progress_file
from proxy.cli.lag.lag_export_command import journal_folder
from proxy.cli.lag.spark_options import Groups, Log, check_format
from proxy.cli.moments import moment_option
from proxy.cli.output import print_error, print_line, writing
from proxy.operate.text import printable
from proxy.process.exit_codes import ExitCode

ENGINES: Final = ("auto", "local", "spark")
LOCAL_MAX: Final = 5_000_000
"""Samples up to which a report is made without Spark."""

Journals = Annotated[
    list[str] | None,
    typer.Option("--journal", metavar="DIR", help="A lag journal, or the data directory it is in; repeatable."),
]
Exported = Annotated[
    list[str] | None,
    typer.Option(
        "--exported",
        metavar="PLACE",
        help="Or a folder or URL written by `lag export`, of one node or several; repeatable.",
    ),
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="A data directory, to count backlogs by age from its messages."),
]
Since = Annotated[
    str,
    typer.Option("--since", metavar="TIME", help="Start of the window; `2h` means two hours ago.", show_default=True),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="End of the window; the default is now.")]
Target = Annotated[float, typer.Option("--target", help="Maximum age of an unfinished message, in seconds.")]
Rules = Annotated[
    list[str] | None,
    typer.Option("--rule", metavar="NAME=VALUE", help="A limit of the lag rules, such as stop=5m; repeatable."),
]
Title = Annotated[str, typer.Option("--title", help="Title of the report.")]
Compare = Annotated[
    bool, typer.Option("--compare/--no-compare", help="Also compare with the preceding period of equal length.")
]
Format = Annotated[str, typer.Option("--format", help="html, markdown, json, csv (queues) or incidents-csv.")]
Parquet = Annotated[
    str | None,
    typer.Option("--parquet", metavar="PLACE", help="Folder for figures by queue and part of the window, by date."),
]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="File for the report; `-` means stdout.")]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Configuration whose alarmGroup names the contacts of a group."),
]
TimeZone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="NAME", help="Time zone shown beside UTC; the machine's by default."),
]
EngineName = Annotated[
    str, typer.Option("--engine", help="auto, local (this process) or spark; auto is local below 5 million samples.")
]
Master = Annotated[
    str | None, typer.Option("--master", help="Spark master: spark://HOST:PORT, ...; this machine by default.")
]


def report_lag(
    *, journals: Journals = None, exported: Exported = None, data: Data = None, since: Since = "24h",
    until: Until = None, groups: Groups = None, target: Target = 60.0, rules: Rules = None,
    title: Title = "Consumption lag",
    compared: Compare = True, form: Format = "html", out: Out = "lag.html", parquet: Parquet = None,
    config: Config = None, timezone: TimeZone = None, engine: EngineName = "auto", master: Master = None,
    log: Log = None,
) -> int:  # fmt: skip
    """Report on how far groups were behind over a window, since when, why, and what to do.

    Ends with the worst level at the window's end: 0 OK, 1 WARN, 2 ERR, 3 unknown.
    """
    disk, clock = RealDisk(read_only=True), SystemClock()
    check_format(form, FORMATS)
    if form == "html" and not all(map(find_spec, ("jinja2", "matplotlib"))):
        raise CliError(
            "an HTML report needs Jinja2 and matplotlib: run `pip install 'pyddmq[server,report]'`, "
            "or pass --format markdown",
            ExitCode.WRONG_PYTHON,
        )
    if bool(journals) == bool(exported):
        raise CliError("pass either --journal or --exported as the source of samples", ExitCode.USAGE)
    now_ms = clock.wall_ms()
    try:
        options = ReportOptions(
            given=Input(
                journals=list(dict.fromkeys(os.path.realpath(journal_folder(disk, each)) for each in journals or ())),
                exported=exported or (),
                groups=frozenset(groups) if groups else None,
            ),
            window=ReportWindow(
                from_ms=moment_option(since, option="--since", clock=clock),
                to_ms=now_ms if until is None else moment_option(until, option="--until", clock=clock),
            ),
            limits=limits_given(target, rules or (), disk, journals or ()),
            title=title,
            compared=compared,
            made_ms=now_ms,
            parquet="" if parquet is None else parquet if "://" in parquet else os.path.abspath(parquet),
            contacts={} if config is None else _contacts(config),
            timezone=timezone_of(timezone),
        )
    except ValueError as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    needs = {"--data": data, "--parquet": parquet, "--master": master}
    by_spark = [name for name, value in needs.items() if value]
    # numpy, which only this command needs, takes a tenth of a second.
    from lag.export.place import ExportFailed
    from lag.export.tables import ExportUnavailable
    from lag.report.engine.local import make_locally

    try:
        is_local = _is_local(engine, disk, options, by_spark)
        made = make_locally(disk, options) if is_local else None
    except ExportFailed as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    except ExportUnavailable as error:
        raise CliError(str(error), ExitCode.WRONG_PYTHON) from error
    if made is not None:
        report = made
    else:
        found = _by_spark(options, data, master, log)
        if found is None:
            return Level.UNKNOWN
        report = found
    text = rendered(report, form)
    try:
        if out == "-":
            with writing("the output"):
                sys.stdout.write(text)
                sys.stdout.flush()
            return Level[report.level]
        with writing(Path(out)), open(out, "w", encoding="utf-8") as file:
            file.write(text)
    except CliError as error:
        # 1 would be the report of a warning.
        print_error(str(error), code=Level.UNKNOWN, as_json=False)
        return Level.UNKNOWN
    print_line(printable(report.summary))
    print_line(f"wrote {out}")
    return Level[report.level]


def limits_given(target: float, rules: Sequence[str], disk: RealDisk, journals: Sequence[str]) -> LagLimits:
    """Return the limits of the rules, for samples as far apart as journals say. Raises ValueError: one is wrong."""
    given = {}
    for each in rules:
        name, _, given[name] = each.partition("=")
    every_ms = (JournalReader(disk, journal_folder(disk, each)).interval_ms() for each in journals)
    return limits_from(given, for_samples(with_target(target), max(every_ms, default=0)))


def _is_local(engine: str, disk: RealDisk, options: ReportOptions, by_spark: Sequence[str]) -> bool:
    """Whether this process makes the report by itself.

    Raises:
        CliError: It is to, and has no way to.
    """
    if engine not in ENGINES:
        raise CliError(f"invalid --engine {engine!r}; use one of {', '.join(ENGINES)}", ExitCode.USAGE)
    if engine == "local" and by_spark:
        raise CliError(f"{by_spark[0]} needs Spark; remove --engine local, or {by_spark[0]}", ExitCode.USAGE)
    if engine != "auto" or by_spark:
        return engine == "local"
    from lag.report.engine.exported import exported_at_most
    from lag.report.engine.reading import samples_at_most

    window, given = options.window, options.given
    if any("://" in place for place in given.exported):
        return False
    since_ms = window.from_ms - (window.length_ms if options.compared else 0)
    if given.exported:
        return exported_at_most(given.exported, since_ms, window.to_ms) <= LOCAL_MAX
    return samples_at_most(disk, given.journals, since_ms, window.to_ms) <= LOCAL_MAX


def _by_spark(options: ReportOptions, data: str | None, master: str | None, log: str | None) -> LagReportData | None:
    """Make the report by Spark; null where that failed, which is printed.

    Raises:
        CliError: Spark is not installed, or an option is wrong.
    """
    try:
        from broker.errors import StoreUnreadable
        from lag.spark.jobs import program
        from lag.spark.jobs.arguments import SPARK_ERRORS, first_sentence
        from lag.spark.sources.options import OptionRefused
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        raise CliError(
            f"this report runs on Spark, and {name} is not installed: pip install 'pyddmq[server,spark]'. "
            f"Up to {LOCAL_MAX:,} samples do not need it: --engine local, or a shorter --since",
            ExitCode.WRONG_PYTHON,
        ) from error
    try:
        if data is None:
            return program.made(options, None, master=master, log=log)
        with progress_file(data) as path:
            return program.made(options, program.backlog_of(data, options, path), master=master, log=log)
    except (OptionRefused, StoreUnreadable) as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    except SPARK_ERRORS as error:
        print_error(f"pyddmq lag report: {first_sentence(error)}", code=Level.UNKNOWN, as_json=False)
        return None


def _contacts(config: str) -> dict[str, tuple[str, ...]]:
    """Return whom to call about each group, by a configuration's `alarmGroup`. Raises CliError: it cannot be read."""
    from conf import ConfigError, load
    from proxy.recording.limits import recipients_of

    try:
        groups = load(config).config.groups
    except ConfigError as error:
        raise CliError(f"--config: {error}", ExitCode.USAGE) from error
    return {name: recipients_of(group) for name, group in groups.items()}


def timezone_of(given: str | None) -> str:
    """Return the name of a time zone, the machine's where none is given, or UTC where that has no name.

    Raises:
        CliError: The time zone does not exist.
    """
    if given is not None:
        try:
            ZoneInfo(given)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise CliError(
                f"invalid --timezone {given!r}; use a name such as Europe/Berlin, or UTC", ExitCode.USAGE
            ) from error
        return given
    for name in (os.environ.get("TZ", "").lstrip(":"), os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]):
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
        return "UTC" if name in ("Etc/UTC", "Universal", "Zulu", "Etc/Universal", "Etc/Zulu") else name
    return "UTC"
