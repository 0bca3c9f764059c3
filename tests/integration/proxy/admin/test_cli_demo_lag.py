"""`pyddmq demo lag` without Spark, and with a stage left out; with Spark it is tests/spark's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.cli.app import run
from proxy.demo.lag.stages import STAGES


@pytest.mark.usefixtures("no_spark")
def test_stage_left_out_is_noticed_and_missing_spark_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, the other stages found by the node, and one sentence where the report would be."""
    assert run(["demo", "lag", "--break", "poison", "--out", str(tmp_path / "out"), "--json"]) == 1
    reported = json.loads(capsys.readouterr().out)
    assert {each["check"]: each["examples"] for each in reported["checks"] if not each["passed"]} == {
        "poison": ["the node shows OK where BLOCKED, poison message was staged"]
    }
    assert [each["group"] for each in reported["stages"]] == [each.group for each in STAGES]
    assert all(each["node"] == each["staged"] for each in reported["stages"] if each["group"] != "poison")
    assert reported["page"] is None
    assert reported["missing"].startswith("no report: it needs Spark, and pyspark is missing")
