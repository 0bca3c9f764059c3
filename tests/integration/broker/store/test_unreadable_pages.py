"""One bad sector costs one record: a page that the disk does not give out ends no process, now or after a restart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration import bad_pages
from tests.patient import PATIENCE_SECONDS


@pytest.mark.parametrize("scenario", list(bad_pages.SCENARIOS))
def test_unreadable_page_costs_what_lies_on_it(tmp_path: Path, scenario: str) -> None:
    """In the log, a consume queue, the index, a small file: in a process of its own, which a SIGBUS would end."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.integration.bad_pages", str(tmp_path / "data"), scenario],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert run.returncode == 0, f"it ended with {run.returncode}:\n{run.stdout[-3000:]}\n{run.stderr[-5000:]}"
    assert run.stdout.endswith("passed\n")
