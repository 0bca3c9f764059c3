"""`pyddmq dlq list | show | stats | redrive`: dead letters, and sending them to their topics again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from msgspec import UnsetType

from broker.runtime.seams import Clock, SystemClock
from proxy.cli.admin_client import get, post
from proxy.cli.errors import CliError
from proxy.cli.moments import moment_option
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson, StoppedData
from proxy.cli.output import print_json, print_table, print_text, progress
from proxy.cli.store.stopped_queries import queries
from proxy.operate.moments import moment_text
from proxy.operate.text import amount
from proxy.operate.views.dead_letters import (
    DeadLetterFigures,
    DeadLetterGroupsAnswer,
    DeadLettersAnswer,
    DeadLetterView,
    RedriveOutcome,
    RedriveResult,
)
from proxy.process.exit_codes import ExitCode

_PATH = "/api/dead-letters"
_PAGE = 100
_SHOWN = 20
"""Lines of a redrive that are shown one by one."""
_TIMEOUT_SECONDS = 60.0

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]
Id = Annotated[str | None, typer.Option("--id", help="The dead letter with this id, its own or that of the message.")]
Topic = Annotated[str | None, typer.Option("--topic", help="Dead letters of messages sent to this topic.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Only dead letters whose reason contains this text.")]
Action = Annotated[str | None, typer.Option("--action", help="Dead letters whose last failure was in this action.")]
Key = Annotated[str | None, typer.Option("--key", help="Dead letters with this key.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Dead letters written at or after this time; `2h` means two hours ago."
    ),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Dead letters written before this time.")]


def list_groups(*, data: StoppedData = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """List the groups that have a dead-letter topic, and the number of dead letters."""
    with queries(admin, data, timeout_seconds=_TIMEOUT_SECONDS) as lookup:
        answer = lookup(_PATH, {}, DeadLetterGroupsAnswer)
    if as_json:
        return print_json(answer)
    rows = [
        [each.group, str(each.dead_letters), str(each.ever_total), _when(each.first_ms), _when(each.last_ms)]
        for each in answer.groups
    ]
    print_table("Dead letters", ["group", "dead letters", "ever", "first", "last"], rows, right=(1, 2))
    for each in answer.in_kafka:
        print_text(f"dead letters of {each.group} are in topic {each.topic} of Kafka cluster {each.cluster}")
    return ExitCode.OK


def show(
    *,
    group: Group,
    letter_id: Id = None,
    topic: Topic = None,
    reason: Reason = None,
    action: Action = None,
    key: Key = None,
    begin: From = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of dead letters shown.")] = 100,
    data: StoppedData = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show a group's dead letters, the oldest first; `pyddmq messages show ID` has a body."""
    parameters = {"id": letter_id, "topic": topic, "reason": reason, "action": action, "key": key}
    parameters |= {"from": begin, "until": until}
    found: list[DeadLetterView] = []
    cursor: str | None = None
    with queries(admin, data, timeout_seconds=_TIMEOUT_SECONDS) as lookup:
        while True:
            page = {"group": group, **parameters, "limit": min(1000, limit - len(found)), "cursor": cursor}
            answer = lookup(_PATH, page, DeadLettersAnswer)
            found += answer.dead_letters
            cursor = answer.cursor
            if cursor is None or len(found) >= limit:
                break
    if as_json:
        return print_json({"group": group, "cursor": cursor, "deadLetters": found})
    columns = ["offset", "died", "topic", "key", "attempts", "action", "reason", "id", "redriven"]
    print_table(f"Dead letters of {group}", columns, [_row(each) for each in found], right=(0, 4))
    if cursor is not None:
        print_text("there may be more; give a higher --limit or a filter")
    return ExitCode.OK


