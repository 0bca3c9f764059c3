"""`watch` over real journals: each change of a verdict once in the sink, also when Spark gives a batch again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.kills.campaign import written_changes
from tests.spark.test_journal_stream import START_MS, Node


@pytest.mark.usefixtures("shipped")
def test_change_is_in_the_sink_once_over_restarts_and_repeated_batches(spark: Any, tmp_path: Path) -> None:
    """The state is in the checkpoint: trends continue, and a silent node is reported once, and when it is back."""
    from lag.spark.jobs.watch import WatchOptions, watch

    node = Node(tmp_path / "lag")
    options = WatchOptions(
        journals=[str(tmp_path / "lag")],
        checkpoint=str(tmp_path / "checkpoint"),
        format="json",
        options={"path": str(tmp_path / "changes")},
        recipients={"g": ("on-call",)},
        settings={"bytesPerTrigger": "200"},
        once=True,
    )

    def written() -> list[tuple[int, str, str | None, str]]:
        watch(spark, options)
        found = written_changes(tmp_path / "changes")
        assert len({each["key"] for each in found}) == len(found)
        assert all(each["alarmGroup"] == (["on-call"] if each["group"] else []) for each in found)
        return sorted(
            ((each["timeMs"] - START_MS) // 1000, each["group"], each.get("before"), each["status"]) for each in found
        )

    node.rounds(10)
    first = [(60, "g", "OK", "WARN"), (90 + 60, "", "OK", "SILENT")]
    assert written() == first, "of many batches of old rounds only the last finds the node silent"
    commits = tmp_path / "checkpoint" / "commits"
    last = max(commits.glob("[0-9]*"), key=lambda each: int(each.name))
    assert int(last.name) >= 2, "the rounds take two batches, and the silence one"
    last.unlink()
    (commits / f".{last.name}.crc").unlink()
    assert written() == first
    node.rounds(7, lag=False)
    assert written() == [*first, (160, "", "SILENT", "OK"), (160, "g", "WARN", "OK"), (220, "", "OK", "SILENT")]


@pytest.mark.parametrize("words", [["--option", "path"], ["--option", "=x"]])
def test_options_that_are_no_pairs_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before Spark is started, with what would be right."""
    pytest.importorskip("pyspark")
    from lag.spark.jobs.program import main

    assert main(["watch", "--journal", "j", "--checkpoint", "c", *words]) == 2
    assert f"pyddmq lag watch: --option is {words[1]!r}; write NAME=VALUE" in capsys.readouterr().err
