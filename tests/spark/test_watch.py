"""`watch` over real journals: alarms as the node has them, each once, also when Spark gives a batch again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lag.alarms.model import AlarmRule, alarm_id
from lag.alarms.rounds import AlarmPolicy
from tests.spark.test_journal_stream import START_MS, Node


@pytest.mark.usefixtures("shipped")
def test_batch_that_spark_gives_again_tells_nothing_twice(spark: Any, tmp_path: Path) -> None:
    """The kill came after the alarms were written and before Spark noted the batch."""
    from lag.spark.jobs.watch import WatchOptions, watch

    node = Node(tmp_path / "lag")
    node.rounds(8)
    rule = AlarmRule(statuses=frozenset({"INCOMPLETE", "SILENT"}), close_after_ms=0)
    options = WatchOptions(
        journals=[str(tmp_path / "lag")],
        checkpoint=str(tmp_path / "checkpoint"),
        file=str(tmp_path / "alarms.jsonl"),
        policy=AlarmPolicy(rules=(rule,)),
        once=True,
    )

    def told() -> list[tuple[str, str, str]]:
        lines = [json.loads(line) for line in (tmp_path / "alarms.jsonl").read_text().splitlines()]
        return [(each["status"], each["event"], each["id"]) for each in lines]

    watch(spark, options, now_ms=lambda: START_MS + 80_000)
    first = told()
    assert ("INCOMPLETE", "opened", alarm_id("c", "g", "INCOMPLETE", START_MS)) in first
    for commit in (tmp_path / "checkpoint" / "spark" / "commits").iterdir():
        commit.unlink()
    watch(spark, options, now_ms=lambda: START_MS + 80_000)
    assert told() == first
    node.rounds(2)
    watch(spark, options, now_ms=lambda: START_MS + 900_000)
    assert told()[len(first) :] == [("SILENT", "opened", alarm_id("c", "node n", "SILENT", START_MS + 150_000))]
