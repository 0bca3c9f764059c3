"""Reports of random windows say what a second evaluation of the same samples says, written from the documentation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.report.engine.local import make_locally
from lag.report.options import Input, ReportOptions, ReportWindow
from tests.conftest import need_module

SEEDS = int(os.environ.get("LAG_WINDOWS", "20"))
"""How many windows are compared; `LAG_WINDOWS=500` is a campaign of twenty minutes."""


def options_of(window: Any, folder: Path) -> ReportOptions:
    """Write a window's history, and return the options of its report."""
    window.write(folder)
    span = ReportWindow(from_ms=window.from_ms, to_ms=window.to_ms)
    return ReportOptions(given=Input(journals=(str(folder),)), window=span, limits=window.limits, made_ms=window.to_ms)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_report_says_what_the_documentation_says(seed: int, tmp_path: Path) -> None:
    """Status and cause of queues, bands, shares, incidents, and what waits by its own time."""
    need_module("pandas", "pip install 'pyddmq[spark]'")
    from tests.independent.comparison import differences
    from tests.independent.windows import window

    drawn = window(seed)
    report = make_locally(RealDisk(read_only=True), options_of(drawn, tmp_path))
    assert "\n".join(differences(drawn, report)) == ""
