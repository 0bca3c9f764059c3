"""`pyddmq delays cancel`: one, those of a level or topic, or all; shown first."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.cli.errors import CliError
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.store.stopped_queries import queries
from proxy.cli.waiting.cancels import SELECTED_MAX, named, names_of, run_cancels, show_selection
from proxy.cli.waiting.delay_commands import OnlyTopic, pages, print_messages
from proxy.process.exit_codes import ExitCode

_PATH = "/api/delays/cancel"


def cancel(
    *,
    messages: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids (UNIQ_KEY).")] = None,
    topic: OnlyTopic = None,
    level: Annotated[int | None, typer.Option("--level", min=1, help="Only messages of this level.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All pending messages of delay levels.")] = False,
    rate: Annotated[
        int, typer.Option(min=1, max=100_000, help="With a selection: maximum cancellations per second.")
    ] = 1_000,
    yes: Annotated[bool, typer.Option("--yes", help="Cancel the selection; without it, only show it.")] = False,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Cancel pending messages of delay levels, and show whether each was still pending.

    Ids are cancelled at once; a selection (--topic, --level, --all) is shown, or cancelled with --yes.
    """
    if messages:
        if everything or level is not None:
            raise CliError("pass ids, or a selection, not both", ExitCode.USAGE)
        chosen = named(messages, topic)
        return run_cancels(admin, _PATH, chosen, rate=rate, selected=False, noun="message", as_json=as_json)
    if not (everything or topic is not None or level is not None):
        raise CliError("pass ids, or select messages with --topic, --level or --all", ExitCode.USAGE)
    with queries(admin, None) as lookup:
        found, answer = pages(lookup, level, topic, SELECTED_MAX)
    if answer.cut:
        raise CliError(f"the selection has more than {SELECTED_MAX:,} messages; narrow it with --level", ExitCode.USAGE)
    # Retries of groups are named, by id or topic, or left alone.
    found = [each for each in found if topic is not None or not each.topic.startswith("%RETRY%")]
    if not yes:
        return show_selection(found, print_messages, noun="message", as_json=as_json)
    return run_cancels(admin, _PATH, names_of(found), rate=rate, selected=True, noun="message", as_json=as_json)
