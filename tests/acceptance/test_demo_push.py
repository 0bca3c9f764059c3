"""`pyddmq demo push`: it passes, and can fail."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import command


def report_of(*options: str, code: ExitCode) -> dict[str, Any]:
    """Run the demo, expect an exit code, and return its report."""
    done = command("demo", "push", "--json", "--events", "400", *options)
    assert done.code == code, done.out + done.err
    report: dict[str, Any] = done.json_lines()[0]
    return report


def test_receiver_that_misbehaves_gets_everything_in_order() -> None:
    """Nothing is lost, each case in order, every request signed; the URL that was down came in again."""
    report = report_of(code=ExitCode.OK)
    assert report["passed"] is True
    assert {each["check"] for each in report["checks"]} == {
        "delivery",
        "order",
        "retry",
        "consumed",
        "signed",
        "breaker",
    }
    assert report["requests"] > report["events"] == 400
    assert report["action"]["url_out"] >= 1


@pytest.mark.parametrize(("kind", "check"), [("order", "order"), ("loss", "delivery")])
def test_broken_demo_names_the_check_that_failed(kind: str, check: str) -> None:
    """--break ends with exit code 1 and the right name."""
    report = report_of("--break", kind, code=ExitCode.CHECK_FAILED)
    assert [each["check"] for each in report["checks"] if not each["passed"]] == [check]
