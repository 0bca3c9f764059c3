"""When a delayed message, or a loop's last occurrence, is due: until then it counts for who sent it."""

from __future__ import annotations

import pytest

from broker.scheduled.recurring.occurrence import GROWING, LOOP, ONCE, Occurrence
from proxy.services.client_counts import last_due_ms

UUID = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("kind", "times", "interval", "expire_s", "last_s"),
    [
        (ONCE, 0, 0, 1_000_172_800, 1_000_000_000),
        (LOOP, 1, 10, 1_000_100_000, 1_000_000_000),
        (LOOP, 5, 10, 1_000_100_000, 1_000_000_040),
        (LOOP, 5, 10, 1_000_000_025, 1_000_000_020),
        (GROWING, 4, 2, 1_000_100_000, 1_000_000_014),
        (GROWING, 1000, 2, 1_000_000_013, 1_000_000_006),
    ],
)
def test_loop_counts_until_its_last_occurrence(
    kind: int, times: int, interval: int, expire_s: int, last_s: int
) -> None:
    """By `times`, or by `expire` where that comes first."""
    occurrence = Occurrence(1_000_000_000, kind, expire_s, times, 0, interval, 0, UUID)
    assert last_due_ms(occurrence) == last_s * 1000


def test_every_occurrence_of_a_loop_says_the_same() -> None:
    """A cancel names any of them."""
    occurrence: Occurrence | None = Occurrence(1_000_000_000, LOOP, 1_000_100_000, 5, 0, 10, 0, UUID)
    while occurrence is not None:
        assert last_due_ms(occurrence) == 1_000_000_040_000
        occurrence = occurrence.next()
