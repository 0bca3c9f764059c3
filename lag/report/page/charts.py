"""Charts as inline SVG whose colours are the page's, so that one picture serves day, night and paper.

Matplotlib draws with stand-in colours (`_STAND_INS`); in its SVG each is replaced by a variable of the page's style
sheet. Text stays text in the reader's font. The same data gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import UTC
from math import isnan
from typing import Any, Final
from zoneinfo import ZoneInfo

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from lag.report import texts
from lag.report.data import AgeBin, EventMark, GroupPart

# How a status looks: one of five tones, the same on paper, by day and by night.


TONES: Final = {
    "DATA_LOSS": "bad",
    "AHEAD": "bad",
    "REWIND": "bad",
    "BLOCKED": "bad",
    "STOP": "bad",
    "NOT_CONSUMED": "bad",
    "STALL": "bad",
    "UNKNOWN": "dark",
    "RETENTION_RISK": "warn",
    "WARN": "warn",
    "NO_OFFSET": "warn",
    "INCOMPLETE": "dark",
    "CATCHING_UP": "note",
    "PAUSED": "note",
    "OK": "good",
    "LEFT": "note",
    "LATE": "bad",
    "UNDECIDED": "warn",
    "IN_TIME": "good",
}
"""Tone of each status; `dark` is "unknown", which is neither good nor bad."""

LEVEL_TONES: Final = {"OK": "good", "WARN": "warn", "ERR": "bad"}


def tone(status: str) -> str:
    """Return the tone of a status or level; of an unheard-of one that of what is not known."""
    return TONES.get(status) or LEVEL_TONES.get(status, "dark")


_STAND_INS: Final = {
    "ink": "#0a0001",
    "dim": "#0a0002",
    "line": "#0a0003",
    "good": "#0a0004",
    "note": "#0a0005",
    "warn": "#0a0006",
    "bad": "#0a0007",
    "dark": "#0a0008",
    "lag": "#0a0009",
    "age": "#0a000b",
}

# Matplotlib says no types of these.
_date_locator: Any = AutoDateLocator
_date_formatter: Any = ConciseDateFormatter

_STEPS: Final = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(minutes * 60 for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3600 for hours in (1, 2, 3, 6, 12, 24, 48, 168)),
)
"""Seconds between two ticks of an age axis."""

_WIDTH = 10.4
"""Inches: 749 points; the page scales charts to its width."""

_SETTINGS: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lag",
    "svg.id": None,
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.edgecolor": _STAND_INS["line"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelcolor": _STAND_INS["dim"],
    "xtick.color": _STAND_INS["dim"],
    "ytick.color": _STAND_INS["dim"],
    "grid.color": _STAND_INS["line"],
    "grid.linewidth": 0.6,
    "text.color": _STAND_INS["ink"],
    "path.simplify": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def lag_lines(
    part: GroupPart, from_ms: int, to_ms: int, *, marks: Sequence[EventMark] = (), timezone: str = "UTC"
) -> str:
    """Draw messages behind, their age, and produce and consume rates, one above the other.

    Incidents are shaded, events are vertical lines with their kinds' names, and the target is a dashed line.
    """
    line, target_seconds = part.line, part.objective.target_seconds
    with mpl.rc_context(_SETTINGS):
        figure, (above, below, rates) = _canvas_of_three(4.6, (from_ms, to_ms), timezone)
        days = [_day(each) for each in line.times_ms]
        for axes, series, name in (
            (above, ((line.lag, "lag"),), "messages"),
            (below, ((line.seconds, "age"),), "age"),
            (rates, ((line.produced, "note"), (line.consumed, "good")), "per second"),
        ):
            for incident in part.incidents:
                end = to_ms if incident.to_ms is None else incident.to_ms
                shade = _STAND_INS[tone(incident.status)]
                axes.axvspan(_day(incident.from_ms), _day(end), color=shade, alpha=0.14, lw=0)
            for values, colour in series:
                plain = [float("nan") if value is None else value for value in values]
                axes.plot(days, plain, color=_STAND_INS[colour], linewidth=1.5, marker=_marker(plain), markersize=3)
                if len(series) == 1:
                    axes.fill_between(days, plain, 0, color=_STAND_INS[colour], alpha=0.12, linewidth=0)
            for mark in marks:
                axes.axvline(_day(mark.time_ms), color=_STAND_INS["dim"], linewidth=0.9, linestyle=(0, (2, 2)))
            axes.set_ylabel(name)
            axes.yaxis.set_label_coords(-0.085, 0.5)
            axes.set_ylim(0, max(axes.get_ylim()[1], 1))
            axes.grid(visible=True, axis="y")
        _name_marks(above, marks, (from_ms, to_ms))
        if target_seconds > 0:
            below.axhline(target_seconds, color=_STAND_INS["warn"], linewidth=1, linestyle=(0, (4, 3)))
        below.yaxis.set_major_locator(FixedLocator(round_durations(below.get_ylim()[1])))
        for axes in (above, rates):
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: texts.short_count(value)))
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: texts.duration(value)))
        for axes in (above, below):
            axes.tick_params(axis="x", labelbottom=False)
        return _svg(figure, "Messages behind, age of the oldest one, and rates, over the window")


def _name_marks(axes: Any, marks: Sequence[EventMark], window: tuple[int, int]) -> None:
    """Write the kinds of events above the chart, as far as they do not cover each other."""
    from_ms, to_ms = window
    free_from = 0.0
    for mark in marks:
        place = (mark.time_ms - from_ms) / max(1, to_ms - from_ms)
        if place < free_from:
            continue
        free_from = place + 0.012 * (len(mark.kind) + 1)
        axes.text(
            _day(mark.time_ms), 1.02, mark.kind, transform=axes.get_xaxis_transform(), ha="left", va="bottom",
            fontsize=8, color=_STAND_INS["dim"],
        )  # fmt: skip


def age_bars(ages: Sequence[AgeBin]) -> str:
    """Draw the backlog by age."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, 0.35 + 0.26 * len(ages)))
        FigureCanvasSVG(figure)
        axes = figure.add_axes((0.21, 0.02, 0.68, 0.96))
        bars = axes.barh(range(len(ages)), [each.messages for each in ages], height=0.7, color=_STAND_INS["age"])
        axes.bar_label(bars, [texts.count(each.messages) for each in ages], padding=4, color=_STAND_INS["ink"])
        axes.set_yticks(range(len(ages)), [age_range(each) for each in ages])
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.tick_params(axis="y", length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return _svg(figure, "Messages of the backlog by their age")


def age_range(ages: AgeBin) -> str:
    """Write a range of ages: under 1 s, 1 s to 10 s, over 1 d."""
    if ages.to_seconds is None:
        return f"over {texts.duration(ages.from_seconds)}"
    if ages.from_seconds <= 0:
        return f"under {texts.duration(ages.to_seconds)}"
    return f"{texts.duration(ages.from_seconds)} to {texts.duration(ages.to_seconds)}"


def _canvas_of_three(height: float, window: tuple[int, int], timezone: str) -> tuple[Figure, tuple[Any, Any, Any]]:
    figure = Figure(figsize=(_WIDTH, height))
    FigureCanvasSVG(figure)
    above, below, rates = (figure.add_axes((0.1, bottom, 0.885, 0.25)) for bottom in (0.69, 0.385, 0.08))
    for axes in (above, below, rates):
        _time_axis(axes, window, timezone)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 3, 5, 6, 10], integer=True))
    return figure, (above, below, rates)


