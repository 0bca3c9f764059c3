"""`watch` over real journals: each change of a verdict once in the sink, also when Spark gives a batch again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.kills.campaign import written_changes
from tests.spark.test_journal_stream import START_MS, Node


@pytest.mark.usefixtures("shipped")
def test_change_is_in_the_sink_once_over_restarts_and_repeated_batches(spark: Any, tmp_path: Path) -> None:
    """The state is in the checkpoint: trends go on where they were, and a silent node is reported once."""
    from lag.spark.jobs.watch import WatchOptions, watch

    node = Node(tmp_path / "lag")
    node.rounds(8)
    options = WatchOptions(
        journals=[str(tmp_path / "lag")],
        checkpoint=str(tmp_path / "checkpoint"),
        format="json",
        options={"path": str(tmp_path / "changes")},
        recipients={"g": ("on-call",)},
        once=True,
    )

    def written() -> list[tuple[str, str, str | None, int]]:
        found = written_changes(tmp_path / "changes")
        assert len({each["key"] for each in found}) == len(found)
        assert all(each["alarmGroup"] == (["on-call"] if each["group"] else []) for each in found)
        return sorted((each["group"], each["status"], each.get("before"), each["timeMs"]) for each in found)

    watch(spark, options)
    first = written()
    # Its rounds are of 2023.
    assert [each[:3] for each in first if not each[0]] == [("", "SILENT", None)]
    for commit in (tmp_path / "checkpoint" / "commits").iterdir():
        commit.unlink()
    watch(spark, options)
    assert written() == first
    node.rounds(30)
    watch(spark, options)
    last = written()
    assert [each for each in last if each in first] == first
    assert max(each for each in last if each[0]) > ("g", "STOP", START_MS) or len(last) > len(first)


@pytest.mark.parametrize("words", [["--option", "path"], ["--option", "=x"]])
def test_options_that_are_no_pairs_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before Spark is started, with what would be right."""
    pytest.importorskip("pyspark")
    from lag.spark.jobs.program import main

    assert main(["watch", "--journal", "j", "--checkpoint", "c", *words]) == 2
    assert f"pyddmq lag watch: --option is {words[1]!r}; write NAME=VALUE" in capsys.readouterr().err
