"""The admin port of a real node: what clients do shows there, and a reload through it takes effect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from pyddmq import OutgoingMessage
from pyddmq.client.pulling.pulls import VERSION
from tests.patient import PATIENCE_SECONDS, Consumer, Producer

YAML = """
node: {producerPort: 0, consumerPort: 0, adminPort: 0, drainSeconds: 1}
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, orderKey: KEY, actions: [Async, PullServer], maxPullBatchSize: 32, timeout: 60000}
"""


class ServedNode:
    """A node run by its command; `ready` is its ready line."""

    def __init__(self, folder: Path, config: str = YAML) -> None:
        self.config = folder / "node.yaml"
        self.config.write_text(config)
        command = [str(Path(sys.executable).parent / "pyddmq"), "serve", "--config", str(self.config), "--json"]
        with (folder / "node.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--data", str(folder / "data")], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (folder / "node.log").read_text()
        self.ready: dict[str, str] = json.loads(line)

    def request(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Return status and text of an answer of the admin port."""
        connection = HTTPConnection(self.ready["admin"], timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def json(self, path: str, method: str = "GET") -> Any:
        """Return an answer's JSON."""
        return json.loads(self.request(path, method)[1])

    def stop(self) -> None:
        """End the node by SIGTERM."""
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServedNode]:
    """A node of its own with one topic and one ordered group."""
    served = ServedNode(tmp_path)
    yield served
    served.stop()


def test_deliveries_and_held_keys_show_with_their_holder(node: ServedNode) -> None:
    """While a client has a key's first message, the port tells who has it and what waits; after the acks nothing."""
    with Producer(node.ready["producer"]) as producer, Consumer(node.ready["consumer"], "billing") as consumer:
        producer.send_batch(
            [OutgoingMessage(topic="orders", body=b"%d" % n, key="k <1>" if n < 3 else f"other-{n}") for n in range(5)]
        )
        held = consumer.pull(patience_ms=10_000)
        assert [message.offset for message in held] == [0, 3, 4]

        [group] = node.json("/api/groups")["groups"]
        [topic] = group["topics"]
        assert (topic["lag"], topic["inFlight"], topic["waiting"], topic["state"]) == (5, 3, 2, "running")
        assert topic["queues"][0]["committed"] == 0
        assert topic["queues"][0]["produced"] == 5
        [stuck] = topic["stuckKeys"]
        assert (stuck["key"], stuck["offset"], stuck["attempts"], stuck["waiting"]) == ("k <1>", 0, 1, 2)
        clients = node.json("/api/stats")["connections"]
        holders = {each["address"] for each in clients if each["service"] == "consumer"}
        assert {each["holder"] for each in group["inFlight"]} == holders == {stuck["holder"]}
        names = {each["service"]: each["client"] for each in clients}
        assert names == {"consumer": VERSION, "producer": None}
        assert {each["holderClient"] for each in group["inFlight"]} == {VERSION} == {stuck["holderClient"]}
        status, page = node.request(f"/group?group={group['group']}")
        assert status == 200
        assert "k &lt;1&gt;" in page
        assert f"{stuck['holder']} ({VERSION})" in page

        while held:
            for message in held:
                consumer.ack(message)
            held = consumer.pull(patience_ms=200)
        [topic] = node.json("/api/groups?group=billing")["groups"][0]["topics"]
        assert (topic["lag"], topic["inFlight"], topic["waiting"], topic["stuckKeysTotal"]) == (0, 0, 0, 0)


def test_scrape_counts_what_clients_did(node: ServedNode) -> None:
    """/metrics has the published messages by topic, the group's lag, and readiness."""
    with Producer(node.ready["producer"]) as producer:
        producer.send_batch([OutgoingMessage(topic="orders", body=b"x") for _ in range(7)])
    assert node.request("/readyz") == (200, "ready\n")
    text = node.request("/metrics")[1]
    assert 'pyddmq_messages_published_total{topic="orders"} 7.0' in text
    assert 'pyddmq_group_lag_messages{group="billing",topic="orders"} 7.0' in text
    assert "pyddmq_ready 1.0" in text
    assert node.json("/api/stats")["counters"]["pyddmq_messages_published_total"] == 7
    assert node.json("/api/topics?topic=orders")["topics"][0]["queues"] == [{"queue": 0, "min": 0, "max": 7}]


def test_reload_through_the_port_is_all_or_nothing(node: ServedNode) -> None:
    """A good file takes effect and is described; a bad one is refused with its line, and nothing changes."""
    node.config.write_text(YAML.replace("orders: {queues: 1}", "orders: {queues: 3}"))
    status, text = node.request("/api/reload", "POST")
    assert (status, json.loads(text)["accepted"]) == (200, True)
    assert len(node.json("/api/topics?topic=orders")["topics"][0]["queues"]) == 3
    node.config.write_text(YAML.replace("orderKey: KEY", "orderKay: KEY"))
    status, text = node.request("/api/reload", "POST")
    assert status == 409
    assert any("orderKay" in problem and "node.yaml:8" in problem for problem in json.loads(text)["problems"])
    assert node.request("/readyz")[0] == 200