def _row(letter: DeadLetterView) -> list[str]:
    if not letter.readable:
        return [str(letter.offset), "", "", "", "", "", "the record is damaged or deleted", "", ""]
    return [
        str(letter.offset),
        _when(letter.died_ms),
        letter.topic or "unknown",
        letter.key or "",
        str(letter.attempts),
        letter.action or "",
        letter.reason or "",
        letter.id or "",
        _when(letter.redriven.at_ms) if letter.redriven else "",
    ]


def stats(
    *, group: Group, data: StoppedData = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False
) -> int:
    """Count a group's dead letters by topic, reason and action, and how many of them were redriven."""
    with queries(admin, data, timeout_seconds=_TIMEOUT_SECONDS) as lookup:
        answer = lookup(_PATH, {"group": group, "figures": "true"}, DeadLetterFigures)
    if as_json:
        return print_json(answer)
    rows = [[str(each.count), str(each.redriven), each.topic, each.action, each.reason] for each in answer.kinds]
    print_table(f"Dead letters of {group}", ["count", "redriven", "topic", "action", "reason"], rows, right=(0, 1))
    unreadable = f", {answer.unreadable:,} unreadable" if answer.unreadable else ""
    return print_text(f"{amount(answer.dead_letters, 'dead letter')}, {answer.redriven:,} redriven{unreadable}")


