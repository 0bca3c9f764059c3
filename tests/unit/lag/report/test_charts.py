"""What charts draw, and what they leave out."""

from __future__ import annotations

import re

import pytest

from tests.unit.lag.report.examples import FROM_MS, TO_MS, group_part, mark

pytest.importorskip("matplotlib")

from lag.report.page import charts


def test_a_gap_is_not_bridged() -> None:
    """No line is drawn over hours of which nothing is known."""
    whole = charts.lag_lines(group_part("a", height=900), FROM_MS, TO_MS)
    parted = charts.lag_lines(group_part("a", height=900, gap=True), FROM_MS, TO_MS)

    moves = [max(text.count("M ") for text in re.findall(r'd="([^"]*)"', svg)) for svg in (whole, parted)]
    assert moves == [1, 2]


@pytest.mark.parametrize("longest", [0.05, 0.4, 1, 7, 59, 61, 400, 3_599, 40_000, 100_000, 2_000_000, 30_000_000])
def test_ages_have_few_round_ticks(longest: float) -> None:
    """Such as people count in: half an hour, never 16 min 40 s."""
    ticks = charts.round_durations(longest)
    assert 1 <= len(ticks) <= 6
    assert ticks[0] == 0
    assert ticks[-1] <= longest


def test_events_and_rates_are_drawn() -> None:
    """An event is a line with its kind, and one close behind another has no text that would cover it."""
    part = group_part("a", height=900)
    marks = [mark("reset", 9), mark("reload", 9), mark("pause", 20)]
    svg = charts.lag_lines(part, FROM_MS, TO_MS, marks=marks)
    assert ">reset<" in svg
    assert ">pause<" in svg
    assert ">reload<" not in svg
    assert "per second" in svg


def test_hours_are_those_of_the_time_zone() -> None:
    """Of the axis of a chart."""
    part = group_part("a", height=900)
    utc, other = (charts.lag_lines(part, FROM_MS, TO_MS, timezone=zone) for zone in ("UTC", "Asia/Kolkata"))
    assert re.findall(r">\d\d:\d\d<", utc) != []
    assert utc != other
