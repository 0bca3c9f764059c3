"""The HTML report: findings first, then an overview, then a section per group, in one file of bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import jinja2
from markupsafe import Markup

from lag.report import texts
from lag.report.data import GroupPart, LagReportData
from lag.report.page import bands, charts
from lag.report.page.charts import tone

BYTES_MAX: Final = 5_000_000
"""Largest page: one that can be mailed and opens at once."""
BANDS_MAX: Final = 60
SECTIONS_MAX: Final = 60
INCIDENTS_MAX: Final = 40
MARKS_MAX: Final = 60
LINES_MAX: Final = 40
"""Events in one chart."""
MARKED: Final = frozenset({"start", "stop", "reload", "pause", "resume", "reset", "retention", "left", "clock"})
_TONE_TEXTS: Final = (
    ("good", "OK"),
    ("note", "catching up, paused"),
    ("warn", "warning"),
    ("bad", "error"),
    ("dark", "not known"),
)
_SHADE_TEXTS: Final = (
    ("heat1", "1 to 9"),
    ("heat2", "10 to 99"),
    ("heat3", "100 to 999"),
    ("heat4", "1 000 to 9 999"),
    ("heat5", "10 000 and more"),
    ("dark", "not known"),
)


@dataclass(frozen=True, slots=True)
class _Charts:
    lines: Markup
    heat: Markup
    ages: Markup

    @property
    def bytes(self) -> int:
        return len(self.lines) + len(self.heat) + len(self.ages)


_NONE = _Charts(Markup(), Markup(), Markup())


def render_html(report: LagReportData) -> str:
    """Lay a report out as one HTML file that needs nothing else, at most `BYTES_MAX` long.

    Where sections would make it longer, the last ones, which are the least bad, go without their charts, and at last
    without the section; the page says how many.
    """
    charted = report.groups[:SECTIONS_MAX]
    pictures = [_charts(part, report) for part in charted]
    sections = len(charted)
    while len(page := _page(report, pictures[:sections]).encode()) > BYTES_MAX and sections:
        drawn = [number for number, each in enumerate(pictures[:sections]) if each is not _NONE]
        if drawn:
            over = len(page) - BYTES_MAX
            while drawn and over > 0:
                last = drawn.pop()
                over -= pictures[last].bytes
                pictures[last] = _NONE
        else:
            sections //= 2
    return page.decode()


def _page(report: LagReportData, pictures: list[_Charts]) -> str:
    rows = [(part.group, part.spans) for part in report.groups[:BANDS_MAX] if part.spans]
    return _TEMPLATE.render(
        report=report,
        css=Markup(_text("page.css")),
        sections_of=_sections_of(report, len(pictures)),
        bands=Markup(bands.status_bands(rows, report.from_ms, report.to_ms, report.timezone)) if rows else "",
        zone=report.timezone,
        marks_max=MARKS_MAX,
        tones=_TONE_TEXTS,
        shades=_SHADE_TEXTS,
        compared=any(part.objective.earlier_samples_share is not None for part in report.groups),
        sections=len(pictures),
        parts=list(zip(report.groups, pictures, strict=False)),
        left_out=len(report.groups) - len(pictures),
        nodes=len({queue.node for part in report.groups for queue in part.queues}),
        incidents_max=INCIDENTS_MAX,
    )


def _sections_of(report: LagReportData, sections: int) -> dict[str, int]:
    """Return the number of each group's section, by its name; of two groups of one name the worse one's."""
    found: dict[str, int] = {}
    for number, part in enumerate(report.groups[:sections], 1):
        found.setdefault(part.group, number)
    return found


def _charts(part: GroupPart, report: LagReportData) -> _Charts:
    window, zone = (report.from_ms, report.to_ms), report.timezone
    waited = any(part.line.lag)
    marks = [mark for mark in report.marks if mark.kind in MARKED and mark.group in ("", part.group)]
    lines = charts.lag_lines(part, *window, marks=marks[:LINES_MAX], timezone=zone) if waited or part.lost else ""
    heat = bands.heat_map(part.heat, *window, zone) if waited and len(part.heat.rows) > 1 else ""
    ages = charts.age_bars(part.ages) if part.ages else ""
    # The chart library escapes labels.
    return _Charts(Markup(lines), Markup(heat), Markup(ages))


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    environment.globals.update(when=texts.when, status_text=texts.status)
    environment.filters.update(
        tone=tone,
        count=texts.count,
        duration=texts.duration,
        moment=texts.moment,
        rate=texts.rate,
        sentence=texts.sentence,
        evidence=texts.evidence,
        names=texts.names,
        costs=texts.costs,
        usual=texts.usual,
        event=texts.event,
        waiting=texts.waiting,
        clock=texts.clock,
        share=texts.share,
        capitalise=lambda text: text[:1].upper() + text[1:],
    )
    return environment


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


_TEMPLATE: Final = _environment().from_string(_text("page.html"))
