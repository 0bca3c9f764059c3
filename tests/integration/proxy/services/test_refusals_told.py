"""What a node refuses shows in its log: a line per kind and minute, with the sentence that the client gets (D25)."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.port.connection import Connection
from proxy.wire.call import Call
from pyddmq import CallRejected, Producer, PullRefused, SendRefused
from tests.patient import PATIENCE_SECONDS, Consumer
from tests.running_node import RunningNode

YAML = """
node: {maxConnections: 3}
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer]}
"""
TRIES = 50


def lines_of(lines: list[Any], event: str) -> list[Any]:
    """The lines of one kind."""
    return [line for line in lines if line["event"] == event]


def knock(address: str, data: bytes) -> None:
    """Send bytes and wait until the node has closed the connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(data)
        with contextlib.suppress(ConnectionError):
            while connection.recv(4096):
                pass


def test_flood_of_refused_sends_and_pulls_is_a_line_for_each_code(tmp_path: Path) -> None:
    """The first of each is told at once with its client; those after it wait for their minute, with their count."""
    with capture_logs() as lines, RunningNode(YAML, tmp_path) as node:
        with Producer(node.producer, resends=0) as producer, Consumer(node.consumer, "nobody") as consumer:
            for _ in range(TRIES):
                with pytest.raises(SendRefused):
                    producer.send("nowhere", b"x")
                with pytest.raises(SendRefused):
                    producer.send("orders", b"")
                with pytest.raises(PullRefused):
                    consumer.pull()
        sends, pulls = lines_of(lines, "send_refused"), lines_of(lines, "pull_refused")
        assert [(line["code"], line["count"]) for line in sends] == [(14, 1), (11, 1)]
        assert "no topic 'nowhere'" in sends[0]["text"]
        assert sends[0]["client"].startswith("127.0.0.1:")
        assert [(line["code"], line["count"]) for line in pulls] == [(1, 1)]
    # A stop tells the rest.
    assert [line["count"] for line in lines_of(lines, "send_refused")[2:]] == [TRIES - 1] * 2
    assert [line["count"] for line in lines_of(lines, "pull_refused")[1:]] == [TRIES - 1]


def test_flood_of_garbage_is_a_line_for_each_reason(tmp_path: Path) -> None:
    """A hundred connections with HTTP and with lengths that cannot be cost a line per reason, not one each."""
    with capture_logs() as lines, RunningNode(YAML, tmp_path) as node:
        for _ in range(TRIES):
            knock(node.producer, b"GET / HTTP/1.1\r\n\r\n")
            knock(node.consumer, b"\xff\xff\xff\xff")
        reported = lines_of(lines, "connection_refused")
        assert {line["reason"] for line in reported} == {"http", "negative"}
        assert [line["count"] for line in reported] == [1, 1]


def test_connections_above_the_limit_are_told(tmp_path: Path) -> None:
    """Whoever raises the number of clients reads in the log which setting holds them off."""
    with capture_logs() as lines, RunningNode(YAML, tmp_path) as node, contextlib.ExitStack() as open_ones:
        for _ in range(3):
            open_ones.enter_context(Producer(node.producer)).connect()
        node.call(lambda: None)
        knock(node.producer, b"")
        [line] = lines_of(lines, "connection_refused")
        assert (line["reason"], line["service"]) == ("too_many", "producer")
        assert "maxConnections" in line["text"]


def test_call_for_the_other_port_is_told(tmp_path: Path) -> None:
    """The log of the node names the port, as the client's error does."""
    with capture_logs() as lines, RunningNode(YAML, tmp_path) as node:
        with Producer(node.consumer) as producer, pytest.raises(CallRejected, match="this is the consumer port"):
            producer.send("orders", b"x")
        [line] = lines_of(lines, "call_refused")
        assert (line["service"], line["method"]) == ("consumer", "sendSync")


def test_flood_of_calls_that_fail_inside_is_a_line_for_each_cause(tmp_path: Path) -> None:
    """A fault of the node's own is told with its traceback at once, and then with its count: per method and cause."""
    causes = [ValueError, KeyError]

    def fail(_connection: Connection, call: Call) -> None:
        raise causes[0](call.method)

    with capture_logs() as lines, RunningNode(YAML, tmp_path) as node:
        node.call(node.node.producer.serve, {"sendSync": fail})
        with Producer(node.producer, resends=0) as producer:
            for _ in range(2):
                for _ in range(TRIES):
                    with pytest.raises(CallRejected, match="internal error"):
                        producer.send("orders", b"x")
                causes.reverse()
        failed = lines_of(lines, "call_failed")
        assert [(line["count"], line["log_level"], line["method"]) for line in failed] == [(1, "error", "sendSync")] * 2
        assert [type(line["exc_info"]) for line in failed] == [ValueError, KeyError]
        assert all(line["exc_info"].__traceback__ for line in failed)
        assert node.node.runtime.metrics.value("pyddmq_calls_failed_total", "producer", "6") == 2 * TRIES
    rest = lines_of(lines, "call_failed")[2:]
    assert [(line["count"], line["fault"]) for line in rest] == [
        (TRIES - 1, "ValueError: sendSync"),
        (TRIES - 1, "KeyError: 'sendSync'"),
    ]


def test_results_that_belong_to_nothing_are_told(tmp_path: Path) -> None:
    """A client that was configured for another group is found by its address."""
    with capture_logs() as lines, RunningNode(YAML, tmp_path) as node:
        with Producer(node.producer) as producer:
            producer.send("orders", b"x")
        with Consumer(node.consumer, "billing") as consumer:
            [message] = consumer.pull()
            consumer.ack(message._replace(qid="elsewhere_0"))
            consumer.flush()
        assert [line["reason"] for line in lines_of(lines, "result_ignored")] == ["unknown_queue"]
