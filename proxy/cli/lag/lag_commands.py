"""`pyddmq lag`, `lag check`, `lag explain`: how far groups are behind, what that means, and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from lag.rules.explain import explain as explained
from lag.rules.statuses import Level
from proxy.cli.admin_client import get
from proxy.cli.errors import CliError
from proxy.cli.findings import print_findings
from proxy.cli.lag.lag_export_command import journal_folder
from proxy.cli.moments import duration_option
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import print_error, print_json, print_table, print_text
from proxy.operate.attention.judgement import LEVELS
from proxy.operate.lag_texts import UNKNOWN, behind, count, forecast, left, rate, sparkline
from proxy.operate.text import age, amount, printable
from proxy.operate.views.lag import LagAnswer, LagGroup, LagQueue, LagWaiting
from proxy.operate.views.lag_history import LagTrend
from proxy.process.exit_codes import ExitCode

# `--journal` of `pyddmq lag` and `lag check`: what a lag journal's files say, in the place of a node.


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


_SECONDS_MAX = 60.0
"""A node reads its journal beside its other work."""

Group = Annotated[str | None, typer.Argument(help="Only this group.")]


def show(
    *,
    group: Group = None,
    trend: Annotated[
        str | None,
        typer.Option(
            "--trend", metavar="SPAN", help="Compare with the lag this time ago, such as 1h, from the node's journal."
        ),
    ] = None,
    journal: Journal = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show the lag of each group, the queues with lag or a problem, and what needs attention."""
    if trend is not None:
        duration_option(trend, option="--trend")
    answer = _lag(admin, group, trend) if journal is None else of_files(journal, group, trend)
    if as_json:
        return print_json(answer)
    if not answer.enabled:
        return print_text("the node does not sample lag; set `enabled: true` in the section `lag` of its configuration")
    print_findings(answer.findings)
    columns = ["group", "level", "status", "finding", "queues", "lag", "left", "behind"]
    title = f"{amount(len(answer.groups), 'group')}, {answer.level}"
    groups = sorted(answer.groups, key=lambda each: -LEVELS.index(each.level))
    print_table(title, columns, [_group_row(each) for each in groups], right=(4, 5, 6))
    shown = [each for each in answer.queues if each.level != Level.OK.name or each.unfinished]
    if shown:
        columns = ["group", "topic", "queue", "status", "lag", "left", "behind", "in/s", "out/s", "forecast", "cause"]
        print_table(_queues_title(answer, shown), columns, [_row(each) for each in shown], right=(2, 4, 5, 7, 8))
    if answer.waiting:
        columns = ["waiting", "topic", "status", "scheduled", "overdue", "late", "undecided for"]
        rows = [_waiting_row(each) for each in answer.waiting]
        print_table("Timed messages and undecided transactions", columns, rows, right=(3, 4))
    if answer.trend is not None:
        _print_trend(answer.trend, trend or "")
    if answer.trouble is not None:
        print_text(f"the lag journal is not written: {answer.trouble}")
    return ExitCode.OK


