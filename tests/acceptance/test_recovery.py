"""A node with a long recovery ahead: its ports answer, it says how far it is, and it can be stopped and started."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.features import ALL
from broker.log.put import Put
from broker.options import StoreOptions
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import SystemClock
from broker.store import Store
from proxy.process.exit_codes import ExitCode
from pyddmq import PullRefused, SendRefused
from tests.acceptance import slow_disk
from tests.acceptance.conftest import command, environment
from tests.patient import PATIENCE_SECONDS, Consumer, Producer, quiet_ports

RECORDS = 100_000
YAML = """
node: {segmentBytes: 8388608, queueFileUnits: 50000, drainSeconds: 5}
topics:
  orders: {queues: 2}
groups:
  - group: billing
    topics:
      - {topic: orders, orderKey: KEY, actions: [Async, PullServer], timeout: 60000}
"""


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A killed store whose whole log has to be scanned."""
    root = tmp_path_factory.mktemp("large") / "data"
    store = Store.open(
        str(root),
        options=StoreOptions(segment_bytes=8 << 20, queue_file_units=50_000, flush="async"),
        features=ALL,
        disk=RealDisk(),
        clock=SystemClock(),
        random=Random(1),
        metrics=Metrics(),
    )
    topic = store.create_topic("orders", 2)
    puts = [Put(topic, number % 2, b"%30d" % number, b"") for number in range(1_000)]
    for _ in range(RECORDS // len(puts)):
        store.append(puts, born_ms=0, born_host=bytes(8))
        store.flush()
    store.abandon()
    (root / "pyddmq/checkpoint.json").unlink(missing_ok=True)
    return root


class Starting:
    """A node on known ports, while it is not ready yet: its recovery is slow until `hurry`."""

    def __init__(self, folder: Path, data: Path, *, notify: str = "") -> None:
        self.ports = quiet_ports(3)
        ports = ", producerPort: {}, consumerPort: {}, adminPort: {}}}".format(*self.ports)
        (folder / "node.yaml").write_text(YAML.replace("}", ports, 1))
        self._slow = folder / "slow"
        self._slow.touch()
        self.log_path = folder / "node.log"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", slow_disk.__name__, "--config", folder / "node.yaml", "--data", data],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).parents[2],
                env={**environment(), slow_disk.SLOW: str(self._slow), "NOTIFY_SOCKET": notify},
            )

    def readiness(self, query: str = "") -> tuple[int, Any]:
        """What /readyz says; (0, None) while nobody listens."""
        return self.get("/readyz" + query)

    def get(self, path: str) -> tuple[int, Any]:
        """Status and content of an answer of the admin port."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[2], timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
        except OSError:
            return 0, None
        finally:
            connection.close()
        return answer.status, json.loads(text) if text.startswith("{") else text

    def wait_for_recovery(self) -> Any:
        """Wait until the scan is going on; return what /readyz says."""
        pause = threading.Event()
        for _ in range(int(PATIENCE_SECONDS / 0.01)):
            assert self.process.poll() is None, self.log_path.read_text()
            status, answer = self.readiness()
            assert status != 200, "the recovery is over too soon for this test"
            if status == 503 and isinstance(answer, dict) and answer.get("scannedBytes"):
                return answer
            pause.wait(0.01)
        raise AssertionError("the recovery did not begin")

    def hurry(self) -> None:
        """Have the rest of the recovery be as fast as it can."""
        self._slow.unlink()

    def ready(self) -> dict[str, str]:
        """Wait for the ready line."""
        self.hurry()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log_path.read_text()
        ready: dict[str, str] = json.loads(line)
        return ready

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def starting(tmp_path: Path, large_store: Path) -> Iterator[Starting]:
    """A node that begins to recover the large store."""
    node = Starting(tmp_path, large_store)
    yield node
    node.stop(signal.SIGKILL)


def test_ports_answer_while_the_node_recovers(starting: Starting) -> None:
    """Pulls get STARTING, sends code 20; /livez is well, /readyz and the page say how far it is; then all is served."""
    answer = starting.wait_for_recovery()
    assert (answer["ready"], answer["state"], answer["phase"]) == (False, "recovering", "log")
    assert 0 < answer["scannedBytes"] < answer["totalBytes"]
    assert 0 < answer["percent"] < 100
    assert starting.get("/livez") == (200, "ok\n")
    assert "recovering" in starting.get("/")[1]
    assert starting.get("/api/stats")[1]["recovery"]["totalBytes"] == answer["totalBytes"]
    producer_port, consumer_port, _ = starting.ports
    with Consumer(f"127.0.0.1:{consumer_port}", "billing") as consumer, pytest.raises(PullRefused) as pulled:
        consumer.pull()
    with Producer(f"127.0.0.1:{producer_port}", resends=0) as producer, pytest.raises(SendRefused) as sent:
        producer.send("orders", b"x")
    assert (pulled.value.code, sent.value.code) == (3, 20)
    assert pulled.value.retriable
    assert starting.process.stdout is not None
    ready = starting.ready()
    assert ready["consumer"] == f"127.0.0.1:{consumer_port}"
    status, answer = starting.readiness("?verbose")
    assert (status, answer["ready"], answer["state"], answer["reasons"]) == (200, True, "ready", [])
    with Consumer(ready["consumer"], "billing") as consumer:
        assert next(consumer.messages()).body == b"%30d" % 0
    events = [json.loads(line)["event"] for line in starting.log_path.read_text().splitlines()]
    for event in ("store_recovering", "store_opened", "recovered"):
        assert event in events
    # Left as it was found, for the other tests.
    starting.stop(signal.SIGKILL)


def test_sigterm_ends_a_recovery_at_once_and_harmlessly(starting: Starting, tmp_path: Path, large_store: Path) -> None:
    """Code 0, `abort` stays, the lock is free; the next start recovers again and has everything."""
    (large_store / "pyddmq/checkpoint.json").unlink(missing_ok=True)
    starting.wait_for_recovery()
    assert starting.stop() == ExitCode.OK
    assert (large_store / "abort").exists()
    again = Starting(tmp_path, large_store)
    try:
        again.ready()
        [topic] = again.get("/api/topics?topic=orders")[1]["topics"]
        assert [queue["max"] for queue in topic["queues"]] == [RECORDS // 2] * 2
    finally:
        again.stop(signal.SIGKILL)


def test_taken_port_is_told_before_the_recovery(tmp_path: Path, large_store: Path) -> None:
    """Exit code 7, and not a record was scanned; a directory in use is told before any port is opened."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        (tmp_path / "node.yaml").write_text(YAML)
        rest = ("--producer-port", "0", "--consumer-port", port, "--admin-port", "0", "--data", large_store)
        done = command("serve", "--config", tmp_path / "node.yaml", *rest)
    assert done.code == ExitCode.PORT_TAKEN
    assert "store_recovering" not in done.err


def test_service_manager_hears_of_recovery_readiness_and_stop(tmp_path: Path, large_store: Path) -> None:
    """STATUS while it recovers, READY=1 when it serves, STOPPING=1 when it drains."""
    (large_store / "pyddmq/checkpoint.json").unlink(missing_ok=True)
    address = f"@pyddmq-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(b"\0" + address[1:].encode())
        manager.settimeout(PATIENCE_SECONDS)
        node = Starting(tmp_path, large_store, notify=address)
        try:
            reported = [manager.recv(999).decode()]
            node.hurry()
            while not reported[-1].startswith("READY=1"):
                reported.append(manager.recv(999).decode())
            assert reported[0].startswith("STATUS=recovering: ")
            assert " % of " in reported[0]
            assert "EXTEND_TIMEOUT_USEC=" in reported[0]
            node.process.send_signal(signal.SIGTERM)
            assert manager.recv(999).startswith(b"STOPPING=1")
        finally:
            assert node.stop() == ExitCode.OK
