"""`pyddmq lag slo`: how each group kept an objective, and how fast it uses its error budget up, without Spark."""

from __future__ import annotations

import math
from typing import Annotated, Final

import typer

from lag.rules.statuses import Level
from proxy.cli.admin_client import get
from proxy.cli.errors import CliError
from proxy.cli.lag.lag_commands import Journal
from proxy.cli.lag.lag_export_command import journal_folder
from proxy.cli.moments import duration_option
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import print_json, print_table, print_text
from proxy.operate.text import age, printable
from proxy.operate.views.lag_history import BurnRate, ObjectiveKept, ObjectivesAnswer
from proxy.process.exit_codes import ExitCode

HOUR_MS: Final = 3_600_000
_SECONDS_MAX = 120.0
"""A node reads its journal beside its other work."""

Objective = Annotated[
    str, typer.Option("--objective", metavar="SPAN", help="Maximum age of the oldest unfinished message, such as 60s.")
]
Since = Annotated[str, typer.Option("--since", metavar="SPAN", help="Time span up to now, such as 1d.")]
Group = Annotated[str | None, typer.Option("--group", help="Only this group, queue by queue.")]
AtLeast = Annotated[
    float | None,
    typer.Option(
        "--at-least",
        min=0,
        max=100,
        help="The goal in percent, such as 99.9: shows error budgets and burn rates; exit code 1 if it is missed.",
    ),
]
Coverage = Annotated[
    float,
    typer.Option("--coverage", min=0, max=100, help="Exit code 3 if less of the span is known, in percent."),
]


def slo(
    *, objective: Objective = "60s", since: Since = "1d", group: Group = None, at_least: AtLeast = None,
    coverage: Coverage = 90.0, journal: Journal = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False,
) -> int:  # fmt: skip
    """Show the share of time and messages for which each group met its objective for the oldest message.

    With --at-least also the rest of the error budget, and burn rates over the last 3d, 6h, 1h, 30m and 5m.
    Exit code 1: a group missed the goal, so its budget is used up; 3: less than --coverage of the span is known.
    """
    target_ms = duration_option(objective, option="--objective")
    span_ms = duration_option(since, option="--since")
    if not target_ms or not span_ms:
        raise CliError("--objective and --since must be above 0, such as 60s and 1d", ExitCode.USAGE)
    if journal is None:
        parameters = {
            "objective": objective.strip(),
            "since": since.strip(),
            "group": group or None,
            "atLeast": at_least,
        }
        answer = get(
            admin, "/api/lag/objectives", ObjectivesAnswer, parameters=parameters, timeout_seconds=_SECONDS_MAX
        )
    else:
        answer = _of_files(journal, target_ms, span_ms, group, None if at_least is None else at_least / 100)
    unknown = [each for each in answer.kept if each.coverage * 100 < coverage]
    known = [each for each in answer.kept if each not in unknown]
    missed = [each for each in known if at_least is not None and _least(each) * 100 < at_least]
    if as_json:
        print_json(answer)
    else:
        _print(answer)
        if at_least is not None and answer.at_least is not None and answer.kept:
            _print_budgets(answer, at_least, coverage)
        for each in missed:
            print_text(f"{_name(each)} met it for {_share(_least(each))}, --at-least is {at_least:g} %")
        for each in unknown:
            print_text(f"{_name(each)}: {_known(each, answer)}, too little for a result: --coverage is {coverage:g} %")
    if missed:
        return ExitCode.CHECK_FAILED
    return Level.UNKNOWN if unknown or not answer.kept else ExitCode.OK


def _least(each: ObjectiveKept) -> float:
    """Return the lower of the shares that are known; without any, all of it is missed."""
    known = [share for share in (each.share, each.messages_share) if share is not None]
    return min(known, default=0.0)


def _known(each: ObjectiveKept, answer: ObjectivesAnswer) -> str:
    """Say how much of the span is known of a queue, on average."""
    known_ms = (each.kept_ms + each.over_ms) // max(1, each.queues)
    return f"known {age(known_ms / 1000)} of {age(answer.asked_ms / 1000)}"


