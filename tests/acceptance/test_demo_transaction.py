"""`pyddmq demo transaction` against a real node: it passes, again, after an aborted run, and can fail."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import NodeProcess, StartNode, command, kill_a_run

CONFIGURATION = """
node: {transactionTimeOut: 500, transactionCheckInterval: 500, transactionCheckMax: 3}
topics: {transfers: {queues: 2}}
groups:
  - group: transfers-audit
    topics:
      - {topic: transfers, actions: [PullServer]}
"""


def run_demo(node: NodeProcess, *options: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    """Run the demo, expect an exit code, and return its report."""
    done = command("demo", "transaction", "--json", *options, *node.thrift(), *node.admin())
    assert done.code == code, done.out + done.err + node.log_path.read_text()[-2000:]
    report: dict[str, Any] = done.json_lines()[0]
    return report


def test_demo_passes_and_passes_after_an_aborted_run(start_node: StartNode) -> None:
    """Three committed, three rolled back, four discarded and decided by hand; a killed run disturbs nothing."""
    node = start_node(configuration=CONFIGURATION)
    first = run_demo(node)
    assert first["passed"] is True
    ends = [(each["end"], each["discarded"], each["delivered"]) for each in first["messages"]]
    assert ends.count(("committed", False, 1)) == ends.count(("rolledBack", False, 0)) == 3
    assert ends.count(("committed", True, 1)) == ends.count(("rolledBack", True, 0)) == 2
    arguments = ["demo", "transaction", "--json", *node.thrift(), *node.admin()]
    kill_a_run(arguments, when=lambda: _counts(node)["undecidedTotal"])
    words = command("demo", "transaction", *node.thrift(), *node.admin())
    assert (words.code, "all checks passed" in words.out) == (ExitCode.OK, True), words.out + words.err


def test_broken_demo_names_the_check_that_failed(start_node: StartNode) -> None:
    """--break ends with exit code 1 and the right names."""
    node = start_node(configuration=CONFIGURATION)
    report = run_demo(node, "--break", "visible", code=ExitCode.CHECK_FAILED)
    assert [each["check"] for each in report["checks"] if not each["passed"]] == ["unseen", "rolled-back"]
    report = run_demo(node, "--break", "loss", code=ExitCode.CHECK_FAILED)
    assert [each["check"] for each in report["checks"] if not each["passed"]] == ["committed"]


def test_demo_says_what_the_node_lacks(start_node: StartNode) -> None:
    """A node that asks as seldom as RocketMQ, and one without the topic."""
    node = start_node(configuration="topics: {orders: {}}\n")
    done = command("demo", "transaction", *node.thrift(), *node.admin())
    assert done.code == ExitCode.REFUSED
    assert "15 checks, 30,000 ms apart" in done.err
    node.stop()
    node = start_node(configuration=CONFIGURATION.replace("transfers", "others"))
    done = command("demo", "transaction", *node.thrift(), *node.admin())
    assert (done.code, "transfers" in done.err) == (ExitCode.NOT_FOUND, True)


def _counts(node: NodeProcess) -> dict[str, Any]:
    with urlopen(f"http://{node.ready['admin']}/api/transactions?limit=0") as response:
        found: dict[str, Any] = json.load(response)
    return found
