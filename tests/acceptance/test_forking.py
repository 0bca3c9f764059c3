"""A command that is forked is a command: the same codes, words, streams and ends as from nothing."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.conftest import NodeProcess, StartNode, environment, run_from_nothing
from tests.forking import FORKS, Forked
from tests.patient import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["--version"], None),
        (["nonsense"], None),
        (["config", "check", "nowhere.yaml"], None),
        (["send", "orders", "-", "--producer", "127.0.0.1:1"], "a body\n"),
        (["lag", "explain", "operator_reset"], None),
    ],
)
def test_forked_command_says_what_one_from_nothing_says(words: list[str], stdin: str | None, tmp_path: Path) -> None:
    """Exit code and both streams, in a folder."""
    around = environment()
    forked = FORKS.run(words, cwd=tmp_path, environment=around, stdin=stdin, seconds=PATIENCE_SECONDS)
    assert forked == run_from_nothing(words, tmp_path, around, stdin)


def test_tests_fork() -> None:
    """What `environment` makes fits; one in which an interpreter would start as another does not."""
    assert FORKS.fits(environment())
    assert not FORKS.fits({**environment(), "PYTHONPATH": "elsewhere"})


def test_forked_node_takes_signals_and_its_end_is_told(start_node: StartNode) -> None:
    """As `Popen` tells it; none after its end."""
    node: NodeProcess = start_node()
    process = node.process
    assert isinstance(process, Forked)
    assert os.readlink(f"/proc/{process.pid}/cwd") == str(node.log_path.parent)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    process.kill()
    assert process.wait(PATIENCE_SECONDS) == process.poll() == -signal.SIGKILL
    process.send_signal(signal.SIGTERM)
    assert node.stop() == -signal.SIGKILL
    assert start_node().stop(signal.SIGTERM) == 0
