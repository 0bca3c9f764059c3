"""What commands that run on Spark have in common: options, and the error where Spark is not installed."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.cli.errors import CliError
from proxy.process.exit_codes import ExitCode

Groups = Annotated[list[str] | None, typer.Option("--group", help="Only this group; repeatable.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; repeatable.")]
Format = Annotated[str, typer.Option("--format", help="table, markdown, csv or json.")]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="File for the output; `-` means stdout.")]
Master = Annotated[str, typer.Option("--master", help="Spark master: local[*], spark://HOST:PORT, ...")]
Log = Annotated[str | None, typer.Option("--log", metavar="FILE", help="File for Spark's own log.")]


def spark_missing(command: str, error: ImportError) -> CliError:
    """Return the error of a command whose Python has no Spark."""
    return CliError(
        f"`pyddmq lag {command}` runs on Spark, and {error.name} is not installed: pip install 'pyddmq[server,spark]'",
        ExitCode.WRONG_PYTHON,
    )


def job_arguments(
    *, groups: list[str] | None, topics: list[str] | None, form: str, out: str, master: str, log: str | None
) -> list[str]:
    """Return these options as the programs of `lag.spark.jobs` take them."""
    arguments = ["--format", form, "--out", out, "--master", master]
    for name, value in (("--group", ",".join(groups or ())), ("--topic", ",".join(topics or ())), ("--log", log)):
        if value:
            arguments += [name, value]
    return arguments


def check_format(form: str, formats: tuple[str, ...]) -> None:
    """Raise CliError where a job has no such format."""
    if form not in formats:
        raise CliError(f"invalid --format {form!r}; use one of {', '.join(formats)}", ExitCode.USAGE)
