"""Hot reload by signal, by file change and by HTTP, and how a node stops: real processes, real signals."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import CONFIGURATION, NodeProcess, StartNode
from tests.patient import LINGER_MS, PATIENCE_SECONDS, Consumer, Producer

MORE_GROUPS = (
    CONFIGURATION
    + """
  - group: newcomers
    topics:
      - {topic: orders, actions: [Async, PullServer]}
"""
)
BROKEN = CONFIGURATION.replace("orderKey: KEY", "orderKye: KEY")
OTHER_PORT = "node: {backlog: 7}\n" + MORE_GROUPS


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds, or fail."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / 0.02)):
        if condition():
            return
        pause.wait(0.02)
    pytest.fail(f"waited in vain for {what}")


def api(node: NodeProcess, path: str, method: str = "GET") -> tuple[int, Any]:
    """Call the admin port."""
    connection = http.client.HTTPConnection(node.ready["admin"], timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def groups(node: NodeProcess) -> set[str]:
    """Names of the node's groups."""
    return {each["group"] for each in api(node, "/api/groups")[1]["groups"]}


@pytest.mark.parametrize("how", ["signal", "file"])
def test_reload_brings_a_new_group(start_node: StartNode, tmp_path: Path, how: str) -> None:
    """SIGHUP reloads, and so does a change of the file; a new group consumes at once."""
    node = start_node()
    (tmp_path / "node.yaml").write_text(MORE_GROUPS)
    if how == "signal":
        node.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "newcomers" in groups(node), "the new group")
    with Producer(node.ready["producer"]) as producer, Consumer(node.ready["consumer"], "newcomers") as consumer:
        producer.send("orders", b"x")
        message = next(consumer.messages())
        assert message.body == b"x"


@pytest.mark.parametrize(
    ("text", "problem"),
    [(BROKEN, "orderKye"), (OTHER_PORT, "node.yaml:1: node.backlog: cannot change while the node runs")],
)
def test_bad_reload_changes_nothing_and_says_why(
    start_node: StartNode, tmp_path: Path, text: str, problem: str
) -> None:
    """Promise 7: the running configuration stays in force, the answer names the problem, and so does the log."""
    node = start_node()
    before = groups(node)
    (tmp_path / "node.yaml").write_text(text)
    status, answer = api(node, "/api/reload", "POST")
    assert status == 409
    assert problem in json.dumps(answer)
    assert groups(node) == before
    assert problem in node.log_path.read_text()


def test_removed_group_drains_and_leaves(start_node: StartNode, tmp_path: Path) -> None:
    """A group taken out of the file is pulled no more; what it had acked stays for its return."""
    node = start_node()
    with Producer(node.ready["producer"]) as producer, Consumer(node.ready["consumer"], "billing") as consumer:
        producer.send("orders", b"one", key="k")
        [message] = consumer.pull(patience_ms=10_000)
        consumer.ack(message)
    (tmp_path / "node.yaml").write_text(CONFIGURATION.partition("  - group: billing\n")[0])
    status, answer = api(node, "/api/reload", "POST")
    assert status == 200
    # The watcher of the file may have been faster than the call.
    assert answer["changes"] in (["group billing: removed", "group billing-dead-letters: removed"], [])
    wait_for(lambda: groups(node) == {"permits-audit"}, "the group to leave")
    (tmp_path / "node.yaml").write_text(CONFIGURATION)
    assert api(node, "/api/reload", "POST")[0] == 200
    with Producer(node.ready["producer"]) as producer, Consumer(node.ready["consumer"], "billing") as consumer:
        producer.send("orders", b"two", key="k")
        assert [each.body for each in consumer.pull(patience_ms=10_000)] == [b"two"]


def test_stop_waits_for_what_is_out(start_node: StartNode) -> None:
    """SIGTERM drains: the ack of a delivery that was out is taken, and the node ends with code 0 soon after it."""
    node = start_node()
    with Producer(node.ready["producer"]) as producer, Consumer(node.ready["consumer"], "billing") as consumer:
        producer.send("orders", b"x", key="k")
        message = next(consumer.messages())
        node.process.send_signal(signal.SIGTERM)
        wait_for(lambda: '"stopping"' in node.log_path.read_text(), "the drain to begin")
        consumer.ack(message)
        assert consumer.flush()
        assert node.stop() == ExitCode.OK
    assert '"deliveries_unanswered": 0' in node.log_path.read_text()


def test_second_signal_ends_a_drain_at_once(start_node: StartNode) -> None:
    """A delivery that nobody answers holds the drain; a second SIGTERM ends it, and the message comes again."""
    node = start_node()
    with (
        Producer(node.ready["producer"]) as producer,
        Consumer(node.ready["consumer"], "billing", linger_ms=LINGER_MS) as consumer,
    ):
        producer.send("orders", b"x", key="k")
        assert consumer.pull()
        node.process.send_signal(signal.SIGTERM)
        wait_for(lambda: '"stopping"' in node.log_path.read_text(), "the drain to begin")
        assert node.process.poll() is None
        assert node.stop(signal.SIGTERM) == ExitCode.OK
    assert '"deliveries_unanswered": 1' in node.log_path.read_text()
    again = start_node()
    with Consumer(again.ready["consumer"], "billing") as consumer:
        assert next(consumer.messages()).body == b"x"


def test_node_stops_serving_new_publishes_while_it_drains(start_node: StartNode) -> None:
    """A draining node takes no new connections for publishing; what was answered before is kept."""
    node = start_node()
    with Producer(node.ready["producer"]) as producer, Consumer(node.ready["consumer"], "billing") as consumer:
        producer.send("orders", b"x", key="k")
        message = next(consumer.messages())
        node.process.send_signal(signal.SIGTERM)
        wait_for(lambda: '"stopping"' in node.log_path.read_text(), "the drain to begin")
        status, answer = api(node, "/readyz?verbose")
        assert (status, answer["state"]) == (503, "draining")
        consumer.ack(message)
        consumer.flush()
        assert node.stop() == ExitCode.OK
