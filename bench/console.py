"""What the console costs a node: `python -m bench.console [--groups N] [--topics N] [--viewers N] [--seconds N]`.

A node with 1,000 groups on 10,000 topics, each with a backlog, and stuck messages, dead letters, timers, delayed and
half messages. Per page: processor time and bytes of the first answer, made anew, and processor time of a refresh that
is answered from what others got lately (304); and the longest step of the loop meanwhile, in processor time. Then the
share of a core that the node uses without a console, with one overview and with many that refresh every 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from bench.servers.processes import Node, wait_for
from proxy.admin.console.menu import PAGES
from proxy.admin.console.shell import KEEP_SECONDS
from pyddmq import Consumer, LocalState, OutgoingMessage, Producer, TransactionListener, TransactionMessage
from pyddmq import TransactionProducer as HalfProducer

BATCH = 32
STUCK, DEAD, WAITING, HALVES = 300, 300, 300, 30
REFRESH_SECONDS = 2.0
PATIENCE_MS = 120_000
NAMED = {
    "/groups": ("/groups", "/groups?q=g0&page=2"),
    "/group": ("/group?group=g0000", "/group?group=g0001&span=24h"),
    "/topics": ("/topics", "/topics?q=t00&page=2"),
    "/topic": ("/topic?topic=t00000",),
    "/message": (
        "/message?topic=t00000&from=1h",
        "/message?text=customer-77",
        "/message?topic=t00000&queue=0&offset=0",
    ),
    "/dead-letters": ("/dead-letters", "/dead-letters?group=g0001"),
    "/waiting": ("/waiting", "/waiting?kind=delays", "/waiting?kind=transactions"),
}
"""By path: the addresses that are measured, where they are not the path itself."""


class Undecided(TransactionListener):
    """Decides no transaction."""

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Leave it undecided."""
        return LocalState.UNKNOWN

    def check(self, message: TransactionMessage) -> LocalState | None:
        """Leave it undecided."""
        return LocalState.UNKNOWN


def yaml(groups: int, topics: int) -> str:
    """Return the configuration: every topic is read by one group."""
    each = topics // groups
    lines = ["node: {producerPort: 0, consumerPort: 0, adminPort: 0, flush: async, drainSeconds: 0}"]
    lines += ["topics:", *(f"  t{number:05}: {{queues: 1}}" for number in range(topics)), "groups:"]
    for group in range(groups):
        lines += [f"  - group: g{group:04}", "    topics:"]
        for topic in range(group * each, group * each + each):
            more = (
                ", orderKey: KEY, retryIntervals: [600000]"
                if group == 0
                else ", retryIntervals: []"
                if group == 1
                else ""
            )
            lines.append(f"      - {{topic: t{topic:05}, maxPullBatchSize: 32{more}}}")
    return "\n".join(lines) + "\n"


def fill(node: Node, groups: int, topics: int) -> None:
    """Publish to every topic, and make what the pages have to show."""
    each = topics // groups
    producer_at, consumer_at = node.addresses["producer"], node.addresses["consumer"]
    bodies = [
        b'{"customer": "customer-%d", "card": {"number": "4111"}, "text": "%s"}' % (n, b"x" * 200) for n in range(99)
    ]
    with Producer(producer_at, timeout_ms=PATIENCE_MS) as producer:

        def send(made: Sequence[OutgoingMessage]) -> None:
            for at in range(0, len(made), BATCH):
                producer.send_batch(made[at : at + BATCH])

        send(
            [
                OutgoingMessage(topic=f"t{number:05}", body=bodies[number % 99], key=f"k{number}")
                for number in range(topics)
            ]
        )
        send([OutgoingMessage(topic="t00000", body=bodies[n % 99], key=f"stuck-{n}") for n in range(STUCK)])
        send([OutgoingMessage(topic=f"t{each:05}", body=bodies[n % 99], key=f"dead-{n}") for n in range(DEAD)])
        for number in range(WAITING):
            level, delay_ms = (18, 0) if number % 10 == 0 else (0, 600_000 + number * 1000)
            producer.send("t00002", bodies[number % 99], key=f"later-{number}", delay_level=level, delay_ms=delay_ms)
    fail(consumer_at, "g0000", STUCK)
    fail(consumer_at, "g0001", DEAD)
    with HalfProducer(producer_at, "halves", Undecided(), timeout_ms=PATIENCE_MS) as halves:
        for number in range(HALVES):
            halves.send_in_transaction(OutgoingMessage(topic="t00003", body=b"{}", key=f"half-{number}"), None)


def fail(address: str, group: str, count: int) -> None:
    """Pull as many messages and report each as failed."""
    with Consumer(address, group, linger_ms=200, timeout_ms=PATIENCE_MS) as consumer:
        failed = 0
        while failed < count and (pulled := consumer.pull(patience_ms=PATIENCE_MS)):
            for message in pulled:
                consumer.fail(message)
            failed += len(pulled)


class Answer(NamedTuple):
    """An answer of the console.

    Attributes:
        status: Its status.
        body: Its bytes.
        etag: Of its fragment.
    """

    status: int
    body: bytes
    etag: str


