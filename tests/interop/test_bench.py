"""The benchmark runs its timers beside a real RocketMQ, small; nothing about time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.rocketmq.timers import PRECISIONS_MS
from bench.servers.maven import Programs

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.long


def test_rocketmqs_timers_stand_beside_the_nodes(compiled: Programs, tmp_path: Path) -> None:
    """Both widths of its slots give all figures; nothing is early, and a SIGKILL loses nothing of what is pending."""
    out = tmp_path / "figures.json"
    command = [
        sys.executable,
        "-m",
        "bench",
        "--tiny",
        "--only",
        "timers",
        "--json",
        str(out),
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = [each for each in json.loads(out.read_text())["results"] if each["server"] == "rocketmq"]
    assert [(each["measure"], each["facts"]["precision_ms"]) for each in found] == [
        (measure, precision) for precision in PRECISIONS_MS for measure in ("timers", "timer burst")
    ]
    for steady in found[::2]:
        assert steady["messages"] == 100
        assert steady["facts"]["early"] == steady["facts"]["lost"] == 0
    for burst in found[1::2]:
        assert burst["messages"] == 320
        assert set(burst["ack_ms"]) == {"p50", "p99", "p99.9", "max"}
    assert list(tmp_path.iterdir()) == [out]
