"""The benchmark runs single requests and timers beside a real RocketMQ, small; nothing about time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.reports.requests import TITLES
from bench.rocketmq.timers import PRECISIONS_MS
from bench.servers.maven import Programs

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.long


def _results(measure: str, folder: Path) -> list[dict[str, Any]]:
    """What RocketMQ has of a small run, whose folder is empty again afterwards."""
    out = folder / "figures.json"
    words = ["--tiny", "--only", measure, "--no-redis", "--no-nats", "--json", str(out), "--folder", str(folder)]
    command = [sys.executable, "-m", "bench", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == [out]
    return [each for each in json.loads(out.read_text())["results"] if each["server"] == "rocketmq"]


def test_rocketmqs_single_requests_are_beside_the_nodes(compiled: Programs, tmp_path: Path) -> None:
    """A real broker answers the client that speaks its protocol, publishes and pulls, for one client and for eight."""
    found = _results("requests", tmp_path)
    assert [(each["measure"], each["clients"]) for each in found] == [
        (measure, clients) for clients in (1, 8) for measure in TITLES
    ]
    assert all(each["cpu_us"] > 0 for each in found)


def test_rocketmqs_timers_stand_beside_the_nodes(compiled: Programs, tmp_path: Path) -> None:
    """Both widths of its slots give all figures; nothing is early, and a SIGKILL loses nothing of what is pending."""
    found = _results("timers", tmp_path)
    assert [(each["measure"], each["facts"]["precision_ms"]) for each in found] == [
        (measure, precision) for precision in PRECISIONS_MS for measure in ("timers", "timer burst")
    ]
    for steady in found[::2]:
        assert steady["messages"] == 100
        assert steady["facts"]["early"] == steady["facts"]["lost"] == 0
    for burst in found[1::2]:
        assert burst["messages"] == 320
        assert set(burst["ack_ms"]) == {"p50", "p99", "p99.9", "max"}
