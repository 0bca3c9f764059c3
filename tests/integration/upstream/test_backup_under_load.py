"""A real node is copied by the command, another process, while producers and consumers are at work."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from pyddmq import OutgoingMessage
from tests.patient import PATIENCE_SECONDS, Consumer, Producer
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 262144, maxMessageBytes: 100000}
topics:
  orders: {queues: 4}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], maxPullBatchSize: 16, timeout: 60000}
"""
COMMAND = [sys.executable, "-c", "import sys; from proxy.cli.app import run; sys.exit(run(sys.argv[1:]))"]


class Load:
    """A producer and a consumer in threads of their own; the sets hold what was answered."""

    def __init__(self, node: RunningNode) -> None:
        self.published: set[str] = set()
        self.acked: set[str] = set()
        self.lock = threading.Lock()
        self.warm = threading.Event()
        self._over = threading.Event()
        self._node = node
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let both end."""
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    def _produce(self) -> None:
        number = 0
        with Producer(self._node.producer) as producer:
            while not self._over.is_set():
                names = [f"m{number + place}" for place in range(10)]
                number += 10
                producer.send_batch([OutgoingMessage(topic="orders", body=name.encode(), key=name) for name in names])
                with self.lock:
                    self.published.update(names)

    def _consume(self) -> None:
        with Consumer(self._node.consumer, "billing", "orders") as consumer:
            while not self._over.is_set():
                # Every third stays out, so that acks stand above unacknowledged messages.
                names = []
                for message in consumer.pull():
                    if int(message.body[1:]) % 3:
                        names.append(message.body.decode())
                        consumer.ack(message)
                if names and consumer.flush():
                    with self.lock:
                        self.acked.update(names)
                        if len(self.acked) > 300:
                            self.warm.set()


def test_restored_node_has_all_that_was_answered_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every publish answered before the backup began is there; no ack answered before is forgotten."""
    with RunningNode(YAML, tmp_path / "data") as node:
        load = Load(node)
        try:
            assert load.warm.wait(PATIENCE_SECONDS)
            with load.lock:
                published, acked = set(load.published), set(load.acked)
            done = subprocess.run(
                [*COMMAND, "store", "backup", str(tmp_path / "data"), str(tmp_path / "copy"), "--json"],
                capture_output=True,
                check=False,
                timeout=PATIENCE_SECONDS,
            )
        finally:
            load.stop()
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["findings"] == 0
    assert run(["store", "restore", str(tmp_path / "copy"), str(tmp_path / "back")]) == ExitCode.OK
    capsys.readouterr()
    assert run(["store", "dump", str(tmp_path / "back"), "--limit", "0", "--body", "--json"]) == ExitCode.OK
    stored = [json.loads(line)["body"] for line in capsys.readouterr().out.splitlines()]
    assert published <= set(stored)
    assert len(stored) == len(set(stored))
    with (
        RunningNode(YAML, tmp_path / "back") as node,
        Consumer(node.consumer, "billing", "orders", linger_ms=500) as consumer,
    ):
        again = set()
        while batch := consumer.pull():
            for message in batch:
                again.add(message.body.decode())
                consumer.ack(message)
            consumer.flush()
    assert not again & acked
    assert published - again <= load.acked
