"""`pyddmq lag residence`: how long single messages took, from ack logs, by Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.errors import CliError
from proxy.cli.lag.spark_options import (
    Format,
    Groups,
    Log,
    Master,
    Out,
    Topics,
    check_format,
    job_arguments,
    spark_missing,
)
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


def residence_lag(
    *, journals: Journals, since: Since = "24h", until: Until = None, every: Every = 3600.0, groups: Groups = None,
    topics: Topics = None, form: Format = "table", out: Out = "-", master: Master = "local[*]", log: Log = None,
) -> int:  # fmt: skip
    """Show the latency of messages from storage to first delivery, and to completion."""
    try:
        from lag.spark.jobs import residence, residence_program
    except ImportError as error:
        raise spark_missing("residence", error) from error
    from broker.runtime.disk import RealDisk
    from lag.spark.sources.acks import ack_folders

    clock = SystemClock()
    check_format(form, residence.FORMATS)
    for each in journals:
        if not ack_folders(RealDisk(read_only=True), each):
            raise CliError(
                f"{each} has no ack log; pass the data directory of a node with a group whose ackLog is on",
                ExitCode.NOT_FOUND,
            )
    arguments = ["--journal", ",".join(journals), "--every", str(every)]
    arguments += ["--from", str(moment_option(since, option="--since", clock=clock))]
    if until is not None:
        arguments += ["--to", str(moment_option(until, option="--until", clock=clock))]
    return residence_program.main(
        [*arguments, *job_arguments(groups=groups, topics=topics, form=form, out=out, master=master, log=log)]
    )
