"""`residence` as a program: for `spark-submit` by `program.main`, and for `pyddmq lag residence`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence

from lag.spark.jobs.arguments import FAILED, OK, SPARK_ERRORS, WRONG, first_sentence, folders, listed
from lag.spark.jobs.progress import progress
from lag.spark.jobs.residence import FORMATS, ResidenceOptions, rendered, residence
from lag.spark.session import SessionOptions, session
from lag.spark.shipping import ship
from lag.spark.sources.options import OptionRefused, moment_ms


def main(arguments: Sequence[str]) -> int:
    """Tell how long messages took; returns the exit code: 0, 1 when it failed, 2 when an option is wrong."""
    parser = argparse.ArgumentParser(prog="pyddmq lag residence", description="Show the latency of single messages.")
    parser.add_argument(
        "--journal", required=True, help="data directories, or folders of ack logs, separated by commas"
    )
    parser.add_argument("--from", dest="begin", required=True, help="start of the window: ISO 8601, or Unix ms")
    parser.add_argument("--to", dest="end", default=None, help="end of the window; default now")
    parser.add_argument("--every", type=float, default=3600.0, help="length of each row's time span, in seconds")
    parser.add_argument("--group", default=None, help="names of groups, separated by commas; default all")
    parser.add_argument("--topic", default=None, help="names of topics, separated by commas; default all")
    parser.add_argument("--format", choices=FORMATS, default="table")
    parser.add_argument("--out", default="-", help="the file for the output; `-` means stdout")
    parser.add_argument("--master", default=None, help="Spark master; default local")
    parser.add_argument(
        "--log", default=None, help="file for Spark's log; default one in the folder for temporary files"
    )
    given = parser.parse_args(arguments)
    try:
        options = ResidenceOptions(
            paths=sorted(set(folders(given.journal))),
            from_ms=moment_ms({"--from": given.begin}, "--from") or 0,
            to_ms=int(time.time() * 1000) + 1 if given.end is None else moment_ms({"--to": given.end}, "--to") or 0,
            every_ms=int(given.every * 1000),
            groups=None if given.group is None else frozenset(listed(given.group)),
            topics=None if given.topic is None else frozenset(listed(given.topic)),
        )
    except (OptionRefused, ValueError) as error:
        print(f"pyddmq lag residence: {error}", file=sys.stderr)
        return WRONG
    log = given.log or f"{tempfile.mkdtemp(prefix='pyddmq-lag-')}/spark.log"
    try:
        spark = session(SessionOptions(name="pyddmq lag residence", master=given.master, ui=False, log_file=log))
        ship(spark)
        with progress(spark, "residence"):
            text = rendered(residence(spark, options), given.format)
    except (OptionRefused, *SPARK_ERRORS) as error:
        print(f"pyddmq lag residence: {first_sentence(error)}", file=sys.stderr)
        return FAILED
    if given.out == "-":
        sys.stdout.write(text)
    else:
        with open(given.out, "w", encoding="utf-8") as file:
            file.write(text)
        print(f"wrote {given.out}; Spark's log is {log}", file=sys.stderr)
    return OK
