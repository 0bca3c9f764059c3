"""Charts as inline SVG whose colours are the page's, so that one picture serves day, night and paper.

Matplotlib draws with stand-in colours (`_STAND_INS`); in its SVG each is replaced by a variable of the page's style
sheet. Text stays text in the reader's font. The same data gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from math import isnan
from typing import Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from lag.report import texts
from lag.report.data import AgeBin, Incident, Line
from lag.report.tones import tone

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


def lag_lines(line: Line, incidents: Sequence[Incident], from_ms: int, to_ms: int, target_seconds: float) -> str:
    """Draw messages and seconds behind, one above the other, with the incidents shaded and the target as a line."""
    with mpl.rc_context(_SETTINGS):
        figure, (above, below) = _canvas_of_two(3.3, from_ms, to_ms)
        days = [_day(each) for each in line.times_ms]
        for axes, values, name, colour in (
            (above, line.lag, "messages", "lag"),
            (below, line.seconds, "age", "age"),
        ):
            for incident in incidents:
                end = to_ms if incident.to_ms is None else incident.to_ms
                shade = _STAND_INS[tone(incident.status)]
                axes.axvspan(_day(incident.from_ms), _day(end), color=shade, alpha=0.14, lw=0)
            plain = [float("nan") if value is None else value for value in values]
            axes.plot(days, plain, color=_STAND_INS[colour], linewidth=1.5, marker=_marker(plain), markersize=3)
            axes.fill_between(days, plain, 0, color=_STAND_INS[colour], alpha=0.12, linewidth=0)
            axes.set_ylabel(name)
            axes.yaxis.set_label_coords(-0.085, 0.5)
            axes.set_ylim(0, max(axes.get_ylim()[1], 1))
            axes.grid(visible=True, axis="y")
        if target_seconds > 0:
            below.axhline(target_seconds, color=_STAND_INS["warn"], linewidth=1, linestyle=(0, (4, 3)))
        below.yaxis.set_major_locator(FixedLocator(_round_durations(below.get_ylim()[1])))
        above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: texts.short_count(value)))
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: texts.duration(value)))
        above.tick_params(axis="x", labelbottom=False)
        return _svg(figure, "Messages behind and age of the oldest one, over the window")


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


def _canvas_of_two(height: float, from_ms: int, to_ms: int) -> tuple[Figure, tuple[Any, Any]]:
    figure = Figure(figsize=(_WIDTH, height))
    FigureCanvasSVG(figure)
    above = figure.add_axes((0.1, 0.57, 0.885, 0.4))
    below = figure.add_axes((0.1, 0.115, 0.885, 0.4))
    for axes in (above, below):
        _time_axis(axes, from_ms, to_ms)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 3, 5, 6, 10], integer=True))
    return figure, (above, below)


def _round_durations(longest: float) -> list[float]:
    """Return at most five durations from 0 to the longest, such as people count in; seconds."""
    step = next(
        (each for each in _STEPS if each * 4.5 >= longest), _STEPS[-1] * max(1, round(longest / _STEPS[-1] / 4))
    )
    return [step * number for number in range(int(longest / step) + 1)]


def _time_axis(axes: Any, from_ms: int, to_ms: int) -> None:
    axes.set_xlim(_day(from_ms), _day(max(to_ms, from_ms + 1)))
    locator = _date_locator(minticks=4, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_date_formatter(locator, show_offset=False))


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
