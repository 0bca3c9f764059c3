"""`pyddmq lag report`: consumption lag over a window, judged by Spark, as one page, Markdown, CSV or JSON."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from proxy.cli.errors import CliError
from proxy.cli.lag.lag_backlog_command import progress_file
from proxy.cli.lag.lag_export_command import journal_folder
from proxy.cli.moments import moment_option
from proxy.process.exit_codes import ExitCode

Journals = Annotated[
    list[str] | None,
    typer.Option("--journal", metavar="DIR", help="A lag journal, or the data directory it is in; repeatable."),
]
Exported = Annotated[
    list[str] | None,
    typer.Option("--exported", metavar="PLACE", help="Or a place of `lag export`, of one node or several; repeatable."),
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="A data directory: backlogs by age are counted from its messages."),
]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Begin of the window; 2h: two hours ago.", show_default=True)
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="End of the window; else now.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="A group; repeatable. Else all.")]
Target = Annotated[float, typer.Option("--target", help="Oldest that an unfinished message may be, in seconds.")]
Title = Annotated[str, typer.Option("--title", help="Title of the report.")]
Compare = Annotated[bool, typer.Option("--compare/--no-compare", help="Look at the period before, too, as long.")]
Format = Annotated[str, typer.Option("--format", help="html, markdown, json, csv (queues) or incidents-csv.")]
Parquet = Annotated[
    str | None,
    typer.Option("--parquet", metavar="PLACE", help="Where figures by queue and part of the window go, by date."),
]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="Where the report goes; -: the standard output.")]
Master = Annotated[str, typer.Option("--master", help="Where Spark runs: local[*], spark://HOST:PORT, ...")]
Log = Annotated[str | None, typer.Option("--log", metavar="FILE", help="Where Spark's own log goes.")]


def report_lag(
    *, journals: Journals = None, exported: Exported = None, data: Data = None, since: Since = "24h",
    until: Until = None, groups: Groups = None, target: Target = 60.0, title: Title = "Consumption lag",
    compared: Compare = True, form: Format = "html", out: Out = "lag.html", parquet: Parquet = None,
    master: Master = "local[*]", log: Log = None,
) -> int:  # fmt: skip
    """Report on how far groups were behind over a window, since when, why, and what to do."""
    try:
        from lag.spark.jobs import program
    except ImportError as error:
        raise CliError(
            f"`pyddmq lag report` runs on Spark, and there is no {error.name}: pip install 'pyddmq[server,spark]'",
            ExitCode.WRONG_PYTHON,
        ) from error
    clock = SystemClock()
    disk = RealDisk(read_only=True)
    if form not in program.FORMATS:
        raise CliError(f"--format is {form!r}: it is one of {', '.join(program.FORMATS)}", ExitCode.USAGE)
    if bool(journals) == bool(exported):
        raise CliError("give --journal, or --exported: samples come from the one or the other", ExitCode.USAGE)
    if exported:
        arguments = ["--exported", ",".join(exported)]
    else:
        arguments = ["--journal", ",".join(journal_folder(disk, each) for each in journals or ())]
    arguments += ["--from", str(moment_option(since, option="--since", clock=clock))]
    if until is not None:
        arguments += ["--to", str(moment_option(until, option="--until", clock=clock))]
    if groups:
        arguments += ["--group", ",".join(groups)]
    if log is not None:
        arguments += ["--log", log]
    if parquet is not None:
        arguments += ["--parquet", os.path.abspath(parquet) if "://" not in parquet else parquet]
    if not compared:
        arguments.append("--no-compare")
    arguments += ["--target", str(target), "--title", title, "--format", form, "--out", out, "--master", master]
    if data is None:
        return program.main(arguments)
    with progress_file(data) as path:
        return program.main([*arguments, "--data", data, "--progress", path])