def _of_files(
    journal: str, target_ms: int, span_ms: int, group: str | None, at_least: float | None
) -> ObjectivesAnswer:
    from broker.runtime.disk import RealDisk
    from broker.runtime.seams import SystemClock
    from broker.runtime.steps import run_now
    from lag.history.reading import span_of
    from proxy.operate.lookups.lag_history import objectives_steps

    disk, now_ms = RealDisk(read_only=True), SystemClock().wall_ms()
    folder = journal_folder(disk, journal)
    span = span_of(now_ms - span_ms, now_ms)
    return run_now(objectives_steps(disk, folder, span, target_ms, group=group, at_least=at_least))


def _print(answer: ObjectivesAnswer) -> None:
    span = age(answer.asked_ms / 1000)
    title = f"No unfinished message older than {age(answer.objective_ms / 1000)}, over the last {span}"
    if answer.shortened:
        read = age((answer.until_ms - answer.since_ms) / 1000)
        title += f": the node read the last {read}, --journal DIR reads all"
    if not answer.kept:
        print_text(f"{title}: no samples are recorded")
        return
    by_queue = any(each.queue is not None for each in answer.kept)
    columns = ["group", *(("topic", "queue") if by_queue else ()), "time", "messages", "lost", "over", "known"]
    rows = [
        [
            each.group,
            *((each.topic or "", f"{each.queue}") if by_queue else ()),
            _share(each.share),
            _share(each.messages_share),
            f"{each.lost}",
            age(each.over_ms / 1000),
            _share(each.coverage),
        ]
        for each in sorted(answer.kept, key=lambda each: each.share if each.share is not None else -1.0)
    ]
    print_table(title, columns, rows, right=range(2 if by_queue else 1, len(columns)))


def _print_budgets(answer: ObjectivesAnswer, at_least: float, coverage: float) -> None:
    """Show how much of each error budget is left and how fast it goes, the fastest of the last hours first."""
    span = age(answer.asked_ms / 1000)
    spans = [age(each.window_ms / 1000) for each in answer.kept[0].burn_rates]
    title = f"Error budget: {100 - at_least:.6g} % of the messages of {span}; a burn rate of 1 uses it up in {span}"
    columns = ["group", "missed", "allowed", "left", f"burn {spans[0]}", *spans[1:]]
    rows = []
    for each in sorted(answer.kept, key=lambda each: 1.0 if each.budget_left is None else each.budget_left):
        whole = each.burn_rates[0]
        allowed = f"{int(each.messages * (100 - at_least) / 100 + 1e-6):,}"
        left = "?" if each.budget_left is None else f"{math.floor(each.budget_left * 100)} %"
        rates = [_burn(rate, coverage) for rate in each.burn_rates]
        rows.append([_name(each), f"{whole.missed:,}", allowed, left, *rates])
    print_table(title, columns, rows, right=range(1, len(columns)))
    for each in answer.kept:
        hour = next((rate for rate in each.burn_rates if rate.window_ms == HOUR_MS), None)
        if hour is not None and (hour.burn_rate or 0) > 1 and (each.budget_left or 0) > 0:
            lasts = age((each.budget_left or 0) * answer.asked_ms / (hour.burn_rate or 1) / 1000)
            print_text(f"{_name(each)}: at the rate of the last hour the rest of its budget lasts {lasts}")


def _burn(each: BurnRate, coverage: float) -> str:
    """Write a burn rate, with the known share of its window where that is not nearly all."""
    known = each.coverage * 100
    if known < coverage:
        return f"? (known {known:.0f} %)"
    rate = (
        "none"
        if each.burn_rate is None
        else f"{each.burn_rate:,.3g}"
        if each.burn_rate < 1000
        else f"{each.burn_rate:,.0f}"
    )
    return rate if known >= 95 else f"{rate} (known {known:.0f} %)"


def _name(each: ObjectiveKept) -> str:
    return printable(each.group if each.queue is None else f"{each.group}: {each.topic} {each.queue}")


def _share(value: float | None) -> str:
    """Write a share in percent, never rounded up to 100."""
    if value is None:
        return "?"
    return "100 %" if value >= 1 else f"{int(value * 100_000) / 1000:.3f} %"
