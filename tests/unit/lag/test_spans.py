"""Durations as people read them."""

from __future__ import annotations

import pytest

from lag.spans import span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.04, "0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (185, "3 min 5 s"),
        (3_600, "1 h"),
        (3_605, "1 h"),
        (187_200, "2 d 4 h"),
    ],
)
def test_span_has_its_two_largest_units(seconds: float, text: str) -> None:
    """A unit that is zero is left out."""
    assert span(seconds) == text
