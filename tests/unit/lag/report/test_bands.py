"""What rows over time draw: boxes at their moments, one for equal neighbours, and an axis that people read."""

from __future__ import annotations

import re

import pytest

from lag.report.data import HeatMap, HeatRow, StatusSpan
from tests.unit.lag.report.examples import FROM_MS, HOUR_MS, TO_MS

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from lag.report.page.page import heat_map, status_bands


def heat_of(*lag: int | None) -> str:
    """Draw one queue."""
    step = (TO_MS - FROM_MS) // len(lag)
    times = [FROM_MS + number * step for number in range(len(lag))]
    return heat_map(HeatMap(times_ms=times, rows=[HeatRow(label="t / 0", lag=lag)]), FROM_MS, TO_MS)


@pytest.mark.parametrize(
    ("lag", "shade"),
    [(1, "heat1"), (9, "heat1"), (10, "heat2"), (100, "heat3"), (1_000, "heat4"), (10_000, "heat5"), (None, "dark")],
)
def test_more_lag_is_darker(lag: int | None, shade: str) -> None:
    """A shade for each power of ten; unknown has its own."""
    assert set(re.findall(r"var\(--(\w+)\)", heat_of(lag))) == {shade}


def test_no_lag_has_no_cell() -> None:
    """An empty row is a queue that was caught up all the time."""
    assert "<path" not in heat_of(0, 0, 0)


def test_equal_neighbours_are_one_box() -> None:
    """So a quiet queue costs nothing, over however long a window."""
    assert heat_of(*[5] * 500).count("Z") == 1
    assert heat_of(*[5, 0] * 10).count("Z") == 10


def test_what_is_not_known_is_a_line_and_no_box() -> None:
    """Of a queue; it is neither much nor little."""
    known, unknown = (re.findall(r"M0 ([\d.]+)H1000V([\d.]+)H0Z", heat_of(lag)) for lag in (5, None))
    assert (known, unknown) == ([("8", "92")], [("45", "55")])


def test_boxes_are_at_their_moments() -> None:
    """Of statuses, in thousandths of the window; one path for each shade."""
    spans = [
        StatusSpan(from_ms=FROM_MS + begin * HOUR_MS, to_ms=FROM_MS + end * HOUR_MS, status=status)
        for begin, end, status in ((0, 6, "OK"), (6, 12, "STOP"), (12, 24, "OK"))
    ]
    drawn = status_bands([("billing", spans)], FROM_MS, TO_MS)
    assert re.findall(r'fill:var\(--(\w+)\)" d="([^"]*)"', drawn) == [
        ("bad", "M250 8H500V92H250Z"),
        ("good", "M0 8H250V92H0ZM500 8H1000V92H500Z"),
    ]


def test_labels_are_text_beside_the_picture() -> None:
    """A picture is stretched to the page's width, and text in it would be."""
    drawn = status_bands([("billing <b> of the whole company", ())], FROM_MS, TO_MS)
    assert '<span title="billing &lt;b&gt; of the whole company">billing &lt;b&gt; …whole company</span>' in drawn
    assert "<text" not in drawn
    assert 'preserveAspectRatio="none"' in drawn


@pytest.mark.parametrize("hours", [1 / 3600, 0.01, 0.5, 1, 6, 24, 72, 720, 9_000])
def test_axis_has_few_moments_within_the_window(hours: float) -> None:
    """Whatever its length."""
    drawn = status_bands([("a", ())], FROM_MS, FROM_MS + round(hours * HOUR_MS))
    places = [float(place) for place in re.findall(r'<b style="left:([\d.]+)%">[^<]+</b>', drawn)]
    assert 3 <= len(places) <= 9
    assert places == sorted(set(places))
    assert places[0] >= 0
    assert places[-1] <= 100
