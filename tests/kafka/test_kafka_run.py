"""`pyddmq demo --upstream kafka`: two node processes over a real Kafka, one of which is killed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import command

pytestmark = pytest.mark.long


def run_demo(*options: str, code: ExitCode, address: str | None = None) -> dict[str, Any]:
    """Run it, expect an exit code, and return its report."""
    given = [] if address is None else ["--kafka", address]
    done = command("demo", "--upstream", "kafka", "--json", *given, *options)
    assert done.code == code, done.out + done.err
    report: dict[str, Any] = json.loads(done.out)
    return report


def test_demo_starts_a_kafka_and_passes(jars: str) -> None:
    """All events, in order per case, although a node was killed; what came again had just been done."""
    report = run_demo("--events", "3000", code=ExitCode.OK)
    assert [each["check"] for each in report["checks"]] == ["delivery", "order", "retry", "kill", "commits"]
    assert (report["events"], report["passed"]) == (3000, True)
    assert 1500 <= report["killedAt"] < 3000
    assert report["deliveries"] >= 3000 + report["failedOnPurpose"]
    assert report["oldestRepeatMs"] is None or report["oldestRepeatMs"] < 5000
    assert report["silenceMs"] is not None


@pytest.mark.parametrize("spoil", ["order", "loss"])
def test_demo_can_fail(spoil: str, address: str) -> None:
    """With the check that the spoilt run is about."""
    report = run_demo(
        "--events", "600", "--clients", "2", "--break", spoil, code=ExitCode.CHECK_FAILED, address=address
    )
    failed = {each["check"] for each in report["checks"] if not each["passed"]}
    assert {"order": "order", "loss": "delivery"}[spoil] in failed
    assert "kill" not in failed


def test_kafka_that_does_not_answer_is_told() -> None:
    """In a sentence."""
    done = command("demo", "--upstream", "kafka", "--kafka", "127.0.0.1:9")
    assert (done.code, "Kafka is asked in vain" in done.err) == (ExitCode.CANNOT_CONNECT, True)
