"""`pyddmq lag residence`: how long single messages took, from ack logs, by Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.errors import CliError
from proxy.cli.moments import moment_option
from proxy.process.exit_codes import ExitCode

Journals = Annotated[
    list[str],
    typer.Option("--journal", metavar="DIR", help="A node's data directory, or its pyddmq/lag-acks; repeatable."),
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Only messages that finished at or after this time; `2h` means two hours ago."
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only messages that finished before this time.")
]
Every = Annotated[float, typer.Option("--every", metavar="SECONDS", help="Length of each row's time span.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="Only this group; repeatable.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; repeatable.")]
Format = Annotated[str, typer.Option("--format", help="table, markdown, csv or json.")]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="File for the output; `-` means stdout.")]
Master = Annotated[str, typer.Option("--master", help="Spark master: local[*], spark://HOST:PORT, ...")]
Log = Annotated[str | None, typer.Option("--log", metavar="FILE", help="File for Spark's own log.")]


def residence_lag(
    *, journals: Journals, since: Since = "24h", until: Until = None, every: Every = 3600.0, groups: Groups = None,
    topics: Topics = None, form: Format = "table", out: Out = "-", master: Master = "local[*]", log: Log = None,
) -> int:  # fmt: skip
    """Show the latency of messages from storage to first delivery, and to completion."""
    try:
        from lag.spark.jobs import residence, residence_program
    except ImportError as error:
        raise CliError(
            f"`pyddmq lag residence` runs on Spark, and {error.name} is not installed: pip install "
            "'pyddmq[server,spark]'",
            ExitCode.WRONG_PYTHON,
        ) from error
    from broker.runtime.disk import RealDisk
    from lag.spark.sources.acks import ack_folders

    clock = SystemClock()
    if form not in residence.FORMATS:
        raise CliError(f"invalid --format {form!r}; use one of {', '.join(residence.FORMATS)}", ExitCode.USAGE)
    for each in journals:
        if not ack_folders(RealDisk(read_only=True), each):
            raise CliError(
                f"{each} has no ack log; pass the data directory of a node with a group whose ackLog is on",
                ExitCode.NOT_FOUND,
            )
    arguments = ["--journal", ",".join(journals), "--every", str(every), "--format", form]
    arguments += ["--from", str(moment_option(since, option="--since", clock=clock)), "--out", out, "--master", master]
    if until is not None:
        arguments += ["--to", str(moment_option(until, option="--until", clock=clock))]
    for name, names in (("--group", groups), ("--topic", topics)):
        if names:
            arguments += [name, ",".join(names)]
    if log is not None:
        arguments += ["--log", log]
    return residence_program.main(arguments)
