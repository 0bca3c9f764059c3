"""Node processes in front of a real Kafka, pull clients of them, and what is asked of all of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyddmq import Consumer
from pyddmq.client.errors import ClientError
from tests.patient import until

GROUP = "riders"
_CONFIG = """
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: {name}, drainSeconds: 5{node}}}
kafka:
  main: {{bootstrapServers: "{address}", groupProtocol: {protocol}, sessionTimeout: 6000, revokeTimeout: 2000{cluster}}}
topics:
{topics}
groups:
  - group: {group}
    topics:
{subscriptions}
"""
_SUBSCRIPTION = """\
      - topic: {topic}
        orderKey: KEY
        maxPullBatchSize: 16
        timeout: 5000
        maxRetry: 1000
        retryIntervals: [100, 500, -1]"""


class NodeProcess:
    """`pyddmq serve` with one group over one topic of Kafka."""

    def __init__(
        self, folder: Path, name: str, *, address: str = "", topic: str = "", group: str = "", more: str = "",
        text: str | None = None, env: Mapping[str, str] | None = None, protocol: str = "classic",
        beside: Sequence[str] = (), unread: Sequence[str] = (), node: str = "", cluster: str = "",
    ) -> None:  # fmt: skip
        """Start it; `more` goes behind the usual configuration, `text` in its place.

        `beside`: further topics; `unread`: those that the group does not read; `node`, `cluster`: further settings.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.data = folder / name
        config = folder / f"{name}.yaml"
        names = [topic, *beside]
        place = {
            "address": address,
            "protocol": protocol,
            "group": group,
            "topics": "\n".join(f"  {each}: {{brokerCluster: main}}" for each in [*names, *unread]),
            "node": f", {node}" if node else "",
            "cluster": f", {cluster}" if cluster else "",
            "subscriptions": "\n".join(_SUBSCRIPTION.format(topic=each) for each in names),
        }
        usual = _CONFIG.format(data=self.data, name=name, **place) + more
        config.write_text(usual if text is None else text, encoding="utf-8")
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "pyddmq", "serve", "--config", str(config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(env or {})})
        until(lambda: "pyddmq is ready" in self.log() or self.process.poll() is not None, "the node is ready")
        assert self.process.poll() is None, self.log()
        self.producers = self._port("producers")
        self.consumers = self._port("consumers")
        self.admin = self._port("console")

    def _port(self, name: str) -> str:
        found = re.search(rf"{name} +(?:http://)?(127\.0\.0\.1:\d+)", self.log())
        assert found is not None, self.log()
        return found[1]

    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it in order."""
        self.process.terminate()
        self.process.wait(60)

    def pause(self) -> None:
        """Have it stand still."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Have it go on."""
        os.kill(self.process.pid, signal.SIGCONT)


class Account:
    """What was handed out and answered, over all nodes; bodies are `<key> <number>`."""

    def __init__(self, sent: dict[str, list[int]]) -> None:
        self._sent = sent
        self._lock = threading.Lock()
        self._acked: set[tuple[str, int]] = set()
        self.answered: dict[tuple[str, int], float] = {}
        self.handed_out: Counter[tuple[str, int]] = Counter()
        self.disorder: list[str] = []
        self.again: list[tuple[str, int]] = []

    def take(self, body: bytes) -> tuple[str, int]:
        """Note a hand-out, and look whether all of its key before it were answered."""
        key, number = body.decode().split()
        place = (key, int(number))
        with self._lock:
            self.handed_out[place] += 1
            for earlier in self._sent[key]:
                if earlier == place[1]:
                    break
                if (key, earlier) not in self._acked:
                    self.disorder.append(f"{place} before {earlier}")
            if place in self.answered:
                self.again.append(place)
        return place

    def ack(self, place: tuple[str, int]) -> None:
        """Note an answer that is about to be given: from here on the next of its key may come."""
        with self._lock:
            self._acked.add(place)

    def answer(self, places: list[tuple[str, int]]) -> None:
        """Note answers that counted: the call that carried them was answered."""
        with self._lock:
            for each in places:
                self.answered.setdefault(each, time.monotonic())

    @property
    def left(self) -> int:
        """How many were not answered yet."""
        with self._lock:
            return sum(len(each) for each in self._sent.values()) - len(self.answered)


class Puller:
    """A client in a thread: pulls from one node, answers with the next pull, begins again when the node is gone."""

    def __init__(self, node: NodeProcess, group: str, account: Account, *, fails: Callable[[], bool]) -> None:
        self._node = node
        self._group = group
        self._account = account
        self._fails = fails
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for that."""
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with Consumer(self._node.consumers, self._group, batch_size=16, timeout_ms=3000) as consumer:
                    while not self._over.is_set():
                        done = []
                        for message in consumer.pull(patience_ms=200):
                            place = self._account.take(message.body)
                            if self._fails():
                                consumer.fail(message, "not yet")
                            else:
                                self._account.ack(place)
                                consumer.ack(message)
                                done.append(place)
                        if consumer.flush():
                            self._account.answer(done)
            except (ClientError, OSError):
                self._over.wait(0.2)
