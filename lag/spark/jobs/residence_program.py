"""`residence` as a program: for `spark-submit` by `program.main`, and for `pyddmq lag residence`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from lag.spark.jobs.arguments import WRONG, folders, listed
from lag.spark.jobs.residence import FORMATS, ResidenceOptions, rendered, residence
from lag.spark.jobs.text_program import add_text_options, run_text_job
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
    parser.add_argument("--topic", default=None, help="names of topics, separated by commas; default all")
    add_text_options(parser, FORMATS, "table")
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
    return run_text_job("residence", given, lambda spark: rendered(residence(spark, options), given.format))
