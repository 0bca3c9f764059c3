"""`pyddmq lag residence`, asked as its users ask it; what it tells is tests/spark's."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.runtime.disk import RealDisk
from lag.acks.acks import AckBatch
from lag.acks.log import FOLDER, AckLog, AckLogLimits
from lag.blocks import FileHead, FileKind
from proxy.cli.app import run


def data_directory(root: Path) -> str:
    """Make a data directory with the ack log of one group, and a message in it."""
    head = FileHead(kind=FileKind.ACKS, cluster="c", node="n", epoch=1, sequence=0, first_ms=0, last_ms=0, group="g")
    log = AckLog(RealDisk(), f"{root}/{FOLDER}/g", head, AckLogLimits(free_bytes_min=0))
    log.add(AckBatch("t", 0, [0], [1_000], [1_010], [1_500], [1], [1]))
    log.close()
    return str(root)


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--journal", "/nowhere"], 11, "has no ack log; pass the data directory of a node with a group whose ackLog"),
        (["--format", "pdf"], 2, "invalid --format 'pdf'; use one of table, markdown, csv, json"),
        (["--since", "soon"], 2, "--since"),
        (["--since", "1h", "--until", "2h"], 2, "the window ends at or before its start"),
        (["--every", "0.1"], 2, "--every must be at least one second, got 0.1 s"),
    ],
)
def test_wrong_options_are_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, sentence: str
) -> None:
    """In a sentence."""
    pytest.importorskip("pyspark")
    journal = [] if "--journal" in options else ["--journal", data_directory(tmp_path)]
    assert run(["lag", "residence", *journal, *options]) == code
    assert sentence in " ".join(capsys.readouterr().err.split())
