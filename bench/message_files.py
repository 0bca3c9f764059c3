"""What the source `pyddmq_messages` costs on a store's files, without Spark: its reader, batch by batch.

    python -m bench.message_files [--messages 100000] [--bytes 1024]

A store is written with a key, a tag, an id and a property of each message. Then one process reads it: all columns;
those of `pyddmq lag backlog`, with the records' sums and without; a count. Processor time; Spark's own is not in it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from broker.format.properties import encode_properties
from lag.spark.sources.messages import COLUMNS, Messages
from pyddmq.broker import Put, open_store

TOPIC = "orders"
QUEUES = 4
BACKLOG = ("topic", "queue", "offset", "due_ms", "id", "keys", "tags", "size")
READINGS: tuple[tuple[str, Sequence[str], str], ...] = (
    ("all columns", tuple(COLUMNS), "true"),
    ("those of a backlog", BACKLOG, "true"),
    ("those of a backlog, no sums", BACKLOG, "false"),
    ("a count", ("queue",), "true"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one reading cost: rows, bytes of their records, seconds of the processor."""

    rows: int
    log_bytes: int
    seconds: float


def write_store(folder: str, messages: int, body_bytes: int) -> None:
    """Write a store of so many messages."""
    store = open_store(folder)
    topic = store.create_topic(TOPIC, QUEUES)
    for first in range(0, messages, 500):
        puts = []
        for number in range(first, min(first + 500, messages)):
            unique = f"id-{number:012d}"
            block = encode_properties(
                {"KEYS": f"k{number % 977}", "TAGS": f"t{number % 3}", "UNIQ_KEY": unique, "region": "north"}
            )
            body = (b'{"case":"c%d"}' % (number % 977)).ljust(body_bytes, b"x")
            puts.append(Put(topic, number % QUEUES, body, block, unique_key=unique.encode()))
        store.append(puts, born_ms=1, born_host=b"\x7f\0\0\1\0\0\0\0")
    store.close()


def read(folder: str, columns: Sequence[str], verify: str) -> Cost:
    """Read all of it."""
    sizes = Messages({"path": folder, "topic": TOPIC, "verify": "false"}, ("size",))
    log_bytes = sum(sum(batch.column(0).to_pylist()) for part in sizes.partitions() for batch in sizes.read(part))
    reader = Messages({"path": folder, "topic": TOPIC, "verify": verify}, columns)
    began = time.process_time()
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    return Cost(rows=rows, log_bytes=log_bytes, seconds=time.process_time() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, read and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.message_files", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=1_024, help="of a body")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pyddmq-bench-") as folder:
        write_store(folder, given.messages, given.bytes)
        for name, columns, verify in READINGS:
            cost = read(folder, columns, verify)
            rate, mb = cost.rows / cost.seconds, cost.log_bytes / cost.seconds / 1e6
            print(f"{name:28} {cost.rows:8} rows  {rate:10,.0f} rows/s  {mb:6.0f} MB/s  of a core")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
