"""Spark over journals, stores and nodes: what programs import of it. docs/lag.md and docs/spark-messages.md show it.

    from pyddmq.spark import SessionOptions, session, ship

Needs the extras `server` and `spark`. From its import on `actions`, `broker`, `conf`, `lag`, `proxy` and `upstream` are
modules of pyddmq in this process: a program that has modules of these names renames them. Executors need the zip that
`ship` hands them, or `python -m pyddmq.spark FILE` writes, and nothing else of pyddmq.

Raises:
    ClientAlone: The extra `server` is not installed.
    ImportError: pyspark is not installed.
    NameTaken: A module of the program has one of these names.
"""

from __future__ import annotations

import sys

from pyddmq.rooms import pin

pin("pyddmq.spark")

from lag.spark.package import write_package
from lag.spark.session import SessionOptions, session
from lag.spark.shipping import ship

__all__ = ["SessionOptions", "session", "ship", "write_package"]

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m pyddmq.spark FILE.zip writes what executors need")
    write_package(sys.argv[1])
