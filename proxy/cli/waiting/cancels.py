"""Cancelling what waits, from the command line: in small requests, no faster than asked, with an answer for each."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import to_builtins

from broker.views import WaitingMessage
from proxy.cli.admin_client import post
from proxy.cli.errors import CliError
from proxy.cli.output import print_json, print_text, progress
from proxy.operate.text import amount
from proxy.operate.views.changes import CancelResult, CancelsResult
from proxy.process.exit_codes import ExitCode, code_of_all

SELECTED_MAX = 100_000
CHUNK_MAX = 200
_SHOWN = 10

Chosen = Sequence[dict[str, Any]]
Shown = TypeVar("Shown", bound=WaitingMessage)


def named(ids: Sequence[str], topic: str | None) -> Chosen:
    """Return what was named as a change names it. Raises CliError: an id is empty."""
    if not all(ids):
        raise CliError("an id is empty; remove it", ExitCode.USAGE)
    return [{"id": each, "topic": topic} for each in ids]


def show_selection(
    found: Sequence[Shown], print_table: Callable[[str, Sequence[Shown]], None], *, noun: str, as_json: bool
) -> int:
    """Show what would be cancelled."""
    if as_json:
        for each in found:
            print_json({**to_builtins(each), "outcome": None})
        return ExitCode.OK
    print_table("Selected", found[:_SHOWN])
    more = f", {_SHOWN} of them shown" if len(found) > _SHOWN else ""
    return print_text(f"nothing was changed: {amount(len(found), noun)} would be cancelled{more}; pass --yes to cancel")


def names_of(found: Sequence[WaitingMessage]) -> Chosen:
    """Return what was selected as a change names it."""
    return [{"id": each.id, "topic": each.topic} for each in found]


def run_cancels(admin: str, path: str, chosen: Chosen, *, rate: int, selected: bool, noun: str, as_json: bool) -> int:
    """Cancel, and say what became of each.

    Args:
        admin: Address of the node.
        path: Of the change; its last name but one is what its body calls the list.
        chosen: Id and topic of each.
        rate: So many a second at most.
        selected: They were selected, not named: only those that were too late are listed one by one.
        noun: What they are called.
        as_json: Print a line of JSON for each.
    """
    outcomes: Counter[str] = Counter()
    with progress("cancelling", len(chosen), unit="messages", enabled=selected and not as_json) as advance:
        for done, result in enumerate(_results(admin, path, chosen, rate), 1):
            outcomes[result.outcome] += 1
            if as_json:
                print_json(result)
            elif not selected or result.outcome != "cancelled":
                print_text(result.text)
            advance(done)
    if selected and not as_json:
        moved = outcomes["rescheduledBefore"]
        print_text(
            f"{amount(outcomes['cancelled'], noun)} cancelled, {outcomes['tooLate']:,} too late, "
            f"{outcomes['unknown']:,} unknown{f', {moved:,} rescheduled before' if moved else ''}"
        )
    return ExitCode.OK if selected else code_of_all(map(outcome_code, outcomes))


def outcome_code(outcome: str) -> ExitCode:
    """Return how a command ends for what became of one: what is known and waits no more is refused."""
    if outcome in ("cancelled", "rescheduled"):
        return ExitCode.OK
    return ExitCode.NOT_FOUND if outcome == "unknown" else ExitCode.REFUSED


def _results(admin: str, path: str, chosen: Chosen, rate: int) -> Iterator[CancelResult]:
    """Cancel in small requests, of which the node has one at a time, no faster than the rate."""
    chunk = max(1, min(CHUNK_MAX, rate // 5))
    name = "timers" if "/timers/" in path else "messages"
    pause = threading.Event()
    for start in range(0, len(chosen), chunk):
        if start:
            pause.wait(chunk / rate)
        yield from post(admin, path, {name: chosen[start : start + chunk]}, CancelsResult).results
