"""Options of the data sources."""

from __future__ import annotations

import pytest

from conf import moments
from lag.spark.sources.options import MOMENT_MS_END, MOMENT_MS_MIN, OptionRefused, moment_ms


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [("1714979289000", 1_714_979_289_000), ("2024-05-06T07:08:09Z", 1_714_979_289_000), ("2000-01-01", MOMENT_MS_MIN)],
)
def test_moment_is_milliseconds_or_iso(value: str, expected_ms: int) -> None:
    """Without a zone it is UTC."""
    assert moment_ms({"since": value}, "since") == expected_ms


@pytest.mark.parametrize("value", ["0", "1714979289", "1714979289000000", "1999-12-31", "yesterday"])
def test_moment_in_another_unit_is_refused(value: str) -> None:
    """Seconds would be January 1970, and a read from there would give all messages."""
    with pytest.raises(OptionRefused, match="option 'since' "):
        moment_ms({"since": value}, "since")


def test_bounds_are_those_of_the_command_line() -> None:
    """Executors have no configuration to import them from."""
    assert (MOMENT_MS_MIN, MOMENT_MS_END) == (moments.MOMENT_MS_MIN, moments.MOMENT_MS_END)
