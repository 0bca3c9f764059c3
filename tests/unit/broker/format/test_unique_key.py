"""UNIQ_KEY."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from random import Random

import pytest

from broker.format.unique_key import UniqueKeys

pytestmark = pytest.mark.usefixtures("each_accelerator_way")


def ms(*date: int) -> int:
    """Milliseconds since the epoch of a UTC date."""
    return int(datetime(*date, tzinfo=UTC).timestamp()) * 1000  # type: ignore[arg-type,misc]


def test_key_has_rocketmqs_fields() -> None:
    """Address, process, loader, milliseconds of the month, counter: 32 upper-case digits."""
    keys = UniqueKeys(b"\x0a\x0b\x0c\x0d", Random(1))
    first, second = keys.take(2, ms(2024, 2, 1) + 0xABC)
    assert len(first) == 32
    assert first == first.upper()
    assert first[:8] == b"0A0B0C0D"
    assert first[20:28] == b"00000ABC"
    assert int(second[28:], 16) == (int(first[28:], 16) + 1) & 0xFFFF


def test_month_begins_anew() -> None:
    """The milliseconds count from the first of the month, over December and back, too."""
    keys = UniqueKeys(bytes(4), Random(1))
    for moment, since in (
        (ms(2023, 12, 31, 23), 30 * 86_400_000 + 23 * 3_600_000),
        (ms(2024, 1, 1), 0),
        (ms(2023, 12, 1), 0),
    ):
        assert int(keys.take(1, moment)[0][20:28], 16) == since


def test_time_beyond_the_calendar_has_keys() -> None:
    """A store whose last record claims a far year takes messages; its keys differ."""
    keys = UniqueKeys(bytes(4), Random(1))
    for moment in (ms(9999, 12, 5), 282_075_000_000_000, (1 << 63) - 1, -(1 << 62)):
        first, second = keys.take(2, moment)
        assert len(first) == len(second) == 32
        assert first != second


def test_keys_of_a_millisecond_and_of_two_openings_differ() -> None:
    """65,536 keys fit into a millisecond, and openings have prefixes of their own."""
    one, other = UniqueKeys(bytes(4), Random(1)), UniqueKeys(bytes(4), Random(2))
    keys = [key for count in (1, 0, 65_530, 5) for key in one.take(count, 5)]
    assert len(set(keys)) == 65_536
    counters = [int(key[28:], 16) for key in keys]
    assert all(after == (before + 1) & 0xFFFF for before, after in pairwise(counters))
    assert keys[0][:20] != other.take(1, 5)[0][:20]
