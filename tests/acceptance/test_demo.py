"""`pyddmq demo` against a real node: it passes, passes again, passes after an aborted run, and can fail."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import CONFIGURATION, NodeProcess, StartNode, command, kill_a_run
from tests.patient import Consumer


def run_demo(node: NodeProcess, *options: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    """Run the demo, expect an exit code, and return its report."""
    done = command("demo", "--json", *options, *node.thrift())
    assert done.code == code, done.out + done.err + node.log_path.read_text()[-2000:]
    report: dict[str, Any] = done.json_lines()[0]
    return report


def test_demo_passes_with_every_event(node: NodeProcess) -> None:
    """All 8,577 events, in order per case, failures retried in place, and nothing left behind."""
    report = run_demo(node)
    assert report["passed"] is True
    assert [check["check"] for check in report["checks"]] == ["delivery", "order", "retry"]
    assert (report["events"], report["lag"], report["lagSeconds"], report["foreign"]) == (8577, 0, 0.0, 0)
    assert report["failedOnPurpose"] > 300
    assert report["deliveries"] == 8577 + report["failedOnPurpose"] + report["repeats"]


def test_demo_passes_twice_in_a_row(node: NodeProcess) -> None:
    """A run leaves nothing that disturbs the next, and people read the verdict in words."""
    first, second = (run_demo(node, "--events", "600", "--clients", "2") for _ in range(2))
    assert first["run"] != second["run"]
    assert (second["passed"], second["foreign"]) == (True, 0)
    words = command("demo", "--events", "200", *node.thrift())
    assert (words.code, "all checks passed" in words.out) == (ExitCode.OK, True)


def test_demo_passes_after_an_aborted_run(node: NodeProcess) -> None:
    """What a killed run left, held deliveries included, is acked on the way and not judged."""
    with Consumer(node.ready["consumer"], "permits-audit") as consumer:

        def lag() -> int:
            return sum(stats.lag for stats in consumer.stats())

        kill_a_run(["demo", "--json", *node.thrift()], when=lambda: lag() > 300, left=lag)
    report = run_demo(node, "--events", "400")
    assert report["passed"] is True
    assert report["foreign"] > 0
    assert report["lag"] == 0


@pytest.mark.parametrize(("kind", "check"), [("order", "order"), ("loss", "delivery")])
def test_broken_demo_names_the_check_that_failed(node: NodeProcess, kind: str, check: str) -> None:
    """--break ends with exit code 1 and the right name, and the run after it passes."""
    report = run_demo(node, "--events", "300", "--break", kind, code=ExitCode.CHECK_FAILED)
    assert [each["check"] for each in report["checks"] if not each["passed"]] == [check]
    words = command("demo", "--events", "300", "--break", kind, *node.thrift())
    assert f"failed: {check}" in words.out
    assert run_demo(node, "--events", "100")["passed"] is True


@pytest.mark.parametrize(
    ("configuration", "missing"),
    [("topics: {orders: {}}\n", "permits"), (CONFIGURATION.replace("permits-audit", "other"), "permits-audit")],
)
def test_demo_says_what_the_node_lacks(start_node: StartNode, configuration: str, missing: str) -> None:
    """Without the topic or the group the error names it and where it is configured."""
    node = start_node(configuration=configuration)
    done = command("demo", "--events", "10", *node.thrift())
    assert done.code == ExitCode.NOT_FOUND
    assert missing in done.err
    assert "sample configuration" in done.err
