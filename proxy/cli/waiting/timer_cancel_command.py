"""`pyddmq timers cancel`: one, those of a selection, or all; shown first."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.cli.errors import CliError
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.store.stopped_queries import queries
from proxy.cli.waiting.cancels import SELECTED_MAX, named, names_of, run_cancels, show_selection
from proxy.cli.waiting.timer_commands import From, OnlyTopic, To, pages, print_timers, query_parameters
from proxy.process.exit_codes import ExitCode

_PATH = "/api/timers/cancel"


def cancel(
    *,
    timers: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids (UNIQ_KEY or DDMQ's) or handles.")
    ] = None,
    topic: OnlyTopic = None,
    begin: From = None,
    end: To = None,
    everything: Annotated[bool, typer.Option("--all", help="All pending timers.")] = False,
    rate: Annotated[
        int, typer.Option(min=1, max=100_000, help="With a selection: maximum cancellations per second.")
    ] = 1_000,
    yes: Annotated[bool, typer.Option("--yes", help="Cancel the selection; without it, only show it.")] = False,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Cancel pending timed messages, and show whether each was still pending.

    Ids and handles are cancelled at once; a selection (--topic, --from, --to, --all) is shown, or cancelled with --yes.
    """
    if timers:
        if everything or begin is not None or end is not None:
            raise CliError("pass ids, or a selection, not both", ExitCode.USAGE)
        chosen = named(timers, topic)
        return run_cancels(admin, _PATH, chosen, rate=rate, selected=False, noun="timer", as_json=as_json)
    if not (everything or topic is not None or begin is not None or end is not None):
        text = "pass ids or handles, or select timers with --topic, --from, --to or --all"
        raise CliError(text, ExitCode.USAGE)
    with queries(admin, None) as lookup:
        found, cursor = pages(lookup, query_parameters(topic, begin, end), SELECTED_MAX)
    if cursor is not None:
        text = f"the selection has more than {SELECTED_MAX:,} timers; narrow it with --from and --to"
        raise CliError(text, ExitCode.USAGE)
    if not yes:
        return show_selection(found, print_timers, noun="timer", as_json=as_json)
    return run_cancels(admin, _PATH, names_of(found), rate=rate, selected=True, noun="timer", as_json=as_json)
