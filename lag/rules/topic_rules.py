"""The queues of a topic beside each other: means and deviations by which skew and hot queues are found.

A queue is compared with the *others*: among few queues one alone lifts mean and deviation so far that it never is
two deviations above them (of n queues none is more than the root of n - 1 above).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Final

from lag.rules.expression import Facts, Value

ALONE: Final[Mapping[str, Value]] = {
    "lag_queues": None,
    "lag_max": None,
    "lag_mean": None,
    "others_lag_mean": None,
    "others_lag_deviation": None,
    "others_rate_mean": None,
    "others_rate_deviation": None,
}
"""The figures of the others where none was computed."""


def beside(queues: Mapping[int, Facts]) -> dict[int, dict[str, Value]]:
    """Return what the other queues of a topic say about each; those that are not known count for nothing.

    Args:
        queues: Facts and quantities of each queue by its number.
    """
    lags, rates = _Sums(), _Sums()
    for facts in queues.values():
        lags.add(facts["lag"])
        rates.add(facts["produce_trend"])
    found: dict[int, dict[str, Value]] = {}
    for queue, facts in queues.items():
        lag_mean, lag_deviation = lags.without(facts["lag"])
        rate_mean, rate_deviation = rates.without(facts["produce_trend"])
        found[queue] = {
            "lag_queues": lags.count,
            "lag_max": lags.highest,
            "lag_mean": lags.total / lags.count if lags.count else None,
            "others_lag_mean": lag_mean,
            "others_lag_deviation": lag_deviation,
            "others_rate_mean": rate_mean,
            "others_rate_deviation": rate_deviation,
        }
    return found


class _Sums:
    """Count, sum and sum of squares of what is known."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.squares = 0.0
        self.highest: float | None = None

    def add(self, value: Value) -> None:
        """Take one value in; null is none."""
        if isinstance(value, int | float):
            self.count += 1
            self.total += value
            self.squares += float(value) * value
            self.highest = value if self.highest is None else max(self.highest, value)

    def without(self, value: Value) -> tuple[float | None, float | None]:
        """Return mean and standard deviation of all but this one; null of no values."""
        own = float(value) if isinstance(value, int | float) else None
        count = self.count - (own is not None)
        if not count:
            return None, None
        mean = (self.total - (own or 0.0)) / count
        squares = self.squares - (own or 0.0) * (own or 0.0)
        return mean, sqrt(max(0.0, squares / count - mean * mean))
