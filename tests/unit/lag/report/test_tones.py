"""How statuses look."""

from __future__ import annotations

from lag.report.page.charts import TONES, tone


def test_unheard_of_status_is_not_good() -> None:
    """A later version's status looks like what is not known."""
    assert tone("NEW_ONE") == "dark"
    assert tone("WARN") == TONES["WARN"] == "warn"
