"""The report as Markdown, for an issue or a chat: findings, then one table."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lag.report import texts
from lag.report.data import Report
from lag.report.tones import tone


def render_markdown(report: Report) -> str:
    """Lay a report out as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {plain(report.title)}"
    yield ""
    yield (
        f"{texts.moment(report.from_ms)} to {texts.moment(report.to_ms)} UTC, {texts.count(report.samples)} samples, "
        f"made {texts.moment(report.made_ms)} UTC."
    )
    yield from ("", "## Findings", "")
    findings = [part for part in report.groups if tone(part.status) != "good"]
    for part in findings:
        said = " ".join(plain(texts.sentence(each)) for each in (part.evidence, part.advice) if each)
        cause = f": {plain(part.cause)}" if part.cause else ""
        yield f"- **{part.status}** {plain(part.group)}{cause}. {said}".rstrip()
    if not findings:
        yield "All groups are OK at the end of the window." if report.groups else "No samples: nothing can be said."
    if report.gaps:
        yield from ("", "## What is missing", "")
        yield from (f"- {plain(gap)}" for gap in report.gaps)
    if report.groups:
        yield from ("", "## Groups", "")
        yield "| group | status | lag | oldest | peak lag | peak age | lost | under target | incidents |"
        yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        for part in report.groups:
            cells = (
                plain(part.group),
                part.status,
                texts.count(part.lag),
                texts.duration(part.seconds),
                texts.count(part.peak_lag),
                texts.duration(part.peak_seconds),
                texts.count(part.lost),
                texts.share(part.objective.samples_share),
                str(len(part.incidents)),
            )
            yield f"| {' | '.join(cells)} |"


def plain(text: str) -> str:
    """Names are users': none breaks a table, begins a heading or makes a link."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", re.sub(r"\s+", " ", text))
