"""The example over Kafka: two node processes over a real Kafka, one of which is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import environment
from tests.patient import PATIENCE_SECONDS

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka_two_nodes.py"


def test_example_passes_its_checks(address: str) -> None:
    """All messages are delivered, each key in order, although a node was killed."""
    done = subprocess.run(
        [sys.executable, EXAMPLE, address],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all checks passed"]), done.stdout + done.stderr
