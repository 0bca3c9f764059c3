"""Metrics whose labels peers choose: a bounded number of series, and no count lost."""

from __future__ import annotations

from broker.runtime.metrics import OPEN_SERIES_MAX, OTHER, Metrics
from broker.transaction.metrics import CHECKS


def test_series_of_names_that_peers_choose_are_bounded() -> None:
    """Three thousand names make a hundred series and one for the rest; the sum counts all."""
    metrics = Metrics()
    for _ in range(2):
        for number in range(3_000):
            metrics.open_counter(CHECKS, f"group-{number}").add()
    series = [labels for spec, labels, _ in metrics if spec.name == CHECKS]
    assert len(series) == OPEN_SERIES_MAX + 1
    assert metrics.value(CHECKS, "group-0") == 2
    assert metrics.value(CHECKS, OTHER) == 2 * (3_000 - OPEN_SERIES_MAX)
    assert metrics.value(CHECKS) == 6_000
