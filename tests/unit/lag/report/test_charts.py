"""What charts draw, and what they leave out."""

from __future__ import annotations

import re

import pytest

from lag.report.data import HeatMap, HeatRow
from tests.unit.lag.report.examples import FROM_MS, TO_MS, group_part

pytest.importorskip("matplotlib")

from lag.report import charts


def heat_of(*lag: int | None) -> str:
    """Draw one queue."""
    step = (TO_MS - FROM_MS) // len(lag)
    times = [FROM_MS + number * step for number in range(len(lag))]
    return charts.heat_map(HeatMap(times_ms=times, rows=[HeatRow(label="t / 0", lag=lag)]), FROM_MS, TO_MS)


@pytest.mark.parametrize(
    ("lag", "shade"),
    [(1, "heat1"), (9, "heat1"), (10, "heat2"), (100, "heat3"), (1_000, "heat4"), (10_000, "heat5"), (None, "dark")],
)
def test_more_lag_is_darker(lag: int | None, shade: str) -> None:
    """A shade for each power of ten; unknown has its own."""
    assert set(re.findall(r"var\(--(heat\d|dark)\)", heat_of(lag))) == {shade}


def test_no_lag_has_no_cell() -> None:
    """An empty row is a queue that was caught up all the time."""
    assert not re.findall(r"var\(--(heat\d|dark)\)", heat_of(0, 0, 0))


def test_equal_neighbours_are_one_box() -> None:
    """So a quiet queue costs nothing, over however long a window."""
    assert len(heat_of(*[5] * 500)) < len(heat_of(*[5, 0] * 10))


def test_a_gap_is_not_bridged() -> None:
    """No line is drawn over hours of which nothing is known."""
    whole = charts.lag_lines(group_part("a", height=900).line, (), FROM_MS, TO_MS, 0)
    parted = charts.lag_lines(group_part("a", height=900, gap=True).line, (), FROM_MS, TO_MS, 0)

    moves = [max(text.count("M ") for text in re.findall(r'd="([^"]*)"', svg)) for svg in (whole, parted)]
    assert moves == [1, 2]


@pytest.mark.parametrize("longest", [0.05, 0.4, 1, 7, 59, 61, 400, 3_599, 40_000, 100_000, 2_000_000, 30_000_000])
def test_ages_have_few_round_ticks(longest: float) -> None:
    """Such as people count in: half an hour, never 16 min 40 s."""
    ticks = charts._round_durations(longest)
    assert 1 <= len(ticks) <= 6
    assert ticks[0] == 0
    assert ticks[-1] <= longest
