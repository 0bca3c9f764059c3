"""`pyddmq lag backlog`: the messages above the groups' committed offsets, counted by Spark."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from broker.errors import StoreError
from broker.runtime.disk import RealDisk
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
from proxy.process.exit_codes import ExitCode

Data = Annotated[str, typer.Option("--data", metavar="DIR", help="A data directory; a node may have it open.")]
OrderBy = Annotated[
    str | None, typer.Option("--order-by", metavar="PATH", help="JSON path of the order key in bodies: $.caseId.")
]
Top = Annotated[int, typer.Option("--top", min=1, max=10_000, help="Maximum rows of each table, by group.")]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="Verify each record's checksum.")]


def backlog_lag(
    *, data: Data, groups: Groups = None, topics: Topics = None, order_by: OrderBy = None, top: Top = 20,
    verify: Verify = True, form: Format = "table", out: Out = "-", master: Master = "local[*]", log: Log = None,
) -> int:  # fmt: skip
    """Count the messages in groups' backlogs by age, size, key, tag and duplicates."""
    try:
        from lag.report.page.backlog import FORMATS
        from lag.spark.jobs import backlog_program
    except ImportError as error:
        raise spark_missing("backlog", error) from error
    check_format(form, FORMATS)
    arguments = [
        "--data",
        data,
        "--top",
        str(top),
        *job_arguments(groups=groups, topics=topics, form=form, out=out, master=master, log=log),
    ]
    if order_by:
        arguments += ["--order-by", order_by]
    if not verify:
        arguments.append("--no-verify")
    with progress_file(data) as path:
        return backlog_program.main([*arguments, "--progress", path])


@contextmanager
def progress_file(data: str) -> Iterator[str]:
    """Write what the ack journal says of a data directory's groups to a file for the job; it goes at the end.

    Raises:
        CliError: A newer version wrote the journal.
    """
    from upstream.tools.store_check import read_journal

    try:
        trackers = [each.tracker for each in read_journal(data, {}, RealDisk(read_only=True)).trackers.values()]
    except StoreError as error:
        raise CliError(f"{data}: {error}", ExitCode.DATA_UNUSABLE) from error
    rows = [
        (each.group, each.topic, each.queue_id, each.watermark, each.finished_ranges())
        for each in trackers
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="pyddmq-backlog-") as folder:
        path = os.path.join(folder, "progress.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(rows, file)
        yield path
