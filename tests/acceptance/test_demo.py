"""`pyddmq demo` against a real node: it passes, passes again, passes after an aborted run, and can fail."""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import CONFIGURATION, NodeProcess, StartNode, command, environment, kill_a_run
from tests.forking import PYDDMQ
from tests.patient import PATIENCE_SECONDS, Consumer


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


def test_demo_of_order_passes_twice_and_after_an_aborted_run(node: NodeProcess) -> None:
    """A hangs and comes again in place, B goes on, by key and by queue lock; what a killed run holds is no matter."""
    with Consumer(node.ready["consumer"], "rides-dispatch") as consumer:

        def lag() -> int:
            return sum(stats.lag for stats in consumer.stats())

        kill_a_run(["demo", "order", *node.thrift()], when=lambda: lag() >= 4, left=lag)
    report = run_demo_of_order(node)
    assert report["passed"] is True
    hung = [each["by"] for each in report["key"] if each["what"] == "hangs"]
    assert len(hung) == 1
    words = command("demo", "order", *node.thrift())
    assert (words.code, "all checks passed" in words.out) == (ExitCode.OK, True)


def run_demo_of_order(node: NodeProcess, *options: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    """Run it, expect an exit code, and return its report."""
    done = command("demo", "order", "--json", *options, *node.thrift())
    assert done.code == code, done.out + done.err + node.log_path.read_text()[-2000:]
    report: dict[str, Any] = done.json_lines()[0]
    return report


@pytest.mark.parametrize(
    ("kind", "checks"),
    [
        ("order", ["key-order", "key-retry", "queue-order", "queue-retry"]),
        ("loss", ["key-delivery", "key-others", "queue-delivery", "queue-others"]),
    ],
)
def test_broken_demo_of_order_names_the_checks_that_failed(node: NodeProcess, kind: str, checks: list[str]) -> None:
    """--break ends with exit code 1 and the right names."""
    report = run_demo_of_order(node, "--break", kind, code=ExitCode.CHECK_FAILED)
    assert [each["check"] for each in report["checks"] if not each["passed"]] == checks


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


def run_demo_of_delays(node: NodeProcess, spoil: str | None, failed: list[str]) -> None:
    """Run it, and expect these checks to fail."""
    options = [] if spoil is None else ["--break", spoil]
    done = command("demo", "delay", "--json", *options, *node.thrift())
    report = done.json_lines()[0]
    assert [each["check"] for each in report["checks"] if not each["passed"]] == failed, report
    assert (done.code, report["deliveries"]) == (ExitCode.CHECK_FAILED if failed else ExitCode.OK, 46)


def test_demo_of_delays_passes_and_can_fail(node: NodeProcess, start_node: StartNode, tmp_path: Path) -> None:
    """A level, timers, a loop and cancels; after an aborted run and a spoilt one; each spoilt check is named.

    It mostly waits for its own delays, so two nodes have their runs side by side.
    """
    other = start_node("--config", tmp_path / "node.yaml", "--data", tmp_path / "other")
    with ThreadPoolExecutor(1) as beside:
        spoilt = [
            beside.submit(run_demo_of_delays, other, *each) for each in (("early", ["timer"]), ("cancel", ["cancel"]))
        ]
        abort_a_demo_of_delays(node)
        run_demo_of_delays(node, None, [])
        for each in spoilt:
            each.result()


def abort_a_demo_of_delays(node: NodeProcess) -> None:
    """Kill it when its cancels are over."""
    begun = subprocess.Popen([PYDDMQ, "demo", "delay", *node.thrift()], stdout=subprocess.PIPE, env=environment())
    assert begun.stdout is not None
    assert any(b"cancelled at once" in line for line in begun.stdout)
    begun.send_signal(signal.SIGKILL)
    begun.wait(PATIENCE_SECONDS)
    begun.stdout.close()
