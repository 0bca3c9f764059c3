"""What a failed test leaves for whoever reads its report elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FAILING = """
def test_fails(tmp_path):
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "node.log").write_text("long ago " * 1000 + "no space left")
    assert False
"""


def test_report_of_a_failure_has_the_ends_of_the_logs(tmp_path: Path) -> None:
    """Of those in the test's folder, and no more than their ends."""
    file = tmp_path / "test_it.py"
    file.write_text(FAILING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(
        [*command, "--basetemp", tmp_path / "inner", file],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "end of node/node.log" in done.stdout
    assert "no space left" in done.stdout
    assert len(done.stdout) < 8_000