def check(
    *,
    group: Annotated[str | None, typer.Option("--group", help="Only this group.")] = None,
    max_lag: Annotated[
        int | None, typer.Option("--max-lag", min=0, help="ERR if a queue has more messages left.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", min=0, help="ERR if a queue is further behind, in seconds.")
    ] = None,
    journal: Journal = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Check findings and lag of the node and its groups; exit 0 OK, 1 WARN, 2 ERR, 3 unknown without any ERR."""
    try:
        answer = _lag(admin, group) if journal is None else of_files(journal, group)
    except CliError as error:
        print_error(f"UNKNOWN: {error}", code=Level.UNKNOWN, as_json=as_json)
        return Level.UNKNOWN
    over = [text for each in answer.queues for text in _over(each, max_lag, max_seconds)]
    level = Level.ERR if over else Level[answer.level]
    unseen = answer.queues_total - len(answer.queues)
    if (max_lag is not None or max_seconds is not None) and unseen and level in (Level.OK, Level.WARN):
        level = Level.UNKNOWN
        over.append(f"{amount(unseen, 'more queue')} could not be compared with the limits; pass --group")
    if as_json:
        print_json({"level": level.name, "over": over, "lag": answer})
        return level
    print_text(f"{level.name}: {_summary(answer, group)}")
    for text in over:
        print_text(printable(text))
    print_findings(answer.findings)
    return level


def explain(
    *, name: Annotated[str, typer.Argument(help="A status, a cause or a figure, such as STALL or lag.")]
) -> int:
    """Explain a status, a cause or a figure: what it means, its formula, and what to do."""
    try:
        print_text(explained(name))
    except ValueError as error:
        raise CliError(str(error), ExitCode.NOT_FOUND) from error
    return ExitCode.OK


def _lag(admin: str, group: str | None, trend: str | None = None) -> LagAnswer:
    span = None if trend is None else trend.strip()
    parameters = {"limit": LIMIT, "group": group or None, "trend": span}
    return get(admin, "/api/lag", LagAnswer, parameters=parameters, timeout_seconds=_SECONDS_MAX)


def _group_row(each: LagGroup) -> Sequence[str]:
    late = UNKNOWN if each.time_lag_ms is None else age(each.time_lag_ms / 1000)
    return [
        each.group,
        each.level,
        each.status,
        each.finding or "",
        f"{each.queues}",
        count(each.lag),
        left(each),
        late if each.unfinished != 0 else "0",
    ]


def _queues_title(answer: LagAnswer, shown: Sequence[LagQueue]) -> str:
    unseen = answer.queues_total - len(answer.queues)
    text = f"{len(shown):,} of {amount(answer.queues_total, 'queue')}: not OK, or with messages left"
    return f"{text}; {unseen:,} are not listed, pass --group" if unseen else text


def _row(each: LagQueue) -> Sequence[str]:
    return [
        each.group,
        each.topic,
        f"{each.queue}",
        each.status,
        count(each.lag),
        count(each.unfinished),
        behind(each),
        rate(each.produce_rate),
        rate(each.consume_rate),
        forecast(each),
        each.evidence if each.cause is None else f"{each.cause}: {each.evidence}",
    ]


def _waiting_row(each: LagWaiting) -> Sequence[str]:
    names = {"timer": "timers", "delay": f"delay level {each.delay_level}", "half": "undecided transactions"}
    is_half = each.kind == "half"
    late = UNKNOWN if each.lateness_ms is None else age(each.lateness_ms / 1000)
    undecided = UNKNOWN if each.undecided_for_ms is None else age(each.undecided_for_ms / 1000)
    return [
        names[each.kind],
        each.topic,
        each.status,
        count(each.scheduled),
        count(each.overdue),
        "" if is_half else late,
        undecided if is_half else "",
    ]


def _over(each: LagQueue, max_lag: int | None, max_seconds: float | None) -> list[str]:
    where = f"{each.group}: {each.topic} {each.queue}"
    found = []
    if max_lag is not None and (each.unfinished is None or each.unfinished > max_lag):
        left = UNKNOWN if each.unfinished is None else amount(each.unfinished, "message")
        found.append(f"{where} has {left} left, --max-lag is {max_lag}")
    late_ms = each.time_lag_ms if each.time_lag_ms is not None else each.time_lag_low_ms
    if max_seconds is not None and (late_ms is None or late_ms > max_seconds * 1000):
        found.append(f"{where} is behind by {behind(each)}, --max-seconds is {max_seconds:g}")
    return found


def _summary(answer: LagAnswer, group: str | None) -> str:
    if not answer.enabled:
        return "the node does not sample lag"
    if not (answer.queues_total or answer.queues_empty):
        return f"no samples of {'a group' if group is None else f'group {group}'} yet"
    messages = sum(each.unfinished or 0 for each in answer.groups)
    late_ms = max((each.time_lag_ms or 0 for each in answer.groups), default=0)
    more = " and more" if any(each.queues_unknown for each in answer.groups) else ""
    text = f"{amount(len(answer.groups), 'group')}, {amount(messages, 'message')}{more} left"
    return f"{text}, the oldest {age(late_ms / 1000)} old" if messages else text


def _print_trend(trend: LagTrend, length: str) -> None:
    if trend.shortened:
        length = f"{age((trend.until_ms - trend.since_ms) / 1000)}: a longer time is too much to read"
    by_queue = any(each.queue is not None for each in trend.lines)
    columns = ["group", *(("topic", "queue") if by_queue else ()), "lag before", "lag now", "slope", f"last {length}"]
    encoding = sys.stdout.encoding or "utf-8"
    rows = [
        [
            each.group,
            *((each.topic or "", f"{each.queue}") if by_queue else ()),
            count(each.first),
            count(each.last),
            UNKNOWN if each.slope is None else f"{each.slope:+.3g}/s" if each.slope else "0",
            sparkline(each.parts, encoding),
        ]
        for each in trend.lines
    ]
    print_table("Trend", columns, rows, right=(2, 3, 4, 5) if by_queue else (1, 2, 3))
