"""`pyddmq lag backlog`, asked as its users ask it; what it counts is tests/spark's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.runtime.disk import RealDisk
from proxy.cli.app import run
from proxy.cli.lag.lag_backlog_command import progress_file
from pyddmq.broker import open_store
from tests.unit.progress_world import GROUP, TOPIC, Node


def test_wrong_options_are_told_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a sentence."""
    pytest.importorskip("pyspark")
    open_store(str(tmp_path / "data")).close()
    for options, sentence in (
        (["--data", str(tmp_path)], "is not a store: it has no folder commitlog"),
        (["--data", str(tmp_path / "data")], "no group has committed an offset in this store"),
        (["--data", str(tmp_path), "--format", "pdf"], "invalid --format 'pdf'; use one of table, markdown, csv, json"),
    ):
        assert run(["lag", "backlog", *options]) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())


def test_what_is_finished_is_what_the_ack_journal_says(tmp_path: Path) -> None:
    """Committed and, above it, ranges; the file goes when the job is over. Without a journal there is nothing."""
    node = Node(RealDisk(), root=str(tmp_path))
    node.publish(20)
    for offset in (0, 1, 2, 5, 6, 9):
        node.ack(offset)
    node.close()
    with progress_file(str(tmp_path)) as path:
        assert json.loads(Path(path).read_text()) == [[GROUP, TOPIC, 0, 3, [[5, 7], [9, 10]]]]
    assert not Path(path).exists()
    with progress_file(f"{tmp_path}/none") as path:
        assert json.loads(Path(path).read_text()) == []
