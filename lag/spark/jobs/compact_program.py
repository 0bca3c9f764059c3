"""`compact` as a program of the zip: `spark-submit --py-files pyddmq_spark.zip job.py compact PLACE`.

It is the same as `pyddmq lag compact`, for who has a cluster and no pyddmq where exports lie; job.py is as for `report`
(`lag.spark.jobs.program`). pyarrow does it, and no session of Spark is begun.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from lag.export.compact_files import compact_days
from lag.export.export import date_of
from lag.export.names import shown_place
from lag.export.place import ExportFailed, ExportPlace
from lag.export.tables import ExportUnavailable
from lag.spark.jobs.arguments import FAILED, OK, WRONG


def main(arguments: Sequence[str] | None = None) -> int:
    """Make few files of many; returns the exit code: 0, 1 when the place failed, 2 when nothing was exported there."""
    parser = argparse.ArgumentParser(prog="pyddmq lag compact", description="Merge exported files.")
    parser.add_argument("place", help="a folder, or a URL such as s3://bucket/lag")
    parser.add_argument("--remove-old", action="store_true", help="delete replaced files immediately")
    given = parser.parse_args(arguments)
    today = date_of(int(time.time() * 1000))
    try:
        found = compact_days(ExportPlace(given.place), today, remove_old=given.remove_old)
    except (ExportUnavailable, ExportFailed) as error:
        print(f"pyddmq lag compact: {error}", file=sys.stderr)
        return FAILED
    if found is None:
        print(f"pyddmq lag compact: {shown_place(given.place)} has no exported files", file=sys.stderr)
        return WRONG
    print(f"{found.made} files merged, {found.removed} deleted, {found.files} in {shown_place(given.place)}")
    return OK