def round_durations(longest: float) -> list[float]:
    """Return at most five durations from 0 to the longest, such as people count in; seconds."""
    step = next(
        (each for each in _STEPS if each * 4.5 >= longest), _STEPS[-1] * max(1, round(longest / _STEPS[-1] / 4))
    )
    return [step * number for number in range(int(longest / step) + 1)]


def _time_axis(axes: Any, window: tuple[int, int], timezone: str) -> None:
    from_ms, to_ms = window
    axes.set_xlim(_day(from_ms), _day(max(to_ms, from_ms + 1)))
    zone = ZoneInfo(timezone) if timezone != "UTC" else UTC
    locator = _date_locator(minticks=4, maxticks=9, tz=zone)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_date_formatter(locator, show_offset=False, tz=zone))


def _day(time_ms: float) -> float:
    """Place of a moment on the time axis: days since 1970, as matplotlib counts them."""
    return time_ms / 86_400_000


def _marker(values: Sequence[float]) -> str:
    """A lone point between gaps has no line to be seen by."""
    known = [not isnan(value) for value in values]
    lone = any(
        here and not before and not after
        for before, here, after in zip([False, *known], known, [*known[1:], False], strict=False)
    )
    return "." if lone else ""


def _svg(figure: Figure, title: str) -> str:
    """Return a figure as an element of a page: no prolog, no fixed size, colours by name, and a title."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'xmlns(?::xlink)?="[^"]*" ?', "", text).replace("xlink:href", "href")
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"(?<=\d\.\d\d)\d{2,}", "", text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    for name, colour in _STAND_INS.items():
        text = text.replace(colour, f"var(--{name})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
