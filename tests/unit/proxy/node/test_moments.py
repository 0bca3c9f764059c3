"""Moments as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.operate.moments import moment_text, parse_duration, parse_moment

NOW_MS = 1_760_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW_MS),
        ("1760000000123", 1_760_000_000_123),
        ("10m ago", NOW_MS - 600_000),
        ("10m", NOW_MS - 600_000),
        ("1.5h ago", NOW_MS - 5_400_000),
        ("250 ms ago", NOW_MS - 250),
        ("2d", NOW_MS - 172_800_000),
        ("999999999d", 0),
        ("in 10m", NOW_MS + 600_000),
        ("in 1.5 h", NOW_MS + 5_400_000),
        ("in 250ms", NOW_MS + 250),
        ("2025-10-09T08:53:20Z", NOW_MS),
        ("2025-10-09T10:53:20.5+02:00", NOW_MS + 500),
        ("2000-01-01T00:00:00Z", 946_684_800_000),
    ],
)
def test_moments_of_all_forms(text: str, expected: int) -> None:
    """Milliseconds, ISO 8601 with a zone, and a while ago."""
    assert parse_moment(text, NOW_MS) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "1760000000",
            "1760000000 as milliseconds since 1970 is 1970-01-21T08:53:20Z; it looks like seconds: write 1760000000000",
        ),
        ("1760000000000000", "is after the year 9999; it looks like microseconds: write 1760000000000"),
        ("1760000000000000000", "is after the year 9999; it looks like nanoseconds: write 1760000000000"),
        ("20240501", "is 1970-01-01T05:37:20Z; it looks like a day: write 2024-05-01T00:00:00Z"),
        ("0", "is 1970-01-01T00:00:00Z; times from the year 2000 to 9999 are allowed"),
        ("1960-01-01T00:00:00Z", "is before 1970"),
    ],
)
def test_moment_in_another_unit_is_refused_with_what_was_understood(text: str, said: str) -> None:
    """The sentence names the unit that was probably meant."""
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_moment(text, NOW_MS)


def test_span_alone_is_refused_where_a_moment_may_lie_ahead() -> None:
    """Who writes `--at 2h` means later, and must not have sent at once."""
    with pytest.raises(ValueError, match="write `in 2h` or `2h ago`"):
        parse_moment("2h", NOW_MS, span_is_age=False)
    assert parse_moment("2h ago", NOW_MS, span_is_age=False) == NOW_MS - 7_200_000
    assert parse_moment("in 2h", NOW_MS, span_is_age=False) == NOW_MS + 7_200_000


@pytest.mark.parametrize("text", ["2025-10-09T08:53:20", "2025-10-09"])
def test_moment_without_zone_is_refused(text: str) -> None:
    """Nobody guesses a zone."""
    with pytest.raises(ValueError, match="no time zone; add Z"):
        parse_moment(text, NOW_MS)


@pytest.mark.parametrize("text", ["", "yesterday", "10x ago", "-5", "12:00", "1e9", "in", "in 5", "in10 m ago"])
def test_what_is_no_moment_is_refused_with_the_forms(text: str) -> None:
    """The sentence says what is one."""
    with pytest.raises(ValueError, match="is not a valid time; write milliseconds"):
        parse_moment(text, NOW_MS)


@given(st.integers(946_684_800_000, 4_000_000_000_000))
def test_written_moments_are_read_again(wall_ms: int) -> None:
    """What is printed can be given back."""
    assert parse_moment(moment_text(wall_ms), 0) == wall_ms


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90_000), (" 1.5 h ", 5_400_000), ("0ms", 0), ("2d", 172_800_000)]
)
def test_time_spans(text: str, expected: int) -> None:
    """A number and a unit."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "90", "-1s", "1w", "soon", "1s ago", "1e3s"])
def test_what_is_no_time_span_is_refused(text: str) -> None:
    """A number without a unit, too: seconds and milliseconds are mixed up easily."""
    with pytest.raises(ValueError, match="is not a valid time span; write a number and ms, s, m, h or d"):
        parse_duration(text)


def test_impossible_moments_are_printed_as_numbers() -> None:
    """A producer's clock may say anything."""
    assert moment_text(1 << 62) == str(1 << 62)