def redrive(
    *,
    group: Group,
    letter_id: Id = None,
    topic: Topic = None,
    reason: Reason = None,
    action: Action = None,
    key: Key = None,
    begin: From = None,
    until: Until = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the group.")] = False,
    to: Annotated[str | None, typer.Option("--to", help="Redrive to this topic instead of the original one.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also redrive dead letters that were redriven before.")
    ] = False,
    rate: Annotated[float | None, typer.Option("--rate", min=0.1, help="Maximum per second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be redriven; the default.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Redrive.")] = False,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Send dead letters to their original topics. Without --yes only the effect is shown.

    Every group that subscribes to such a topic receives them. After an interruption, run it again to continue:
    dead letters that were redriven are skipped.
    """
    clock = SystemClock()
    filters = {
        "id": letter_id,
        "topic": topic,
        "reason": reason,
        "action": action,
        "key": key,
        "fromMs": None if begin is None else moment_option(begin, option="--from", clock=clock),
        "untilMs": None if until is None else moment_option(until, option="--until", clock=clock),
    }
    wanted = {name: value for name, value in filters.items() if value is not None}
    if bool(wanted) == everything:
        text = "select dead letters: --id, --topic, --reason, --action, --key, --from, --until; or only --all."
        raise CliError(text, ExitCode.USAGE)
    if dry_run and yes:
        raise CliError("--dry-run and --yes exclude each other.", ExitCode.USAGE)
    request = {"group": group, **wanted, "to": to, "again": again, "dryRun": not yes}
    run = _RedriveRun()
    total = _total(admin, group)
    with progress("redriving" if yes else "looking", total, unit="messages", enabled=not as_json) as advance:
        for page in _pages(admin, request, rate if yes else None, RedriveRate(clock, threading.Event().wait)):
            run.take(page)
            advance(run.looked_at)
    if as_json:
        print_json(run.document(group, dry_run=not yes))
    else:
        run.print(dry_run=not yes)
    if run.stopped is not None:
        raise CliError(f"stopped: {run.stopped}; run it again to continue.", ExitCode.REFUSED)
    if letter_id is not None and not any(run.counts.values()):
        text = f"no dead letter of {group} has the id {letter_id}, or the other filters hide it; `dlq show` lists them"
        raise CliError(text, ExitCode.NOT_FOUND)
    return ExitCode.CHECK_FAILED if run.counts["refused"] else ExitCode.OK


def _total(admin: str, group: str) -> int | None:
    """Return how many there are, for the progress bar; None without the right to view all groups."""
    try:
        answer = get(admin, _PATH, DeadLetterGroupsAnswer, timeout_seconds=_TIMEOUT_SECONDS)
    except CliError as error:
        if error.code is not ExitCode.REFUSED:
            raise
        return None
    return next((each.dead_letters for each in answer.groups if each.group == group), None)


class RedriveRate:
    """Keeps to a rate: so many a second, counted from the first page on.

    Args:
        clock: Tells the time.
        wait: Waits so many seconds.
    """

    def __init__(self, clock: Clock, wait: Callable[[float], object]) -> None:
        self._clock = clock
        self._wait = wait
        self._started = clock.monotonic()
        self._done = 0

    def done(self, count: int, rate: float) -> None:
        """Wait until `count` more were allowed at the rate."""
        self._done += count
        left = self._started + self._done / rate - self._clock.monotonic()
        if left > 0:
            self._wait(left)


def _pages(
    admin: str, request: dict[str, Any], rate: float | None, redrive_rate: RedriveRate
) -> Iterator[RedriveResult]:
    """Redrive page by page; each is durable when it is here."""
    limit = _PAGE if rate is None else max(1, min(_PAGE, int(rate)))
    cursor: str | None = None
    while True:
        page = post(admin, f"{_PATH}/redrive", {**request, "cursor": cursor, "limit": limit}, RedriveResult)
        yield page
        cursor = page.cursor
        if cursor is None or page.stopped is not None:
            return
        if rate is not None:
            redrive_rate.done(page.redriven, rate)


class _RedriveRun:
    """What became of the dead letters so far."""

    def __init__(self) -> None:
        self.looked_at = 0
        self.stopped: str | None = None
        self.counts = dict.fromkeys(("redriven", "would_redrive", "already", "refused"), 0)
        self.kept: list[RedriveOutcome] = []

    def take(self, page: RedriveResult) -> None:
        self.looked_at += page.looked_at
        self.stopped = page.stopped
        for name in self.counts:
            self.counts[name] += getattr(page, name)
        # An operator has to see the refusals: they are all shown, of the rest the first.
        ordinary = sum(each.outcome != "refused" for each in self.kept)
        for each in page.results:
            if each.outcome == "refused":
                self.kept.append(each)
            elif ordinary < _SHOWN:
                ordinary += 1
                self.kept.append(each)

    def document(self, group: str, *, dry_run: bool) -> dict[str, Any]:
        return {
            "group": group,
            "dryRun": dry_run,
            "lookedAt": self.looked_at,
            "redriven": self.counts["redriven"],
            "wouldRedrive": self.counts["would_redrive"],
            "already": self.counts["already"],
            "refused": self.counts["refused"],
            "stopped": self.stopped,
            "shown": self.kept,
        }

    def print(self, *, dry_run: bool) -> None:
        columns = ["offset", "topic", "key", "id", "outcome"]
        print_table("Redrive", columns, [_outcome_row(each) for each in self.kept], right=(0,))
        counts = self.counts
        rest = f"{counts['already']:,} redriven before, {counts['refused']:,} refused"
        if dry_run:
            would = counts["would_redrive"]
            print_text(
                f"would redrive {amount(would, 'dead letter')}; {rest}{'. Pass --yes to redrive' if would else ''}"
            )
        else:
            print_text(f"redrove {amount(counts['redriven'], 'dead letter')}; {rest}")


def _outcome_row(result: RedriveOutcome) -> list[str]:
    target, before, text = result.target, result.redriven, ""
    if result.outcome == "refused":
        text = f"refused: {result.why}"
    elif result.outcome == "already" and before:
        text = f"already redriven at {_when(before.at_ms)} as {before.id or 'a message of ' + (before.topic or '?')}"
    elif result.outcome == "redriven" and target:
        text = f"redriven to {target.topic}{f' as {target.id}' if target.id else ''}"
    elif target:
        text = f"would go to {target.topic}{'' if isinstance(target.queue, UnsetType) else f', queue {target.queue}'}"
    return [str(result.offset), result.topic or "", result.key or "", result.id or "", text]


def _when(wall_ms: int | UnsetType | None) -> str:
    return moment_text(wall_ms) if isinstance(wall_ms, int) else ""
