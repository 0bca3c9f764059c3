"""Node processes of the demo, each with its own file and folder."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

from broker.runtime.seams import Clock, SystemClock

START_SECONDS_MAX = 120.0
SESSION_MS = 6_000
_READY = "pyddmq is ready"
_CONFIG = """\
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: {name}, drainSeconds: 5}}
kafka:
  main: {{bootstrapServers: "{address}", sessionTimeout: {session}, revokeTimeout: 2000}}
topics:
  {topic}: {{brokerCluster: main}}
groups:
  - group: {group}
    topics:
      - topic: {topic}
        orderKey: KEY
        maxPullBatchSize: 32
        timeout: 20000
        maxRetry: 100
        retryIntervals: [100, 500, -1]
"""


class NodeFailed(Exception):
    """A node did not start; the text has the end of its log."""


class NodeProcess:
    """`pyddmq serve` with the group over the topic.

    Attributes:
        producers: Address of its producer port.
        consumers: Address of its consumer port.
    """

    def __init__(
        self, folder: Path, name: str, *, address: str, topic: str, group: str, text: str | None = None
    ) -> None:
        """Start it; `text` is a configuration in the place of the usual one. Raises NodeFailed."""
        self.name = name
        self._clock: Clock = SystemClock()
        config = folder / f"{name}.yaml"
        usual = _CONFIG.format(
            data=folder / name, name=name, address=address, topic=topic, group=group, session=SESSION_MS
        )
        config.write_text(usual if text is None else text, encoding="utf-8")
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pyddmq", "serve", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait()
            self.producers, self.consumers = self._address("producers"), self._address("consumers")
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """End it in order; return its exit code."""
        self._process.terminate()
        return self._process.wait(60)

    def _wait(self) -> None:
        until, pause = self._clock.monotonic() + START_SECONDS_MAX, threading.Event()
        while _READY not in self.log():
            if self._process.poll() is not None or self._clock.monotonic() > until:
                raise NodeFailed(f"the node {self.name} did not start: {self.log()[-2000:]}")
            pause.wait(0.05)

    def _address(self, name: str) -> str:
        found = re.search(rf"{name} +([\w.\[\]:]+:\d+)", self.log())
        if found is None:
            raise NodeFailed(f"the node {self.name} does not say its ports: {self.log()[-2000:]}")
        return found[1]
