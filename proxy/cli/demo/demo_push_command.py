"""`pyddmq demo push`: the permit events pushed to a receiver that misbehaves, and a verdict."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.cli.demo.demo_checks import conclude
from proxy.cli.demo.demo_command import BREAK, Spoil
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_line, progress
from proxy.cli.store.store_files import store_errors
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from proxy.demo.push.run import PushReport


def push(
    *,
    count: Annotated[
        int | None, typer.Option("--events", min=1, help="Only the first so many events; all by default.")
    ] = None,
    spoil: Annotated[Spoil | None, BREAK] = None,
    as_json: AsJson = False,
) -> int:
    """Push real events to a local receiver that misbehaves, and check what it got; needs no running node.

    8,577 events of permit cases, each case in order, are pushed by a node in this process to two URLs. One in twenty is
    met by a status, a reset, silence, an errno, a redirect or an endless reply, and one URL is down for a while. Waits
    are skipped. Exit code 1 when a check fails.
    """
    from proxy.demo.events import load_events
    from proxy.demo.lag.run import scratch_folder
    from proxy.demo.push.run import GROUP, run_push

    run, messages = uuid.uuid4().hex[:12], load_events(count)
    if not as_json:
        print_line(f"run {run}: {amount(len(messages), 'event')} pushed by group {GROUP}")
    with (
        store_errors(Path("a temporary folder")),
        scratch_folder() as folder,
        progress("events done", len(messages), unit="messages", enabled=not as_json) as advance,
    ):
        try:
            kind = spoil.value if spoil is not None else None
            report = run_push(folder, run, messages, spoil=kind, told=advance)
        except ValueError as error:
            raise CliError(str(error), ExitCode.USAGE) from error
    return conclude(report, lambda: _print(report), as_json=as_json)


def _print(report: PushReport) -> None:
    print_line(
        f"pushed     {amount(report.events, 'event')} by {amount(report.requests, 'request')} "
        f"in {report.seconds:.1f} s (waits skipped)"
    )
    print_line(f"receiver   {', '.join(f'{name} {times:,}' for name, times in report.did.items())}")
    print_line(f"action     {', '.join(f'{name} {times:,}' for name, times in report.counted.items())}")
