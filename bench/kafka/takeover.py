"""A takeover of a large waiting topic: how long until all partitions deliver, from a checkpoint and from nothing."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Producer as KafkaProducer

from bench.progress import say
from bench.servers.processes import Node, process_cpu_seconds
from upstream.kafka.waiting.records import DELIVERED, EndedMessage, Identity, WaitingRecord, encode

TOPIC, WAITING = "timers", "__pyddmq_waiting"
_DAY_MS = 86_400_000
_BODY = b"x" * 1024
_REPORTED = 100_000

Arrived = Callable[[int], float]
"""Waits for messages, and returns when the last one came, seconds since the epoch."""


def rss_bytes(pid: int) -> int:
    """Return the memory of a process that is in use."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def _cpu_seconds(pid: int) -> float:
    """Return the time of a process and of its children that have ended."""
    ended = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[13:15]
    return process_cpu_seconds(pid) + sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")


def _records(pending: int, fired: int) -> Iterator[tuple[Identity, bytes]]:
    now_ms = round(time.time() * 1000)
    ended = encode(EndedMessage(DELIVERED, now_ms))
    for number in range(fired):
        yield Identity(TOPIC, "", f"fired-{number:024}"), ended
    for number in range(pending):
        message = WaitingRecord(now_ms + _DAY_MS + number, None, b"k", _BODY, (), at_ms=now_ms)
        yield Identity(TOPIC, "", f"waits-{number:024}"), encode(message)


def fill(address: str, partitions: int, pending: int, fired: int) -> None:
    """Write the waiting topic as it is after compaction: what waits, and a small record of each fired message."""
    producer = KafkaProducer({"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.kbytes": 262_144})
    for number, (identity, value) in enumerate(_records(pending, fired)):
        _produce(producer, identity, partitions, value)
        if not number % _REPORTED:
            say(f"{number:,} of {pending + fired:,} records")
    producer.flush(600)


def _produce(producer: KafkaProducer, identity: Identity, partitions: int, value: bytes) -> None:
    place, key = identity.partition(partitions), identity.key("0123456789abcdef")
    while True:
        try:
            producer.produce(WAITING, partition=place, key=key, value=value)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _due_now(address: str, partitions: int, name: str) -> int:
    producer = KafkaProducer({"bootstrap.servers": address})
    now_ms = round(time.time() * 1000)
    count = partitions * 8
    for number in range(count):
        message = WaitingRecord(now_ms, None, b"k", b"%d due" % now_ms, (), at_ms=now_ms)
        _produce(producer, Identity(TOPIC, "", f"{name}-{number}"), partitions, encode(message))
    producer.flush(60)
    return count


def measure(  # noqa: PLR0917 - as the command has it
    folder: Path, config: str, address: str, partitions: int, pending: int, fired: int, arrived: Arrived
) -> None:
    """Print how long a node takes until it has delivered what is due, and what a waiting message costs it."""
    fill(address, partitions, pending, fired)
    for name in ("from nothing", "from a checkpoint"):
        if name == "from nothing":
            shutil.rmtree(folder / "data", ignore_errors=True)
        count = _due_now(address, partitions, name.replace(" ", "-"))
        node = Node(folder, config, core=None)
        began, before, cpu = time.time(), rss_bytes(node.process.pid), _cpu_seconds(node.process.pid)
        seconds = arrived(count) - began
        cpu = _cpu_seconds(node.process.pid) - cpu
        grown = rss_bytes(node.process.pid) - before
        print(
            f"takeover {name}: {pending:,} wait, {fired:,} fired; delivers {seconds:.1f} s after it was ready, "
            f"{cpu / (pending + fired) * 1e6:.1f} us of CPU for each record, "
            f"{grown / 1e6:.0f} MB, {grown / max(1, pending):.0f} bytes for each that waits",
            flush=True,
        )
        os.kill(node.process.pid, signal.SIGKILL)
        node.process.stop()
