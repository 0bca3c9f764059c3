"""`pyddmq lag --journal` and `lag check --journal`: judged by files alone; and what `lag record` refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from lag.journal.writer import FOLDER, JournalOrigin, JournalWriter, WriterLimits
from lag.samples import EventKind, LagEvent, QueueSample
from proxy.cli.app import run

CONFIG = "node: {}\nkafka:\n  main: {bootstrapServers: 'localhost:1'}\n"


def journal(path: Path, *, ago_ms: int = 0, left: bool = False, every_ms: int = 10_000) -> str:
    """Two groups over five rounds up to so long ago: one keeps up, one stands still."""
    limits = WriterLimits(interval_ms=every_ms, free_bytes_min=0)
    writer = JournalWriter(RealDisk(), f"{path}/{FOLDER}", JournalOrigin(cluster="c", node="n", epoch=5), limits)
    first_ms = SystemClock().wall_ms() - ago_ms - 5 * every_ms
    for number in range(5):
        at = first_ms + every_ms * number
        rows = [
            (("good", "t", 0), QueueSample(time_ms=at, start=0, end=number, committed=number, moved_ms=at)),
            (("late", "t", 0), QueueSample(time_ms=at, start=0, end=100 + number, committed=7, committed_ms=first_ms)),
        ]
        if left and number == 4:
            writer.note(LagEvent(time_ms=at, kind=EventKind.LEFT, group="late", topic="t", queue=0))
            rows.pop()
        assert writer.write(at, rows)
    return str(path)


def test_last_samples_of_files_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a node judges its own."""
    data = journal(tmp_path)
    assert run(["lag", "--journal", data, "--json", "--trend", "1m"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(each["group"], each["lag"], each["samples"]) for each in answer["queues"]] == [
        ("late", 97, 5),
        ("good", 0, 5),
    ]
    assert (answer["everyMs"], len(answer["trend"]["lines"])) == (10_000, 2)
    assert run(["lag", "late", "--journal", f"{data}/{FOLDER}"]) == 0
    assert "97" in capsys.readouterr().out
    assert run(["lag", "check", "--journal", data, "--group", "good"]) == 0
    assert run(["lag", "check", "--journal", data, "--max-lag", "50"]) == 2


@pytest.mark.parametrize("every_ms", [120_000, 3_600_000])
def test_last_samples_are_as_good_as_they_are_far_apart(tmp_path: Path, every_ms: int) -> None:
    """`lag record --every 2m`, or `lag.every` of a node: the journal says it, and nobody else has to."""
    data = journal(tmp_path, every_ms=every_ms)
    assert run(["lag", "check", "--journal", data, "--group", "good"]) == 0
    assert run(["lag", "check", "--journal", data, "--max-lag", "50"]) == 2


def test_old_or_unknown_is_not_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Samples of an hour ago, a group that nobody noted: unknown. One that left is none any more."""
    data = journal(tmp_path / "old", ago_ms=3_600_000)
    assert run(["lag", "check", "--journal", data]) == 3
    assert run(["lag", "check", "--journal", journal(tmp_path / "new"), "--group", "nobody"]) == 3
    assert run(["lag", "check", "--journal", journal(tmp_path / "left", left=True), "--max-lag", "50"]) == 0
    assert run(["lag", "--journal", str(tmp_path), "--json"]) == 11
    assert "has no lag journal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--kafka", "nowhere"], 2, "write host:port, or pass --config with a cluster of that name"),
        (["--kafka", "other", "--config", "FILE"], 2, "has these clusters under kafka: main"),
        (["--kafka", "localhost:1", "--every", "0s"], 2, "--every must be above 0"),
    ],
)
def test_record_says_what_would_be_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, sentence: str
) -> None:
    """In a sentence, with nothing written."""
    pytest.importorskip("confluent_kafka")
    (tmp_path / "c.yaml").write_text(CONFIG)
    given = [str(tmp_path / "c.yaml") if each == "FILE" else each for each in options]
    assert run(["lag", "record", "--journal", str(tmp_path / "j"), *given]) == code
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "j").exists()


def test_package_that_is_missing_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install."""
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    assert run(["lag", "record", "--kafka", "localhost:1", "--journal", str(tmp_path / "j"), "--once"]) == 8
    assert "pip install 'pyddmq[kafka]'" in capsys.readouterr().err
