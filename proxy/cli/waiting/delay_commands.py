"""`pyddmq delays list | show`: what waits in the delay levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec.structs import replace

from broker.views import DelayedMessage
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson, StoppedData
from proxy.cli.output import print_json, print_table, print_text
from proxy.cli.store.stopped_queries import Lookup, queries
from proxy.operate.moments import moment_text
from proxy.operate.text import age
from proxy.operate.views.waiting import DelaysAnswer
from proxy.process.exit_codes import ExitCode

PAGE = 1_000

OnlyTopic = Annotated[str | None, typer.Option("--topic", help="Only messages for this topic.")]


def list_levels(*, data: StoppedData = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """List the delay levels: how many messages wait in each, and when the next one is due."""
    with queries(admin, data) as lookup:
        answer = lookup("/api/delays", {}, DelaysAnswer)
    if as_json:
        return print_json(answer)
    rows = [
        [
            str(each.level),
            "" if each.delay_ms is None else age(each.delay_ms / 1000),
            str(each.pending),
            str(each.refused),
            "" if each.oldest_ms is None else moment_text(each.oldest_ms),
            "" if each.next_due_ms is None else moment_text(each.next_due_ms),
            str(each.late_ms),
        ]
        for each in answer.levels
    ]
    columns = ["level", "delay", "pending", "refused", "oldest", "next due", "late ms"]
    return print_table("Delay levels", columns, rows, right=(0, 2, 3, 6))


def show(
    *,
    level: Annotated[int | None, typer.Argument(help="Only this level.")] = None,
    topic: OnlyTopic = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of messages shown.")] = 100,
    data: StoppedData = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show pending messages, ordered by due time."""
    with queries(admin, data) as lookup:
        found, answer = pages(lookup, level, topic, limit)
    if as_json:
        return print_json(replace(answer, messages=found))
    print_messages("Delayed messages", found)
    if answer.cut:
        print_text("there are more; pass a level, a topic or a higher --limit")
    return ExitCode.OK


def pages(
    lookup: Lookup, level: int | None, topic: str | None, limit: int
) -> tuple[list[DelayedMessage], DelaysAnswer]:
    """Fetch the messages of a selection, page after page; return them, and the last answer."""
    found: list[DelayedMessage] = []
    parameters = {"messages": "true", "level": level, "topic": topic, "cursor": None}
    while True:
        answer = lookup("/api/delays", {**parameters, "limit": min(PAGE, limit - len(found))}, DelaysAnswer)
        found += answer.messages or ()
        if not answer.cut or len(found) >= limit:
            return found, answer
        parameters["cursor"] = answer.cursor or ""


def print_messages(title: str, found: Sequence[DelayedMessage]) -> None:
    """Print a table of messages."""
    rows = [
        [
            moment_text(each.due_ms),
            str(each.level),
            each.topic,
            each.key,
            each.id,
            each.refused_because or "",
        ]
        for each in found
    ]
    print_table(title, ["due", "level", "topic", "key", "id", "refused because"], rows, right=(1,))
