"""Figures as people read them."""

from __future__ import annotations

import pytest

from lag.report import texts


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.04, "0 s"),
        (0.06, "0.1 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3_599.7, "1 h"),
        (3_660, "1 h 1 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
        (400 * 86_400 + 3_600, "400 d 1 h"),
        (-75, "-1 min 15 s"),
    ],
)
def test_durations_have_their_two_greatest_units(seconds: float | None, said: str) -> None:
    """What rounds up to the next unit is written in that."""
    assert texts.duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0, "0"),
        (999, "999"),
        (999.6, "1.0\u202fk"),
        (1_234, "1.2\u202fk"),
        (34_000_000, "34\u202fM"),
        (2.5e9, "2.5\u202fG"),
    ],
)
def test_short_counts_have_a_unit(value: float | None, said: str) -> None:
    """Three digits at most, never 1000 of a unit."""
    assert texts.short_count(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "–"), (1.0, "100 %"), (0.99999, "99.99 %"), (0.9312, "93.1 %"), (0.0, "0.0 %")],
)
def test_a_share_is_never_rounded_up_to_all(value: float | None, said: str) -> None:
    """Somebody who missed the target once sees it."""
    assert texts.share(value) == said


def test_counts_moments_and_rates() -> None:
    """Groups of three digits; UTC; rates below ten with two digits."""
    assert texts.count(1_234_567) == "1\u202f234\u202f567"
    assert texts.count(None) == texts.moment(None) == texts.rate(None) == "–"
    assert texts.moment(1_714_979_289_000) == "2024-05-06 07:08:09"
    assert texts.moment(1_714_979_289_000, seconds=False) == "2024-05-06 07:08"
    assert texts.rate(0.054) == "0.054/s"
    assert texts.rate(1_200) == "1.2\u202fk/s"


@pytest.mark.parametrize(
    ("reported", "written"),
    [
        ("no client pulls; 5 messages are ready", "No client pulls; 5 messages are ready."),
        ("Start them.", "Start them."),
        (" is it up? ", "Is it up?"),
        ("", ""),
    ],
)
def test_sentence_begins_large_and_ends_with_a_stop(reported: str, written: str) -> None:
    """So that two of them can follow each other."""
    assert texts.sentence(reported) == written


def test_clock_has_the_day_only_where_it_is_another() -> None:
    """And UTC in brackets, with its own day."""
    now_ms = 1_714_979_289_000
    assert texts.clock(now_ms, now_ms) == "07:08"
    assert texts.clock(now_ms, now_ms, "Asia/Tokyo") == "16:08 (07:08 UTC)"
    assert texts.clock(now_ms, now_ms + 60_000_000, "Asia/Tokyo") == "2024-05-06 16:08 (07:08 UTC)"
