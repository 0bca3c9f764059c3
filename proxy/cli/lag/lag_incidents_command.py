"""`pyddmq lag incidents`: a ledger of the incidents of months, by the journals of nodes, without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Final

import typer

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from lag.report import texts
from lag.report.options import Input, ReportOptions, ReportWindow
from lag.report.page.backlog import csv_of
from lag.report.page.markdown import plain
from proxy.cli.errors import CliError
from proxy.cli.lag.lag_export_command import journal_folder
from proxy.cli.lag.lag_report_command import Rules, Since, Target, TimeZone, Until, limits_given, timezone_of
from proxy.cli.lag.spark_options import Groups
from proxy.cli.moments import moment_option
from proxy.cli.output import print_line, print_table, print_text
from proxy.operate.lag_texts import count
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from lag.report.engine.incidents import IncidentLedger, LedgerIncident

FORMATS: Final = ("text", "json", "csv", "markdown")
COLUMNS: Final = ("since", "lasted", "group", "topic", "status, cause", "peak lag", "lost", "changed before")
STALE_MS: Final = 7_200_000
"""An open incident that was last recorded longer ago is not known to be open."""
YEARLY_MS: Final = 300 * 86_400_000
MONTH_COLUMNS: Final = ("month", "cause", "incidents", "lasted", "lost")

Journals = Annotated[
    list[str],
    typer.Option("--journal", metavar="DIR", help="A lag journal, or the data directory it is in; repeatable."),
]
Topic = Annotated[str | None, typer.Option("--topic", help="Only this topic.")]
Cause = Annotated[str | None, typer.Option("--cause", help="Only this cause, such as no_consumer.")]
Format = Annotated[str, typer.Option("--format", help="text, json, csv or markdown.")]


def incidents_lag(
    *, journals: Journals, since: Since = "30d", until: Until = None, groups: Groups = None, topic: Topic = None,
    cause: Cause = None, target: Target = 60.0, rules: Rules = None, form: Format = "text", timezone: TimeZone = None,
) -> int:  # fmt: skip
    """List past incidents: start, duration, cause and preceding changes; then totals by month."""
    from lag.report.engine.incidents import make_ledger
    from lag.report.engine.local import reduce_locally

    disk, clock = RealDisk(read_only=True), SystemClock()
    if form not in FORMATS:
        raise CliError(f"--format is {form!r}: it is one of {', '.join(FORMATS)}", ExitCode.USAGE)
    try:
        options = ReportOptions(
            given=Input(
                journals=list(dict.fromkeys(os.path.realpath(journal_folder(disk, each)) for each in journals)),
                groups=frozenset(groups) if groups else None,
            ),
            window=ReportWindow(
                from_ms=moment_option(since, option="--since", clock=clock),
                to_ms=clock.wall_ms() if until is None else moment_option(until, option="--until", clock=clock),
            ),
            limits=limits_given(target, rules or (), disk, journals),
            timezone=timezone_of(timezone),
        )
    except ValueError as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    ledger = make_ledger(disk, options, reduce_locally, topic=topic, cause=cause)
    if form == "text":
        _print(ledger)
    else:
        print_line(rendered(ledger, form).removesuffix("\n"))
    return ExitCode.OK


def rendered(ledger: IncidentLedger, form: str) -> str:
    """Return a ledger as JSON, Markdown, or the CSV of its incidents."""
    if form == "json":
        return json.dumps(asdict(ledger), ensure_ascii=False) + "\n"
    if form == "csv":
        from lag.report.engine.incidents import LedgerIncident

        names = [field.name for field in fields(LedgerIncident)]
        rows = ({**asdict(each), "changes": "; ".join(each.changes)} for each in ledger.incidents)
        return csv_of(names, ([row[name] for name in names] for row in rows))
    lines = [_title(ledger), "", *_markdown(COLUMNS, _rows(ledger))] if ledger.incidents else [_title(ledger)]
    if ledger.months:
        lines += ["", *_markdown(MONTH_COLUMNS, _month_rows(ledger))]
    return "\n".join([*lines, *(["", *(f"- {plain(gap)}" for gap in ledger.gaps)] if ledger.gaps else [])]) + "\n"


def _print(ledger: IncidentLedger) -> None:
    if ledger.incidents:
        print_table(_title(ledger), COLUMNS, _rows(ledger), right=(5, 6))
        print_table("By month and cause", MONTH_COLUMNS, _month_rows(ledger), right=(2, 3, 4))
    else:
        print_text(_title(ledger))
    for gap in ledger.gaps:
        print_text(f"missing: {gap}")


def _title(ledger: IncidentLedger) -> str:
    begin, end = (texts.moment(each, ledger.timezone, seconds=False) for each in (ledger.from_ms, ledger.to_ms))
    open_now = sum(each.to_ms is None for each in ledger.incidents)
    said = f"{len(ledger.incidents)} incidents, {open_now} of them open" if ledger.incidents else "No incidents"
    return f"{said}, {begin} to {end} {ledger.timezone}"


def _rows(ledger: IncidentLedger) -> list[list[str]]:
    # The title has the years; of a longer window each row needs its own.
    year = 0 if ledger.to_ms - ledger.from_ms > YEARLY_MS else len("2026-")
    return [
        [
            texts.moment(each.from_ms, ledger.timezone, seconds=False)[year:],
            _lasted(each, ledger),
            each.group,
            each.topic + ("" if each.queue is None else f" {each.queue}"),
            f"{each.status} {each.cause}".strip(),
            count(each.peak_lag),
            count(each.lost),
            "; ".join(each.changes),
        ]
        for each in ledger.incidents
    ]


def _lasted(each: LedgerIncident, ledger: IncidentLedger) -> str:
    said = texts.duration(each.seconds)
    if each.to_ms is not None:
        return said
    return f"{said}, open" if each.seen_ms > ledger.to_ms - STALE_MS else f"{said}, then not recorded"


def _month_rows(ledger: IncidentLedger) -> list[list[str]]:
    return [
        [
            each.month,
            each.cause or texts.DASH,
            f"{each.incidents}",
            texts.duration(each.seconds),
            count(each.lost),
        ]
        for each in ledger.months
    ]


def _markdown(columns: tuple[str, ...], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join('---' for _ in columns)} |"
    for row in rows:
        yield f"| {' | '.join(plain(cell) for cell in row)} |"
