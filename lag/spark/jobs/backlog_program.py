"""`backlog` as a program: for `spark-submit` with the zip, and for `pyddmq lag backlog`.

    spark-submit --master ... --py-files pyddmq_spark.zip job.py backlog --data DIR --format json --out FILE

where job.py is as for `report` (`lag.spark.jobs.program`).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Collection, Sequence

from broker.errors import StoreUnreadable
from lag.report.page.backlog import FORMATS, rendered
from lag.spark.jobs.arguments import WRONG, listed
from lag.spark.jobs.backlog import BacklogOptions, make_backlog
from lag.spark.jobs.delivery import delivered
from lag.spark.jobs.positions import positions, topics_of
from lag.spark.jobs.text_program import add_text_options, run_text_job
from lag.spark.sources.options import OptionRefused


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell what is in backlogs; returns the exit code: 0, 1 when that failed, 2 when an option is wrong."""
    parser = argparse.ArgumentParser(prog="pyddmq lag backlog", description="Count the messages in groups' backlogs.")
    parser.add_argument("--data", required=True, help="a store's folder, such as a node's data directory")
    parser.add_argument("--progress", default=None, help="file of the finished messages of groups (docs/cli.md)")
    parser.add_argument("--topic", default=None, help="names of topics, separated by commas; default all")
    parser.add_argument(
        "--order-by", default=None, help="JSON path of the order key in bodies; default the message's key"
    )
    parser.add_argument("--top", type=int, default=20, help="rows of each kind, by group")
    parser.add_argument("--no-verify", action="store_true", help="do not verify the records' checksums")
    add_text_options(parser, FORMATS, "table")
    given = parser.parse_args(arguments)
    try:
        if given.top < 1:
            raise OptionRefused(f"--top must be at least 1, got {given.top}")
        groups = None if given.group is None else listed(given.group)
        topics = None if given.topic is None else listed(given.topic)
        options = BacklogOptions(
            data=os.path.abspath(given.data),
            positions=positions(given.data, groups, topics, given.progress),
            delivered=delivered(given.data),
            topics=_going_to(given.data, groups, topics, given.progress),
            read_ms=int(time.time() * 1000),
            top=given.top,
            order_by=given.order_by,
            verify=not given.no_verify,
        )
    except (OptionRefused, StoreUnreadable) as error:
        print(f"pyddmq lag backlog: {error}", file=sys.stderr)
        return WRONG
    return run_text_job("backlog", given, lambda spark: rendered(make_backlog(spark, options), given.format))


def _going_to(
    data: str, groups: Collection[str] | None, topics: Collection[str] | None, progress: str | None
) -> Collection[str] | None:
    """Return where messages go that are looked at while they wait: to these groups' topics and their retry topics."""
    if groups is None:
        return topics
    theirs = topics_of(data, groups, progress)
    return {each for each in theirs if topics is None or each in topics} | {f"%RETRY%{each}" for each in groups}
