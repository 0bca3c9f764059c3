"""`pyddmq timers cancel`: one, those of a selection, or all; shown first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from proxy.admin.text import amount
from proxy.cli.admin_client import post
from proxy.cli.codes import ExitCode
from proxy.cli.errors import CliError
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import print_json, print_line, progress
from proxy.cli.stopped_queries import asking
from proxy.cli.timer_commands import From, OnlyTopic, To, asked_parameters, named, pages, print_timers

SELECTED_MAX = 100_000
CHUNK_MAX = 200
_SHOWN = 10


def cancel(
    *,
    timers: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids (UNIQ_KEY or DDMQ's) or handles.")
    ] = None,
    topic: OnlyTopic = None,
    begin: From = None,
    end: To = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are pending.")] = False,
    rate: Annotated[int, typer.Option(min=1, max=100_000, help="Cancels a second at most, of a selection.")] = 1_000,
    yes: Annotated[bool, typer.Option("--yes", help="Cancel a selection; without this it is only shown.")] = False,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Cancel messages that wait for their moment, and say of each whether it was in time.

    Ids and handles are cancelled at once; a selection (--topic, --from, --to, --all) is shown, or cancelled with --yes.
    """
    if timers:
        if everything or begin is not None or end is not None:
            raise CliError("give ids, or a selection, not both", ExitCode.USAGE)
        chosen, selected = named(timers, topic), False
    else:
        if not (everything or topic is not None or begin is not None or end is not None):
            named([], None)
        with asking(admin, None) as ask:
            found, cursor = pages(ask, asked_parameters(topic, begin, end), SELECTED_MAX)
        if cursor is not None:
            text = f"more than {SELECTED_MAX:,} timers are selected; narrow it with --from and --to"
            raise CliError(text, ExitCode.USAGE)
        chosen, selected = [{"id": each["id"], "topic": each["topic"]} for each in found], True
        if not yes:
            return _shown(found, as_json=as_json)
    outcomes = {"cancelled": 0, "tooLate": 0, "unknown": 0}
    with progress("cancelling", len(chosen), unit="messages", enabled=selected and not as_json) as advance:
        for done, result in enumerate(_results(admin, chosen, rate), 1):
            outcomes[result["outcome"]] += 1
            if as_json:
                print_json(result)
            elif not selected or result["outcome"] != "cancelled":
                print_line(result["text"])
            advance(done)
    if selected and not as_json:
        print_line(
            f"{amount(outcomes['cancelled'], 'timer')} cancelled, {outcomes['tooLate']:,} too late, "
            f"{outcomes['unknown']:,} unknown"
        )
    return ExitCode.OK if selected or outcomes["cancelled"] == len(chosen) else ExitCode.NOT_FOUND


def _shown(found: list[dict[str, Any]], *, as_json: bool) -> int:
    """Show what would be cancelled."""
    if as_json:
        for each in found:
            print_json({**each, "outcome": None})
        return ExitCode.OK
    print_timers("Selected", found[:_SHOWN])
    more = f", {_SHOWN} of them shown" if len(found) > _SHOWN else ""
    print_line(f"nothing was changed: {amount(len(found), 'timer')} would be cancelled{more}; --yes does it")
    return ExitCode.OK


def _results(admin: str, chosen: list[dict[str, Any]], rate: int) -> Iterator[dict[str, Any]]:
    """Cancel in small requests, of which the node has one at a time, no faster than the rate."""
    chunk = max(1, min(CHUNK_MAX, rate // 5))
    pause = threading.Event()
    for start in range(0, len(chosen), chunk):
        if start:
            pause.wait(chunk / rate)
        answer = post(admin, "/api/timers/cancel", {"timers": chosen[start : start + chunk]})
        yield from answer["results"]
