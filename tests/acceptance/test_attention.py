"""What a person on call sees of a real node in trouble, with nothing but the command line, HTTP and the log."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from lag.rules.statuses import Level
from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import CONFIGURATION, NodeProcess, StartNode, command
from tests.acceptance.test_reload_and_stop import BROKEN, api, wait_for
from tests.patient import PATIENCE_SECONDS, Consumer, Producer

FOR_EVER = CONFIGURATION.replace("timeout: 60000, retryIntervals: [1]", "timeout: 60000, retryIntervals: [1, -1]")
FAILURES = 6


def text_of(node: NodeProcess, path: str) -> str:
    """Fetch a page of the admin port."""
    connection = http.client.HTTPConnection(node.ready["admin"], timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def kinds(node: NodeProcess) -> set[str]:
    """Findings of a node."""
    return {each["finding"] for each in api(node, "/readyz?verbose")[1]["findings"]}


def log_lines(node: NodeProcess, event: str) -> list[dict[str, Any]]:
    """Lines of the node's log with an event."""
    lines = [json.loads(line) for line in node.log_path.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def test_poison_key_is_named_by_page_commands_readiness_and_gauge(start_node: StartNode) -> None:
    """Key, attempts, reason and since the first failure; the command that ends it works; the check fails."""
    node = start_node(configuration=FOR_EVER)
    with Producer(node.ready["producer"]) as producer:
        producer.send("orders", b"{}", key="customer-1")
        producer.send("orders", b"{}", key="customer-1")
    with Consumer(node.ready["consumer"], "billing") as consumer:
        failed = 0
        while failed < FAILURES:
            for message in consumer.pull(count_max=1):
                consumer.fail(message)
                failed += 1
    wait_for(lambda: "poison" in kinds(node), "the finding")
    groups = command("groups", *node.admin())
    stuck = command("groups", "stuck", "billing", *node.admin())
    for shown in (groups.out, stuck.out, text_of(node, "/")):
        assert "key customer-1 fails again and again" in shown
        assert f"{FAILURES} deliveries in" in shown
        assert "the last time with: failed by 127.0.0.1" in shown
        assert "pyddmq groups dead-letter billing --topic orders" in shown
    [head] = json.loads(command("groups", "stuck", "--json", *node.admin()).out)["stuck"]
    assert head["attempts"] >= FAILURES
    assert head["reason"].startswith("failed by 127.0.0.1")
    metrics = text_of(node, "/metrics")
    assert 'pyddmq_attention{finding="poison",group="billing",severity="bad",topic="orders"} 1.0' in metrics
    assert "pyddmq_level 2.0" in metrics
    for options in ((), ("--group", "billing")):
        check = command("lag", "check", *options, *node.admin())
        assert check.code == Level.ERR, check.out
        assert "key customer-1 fails again and again" in check.out
    place = ("--topic", "orders", "--queue", str(head["queue"]), "--offset", str(head["offset"]))
    ended = command("groups", "dead-letter", "billing", *place, "--force", *node.admin())
    assert ended.code == ExitCode.OK, ended.err
    wait_for(lambda: "poison" not in kinds(node), "the end of the finding")


def test_refused_and_vanished_configuration_show_until_they_are_mended(start_node: StartNode, tmp_path: Path) -> None:
    """`pyddmq reload` ends with a code and the reasons, the audit says refused, and all views tell of it meanwhile."""
    node = start_node()
    file = tmp_path / "node.yaml"
    assert kinds(node) == set()
    file.write_text(BROKEN)
    refused = command("reload", *node.admin())
    assert refused.code == ExitCode.REFUSED
    assert "orderKye" in refused.out
    assert {line["outcome"] for line in log_lines(node, "admin_change")} == {"refused"}
    assert "reload_refused" in kinds(node)
    assert "The configuration was refused at" in command("groups", *node.admin()).out
    assert "orderKye" in text_of(node, "/")
    assert 'pyddmq_attention{finding="reload_refused",group="",severity="bad",topic=""}' in text_of(node, "/metrics")
    file.write_text(CONFIGURATION)
    wait_for(lambda: not kinds(node), "the end of the finding")
    assert command("reload", *node.admin()).out == "nothing changed\n"
    file.unlink()
    wait_for(lambda: kinds(node) == {"config_missing"}, "the file to be missed")
    assert "is gone since" in command("stats", *node.admin()).out
    missing = command("reload", "--json", *node.admin())
    assert (missing.code, json.loads(missing.out)["accepted"]) == (ExitCode.REFUSED, False)
    file.write_text(CONFIGURATION)
    wait_for(lambda: not kinds(node), "the end of the finding")


def test_log_says_once_what_is_ready_and_where(start_node: StartNode, tmp_path: Path) -> None:
    """One line at the start: version, configuration, addresses, data directory, and how long the recovery took."""
    node = start_node()
    [line] = log_lines(node, "ready")
    version = json.loads(command("version", "--json").out)["version"]
    assert line["version"] == version
    assert line["config"] == str(tmp_path / "node.yaml")
    assert line["data"] == node.ready["data"]
    assert {name: line[name] for name in ("producer", "consumer", "admin")} == {
        name: node.ready[name] for name in ("producer", "consumer", "admin")
    }
    assert line["recovery_seconds"] >= 0
    assert line["access"] == "loopback"