class Viewer:
    """A browser tab on one page, with a connection of its own."""

    def __init__(self, node: Node, path: str) -> None:
        host, port = node.addresses["admin"].rsplit(":", 1)
        self._connection = HTTPConnection(host, int(port), timeout=120)
        self._path = path
        self._again = f"{path}{'&' if '?' in path else '?'}again=1"
        self._etag = ""

    def open(self) -> Answer:
        """Get the whole page."""
        return self._get(self._path, {})

    def refresh(self) -> Answer:
        """Get the fragment as the page does every 2 s."""
        answer = self._get(self._again, {"If-None-Match": self._etag})
        self._etag = answer.etag or self._etag
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _get(self, path: str, headers: dict[str, str]) -> Answer:
        self._connection.request("GET", path, headers=headers)
        response = self._connection.getresponse()
        return Answer(response.status, response.read(), response.headers.get("ETag", ""))


class Steps:
    """Steps of a node's loop, as `bench.servers.stalled` notes them."""

    def __init__(self, node: Node, file: Path) -> None:
        self._node, self._file = node, file
        self._seen = 0
        node.begin_profile()

    def longest(self) -> tuple[float, str]:
        """Return the longest step since the last call: its processor time in ms, and its name."""
        self._file.unlink(missing_ok=True)
        os.kill(self._node.process.pid, signal.SIGUSR2)
        wait_for(self._is_whole, "the node did not write its steps")
        callbacks = json.loads(self._file.read_text())["callbacks"]
        new, self._seen = callbacks[self._seen :], len(callbacks)
        return max(((cpu * 1000, name) for name, _, cpu, _ in new), default=(0.0, ""))

    def _is_whole(self) -> bool:
        return self._file.exists() and self._file.read_text().endswith("}")


def cpu(node: Node, idle: float, work: Any) -> tuple[float, Any]:
    """Return the processor time of some work in ms, without what the node uses anyway, and the work's result."""
    before, began = node.process.cpu_seconds(), time.monotonic()
    result = work()
    spent = node.process.cpu_seconds() - before - idle * (time.monotonic() - began)
    return max(0.0, spent * 1000), result


def share(node: Node, seconds: float) -> float:
    """Return the share of a core that the node uses by itself."""
    before, began = node.process.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (node.process.cpu_seconds() - before) / (time.monotonic() - began)


def watched(node: Node, viewers: int, seconds: float) -> float:
    """Return the share of a core that the node uses while this number of overviews is open."""
    tabs = [Viewer(node, "/") for _ in range(viewers)]
    for tab in tabs:
        tab.open()
        tab.refresh()
    step = REFRESH_SECONDS / viewers
    before, began = node.process.cpu_seconds(), time.monotonic()
    for number in range(round(seconds / step)):
        time.sleep(max(0.0, began + number * step - time.monotonic()))
        tabs[number % viewers].refresh()
    spent = (node.process.cpu_seconds() - before) / (time.monotonic() - began)
    for tab in tabs:
        tab.close()
    return spent


def pages(node: Node, steps: Steps, idle: float, repeat: int) -> None:
    """Measure every page and print a line for each."""
    print(f"{'page':44}{'first ms':>10}{'worst':>8}{'kB':>8}{'304 ms':>9}{'step ms':>9}", flush=True)
    for path in [each for page in PAGES for each in NAMED.get(page.path, (page.path,))]:
        viewer = Viewer(node, path)
        steps.longest()
        first, again, size = [], [], 0
        for _ in range(repeat):
            time.sleep(KEEP_SECONDS + 0.1)
            spent, answer = cpu(node, idle, viewer.open)
            assert answer.status == 200, (path, answer.status, answer.body[:500])
            first.append(spent)
            size = len(answer.body)
            viewer.refresh()
            spent, answer = cpu(node, idle, viewer.refresh)
            again.append(spent)
        viewer.close()
        longest, name = steps.longest()
        print(
            f"{path:44}{statistics.median(first):10.1f}{max(first):8.1f}{size / 1000:8.1f}"
            f"{statistics.median(again):9.2f}{longest:9.1f}  {name}",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long viewers look")
    parser.add_argument("--repeat", type=int, default=3, help="how often each page is made anew")
    parser.add_argument("--folder", type=Path, help="where the data goes; a temporary folder by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pyddmq-console-", dir=options.folder) as folder:
        file = Path(folder) / "steps.json"
        node = Node(Path(folder), yaml(options.groups, options.topics), core=None, stalls=file)
        try:
            began = time.monotonic()
            fill(node, options.groups, options.topics)
            print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
            steps = Steps(node, file)
            idle = share(node, options.seconds)
            longest, name = steps.longest()
            print(f"without a console: {idle:.1%} of a core, longest step {longest:.1f} ms  {name}", flush=True)
            pages(node, steps, idle, options.repeat)
            steps.longest()
            for viewers in (1, options.viewers):
                used = watched(node, viewers, options.seconds)
                longest, name = steps.longest()
                print(f"{viewers} overviews: {used:.1%} of a core, longest step {longest:.1f} ms  {name}", flush=True)
            print(f"afterwards: {share(node, options.seconds):.1%} of a core")
        finally:
            node.stop()


if __name__ == "__main__":
    main()
