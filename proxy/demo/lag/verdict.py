"""Whether what was staged was found: by the node while it ran, and by the report over its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lag.report.data import GroupPart, LagReportData
from proxy.demo.checker import Findings
from proxy.demo.lag.run import LagRun, Verdict, verdicts
from proxy.demo.lag.stages import STAGES, DemoGroupStage
from proxy.demo.report import DemoOutcome, PromiseCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoGroupVerdict:
    """What was found of one group.

    Attributes:
        stage: What was staged.
        node: What the node said at the end; null: nothing.
        report: What the report says of the window's end; null: nothing, or there is no report.
    """

    stage: DemoGroupStage
    node: Verdict | None
    report: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport(DemoOutcome):
    """The outcome of a run.

    Attributes:
        found: A row per stage.
        page: The report's file; null: there is none.
        missing: Why there is no report, as a sentence; "" where there is one.
    """

    found: Sequence[DemoGroupVerdict]
    page: str | None
    missing: str

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        rows = [
            {
                "group": each.stage.group,
                "staged": _plain((each.stage.status, each.stage.cause)),
                "node": _plain(each.node),
                "report": _plain(each.report),
            }
            for each in self.found
        ]
        return {**self.verdict(), "stages": rows, "page": self.page, "missing": self.missing}


def judge(run: LagRun, report: LagReportData | None) -> tuple[list[PromiseCheck], list[DemoGroupVerdict]]:
    """Hold what was staged against what was found.

    Args:
        run: What the node left.
        report: The report over its journal; null: it could not be made, and is not asked for.

    Returns:
        A check per stage, and what was found.
    """
    live = verdicts(run.live)
    parts: Mapping[str, GroupPart] = {} if report is None else {each.group: each for each in report.groups}
    checks, found = [], []
    for stage in STAGES:
        findings = Findings()
        of_report = _of_part(parts.get(stage.group))
        _hold(stage, "the node", live.get(stage.group), findings)
        if stage.earlier is not None and stage.earlier not in run.seen[stage.group][:-1]:
            findings.add(f"the node never reported {said(stage.earlier)} before")
        if report is not None:
            _hold(stage, "the report", of_report, findings)
            if stage.earlier is not None and stage.earlier not in _ended(parts.get(stage.group)):
                findings.add(f"the report has no earlier {said(stage.earlier)}")
        checks.append(PromiseCheck(name=stage.group, promise=stage.story, findings=findings))
        found.append(DemoGroupVerdict(stage=stage, node=live.get(stage.group), report=of_report))
    return checks, found


def said(verdict: Verdict | None) -> str:
    """Write status and cause for people."""
    if verdict is None:
        return "nothing"
    status, cause = verdict
    return status if cause is None else f"{status}, {cause.replace('_', ' ')}"


def _hold(stage: DemoGroupStage, who: str, found: Verdict | None, findings: Findings) -> None:
    staged = stage.status, stage.cause
    if found != staged:
        findings.add(f"{who} shows {said(found)} where {said(staged)} was staged")


def _of_part(part: GroupPart | None) -> Verdict | None:
    return None if part is None else (part.status, _name(part.cause))


def _ended(part: GroupPart | None) -> list[Verdict]:
    """Return the ended incidents of a group."""
    incidents = () if part is None else part.incidents
    return [(each.status, _name(each.cause)) for each in incidents if each.to_ms is not None]


def _name(words: str) -> str | None:
    """Return a cause's name from the words that a report has for it."""
    return words.replace(" ", "_") or None


def _plain(verdict: Verdict | None) -> dict[str, str | None] | None:
    return None if verdict is None else {"status": verdict[0], "cause": verdict[1]}
