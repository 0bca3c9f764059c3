"""What charts draw, and what they leave out."""

from __future__ import annotations

import re

import pytest

from tests.unit.lag.report.examples import FROM_MS, TO_MS, group_part

pytest.importorskip("matplotlib")

from lag.report import charts


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
