"""`pyddmq lag alarms | mute`: what is open at a node, and who is not to be told of it for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.admin_client import get, post
from proxy.cli.errors import CliError
from proxy.cli.moments import duration_option, moment_option
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import print_json, print_line, print_table
from proxy.operate.text import age, amount
from proxy.operate.views.alarms import LagAlarm, LagAlarmsAnswer, MuteResult
from proxy.process.exit_codes import ExitCode

_LIMIT = 10_000

OneGroup = Annotated[str | None, typer.Argument(help="Only this group.")]
Group = Annotated[str, typer.Argument(help="The group.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to this moment.")]
Span = Annotated[str | None, typer.Option("--for", metavar="SPAN", help="For so long, such as 2h.")]
Off = Annotated[bool, typer.Option("--off", help="End its mute.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, in a line.")]


def alarms(*, group: OneGroup = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Show open alarms about consumption lag, who is muted, and what keeps alarms from being told."""
    answer = get(admin, "/api/lag/alarms", LagAlarmsAnswer, asked={"limit": _LIMIT, "group": group or None})
    if as_json:
        return print_json(answer)
    if not answer.rules:
        print_line("the node has no rules for alarms: write some under `lag.alarms.rules` of its configuration")
    columns = ["group", "severity", "status", "open for", "queues", "worst", "lag", "told", "cause", "id"]
    rows = [_row(each, answer.now_ms) for each in answer.alarms]
    print_table(f"{amount(len(answer.alarms), 'open alarm')}", columns, rows, right=(4, 6, 7))
    for mute in answer.mutes:
        left = age((mute.until_ms - answer.now_ms) / 1000)
        print_line(f"{mute.group} is muted for another {left}{f': {mute.reason}' if mute.reason else ''}")
    for sink, trouble in answer.troubles.items():
        print_line(f"alarms cannot be told to the {sink}: {trouble}")
    if answer.dropped:
        print_line(f"{amount(answer.dropped, 'telling')} given up, since too many waited")
    return ExitCode.OK


def mute(
    *,
    group: Group,
    until: Until = None,
    span: Span = None,
    off: Off = False,
    reason: Reason = "",
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Keep a group's alarms from being told for a while; what is open then is told when that ends."""
    clock = SystemClock()
    if (until is not None) + (span is not None) + off != 1:
        raise CliError("give one of --until TIME, --for SPAN and --off", ExitCode.USAGE)
    if until is not None:
        until_ms = moment_option(until, option="--until", clock=clock, span_is_age=False)
    elif span is not None:
        until_ms = clock.wall_ms() + duration_option(span, option="--for")
    else:
        until_ms = 0
    body = {"group": group, "untilMs": until_ms, "reason": reason}
    result = post(admin, "/api/lag/mute", body, MuteResult)
    if as_json:
        print_json(result)
    elif result.until_ms is None:
        print_line(f"{group} is not muted")
    else:
        print_line(f"{group} is muted for {age((result.until_ms - clock.wall_ms()) / 1000)}")
    return ExitCode.OK


def _row(each: LagAlarm, now_ms: int) -> list[str]:
    return [
        each.group or "the node",
        each.severity + (" (muted)" if each.muted else ""),
        each.status,
        age(max(0, now_ms - each.opened_ms) / 1000),
        f"{each.queues}",
        f"{each.topic} {each.queue}" if each.topic else "",
        "?" if each.lag is None else f"{each.lag}",
        f"{each.told}",
        "" if each.cause is None else f"{each.cause}: {each.evidence}",
        each.id,
    ]
