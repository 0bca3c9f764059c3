"""Rules and examples for Prometheus and Alertmanager: read by their own tools, and of metrics that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import need_program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
PROMETHEUS, ALERTMANAGER = "apt install prometheus", "apt install prometheus-alertmanager"


@pytest.mark.parametrize(
    ("program", "hint", "words"),
    [
        ("promtool", PROMETHEUS, ["check", "rules", "pyddmq.rules.yaml"]),
        ("promtool", PROMETHEUS, ["test", "rules", "pyddmq.rules.test.yaml"]),
        ("promtool", PROMETHEUS, ["check", "config", "prometheus.yaml"]),
        ("amtool", ALERTMANAGER, ["check-config", "alertmanager.yaml"]),
    ],
)
def test_file_is_taken_by_its_tool(program: str, hint: str, words: list[str]) -> None:
    """Without a warning."""
    ended = subprocess.run(
        [need_program(program, hint), *words], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "FAILED" not in ended.stdout + ended.stderr


def test_every_metric_of_the_rules_exists() -> None:
    """docs/metrics.md has all metrics of a node; a rule over another one never fires."""
    rules = yaml.safe_load((FOLDER / "pyddmq.rules.yaml").read_text())
    used = {
        name for group in rules["groups"] for rule in group["rules"] for name in re.findall(r"pyddmq_\w+", rule["expr"])
    }
    known = set(re.findall(r"^\| `(pyddmq_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    assert used
    assert used <= known, used - known


def test_every_alert_is_on_its_page() -> None:
    """docs/howto/alert-with-prometheus.md says when each fires."""
    rules = yaml.safe_load((FOLDER / "pyddmq.rules.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    page = (ROOT / "docs" / "howto" / "alert-with-prometheus.md").read_text()
    assert alerts == set(re.findall(r"Pyddmq\w+", page))
