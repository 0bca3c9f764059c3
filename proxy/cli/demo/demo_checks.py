"""Prints the verdict of a demo."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.cli.output import print_json, print_line
from proxy.demo.report import DemoOutcome, PromiseCheck
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode


def conclude(report: DemoOutcome, show: Callable[[], object], *, as_json: bool) -> int:
    """Print what a demo has shown, and return its exit code.

    Args:
        report: Its outcome.
        show: Prints its facts, between what was checked and the last line.
        as_json: Whether all of it is printed as one JSON value instead.
    """
    if as_json:
        print_json(report.as_json())
    else:
        _print_checks(report.checks)
        show()
        failed = [check.name for check in report.checks if not check.passed]
        print_line(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return ExitCode.OK if report.passed else ExitCode.CHECK_FAILED


def _print_checks(checks: Sequence[PromiseCheck]) -> None:
    """Print the verdicts of a demo, with examples of what was wrong."""
    for check in checks:
        print_line(f"  {'ok    ' if check.passed else 'FAILED'}  {check.name}: {check.promise}")
        if not check.passed:
            print_line(f"          {amount(check.findings.count, 'violation')}, for example:")
            for example in check.findings.examples:
                print_line(f"            {example}")
