"""The HTML report: findings first, then an overview, then a section per group, in one file of bounded size.

Statuses of groups and lag of queues are rows over time, a label and a band of boxes each. Rows are the page's own
elements, so that they fit any width: on a telephone labels stand above the bands. Only the band itself is a picture,
which is stretched to its place; text in one would be stretched, too, or become too small to read. Colours are the
page's, as in `lag.report.page.charts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from importlib.resources import files
from typing import Any, Final
from zoneinfo import ZoneInfo

import jinja2
from markupsafe import Markup, escape
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date

from lag.report import texts
from lag.report.data import GroupPart, HeatMap, LagReportData, StatusSpan
from lag.report.page import charts
from lag.report.page.charts import tone

HEAT_LIMITS: Final = (10, 100, 1_000, 10_000)
"""Lag at which a cell of the heat map gets its next shade; below 1 it has none."""

_WIDTH, _HEIGHT = 1000, 100
"""Of a band, in its own units; the page gives it another shape."""
_MARGIN = 8
"""What is left free above and below."""

# Matplotlib says no types of these.
_date_locator: Any = AutoDateLocator
_date_formatter: Any = ConciseDateFormatter
_date: Any = num2date

_Box = tuple[str, int, int]
"""Shade, begin and end in Unix ms."""


def status_bands(
    rows: Sequence[tuple[str, Sequence[StatusSpan]]], from_ms: int, to_ms: int, timezone: str = "UTC"
) -> str:
    """Draw a row per group with its statuses over the window; all charts share the window's time axis."""
    bands = [(label, [(tone(span.status), span.from_ms, span.to_ms) for span in spans]) for label, spans in rows]
    return _chart("bands", "Status of each group over the window", bands, (from_ms, to_ms, timezone), ())


def heat_map(heat: HeatMap, from_ms: int, to_ms: int, timezone: str = "UTC") -> str:
    """Draw a row per queue, darker where more messages wait; where nothing is known there is a line in the middle."""
    edges = [*heat.times_ms, to_ms]
    bands = [
        (
            row.label,
            [(shade, edges[first], edges[end]) for first, end, shade in _runs([_shade(lag) for lag in row.lag])],
        )
        for row in heat.rows
    ]
    return _chart("heat", "Messages behind, by queue, over the window", bands, (from_ms, to_ms, timezone), ("dark",))


def _chart(
    kind: str,
    title: str,
    bands: Sequence[tuple[str, Sequence[_Box]]],
    window: tuple[int, int, str],
    thin: Sequence[str],
) -> str:
    """Return an element with a row for each band and the axis below; boxes of the `thin` shades are lines."""
    rows = []
    for label, boxes in bands:
        band = _band(boxes, window[:2], thin)
        rows.append(f'<div class="row"><span title="{escape(label)}">{escape(_cut(label))}</span>{band}</div>')
    ticks = [f'<b style="left:{place:.2f}%">{escape(text)}</b>' for place, text in _ticks(*window)]
    axis = f'<div class="row axis"><span></span><div>{"".join(ticks)}</div></div>'
    return "\n".join([f'<div class="{kind}" role="img" aria-label="{title}">', *rows, axis, "</div>"])


def _band(boxes: Sequence[_Box], window: tuple[int, int], thin: Sequence[str]) -> Markup:
    from_ms, to_ms = window
    scale = _WIDTH / max(1, to_ms - from_ms)
    paths = []
    for shade, group in _by_shade(boxes):
        low, high = (_HEIGHT * 0.45, _HEIGHT * 0.55) if shade in thin else (_MARGIN, _HEIGHT - _MARGIN)
        drawn = "".join(
            f"M{_short((first - from_ms) * scale)} {low:g}H{_short((end - from_ms) * scale)}V{high:g}"
            f"H{_short((first - from_ms) * scale)}Z"
            for first, end in group
        )
        paths.append(f'<path style="fill:var(--{shade})" d="{drawn}"/>')
    return Markup(f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">{"".join(paths)}</svg>')


def _short(value: float) -> str:
    """A place to a hundredth."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _ticks(from_ms: int, to_ms: int, timezone: str) -> Iterator[tuple[float, str]]:
    """Yield moments that people count in, as percent of the window, with their names."""
    first, last = (each / 86_400_000 for each in (from_ms, max(to_ms, from_ms + 1)))
    zone = ZoneInfo(timezone) if timezone != "UTC" else UTC
    locator = _date_locator(minticks=4, maxticks=9, tz=zone)
    moments = _date(first, tz=zone), _date(last, tz=zone)
    days = [day for day in locator.tick_values(*moments) if first <= day <= last]
    texts = _date_formatter(locator, show_offset=False, tz=zone).format_ticks(days)
    for day, text in zip(days, texts, strict=True):
        yield (day - first) / (last - first) * 100, text


def _shade(lag: int | None) -> str:
    if lag is None:
        return "dark"
    if lag < 1:
        return ""
    return f"heat{1 + sum(lag >= limit for limit in HEAT_LIMITS)}"


def _runs(shades: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield first, end and shade of each run of equal shades that are drawn at all."""
    first = 0
    for place in range(1, len(shades) + 1):
        if place == len(shades) or shades[place] != shades[first]:
            if shades[first]:
                yield first, place, shades[first]
            first = place


def _by_shade(boxes: Iterable[_Box]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Gather what has one shade, so that a band has one path a shade instead of one a box."""
    found: dict[str, list[tuple[int, int]]] = {}
    for shade, first, end in boxes:
        found.setdefault(shade, []).append((first, end))
    yield from sorted(found.items())


def _cut(label: str) -> str:
    return label if len(label) <= 26 else f"{label[:12]}…{label[-13:]}"


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
        bands=Markup(status_bands(rows, report.from_ms, report.to_ms, report.timezone)) if rows else "",
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
    heat = heat_map(part.heat, *window, zone) if waited and len(part.heat.rows) > 1 else ""
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
