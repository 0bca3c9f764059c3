"""What a node costs as topics, groups, queues, partitions and keys grow: processor time, steps, memory, open files."""

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
from typing import NamedTuple

from bench.measures.runs import Figures
from bench.progress import say
from bench.servers.kafka import make_topic, running_kafka
from bench.servers.maven import JarsMissing
from bench.servers.processes import Cores, Node, wait_for
from pyddmq import OutgoingMessage, Producer

GROWING = ("topics", "groups", "queues", "partitions", "keys")
"""What grows: topics, queues and partitions in Kafka with a message each that one group reads, groups on one topic,
keys of one topic."""
PAGES = {"metrics": "/metrics", "overview": "/", "groups_page": "/groups", "topics_page": "/topics"}
STEP_LEAST_MS = 2.0
"""Shorter steps of the loop are not noted."""
STEP_LONG_SECONDS = 0.02
SETTLED = 1.2
"""For how long it settles, as a multiple of how long it is idle: the first checkpoint comes after ten seconds."""
PATIENCE_MS = 120_000
_BATCH = 100
_QUEUES_OF_TOPIC = 1_000
_HEAD = """\
node:
  producerPort: 0
  consumerPort: 0
  adminPort: 0
  drainSeconds: 0
  logLevel: warning
  flush: async
  queueFileUnits: {units}
{kafka}topics:
  beside: {{queues: 1}}
"""
_KAFKA = """\
kafka:
  main: {{bootstrapServers: "{address}", sessionTimeout: 6000, membership: always}}
"""


class Shape(NamedTuple):
    """Topics with their queues, groups, and messages with keys of their own; `kafka` and `prefix`: topics are there."""

    topics: int = 1
    queues: int = 1
    groups: int = 1
    messages: int = 0
    kafka: str = ""
    prefix: str = "t"

    def yaml(self) -> str:
        """Return the configuration; groups share the topics, and all read the same one where there are more groups."""
        settings = "brokerCluster: main" if self.kafka else f"queues: {self.queues}"
        lines = [f"  {self.prefix}{number}: {{{settings}}}" for number in range(self.topics)]
        lines.append("groups:")
        for group in range(self.groups):
            own = range(group % self.topics, self.topics, self.groups)
            read = ", ".join(f"{{topic: {self.prefix}{topic}, orderKey: KEY, maxPullBatchSize: 32}}" for topic in own)
            lines.append(f"  - {{group: g{group}, topics: [{read}]}}")
        # Of thousands of queues, each with a message, files of the usual size would fill the disk.
        units = 100 if self.topics * self.queues > 1 else 30_000
        kafka = _KAFKA.format(address=self.kafka) if self.kafka else ""
        return _HEAD.format(units=units, kafka=kafka) + "\n".join(lines) + "\n"

    def make_topics(self) -> None:
        """Make those that are in Kafka."""
        for number in range(self.topics if self.kafka else 0):
            make_topic(self.kafka, f"{self.prefix}{number}", self.queues)


