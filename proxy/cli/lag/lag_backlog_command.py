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
from proxy.process.exit_codes import ExitCode

Data = Annotated[str, typer.Option("--data", metavar="DIR", help="A data directory; a node may have it open.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="Only this group; repeatable.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; repeatable.")]
OrderBy = Annotated[
    str | None, typer.Option("--order-by", metavar="PATH", help="JSON path of the order key in bodies: $.caseId.")
]
Top = Annotated[int, typer.Option("--top", min=1, max=10_000, help="Maximum rows of each table, by group.")]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="Verify each record's checksum.")]
Format = Annotated[str, typer.Option("--format", help="table, markdown, csv or json.")]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="File for the output; `-` means stdout.")]
Master = Annotated[str, typer.Option("--master", help="Spark master: local[*], spark://HOST:PORT, ...")]
Log = Annotated[str | None, typer.Option("--log", metavar="FILE", help="File for Spark's own log.")]


def backlog_lag(
    *, data: Data, groups: Groups = None, topics: Topics = None, order_by: OrderBy = None, top: Top = 20,
    verify: Verify = True, form: Format = "table", out: Out = "-", master: Master = "local[*]", log: Log = None,
) -> int:  # fmt: skip
    """Count the messages in groups' backlogs by age, size, key, tag and duplicates."""
    try:
        from lag.report.page.backlog import FORMATS
        from lag.spark.jobs import backlog_program
    except ImportError as error:
        raise CliError(
            f"`pyddmq lag backlog` runs on Spark, and {error.name} is not installed: pip install "
            "'pyddmq[server,spark]'",
            ExitCode.WRONG_PYTHON,
        ) from error
    if form not in FORMATS:
        raise CliError(f"invalid --format {form!r}; use one of {', '.join(FORMATS)}", ExitCode.USAGE)
    arguments = ["--data", data, "--top", str(top), "--format", form, "--out", out, "--master", master]
    for name, value in (("--group", ",".join(groups or ())), ("--topic", ",".join(topics or ())),
                        ("--order-by", order_by), ("--log", log)):  # fmt: skip
        if value:
            arguments += [name, value]
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
