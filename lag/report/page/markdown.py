"""The report as Markdown, for an issue or a chat: one sentence, findings, events, then one table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lag.report import texts
from lag.report.data import LagReportData, ReportFinding

MARKS_SHOWN: Final = 40


def render_markdown(report: LagReportData) -> str:
    """Lay a report out as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: LagReportData) -> Iterator[str]:
    zone = report.timezone
    yield f"# {plain(report.title)}"
    yield ""
    yield f"**{plain(report.summary)}**"
    yield ""
    yield (
        f"{texts.moment(report.from_ms, zone)} to {texts.moment(report.to_ms, zone)} {plain(zone)}, "
        f"{texts.count(report.samples)} samples, made {texts.moment(report.made_ms, zone)}."
    )
    yield from ("", "## Findings", "")
    for finding in report.findings:
        yield from _finding(finding, report)
    if report.findings_left_out:
        yield f"- and {report.findings_left_out} more, none of them worse"
    if not report.findings:
        yield "None." if report.groups else "No samples, so the trouble is unknown."
    if report.gaps:
        yield from ("", "## What is missing", "")
        yield from (f"- {plain(gap)}" for gap in report.gaps)
    if report.marks:
        yield from ("", "## Events", "")
        for mark in report.marks[:MARKS_SHOWN]:
            yield f"- {texts.clock(mark.time_ms, report.to_ms, zone)} {plain(texts.event(mark))}"
        if len(report.marks) + report.marks_left_out > MARKS_SHOWN:
            yield f"- and {len(report.marks) + report.marks_left_out - MARKS_SHOWN} more"
    if report.waiting:
        yield from ("", "## Waiting messages", "")
        for each in report.waiting:
            late = f", late by {texts.duration(each.late_seconds)}" if each.late_seconds else ""
            what = plain(texts.waiting(each))
            yield f"- **{plain(each.status)}** {what}: {each.scheduled} scheduled, {each.overdue} overdue{late}"
    if report.groups:
        yield from ("", "## Groups", "")
        yield "| group | status | lag | oldest | peak lag | peak age | lost | under target | known | incidents |"
        yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        for part in report.groups:
            cells = (
                plain(part.group),
                texts.status(part, report.to_ms, zone),
                texts.count(part.lag),
                texts.duration(part.seconds),
                texts.count(part.peak_lag),
                texts.duration(part.peak_seconds),
                texts.count(part.lost),
                texts.share(part.objective.samples_share),
                texts.share(part.objective.coverage),
                str(len(part.incidents)),
            )
            yield f"| {' | '.join(cells)} |"


def _finding(finding: ReportFinding, report: LagReportData) -> Iterator[str]:
    cause = f": {plain(finding.cause)}" if finding.cause else ""
    call = f" Call: {plain(', '.join(finding.contacts))}." if finding.contacts else ""
    about = f"{plain(texts.names(finding.groups))}{cause}, {plain(texts.when(finding, report))}"
    yield f"- **{finding.status}** {about}.{call}"
    facts = texts.costs(finding)
    said = [plain(texts.evidence(finding))] if finding.evidence else []
    said += [plain(texts.sentence(each)) for each in (facts, texts.usual(finding)) if each]
    if finding.advice:
        said.append(f"→ {plain(texts.sentence(finding.advice))}")
    if said:
        yield f"  {' '.join(said)}"


def plain(text: str) -> str:
    """Names are users': none breaks a table, begins a heading, makes a link or moves a cursor."""
    line = "".join(each if each.isprintable() else "?" for each in re.sub(r"\s+", " ", text))
    return re.sub(r"([\\`*_{}\[\]<>|#~&]|:(?=//)|(?<=www)\.)", r"\\\1", line, flags=re.IGNORECASE)