def shape_of(what: str, count: int, kafka: str = "") -> Shape:
    """Return what is grown to `count`; `kafka`: address of the Kafka that has the partitions."""
    match what:
        case "topics":
            return Shape(topics=count, messages=count)
        case "groups":
            return Shape(groups=count)
        case "queues":
            return Shape(topics=-(-count // _QUEUES_OF_TOPIC), queues=min(count, _QUEUES_OF_TOPIC), messages=count)
        case "partitions":
            return shape_of("queues", count)._replace(kafka=kafka, prefix=f"of{count}-{time.time_ns()}-")
        case _:
            return Shape(messages=count)


def growth(folder: Path, where: Cores, what: str, counts: Sequence[int], *, seconds: float) -> list[Figures]:
    """Measure a node at each count of what grows; `seconds`: how long it is left idle."""
    if what != "partitions":
        return _growth(folder, where, what, counts, seconds=seconds)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix="growth-") as own, running_kafka(Path(own)) as address:
            return _growth(folder, where, what, counts, seconds=seconds, kafka=address)
    except JarsMissing as error:
        say(f"{error}: partitions are not measured")
        return []


def _growth(
    folder: Path, where: Cores, what: str, counts: Sequence[int], *, seconds: float, kafka: str = ""
) -> list[Figures]:
    found = []
    for count in counts:
        say(f"{count:,} {what}")
        with tempfile.TemporaryDirectory(dir=folder, prefix="growth-") as own:
            shape = shape_of(what, count, kafka)
            shape.make_topics()
            grown = GrownNode(Path(own), where, what, count, shape)
            grown.measure(seconds)
        found.append(
            Figures(
                measure=f"growth {what}",
                server="pyddmq",
                batch=1,
                messages=count,
                memory=grown.memory,
                facts=grown.facts,
            )
        )
    return found


class GrownNode:
    """A node with a number of what grows.

    Attributes:
        facts: What was measured: processor seconds and longest steps by name, and others.
        memory: Its own bytes while it is idle: of the first process, and of the one that follows a kill.
    """

    def __init__(self, folder: Path, where: Cores, what: str, count: int, shape: Shape) -> None:
        self.facts: dict[str, float] = {}
        self.memory: dict[str, int] = {}
        self._folder, self._core = folder, where.server
        self._what, self._count = what, count
        self._shape = shape
        self._file = folder / "steps.json"
        self._seen = 0

    def measure(self, seconds: float) -> None:
        """Start, fill, let be, look, reload, kill, start, stop and start it."""
        node = self._started("start")
        try:
            self._cost(node, "fill", partial(fill, node, self._shape))
            self._settle(node, "own", seconds)
            self.facts["files"] = len(os.listdir(f"/proc/{node.process.pid}/fd"))
            before, began = node.process.cpu_seconds(), time.monotonic()
            time.sleep(seconds)
            self.facts["idle_share"] = (node.process.cpu_seconds() - before) / (time.monotonic() - began)
            self._note_steps(node, "idle")
            for name, path in PAGES.items():
                self._cost(node, name, partial(get, node, path))
            if self._what in ("topics", "groups"):
                more = shape_of(self._what, self._count + max(1, self._count // 10))
                self._cost(node, "reload", lambda: self.facts.update(publish_ms=reload(node, more)))
            node.process.kill()
            node = self._started("killed")
            self._settle(node, "killed", seconds)
            node.stop()
            node = self._started("stopped")
        finally:
            node.process.kill()

    def _started(self, name: str) -> Node:
        self._seen = 0
        node = Node(self._folder, self._shape.yaml(), core=self._core, stalls=self._file, stalls_least_ms=STEP_LEAST_MS)
        self.facts[f"{name}_seconds"] = node.process.cpu_seconds()
        self._note_steps(node, name)
        return node

    def _settle(self, node: Node, name: str, seconds: float) -> None:
        """Let it do what it does after a start or a load, such as its first samples."""
        time.sleep(SETTLED * seconds)
        node.process.wait_idle(600)
        self.memory[name] = node.process.memory().own
        self._note_steps(node, "settling")

    def _cost(self, node: Node, name: str, work: Callable[[], object]) -> None:
        before = node.process.cpu_seconds()
        work()
        self.facts[f"{name}_seconds"] = node.process.cpu_seconds() - before
        self._note_steps(node, name)

    def _note_steps(self, node: Node, name: str) -> None:
        """Note the longest step since the last call, in ms of processor time; long ones are named in the progress."""
        self._file.unlink(missing_ok=True)
        os.kill(node.process.pid, signal.SIGUSR2)
        wait_for(self._is_whole, "the node did not write its steps")
        callbacks = json.loads(self._file.read_text())["callbacks"]
        new, self._seen = callbacks[self._seen :], len(callbacks)
        cpu, what = max(((cpu, callback) for callback, _, cpu, _ in new), default=(0.0, ""))
        self.facts[f"{name}_step_ms"] = max(self.facts.get(f"{name}_step_ms", 0.0), cpu * 1000)
        if cpu > STEP_LONG_SECONDS:
            say(f"  {name}: a step of {cpu * 1000:.0f} ms, {what}")

    def _is_whole(self) -> bool:
        return self._file.exists() and self._file.read_text().endswith("}")


def fill(node: Node, shape: Shape) -> None:
    """Publish the messages, one topic after the other, each with a key of its own."""
    with Producer(node.addresses["producer"], timeout_ms=PATIENCE_MS) as producer:
        for at in range(0, shape.messages, _BATCH):
            numbers = range(at, min(at + _BATCH, shape.messages))
            producer.send_batch(
                [
                    OutgoingMessage(topic=f"{shape.prefix}{n % shape.topics}", body=b"{}", key=f"key-{n}")
                    for n in numbers
                ]
            )


def get(node: Node, path: str) -> None:
    """Get a page of the admin port."""
    host, port = node.addresses["admin"].rsplit(":", 1)
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_MS / 1000)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, (path, answer.status)
    finally:
        connection.close()


def reload(node: Node, shape: Shape) -> float:
    """Put a larger configuration into force; returns the longest that a publish beside it took, in ms."""
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
    finally:
        ended.set()
        beside.join()
    return longest[0]
