"""A report as plain data."""

from __future__ import annotations

import json

from lag.report.data import as_plain
from tests.unit.lag.report.examples import troubled


def test_report_is_json() -> None:
    """All of it, as it is."""
    plain = json.loads(json.dumps(as_plain(troubled())))
    assert plain["groups"][1]["line"]["lag"][105] is None
    assert plain["groups"][0]["incidents"][0]["status"] == "DATA_LOSS"
