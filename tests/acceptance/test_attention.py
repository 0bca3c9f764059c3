"""What a person on call sees of a real node in trouble, with nothing but the command line, HTTP and the log."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import CONFIGURATION, NodeProcess, StartNode, command
from tests.acceptance.test_reload_and_stop import BROKEN, api, wait_for
from tests.patient import PATIENCE_SECONDS


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
    assert "is missing since" in command("stats", *node.admin()).out
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
