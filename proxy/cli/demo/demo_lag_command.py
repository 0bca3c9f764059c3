"""`pyddmq demo lag`: groups brought into trouble, what the node says of each, and the report of it."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line, print_table, progress
from proxy.cli.store.store_files import store_errors
from proxy.demo.report import DemoOutcome, PromiseCheck
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from lag.report.data import LagReportData
    from proxy.demo.lag.run import LagRun
    from proxy.demo.lag.verdict import LagReport

# Prints the verdict of a demo.


def conclude(report: DemoOutcome, show: Callable[[], object], *, as_json: bool) -> int:
    """Print what a demo has shown, and return its exit code.

    Args:
        report: Its outcome.
        show: Prints its facts, between what was checked and the last line.
        as_json: Whether all of it is printed as one JSON value instead.
    """
    if as_json:
        print_json(report.as_json())
    else:
        _print_checks(report.checks)
        show()
        failed = [check.name for check in report.checks if not check.passed]
        print_line(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return ExitCode.OK if report.passed else ExitCode.CHECK_FAILED


def _print_checks(checks: Sequence[PromiseCheck]) -> None:
    """Print the verdicts of a demo, with examples of what was wrong."""
    for check in checks:
        print_line(f"  {'ok    ' if check.passed else 'FAILED'}  {check.name}: {check.promise}")
        if not check.passed:
            print_line(f"          {amount(check.findings.count, 'violation')}, for example:")
            for example in check.findings.examples:
                print_line(f"            {example}")


NO_SPARK = "no report: it needs Spark, and {name} is missing; pip install 'pyddmq[server,spark]'"

SMALL_DATA = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Of some thousand rows, compiling a plan costs more than running it."""


class LagStage(enum.StrEnum):
    """What `--break` leaves out: the staging of one group."""

    WELL = "well"
    BEHIND = "behind"
    POISON = "poison"
    RESET = "reset"
    PAUSED = "paused"
    BACK = "back"


def lag(
    *,
    spoil: Annotated[
        LagStage | None,
        typer.Option("--break", help="Leave one group's staging out, to show that its check can fail."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the report and the figures.", readable=False)
    ] = Path("lag-demo"),
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Whether the report is made.")] = True,
    as_json: AsJson = False,
) -> int:
    """Simulate six groups with problems, and check that each is detected; needs no running node.

    It simulates twelve minutes of a node in a few seconds, in this process and a temporary folder. Then Spark writes a
    report of the node's journal: DIR/lag.html. Exit code 1 if a simulated problem was not found.
    """
    from proxy.demo.events import load_events
    from proxy.demo.lag.run import run_stages, scratch_folder
    from proxy.demo.lag.stages import EVENTS_PER_SECOND, SECONDS
    from proxy.demo.lag.verdict import LagReport, judge

    report: LagReportData | None = None
    missing = "no report was requested" if not spark else ""
    with store_errors(out), scratch_folder() as folder:
        out.mkdir(parents=True, exist_ok=True)
        with progress("a node's time", SECONDS, unit="seconds", enabled=not as_json) as advance:
            run = run_stages(
                folder,
                load_events(SECONDS * EVENTS_PER_SECOND),
                broken=() if spoil is None else (spoil.value,),
                reported=lambda seconds: advance(round(seconds)),
            )
        if spark:
            report, missing = _report(run, out)
    checks, found = judge(run, report)
    outcome = LagReport(
        run=uuid.uuid4().hex[:12],
        checks=checks,
        found=found,
        page=None if report is None else str(out / "lag.html"),
        missing=missing,
    )
    if not as_json:
        _print(outcome)
    return conclude(outcome, lambda: print_line(outcome.missing or f"report      {outcome.page}"), as_json=as_json)


def _report(run: LagRun, out: Path) -> tuple[LagReportData | None, str]:
    """Make the report and write it as a page and as JSON; without Spark null, and why.

    Raises:
        CliError: Spark is there and failed.
    """
    from proxy.demo.lag.stages import TARGET_MS

    try:
        from lag.report.options import Input, ReportOptions, ReportWindow
        from lag.report.page.files import rendered
        from lag.report.page.page import render_html
        from lag.rules.limits import LagLimits
        from lag.spark.jobs.report import make_report
        from lag.spark.session import QUICK_JVM, SessionOptions, session
        from lag.spark.shipping import ship
    except ImportError as error:
        return None, NO_SPARK.format(name=(error.name or "pyspark").partition(".")[0])
    log = str(out / "spark.log")
    try:
        options = SessionOptions(
            master="local[2]", cores=2, ui=False, log_file=log, java_options=QUICK_JVM, settings=SMALL_DATA
        )
        made = session(options)
    except RuntimeError as error:
        return None, f"no report: {error}"
    try:
        ship(made)
        window = ReportWindow(from_ms=run.from_ms, to_ms=run.to_ms + 1)
        report = make_report(
            made,
            ReportOptions(
                given=Input(journals=[run.journal]),
                window=window,
                limits=LagLimits(target_ms=TARGET_MS),
                title="Six groups in trouble, or out of it",
                compared=False,
                made_ms=run.to_ms,
            ),
        )
    except RuntimeError as error:
        raise CliError(f"the report failed: {error}; what Spark said is in {log}", ExitCode.CHECK_FAILED) from error
    finally:
        made.stop()
    (out / "lag.html").write_text(render_html(report), encoding="utf-8")
    (out / "lag.json").write_text(rendered(report, "json"), encoding="utf-8")
    return report, ""


def _print(outcome: LagReport) -> None:
    from proxy.demo.lag.verdict import said

    rows = [
        (
            each.stage.group,
            each.stage.story,
            said((each.stage.status, each.stage.cause)),
            said(each.node),
            "" if outcome.missing else said(each.report),
        )
        for each in outcome.found
    ]
    print_table("simulated problems, and findings", ("group", "story", "staged", "node", "report"), rows)
