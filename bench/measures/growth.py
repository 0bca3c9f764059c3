"""What a node costs as topics, groups, queues and keys grow: processor time, longest step, memory, open files."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from bench.measures.runs import Figures
from bench.progress import say
from bench.servers.processes import Cores, Node, wait_for
from pyddmq import OutgoingMessage, Producer

STEP_LEAST_MS = 2.0
"""Shorter steps are not noted."""
PATIENCE_MS = 120_000
BATCH = 500
SLOW_MS = 5.0
PAGES = {"metrics": "/metrics", "overview": "/", "groups": "/groups", "topics": "/topics"}
_HEAD = """\
node:
  producerPort: 0
  consumerPort: 0
  adminPort: 0
  drainSeconds: 0
  logLevel: warning
  flush: async
  queueFileUnits: 100
"""
_QUEUES_OF_TOPIC = 1_000


class Shape(NamedTuple):
    """Topics with their queues, the topic of each group, and messages with keys of their own."""

    topics: int = 1
    queues: int = 1
    groups: int = 1
    messages: int = 0

    def yaml(self) -> str:
        """Return the configuration; groups read one topic after the other."""
        lines = [
            _HEAD + "topics:",
            "  beside: {queues: 1}",
            *(f"  t{number}: {{queues: {self.queues}}}" for number in range(self.topics)),
        ]
        lines.append("groups:")
        for group in range(self.groups):
            own = range(group % self.topics, self.topics, self.groups)
            read = ", ".join(f"{{topic: t{topic}, orderKey: KEY, maxPullBatchSize: 32}}" for topic in own)
            lines.append(f"  - {{group: g{group}, topics: [{read}]}}")
        return "\n".join(lines) + "\n"


def shape_of(what: str, count: int) -> Shape:
    """Return what is grown to `count`."""
    match what:
        case "topics":
            return Shape(topics=count, messages=count)
        case "groups":
            return Shape(groups=count)
        case "queues":
            return Shape(topics=-(-count // _QUEUES_OF_TOPIC), queues=min(count, _QUEUES_OF_TOPIC), messages=count)
        case _:
            return Shape(messages=count)


def growth(folder: Path, where: Cores, what: str, counts: Sequence[int], *, seconds: float) -> list[Figures]:
    """Measure a node at each count of what grows."""
    found = []
    for count in counts:
        say(f"growth: {count:,} {what}")
        with tempfile.TemporaryDirectory(dir=folder, prefix="growth-") as own:
            facts, memory = _Grown(Path(own), where, what, count).measure(seconds)
        found.append(
            Figures(measure=f"growth {what}", server="pyddmq", batch=1, messages=count, memory=memory, facts=facts)
        )
    return found


class _Grown:
    """A node with so many of what grows."""

    def __init__(self, folder: Path, where: Cores, what: str, count: int) -> None:
        self._folder, self._where, self._what, self._count = folder, where, what, count
        self._shape = shape_of(what, count)
        self._facts: dict[str, Any] = {}
        self._file = folder / "steps.json"
        self._seen = 0

    def measure(self, seconds: float) -> tuple[dict[str, Any], dict[str, int]]:
        """Start, fill, look, reload, kill and stop it; returns what that took, and memory by moment."""
        node = self._started("first")
        try:
            self._cost(node, "fill", lambda: fill(node, self._shape))
            node.process.wait_idle(600)
            memory = {"own": node.process.memory().own}
            self._facts["files"] = len(os.listdir(f"/proc/{node.process.pid}/fd"))
            self._longest(node)
            before, began = node.process.cpu_seconds(), time.monotonic()
            time.sleep(seconds)
            self._facts["idle_share"] = (node.process.cpu_seconds() - before) / (time.monotonic() - began)
            self._facts["idle_step_ms"] = self._longest(node)
            for name, path in PAGES.items():
                self._cost(node, name, partial(get, node, path))
            if self._what in ("topics", "groups"):
                more = self._shape._replace(**{self._what: self._count + max(1, self._count // 10)})
                self._cost(node, "reload", lambda: self._facts.update(publish_ms=reload(node, more)))
        except BaseException:
            node.stop()
            raise
        node.process.kill()
        node = self._started("killed")
        try:
            node.process.wait_idle(600)
            memory["restarted"] = node.process.memory().own
            self._cost_stop(node)
        finally:
            node.stop()
        self._started("stopped").process.kill()
        return self._facts, memory

    def _started(self, name: str) -> Node:
        self._seen = 0
        node = Node(
            self._folder, self._shape.yaml(), core=self._where.server, stalls=self._file, stalls_least_ms=STEP_LEAST_MS
        )
        self._facts[f"{name}_seconds"] = node.process.cpu_seconds()
        self._facts[f"{name}_step_ms"] = self._longest(node)
        return node

    def _cost_stop(self, node: Node) -> None:
        before = node.process.cpu_seconds()
        os.kill(node.process.pid, signal.SIGTERM)
        last = before
        while True:
            try:
                last = node.process.cpu_seconds()
            except OSError:
                break
            if node.process.ended:
                break
            time.sleep(0.02)
        self._facts["stop_seconds"] = last - before

    def _cost(self, node: Node, name: str, work: Callable[[], object]) -> None:
        self._longest(node)
        before = node.process.cpu_seconds()
        work()
        self._facts[f"{name}_seconds"] = node.process.cpu_seconds() - before
        self._facts[f"{name}_step_ms"] = self._longest(node)

    def _longest(self, node: Node) -> list[Any]:
        """Return the longest step since the last call in ms of processor time, and the names of the longest."""
        self._file.unlink(missing_ok=True)
        os.kill(node.process.pid, signal.SIGUSR2)
        wait_for(self._is_whole, "the node did not write its steps")
        callbacks = json.loads(self._file.read_text())["callbacks"]
        new, self._seen = callbacks[self._seen :], len(callbacks)
        longest = sorted(((cpu * 1000, name) for name, _, cpu, _ in new), reverse=True)
        return [f"{ms:.1f} {name}" for ms, name in longest[:3]] + [sum(ms > 20 for ms, _ in longest)]

    def _is_whole(self) -> bool:
        return self._file.exists() and self._file.read_text().endswith("}")


def fill(node: Node, shape: Shape) -> None:
    """Publish the messages, one topic after the other, each with a key of its own."""
    with Producer(node.addresses["producer"], timeout_ms=PATIENCE_MS) as producer:
        for at in range(0, shape.messages, BATCH):
            numbers = range(at, min(at + BATCH, shape.messages))
            producer.send_batch(
                [OutgoingMessage(topic=f"t{n % shape.topics}", body=b"{}", key=f"key-{n}") for n in numbers]
            )


def get(node: Node, path: str) -> int:
    """Return the bytes of a page."""
    host, port = node.addresses["admin"].rsplit(":", 1)
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_MS / 1000)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200, (path, answer.status)
        return len(answer.read())
    finally:
        connection.close()


def reload(node: Node, shape: Shape) -> float:
    """Put a larger configuration into force; returns the longest that a publish took meanwhile, in ms."""
    ended = threading.Event()
    longest = [0.0]

    def publish() -> None:
        with Producer(node.addresses["producer"], timeout_ms=PATIENCE_MS) as producer:
            while not ended.is_set():
                began = time.monotonic()
                producer.send("beside", b"{}")
                longest[0] = max(longest[0], (time.monotonic() - began) * 1000)
                time.sleep(0.005)

    beside = threading.Thread(target=publish)
    beside.start()
    try:
        node.reconfigure(shape.yaml())
        time.sleep(0.5)
    finally:
        ended.set()
        beside.join()
    return longest[0]


if __name__ == "__main__":
    import sys

    from bench.servers.processes import cores

    where = cores()
    with tempfile.TemporaryDirectory() as root:
        for figures in growth(Path(root), where, sys.argv[1], [int(n) for n in sys.argv[2:]], seconds=5):
            print(figures.messages, figures.memory)
            for name, value in figures.facts.items():
                print("   ", name, value, flush=True)
