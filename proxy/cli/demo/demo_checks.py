"""What the demos have in common: how their errors and their verdicts are told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from proxy.cli.errors import CliError, refusal_code, translate
from proxy.cli.output import print_json, print_line
from proxy.demo.report import Check, Judged
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode
from pyddmq import ClientError, ClientMisuse, PullRefused, SendRefused


@contextlib.contextmanager
def node_errors(needs: str) -> Iterator[None]:
    """Turn what a client raises into how a demo ends.

    Args:
        needs: What the node's configuration must have for this demo.

    Raises:
        CliError: In the place of a ClientError or ValueError.
    """
    try:
        yield
    except ValueError as error:
        if isinstance(error, ClientMisuse):
            raise translate(error, option="--producer and --consumer") from error
        raise CliError(str(error), ExitCode.USAGE) from error
    except ClientError as error:
        if error.retriable or not isinstance(error, PullRefused | SendRefused):
            raise translate(error, option="--producer and --consumer") from error
        advice = f"The demo needs {needs}, as the sample configuration has them."
        raise CliError(f"the node refused: {error}. {advice}", refusal_code(error)) from error


def conclude(report: Judged, show: Callable[[], object], *, as_json: bool) -> int:
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


def print_foreign(count: int, indent: str = "") -> None:
    """Print how many messages were of other runs or producers, where there were any."""
    if count:
        print_line(f"{indent}acked on the way: {amount(count, 'message')} of other runs or producers")


def _print_checks(checks: Sequence[Check]) -> None:
    """Print the verdicts of a demo, with examples of what was wrong."""
    for check in checks:
        print_line(f"  {'ok    ' if check.passed else 'FAILED'}  {check.name}: {check.promise}")
        if not check.passed:
            print_line(f"          {amount(check.findings.count, 'violation')}, for example:")
            for example in check.findings.examples:
                print_line(f"            {example}")
