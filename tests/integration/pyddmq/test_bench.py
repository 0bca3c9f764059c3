"""The benchmark runs against a real node, small: it keeps working, and nothing about time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import pull_parts, timer_parts
from bench.parts import PARTS, measure
from bench.reports.requests import TITLES
from bench.servers.kafka import JARS
from bench.servers.processes import nats_server, redis_version

ROOT = Path(__file__).resolve().parents[3]


def _bench(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tiny_run_measures_everything(tmp_path: Path) -> None:
    """Every measurement gives its figures for the node, and for Redis where it is installed."""
    out = tmp_path / "figures.json"
    text = _bench("--tiny", "--no-rocketmq", "--json", str(out), "--folder", str(tmp_path))
    document = json.loads(out.read_text())
    servers = ["pyddmq", "redis"] if redis_version() else ["pyddmq"]
    single = [*servers, *(["nats", "nats, synced"] if nats_server() else [])]
    found: dict[tuple[str, str], dict[str, Any]] = {
        (each["measure"], each["server"]): each for each in document["results"]
    }
    alone = [(each, "pyddmq") for each in ("timers", "timer burst", "push", "actions", "idle")]
    beside = [(m, s) for m in ("publish", "pull", "latency", "memory", "light") for s in servers]
    assert sorted(found) == sorted([*((m, s) for m in TITLES for s in single), *beside, *alone])
    assert found["idle", "pyddmq"]["clients"] == 100
    for each in TITLES:
        runs = [run for run in document["results"] if run["measure"] == each]
        assert {(run["server"], run["clients"]) for run in runs} == {(s, n) for s in single for n in (1, 8)}
        assert all(run["messages"] % run["clients"] == 0 and run["cpu_us"] > 0 for run in runs)
    assert found["timers", "pyddmq"]["facts"]["early"] == 0
    facts = found["timers", "pyddmq"]["facts"]
    for kind in ("", "cpu_"):
        reload = facts[f"restart_{kind}seconds"] - facts[f"empty_restart_{kind}seconds"]
        assert facts[f"reload_{kind}seconds_per_million"] == pytest.approx(reload / 640 * 1e6)
        assert facts[f"empty_restart_{kind}seconds"] > 0
    assert found["timer burst", "pyddmq"]["messages"] == 320
    for server in servers:
        assert found["publish", server]["messages"] == 640
        assert found["pull", server]["per_second"] > 0
        assert set(found["latency", server]["latency_ms"]) == {"p50", "p99", "p99.9", "max"}
        assert found["memory", server]["memory"]["own_max"] > 0
    assert found["actions", "pyddmq"]["messages"] == 40
    assert "| 10 keys, one of them fails always | 40 |" in text
    assert "| publish | 32 |" in text
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.long
def test_tiny_attack_is_measured_beside_the_quiet_node(tmp_path: Path) -> None:
    """`--only hostile` gives both rows: the node by itself, and with hostile clients on its ports."""
    text = _bench("--tiny", "--only", "hostile", "--folder", str(tmp_path))
    assert "| quiet | 200/s |" in text
    assert "| hostile | 200/s |" in text


@pytest.mark.long
def test_growth_is_measured_at_each_count(tmp_path: Path) -> None:
    """`--only growth` gives a row for each number of what grows; of partitions where Kafka is."""
    out = tmp_path / "figures.json"
    text = _bench("--tiny", "--only", "growth", "--json", str(out), "--folder", str(tmp_path))
    partitions = [("partitions", 1)] if JARS.fetched() else []
    for what, factor in (("topics", 1), ("groups", 1), ("queues", 1), *partitions, ("keys", 100)):
        for count in (2, 4, 8):
            assert f"| {count * factor:,} {what} |" in text
    for each in json.loads(out.read_text())["results"]:
        facts = each["facts"]
        assert all(facts[f"{name}_seconds"] > 0 for name in ("start", "killed", "stopped", "metrics"))
        assert (each["measure"] in ("growth topics", "growth groups")) == ("reload_seconds" in facts)
        assert facts["files"] > 0


def test_profile_names_the_nodes_functions(tmp_path: Path) -> None:
    """`--profile` runs the node under a profiler and lists its functions by their own time."""
    text = _bench("--tiny", "--profile", "pull", "--folder", str(tmp_path))
    assert "`upstream/" in text


@pytest.mark.long
def test_stalls_name_callbacks_and_what_is_in_them(tmp_path: Path) -> None:
    """`bench.stalls` tells which callbacks of the loop took long, and which calls to the system were in them."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.stalls", "--seconds", "1", "--least-ms", "0", "--folder", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| `NodeTurns.end" in done.stdout
    assert "pwritev commitlog/N" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_parts_of_a_pull_are_all_measured() -> None:
    """Likewise of a pull with the acks of the one before, with warm and cold caches, and of one that waits."""
    for batch, parked, cold in ((1, False, False), (32, False, False), (32, False, True), (5, True, False)):
        found = pull_parts.measure(batch, passes=1, messages=320, parked=parked, cold=cold)
        assert set(found) == set(pull_parts.PARTS) - (set() if parked else {"wake"})
        assert all(value > 0 for value in found.values())


def test_parts_of_a_due_timer_are_all_measured() -> None:
    """Likewise of what waited, in small and large steps."""
    for delays, parts in ((False, timer_parts.PARTS), (True, timer_parts.DELAY_PARTS)):
        for step in (5, 64):
            found = timer_parts.measure(step, passes=1, messages=320, delays=delays)
            assert set(found) == set(parts)
            assert all(value > 0 for value in found.values())


def test_parts_of_a_publish_are_all_measured() -> None:
    """Each part of the way of a message has its figure, for one message per request and for many."""
    for batch in (1, 32):
        found = measure(batch, passes=1)
        assert set(found) == {*PARTS, "index"}
        assert all(value > 0 for value in found.values())
