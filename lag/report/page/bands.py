"""Charts of rows over time, a label and a band of boxes each: statuses of groups, lag of queues.

Rows are the page's own elements, so that they fit any width: on a telephone labels stand above the bands. Only the band
itself is a picture, which is stretched to its place; text in one would be stretched, too, or become too small to read.
Colours are the page's, as in `lag.report.page.charts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC
from typing import Any, Final
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date

from lag.report.data import HeatMap, StatusSpan
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
