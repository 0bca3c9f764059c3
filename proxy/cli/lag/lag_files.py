"""`--journal` of `pyddmq lag` and `lag check`: what a lag journal's files say, in the place of a node."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.cli.lag.lag_export_command import journal_folder
from proxy.cli.moments import duration_option
from proxy.operate.views.lag import LagAnswer

LIMIT = 10_000
"""Queues that are shown."""

Journal = Annotated[
    str | None,
    typer.Option(
        "--journal", metavar="DIR", help="Read a lag journal, or the data directory it is in, instead of a node."
    ),
]


def of_files(journal: str, group: str | None, trend: str | None = None) -> LagAnswer:
    """Judge the last samples of a journal. Raises CliError: there is none, or an option is wrong."""
    from msgspec.structs import replace

    from broker.runtime.disk import RealDisk
    from broker.runtime.seams import SystemClock
    from broker.runtime.steps import run_now
    from lag.history.reading import span_of
    from proxy.operate.lookups.lag_history import trend_steps
    from proxy.operate.lookups.lag_of_files import lag_of_files

    disk, now_ms = RealDisk(read_only=True), SystemClock().wall_ms()
    folder = journal_folder(disk, journal)
    answer = lag_of_files(disk, folder, now_ms, limit=LIMIT, group=group)
    if trend is None:
        return answer
    span = span_of(now_ms - max(1, duration_option(trend, option="--trend")), now_ms)
    return replace(answer, trend=run_now(trend_steps(disk, folder, span, group=group)))
