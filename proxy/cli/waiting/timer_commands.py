"""`pyddmq timers list | show | reschedule | pause | resume | stats`: what waits for its moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import to_builtins
from msgspec.structs import replace

from broker.runtime.seams import SystemClock
from broker.views import TimerView
from proxy.cli.admin_client import post
from proxy.cli.moments import moment_option
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson, StoppedData
from proxy.cli.output import print_json, print_table, print_text
from proxy.cli.store.stopped_queries import Lookup, queries
from proxy.cli.waiting.cancels import outcome_code
from proxy.operate.moments import moment_text
from proxy.operate.text import age
from proxy.operate.views.changes import RescheduleResult, StagesResult
from proxy.operate.views.waiting import TimerAnswer, TimersAnswer
from proxy.process.exit_codes import ExitCode

PAGE = 1_000

TimerId = Annotated[str, typer.Argument(metavar="ID", help="The message's id (UNIQ_KEY or DDMQ's), or its handle.")]
OfTopic = Annotated[str | None, typer.Option("--topic", help="Topic of the message; needed when its id is not unique.")]
OnlyTopic = Annotated[str | None, typer.Option("--topic", help="Only messages for this topic.")]
From = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="Due at or after this time, such as `in 10m`.")
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Due before this time.")]
Stage = Annotated[str, typer.Argument(metavar="STAGE", help="Stage of the pipeline, from `timers stats`, or all.")]


def query_parameters(topic: str | None, begin: str | None, end: str | None) -> dict[str, object]:
    """Return the parameters that select timers. Raises CliError: a moment is none."""
    clock = SystemClock()
    parameters: dict[str, object] = {"topic": topic}
    for name, moment in (("from", begin), ("to", end)):
        if moment is not None:
            parameters[name] = moment_option(moment, option=f"--{name}", clock=clock, span_is_age=False)
    return parameters


def list_timers(
    *,
    topic: OnlyTopic = None,
    begin: From = None,
    end: To = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of messages shown.")] = 100,
    data: StoppedData = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List pending timed messages, ordered by due time."""
    parameters = query_parameters(topic, begin, end)
    with queries(admin, data) as lookup:
        found, cursor = pages(lookup, parameters, limit)
    if as_json:
        for each in found:
            print_json(each)
        return ExitCode.OK
    print_timers("Timers", found)
    if cursor is not None:
        print_text("there are more; pass a topic, --from and --to, or a higher --limit")
    return ExitCode.OK


def pages(lookup: Lookup, parameters: dict[str, object], limit: int) -> tuple[list[TimerView], str | None]:
    """Fetch the timers of a selection, page after page, and where a further page would begin."""
    found: list[TimerView] = []
    cursor: str | None = None
    while len(found) < limit:
        more = {**parameters, "limit": min(PAGE, limit - len(found)), "cursor": cursor}
        answer = lookup("/api/timers", more, TimersAnswer)
        found += answer.timers
        cursor = answer.cursor
        if cursor is None:
            break
    return found, cursor


def print_timers(title: str, found: Sequence[TimerView]) -> None:
    """Print a table of timers."""
    rows = [
        [
            moment_text(each.due_ms),
            each.topic,
            each.key,
            each.id,
            each.delay_id or "",
            _loop(each),
            each.refused_because or "",
        ]
        for each in found
    ]
    columns = ["due", "topic", "key", "id", "delay id", "loop", "refused because"]
    kept = [place for place in range(7) if place < 4 or any(row[place] for row in rows)]
    print_table(title, [columns[place] for place in kept], [[row[place] for place in kept] for row in rows])


def _loop(timer: TimerView) -> str:
    """Id of a loop, and how many deliveries it has made and may make; of another timer nothing."""
    loop = timer.loop
    return "" if loop is None else f"{loop.id} ({loop.made} made, {loop.left} left)"


def show(
    *,
    timer: TimerId,
    topic: OfTopic = None,
    data: StoppedData = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show one timer: pending, delivered, cancelled or rescheduled."""
    with queries(admin, data) as lookup:
        answer = lookup("/api/timers/show", {"id": timer, "topic": topic}, TimerAnswer)
    if as_json:
        return print_json(answer)
    print_text(f"id        {answer.id}")
    print_text(f"topic     {answer.topic}")
    print_text(f"state     {answer.text}")
    for label, moment in (("stored", answer.stored_ms), ("due", answer.due_ms)):
        if moment is not None:
            print_text(f"{label:<9} {moment_text(moment)}")
    for label, text in (("key", answer.key), ("handle", answer.handle)):
        if text:
            print_text(f"{label:<9} {text}")
    return ExitCode.OK


def reschedule(
    *,
    timer: TimerId,
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="The new time: ISO 8601, ms, or `in 90s`.")],
    topic: OfTopic = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Change the due time of a timer atomically; it receives a new id."""
    due_ms = moment_option(at, option="--at", clock=SystemClock(), span_is_age=False)
    answer = post(
        admin, "/api/timers/reschedule", {"id": timer, "topic": topic, "deliverAtMs": due_ms}, RescheduleResult
    )
    if as_json:
        print_json(answer)
    else:
        print_text(answer.text)
        if answer.new_id:
            print_text(f"new id    {answer.new_id}")
            print_text(f"handle    {answer.handle}")
    return outcome_code(answer.outcome)


def pause(*, stage: Stage, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Pause a stage of timer processing until `resume` or a restart; timers become late, none is lost."""
    return _switch("pause", stage, admin, as_json=as_json)


def resume(*, stage: Stage, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Resume a paused stage."""
    return _switch("resume", stage, admin, as_json=as_json)


def _switch(action: str, stage: str, admin: str, *, as_json: bool) -> int:
    answer = post(admin, f"/api/timers/{action}", {"stage": stage}, StagesResult)
    if as_json:
        return print_json(answer)
    before = "" if answer.changed else "nothing changed: "
    paused = ", ".join(answer.paused_stages)
    return print_text(before + (f"paused: {paused}" if paused else "no stage is paused"))


def stats(*, data: StoppedData = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Show the number of pending timers by topic, their lateness, and the backlog of each stage."""
    with queries(admin, data) as lookup:
        answer = lookup("/api/timers", {"limit": 0}, TimersAnswer)
        if answer.next_due_ms is None and answer.pending_total:
            # Not within seconds, so that no slot of it is read.
            first = lookup("/api/timers", {"limit": 1}, TimersAnswer)
            if first.timers:
                due_ms = first.timers[0].due_ms
                answer = replace(answer, next_due_ms=due_ms, late_ms=max(0, first.now_ms - due_ms))
    if as_json:
        return print_json(
            {name: value for name, value in to_builtins(answer).items() if name not in ("timers", "cursor")}
        )
    due = "" if answer.next_due_ms is None else f", the next one due {moment_text(answer.next_due_ms)}"
    late = f", late by {age(answer.late_ms / 1000)}" if answer.late_ms else ""
    print_text(f"pending: {answer.pending_total:,}{due}{late}")
    if answer.refused:
        print_text(f"refused by their topics, retried: {answer.refused:,}")
    topics = [[each.topic, f"{each.pending:,}"] for each in answer.topics]
    print_table("Pending by topic", ["topic", "pending"], topics, right=(1,))
    stages = [
        [each.stage, f"{each.depth:,}", f"{each.ms:,.1f}", "paused" if each.paused else ""] for each in answer.stages
    ]
    return print_table("Stages", ["stage", "waiting", "ms busy", "state"], stages, right=(1, 2))
