"""`pyddmq delays list | show`: what waits in the delay levels."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.admin.text import age
from proxy.cli.codes import ExitCode
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson, StoppedData
from proxy.cli.output import print_json, print_line, print_table
from proxy.cli.stopped_queries import asking
from proxy.moments import moment_text


def list_levels(*, data: StoppedData = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """List the delay levels: how many messages wait in each, and when the next one is due."""
    with asking(admin, data) as ask:
        answer = ask("/api/delays", {})
    if as_json:
        print_json(answer)
        return ExitCode.OK
    rows = [
        [
            str(each["level"]),
            "" if each["delayMs"] is None else age(each["delayMs"] / 1000),
            str(each["pending"]),
            str(each["refused"]),
            "" if each["oldestMs"] is None else moment_text(each["oldestMs"]),
            "" if each["nextDueMs"] is None else moment_text(each["nextDueMs"]),
            str(each["lateMs"]),
        ]
        for each in answer["levels"]
    ]
    columns = ["level", "delay", "pending", "refused", "oldest", "next due", "late ms"]
    print_table("Delay levels", columns, rows, right=(0, 2, 3, 6))
    return ExitCode.OK


def show(
    *,
    level: Annotated[int | None, typer.Argument(help="Only this level.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only messages for this topic.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Messages shown at most.")] = 100,
    data: StoppedData = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show the messages that wait, those due first at the front."""
    asked: dict[str, str | int] = {"limit": limit, "messages": "true"}
    if level is not None:
        asked["level"] = level
    if topic is not None:
        asked["topic"] = topic
    with asking(admin, data) as ask:
        answer = ask("/api/delays", asked)
    if as_json:
        print_json(answer)
        return ExitCode.OK
    rows = [
        [
            moment_text(each["dueMs"]),
            str(each["level"]),
            each["topic"],
            each["key"],
            each["id"],
            each["refusedBecause"] or "",
        ]
        for each in answer["messages"]
    ]
    print_table("Delayed messages", ["due", "level", "topic", "key", "id", "refused because"], rows, right=(1,))
    if answer["cut"]:
        print_line("there are more; name a level, a topic or a higher --limit")
    return ExitCode.OK
