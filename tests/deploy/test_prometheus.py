"""Rules and examples for Prometheus and Alertmanager: read by their own tools, and of metrics that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.operate.attention.kinds import KINDS
from tests.conftest import need_program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
OF_OTHER_METRICS = {"failed", "not_ready", "disk_low", "tls_expiring", "tls_crl_expiring", "dead_letters"} | {
    "lost_to_retention"
}
"""Findings whose alert is made of another metric than `pyddmq_attention`."""
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


def rules() -> list[dict[str, Any]]:
    """Return all rules, recorded ones and alerts."""
    groups = yaml.safe_load((FOLDER / "pyddmq.rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_metric_of_the_rules_exists() -> None:
    """docs/metrics.md has all metrics of a node, and the file records the others: else a rule never fires."""
    used = {name.removesuffix("_bucket") for rule in rules() for name in re.findall(r"pyddmq[_:][\w:]+", rule["expr"])}
    known = set(re.findall(r"^\| `(pyddmq_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert recorded
    assert used <= known | recorded, used - known - recorded


def test_every_finding_has_one_alert() -> None:
    """PyddmqNeedsAttention leaves out those that another alert is about; each name is one of the node's."""
    named = {
        name
        for rule in rules()
        for names in re.findall(r'finding=~"([^"]+)"', rule["expr"])
        for name in names.split("|")
    }
    [rest] = [rule for rule in rules() if rule.get("alert") == "PyddmqNeedsAttention"]
    [left_out] = re.findall(r'finding!~"([^"]+)"', rest["expr"])
    assert named | OF_OTHER_METRICS == set(left_out.split("|"))
    assert named | OF_OTHER_METRICS <= KINDS.keys()


def test_every_alert_is_on_its_page() -> None:
    """docs/howto/alert-with-prometheus.md says when each fires."""
    page = (ROOT / "docs" / "howto" / "alert-with-prometheus.md").read_text()
    assert {rule["alert"] for rule in rules() if "alert" in rule} == set(re.findall(r"Pyddmq\w+", page))
