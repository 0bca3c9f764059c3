"""A real node among thousands of hostile clients: memory stays bounded, and healthy clients get what they are due."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.acceptance.conftest import FREE_PORTS, NodeProcess
from tests.conftest import need
from tests.hostile.attacker import KINDS
from tests.hostile.bombs import bombs
from tests.patient import LINGER_MS, PATIENCE_SECONDS, Consumer, Producer, until

MIB = 1024 * 1024
CEILING = 128 * MIB
BASE = 160 * MIB
"""What the process takes by itself, and what the allocator keeps of it, as measured."""
IDLE, SLOW, BOMBS = 10_000, 1_000, 1_000
MESSAGES = 150

CONFIGURATION = f"""
node: {{memoryMax: {CEILING}, segmentBytes: 4194304, frameTimeout: 3000, maxConnections: 12000, logLevel: error,
       drainSeconds: 1}}
topics:
  orders: {{queues: 4}}
groups:
  - group: billing
    topics:
      - {{topic: orders, orderKey: KEY, actions: [Async, PullServer], maxPullBatchSize: 16, timeout: 60000}}
"""


@contextmanager
def attack(node: NodeProcess, *kinds: str | int) -> Iterator[dict[str, int]]:
    """Let hostile clients work on a node from a process of their own; what they saw is in the dictionary afterwards."""
    words = [sys.executable, "-m", "tests.hostile.attacker", json.dumps(node.ready), *map(str, kinds)]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    watchdog = threading.Timer(PATIENCE_SECONDS, process.kill)
    watchdog.start()
    assert process.stdout is not None
    assert process.stdin is not None
    seen: dict[str, int] = {}
    try:
        assert process.stdout.readline(), "the hostile clients did not get going"
        yield seen
        process.stdin.close()
        seen.update(json.loads(process.stdout.readline()))
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def own_bytes(node: NodeProcess) -> int:
    """Resident memory of the node that is its own, without mapped files."""
    text = Path(f"/proc/{node.process.pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found.group(1)) * 1024


def work(node: NodeProcess, watch: list[int]) -> None:
    """Publish and pull in two threads, with keys; every body arrives, those of a key in order."""
    sent = [(f"key-{number % 17}", b"%d " % number + bytes([number % 251]) * 3000) for number in range(MESSAGES)]
    failures: list[BaseException] = []

    def publish() -> None:
        try:
            with Producer(node.ready["producer"], resends=200, resend_pause_ms=100, timeout_ms=30_000) as producer:
                for key, body in sent:
                    producer.send("orders", body, key=key)
        except BaseException as error:
            failures.append(error)

    publisher = threading.Thread(target=publish)
    publisher.start()
    found: dict[str, list[bytes]] = {}
    count = 0
    with Consumer(node.ready["consumer"], "billing") as consumer:
        for message in consumer.messages():
            each = found.setdefault(str(message.key), [])
            if bytes(message.body) not in each:
                each.append(bytes(message.body))
                count += 1
            if count % 50 == 0:
                watch.append(own_bytes(node))
            if count == MESSAGES or failures:
                break
    publisher.join()
    assert not failures, failures
    assert found == {key: [body for other, body in sent if other == key] for key, _ in sent}


def metrics(node: NodeProcess) -> str:
    """The node's metrics as text."""
    with urlopen(f"http://{node.ready['admin']}/metrics", timeout=PATIENCE_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def _sum(text: str, name: str) -> float:
    """Sum of a metric over its labels."""
    return sum(float(value) for value in re.findall(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE))


def check(node: NodeProcess, watch: Sequence[int]) -> None:
    """The node lives, and its own memory stayed below the ceiling and the base."""
    assert node.process.poll() is None
    assert max(watch) < CEILING + BASE, [each // MIB for each in watch]
    assert node.stop() == 0


def test_ten_thousand_idle_a_thousand_slow_a_thousand_bombs(start_node: Any) -> None:
    """Healthy clients finish their publishes and pulls with right content in the middle of all of them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need(hard >= IDLE + SLOW + BOMBS + 1500, f"a hard limit of 13,500 open files (it is {hard})")
    node = start_node(configuration=CONFIGURATION)
    watch = [own_bytes(node)]
    with attack(node, "idle", IDLE, "drip", SLOW, "bomb", BOMBS, "slow_header", 200) as seen:
        watch.append(own_bytes(node))
        work(node, watch)
        # Each bomb is sent; the node reads it when its turn comes.
        counted = ("pyddmq_calls_failed_total", "pyddmq_connections_refused_total")
        until(lambda: sum(_sum(metrics(node), name) for name in counted) >= BOMBS, "every bomb to be counted")
        text = metrics(node)
        watch.append(own_bytes(node))
    assert seen["idle_opened"] == IDLE
    # At pressure the idle ones above their address' share make room (D73); most stay.
    assert seen.get("idle_closed", 0) < IDLE // 2
    assert seen["drip_opened"] >= SLOW
    assert seen["bomb_opened"] >= BOMBS
    assert 'pyddmq_calls_failed_total{kind="6"' not in text
    print({**seen, "own_mib": [each // MIB for each in watch]})
    check(node, watch)


def test_hundreds_of_large_unfinished_frames_stay_under_the_ceiling(start_node: Any) -> None:
    """200 clients send 4 MB of a frame each and stop, again and again: 800 MB against a ceiling of 128 MiB."""
    node = start_node(configuration=CONFIGURATION)
    watch = [own_bytes(node)]
    with attack(node, "fill", 200) as seen:
        watch.append(own_bytes(node))
        work(node, watch)
        watch.append(own_bytes(node))
        slowed = r'pyddmq_memory_measures_total\{measure="slowed"\} [1-9]'
        until(lambda: re.search(slowed, metrics(node)), "the node to slow its clients")
        watch.append(own_bytes(node))
    print({**seen, "own_mib": [each // MIB for each in watch]})
    check(node, watch)


def test_every_kind_of_client_on_every_port_hurts_nobody(start_node: Any) -> None:
    """A frame on the admin port, a request's head on the others: those of `unread_tls` have a port of their own."""
    node = start_node(configuration=CONFIGURATION)
    watch = [own_bytes(node)]
    kinds = [each for kind in KINDS if kind != "unread_tls" for each in (f"{kind}@", 6)]
    with attack(node, *kinds) as seen:
        work(node, watch)
        watch.append(own_bytes(node))
        assert "pyddmq_ready 1.0" in metrics(node)
    assert all(seen[f"{kind}_opened"] >= 6 for kind in KINDS if kind != "unread_tls")
    check(node, watch)


def test_every_bomb_is_answered_or_closed_and_hurts_nobody(start_node: Any) -> None:
    """Each length bomb by itself, on both ports: an error or the end of its connection, within one read."""
    node = start_node(configuration=CONFIGURATION)
    for port in ("producer", "consumer"):
        host, _, number = node.ready[port].rpartition(":")
        for bomb in bombs():
            with socket.create_connection((host, int(number)), timeout=PATIENCE_SECONDS) as client:
                client.sendall(bomb)
                client.shutdown(socket.SHUT_WR)
                try:
                    while client.recv(65_536):
                        pass
                except ConnectionResetError:
                    pass
    work(node, watch := [own_bytes(node)])
    assert 'pyddmq_calls_failed_total{kind="6"' not in metrics(node)
    check(node, watch)


_LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 256))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_connections_beyond_the_descriptors_are_refused_and_the_store_goes_on(tmp_path: Path) -> None:
    """With 256 open files at most, 400 connections leave enough for the log to grow and for the admin port."""
    (tmp_path / "node.yaml").write_text(CONFIGURATION.replace("logLevel: error", "logLevel: warning"))
    arguments: list[str | Path] = [*FREE_PORTS, "--config", tmp_path / "node.yaml", "--data", tmp_path / "data"]
    node = NodeProcess(arguments, tmp_path, before=(sys.executable, "-c", _LIMITED))
    try:
        watch = [own_bytes(node)]
        # Healthy clients hold their connections when the others come: each of them is taken only once.
        with (
            Producer(node.ready["producer"]) as producer,
            Consumer(node.ready["consumer"], "billing", linger_ms=LINGER_MS) as consumer,
        ):
            producer.send("orders", b"first")
            assert [each.body for each in consumer.pull()] == [b"first"]
            with attack(node, "idle", 400) as seen:
                refused = r'pyddmq_connections_refused_total\{reason="descriptors",service="\w+"\} \d+'
                until(lambda: re.search(refused, metrics(node)), "a refused connection")
                for number in range(10):  # Five files of the log, with room for two messages each.
                    producer.send("orders", bytes([number]) * 1_800_000)
                    bodies = [each.body for each in consumer.pull()]
                    assert bodies == [bytes([number]) * 1_800_000]
        assert seen["idle_closed"] >= 100
        assert "open_files_limited" in node.log_path.read_text()
        check(node, [*watch, own_bytes(node)])
    finally:
        if node.process.poll() is None:
            node.stop(signal.SIGKILL)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
