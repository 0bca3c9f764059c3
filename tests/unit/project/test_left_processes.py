"""Tests that start processes: what a failed one leaves is gone for the next, and Ctrl-C reaches what they start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
INNER = """
import signal, subprocess, sys
from pathlib import Path

def test_that_leaves_a_process_behind():
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, flush=True); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    Path("pid").write_text(f"{process.pid} {process.stdout.readline().decode()}")
    assert False, "as a test does that meets a fault"

def test_that_comes_after():
    pid = Path("pid").read_text().split()[0]
    assert not Path(f"/proc/{pid}").exists()
"""


def test_failed_test_leaves_no_process_and_sigint_is_never_ignored(tmp_path: Path) -> None:
    """Started with SIGINT ignored, as by a shell in the background: processes take it, and end with their test."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import _processes, pytest_configure\n")
    (tmp_path / "test_inner.py").write_text(INNER)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert (tmp_path / "pid").read_text().split()[1] == "False"
