"""What the programs whose job makes a text have in common: options, the session, and where the text goes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from lag.spark.jobs.arguments import FAILED, OK, SPARK_ERRORS, first_sentence
from lag.spark.jobs.progress import progress
from lag.spark.session import SessionOptions, session
from lag.spark.shipping import ship
from lag.spark.sources.options import OptionRefused


def add_text_options(parser: argparse.ArgumentParser, formats: Sequence[str], default: str) -> None:
    """Add `--group` and the options of where Spark runs and where the text goes."""
    parser.add_argument("--group", default=None, help="names of groups, separated by commas; default all")
    parser.add_argument("--format", choices=formats, default=default)
    parser.add_argument("--out", default="-", help="the file for the output; `-` means stdout")
    parser.add_argument("--master", default=None, help="Spark master; default local")
    parser.add_argument(
        "--log", default=None, help="file for Spark's log; default one in the folder for temporary files"
    )


def log_file(given: str | None) -> str:
    """Return the file of Spark's log."""
    return given or f"{tempfile.mkdtemp(prefix='pyddmq-lag-')}/spark.log"


def run_text_job(name: str, given: argparse.Namespace, job: Callable[[SparkSession], str]) -> int:
    """Run a job and write its text, as the options of `add_text_options` say; returns the exit code."""
    log = log_file(given.log)
    try:
        spark = session(SessionOptions(name=f"pyddmq lag {name}", master=given.master, ui=False, log_file=log))
        ship(spark)
        with progress(spark, name):
            text = job(spark)
    except (OptionRefused, *SPARK_ERRORS) as error:
        print(f"pyddmq lag {name}: {first_sentence(error)}", file=sys.stderr)
        return FAILED
    return write_text(name, text, given.out, f"; Spark's log is {log}")


def write_text(name: str, text: str, out: str, note: str = "") -> int:
    """Write a job's text to a file, which is then named on stderr with `note`, or to stdout (`-`).

    Returns:
        The exit code: 1 when the file cannot be written.
    """
    if out == "-":
        sys.stdout.write(text)
        return OK
    try:
        with open(out, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print(f"pyddmq lag {name}: {out} cannot be written: {error.strerror}", file=sys.stderr)
        return FAILED
    print(f"wrote {out}{note}", file=sys.stderr)
    return OK
