"""`pyddmq lag report`, as its users call it; what it reports is tested with the engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.runtime.disk import RealDisk
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.samples import QueueSample
from proxy.cli.app import run
from proxy.cli.lag import lag_report_command
from tests.integration.proxy.admin.test_cli_lag_export import data_directory
from tests.unit.lag.samples import NOW_MS


@pytest.mark.usefixtures("no_spark")
def test_small_report_needs_no_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In each form; an old journal says nothing of now, and the exit code is that of unknown."""
    data = data_directory(tmp_path)
    for form in ("json", "markdown", "csv", "incidents-csv"):
        assert run(["lag", "report", "--journal", data, "--since", "30000d", "--format", form, "--out", "-"]) == 3
    capsys.readouterr()
    assert run(["lag", "report", "--journal", data, "--since", "30000d", "--format", "json", "--out", "-"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["samples"] > 0
    assert report["level"] == "UNKNOWN"
    assert "nothing is known of" in report["summary"]


@pytest.mark.parametrize(("every_ms", "rules"), [(10_000, []), (300_000, []), (300_000, ["--rule", "stale=11m"])])
def test_report_of_a_node_that_samples_seldom_is_as_good_as_its_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], every_ms: int, rules: list[str]
) -> None:
    """The journal says how far apart samples are; a group is in time for 20 of them, and late for 10."""
    limits, rounds = WriterLimits(interval_ms=every_ms, free_bytes_min=0), 30
    writer = JournalWriter(RealDisk(), f"{tmp_path}/j", JournalOrigin(cluster="c", node="n", epoch=1), limits)
    for number in range(rounds):
        at, late = NOW_MS + number * every_ms, max(0, number - 19)
        row = QueueSample(time_ms=at, start=0, end=900 + 30 * number, committed=900 + 30 * (number - late),
                          committed_ms=at - late * 120_000 if late else None, moved_ms=at, asked_ms=at)  # fmt: skip
        assert writer.write(at, [(("g", "t", 0), row)])
    writer.close(NOW_MS + rounds * every_ms)
    words = ["--journal", f"{tmp_path}/j", "--since", str(NOW_MS), "--until", str(NOW_MS + rounds * every_ms), *rules]
    assert run(["lag", "report", *words, "--format", "json", "--no-compare", "--out", "-"]) == 1
    [group] = json.loads(capsys.readouterr().out)["groups"]
    assert (group["status"], group["objective"]["coverage"]) == ("WARN", 1.0)
    assert [each["from_ms"] for each in group["incidents"]] == [NOW_MS + 20 * every_ms]
    assert run(["lag", "incidents", *words, "--format", "json"]) == 0
    [incident] = json.loads(capsys.readouterr().out)["incidents"]
    assert incident["seconds"] == 9 * every_ms / 1000


@pytest.mark.parametrize("out", ["nowhere/lag.json", "."])
def test_file_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    """It names the file and what to do; its exit code is that of what is not known, and not of a warning."""
    words = ["--since", "30000d", "--format", "json", "--engine", "local", "--out", str(tmp_path / out)]
    assert run(["lag", "report", "--journal", data_directory(tmp_path), *words]) == 3
    message = " ".join(capsys.readouterr().err.split())
    assert message.startswith(f"pyddmq: cannot write {tmp_path / out}: ")
    assert message.endswith("; pass another file")


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    "words",
    [
        ["report", "--engine", "spark", "--journal"],
        ["report", "--parquet", "there", "--journal"],
        ["backlog", "--data"],
        ["residence", "--journal"],
    ],
)
def test_missing_spark_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """With what to install, where only Spark makes the report."""
    assert run(["lag", *words, data_directory(tmp_path)]) == 8
    message = " ".join(capsys.readouterr().err.split())
    assert "runs on Spark, and pyspark" in message
    assert "pip install 'pyddmq[server,spark]'" in message


@pytest.mark.usefixtures("no_spark")
def test_summary_moves_no_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a group of a Kafka cluster is called."""
    limits = WriterLimits(free_bytes_min=0)
    writer = JournalWriter(RealDisk(), f"{tmp_path}/j", JournalOrigin(cluster="c", node="n", epoch=1), limits)
    assert writer.write(NOW_MS, [(("\x1b[2Jg", "t", 0), QueueSample(time_ms=NOW_MS))])
    writer.close(NOW_MS)
    out = f"{tmp_path}/lag.json"
    words = ["--since", "30000d", "--format", "json", "--out", out]
    assert run(["lag", "report", "--journal", f"{tmp_path}/j", *words]) == 3
    assert "nothing is known of \\x1b[2Jg at the end" in capsys.readouterr().out
    assert "\x1b[2Jg" in json.loads(Path(out).read_text())["summary"]


@pytest.mark.usefixtures("no_spark")
def test_large_report_without_spark_says_what_else_can_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its own engine it is slow, and possible."""
    monkeypatch.setattr(lag_report_command, "LOCAL_MAX", 0)
    data = data_directory(tmp_path)
    assert run(["lag", "report", "--journal", data, "--since", "30000d"]) == 8
    assert "--engine local, or a shorter --since" in " ".join(capsys.readouterr().err.split())
    out = str(tmp_path / "lag.json")
    arguments = ["--engine", "local", "--format", "json", "--since", "30000d", "--out", out]
    assert run(["lag", "report", "--journal", data, *arguments]) == 3
    assert json.loads(Path(out).read_text())["samples"] > 0


@pytest.mark.usefixtures("no_spark")
def test_samples_in_which_nothing_changes_count_as_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a journal they have no bytes; in memory they are as large, and 10,000 idle queues have 86 million a day."""
    monkeypatch.setattr(lag_report_command, "LOCAL_MAX", 9_000)
    limits = WriterLimits(free_bytes_min=0)
    writer = JournalWriter(RealDisk(), f"{tmp_path}/j", JournalOrigin(cluster="c", node="n", epoch=1), limits)
    for number in range(100):
        at = NOW_MS + 10_000 * number
        row = QueueSample(time_ms=at, start=0, end=9, committed=9)
        assert writer.write(at, [(("g", "t", queue), row) for queue in range(100)])
    writer.close(NOW_MS + 1_000_000)
    words = ["--journal", f"{tmp_path}/j", "--no-compare", "--format", "json", "--out", "-", "--until"]
    assert run(["lag", "report", *words, str(NOW_MS + 1_000_000), "--since", str(NOW_MS)]) == 8
    assert "--engine local, or a shorter --since" in " ".join(capsys.readouterr().err.split())
    assert run(["lag", "report", *words, str(NOW_MS - 3_600_000), "--since", str(NOW_MS - 7_200_000)]) == 3


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--journal", "/nowhere"], 11, "has no lag journal; pass a data directory"),
        (["--journal", "x", "--exported", "y"], 2, "pass either --journal or --exported"),
        (["--format", "pdf"], 2, "invalid --format 'pdf'; use one of html, markdown, json, csv, incidents-csv"),
        (["--engine", "duck"], 2, "invalid --engine 'duck'; use one of auto, local, spark"),
        (["--engine", "local", "--parquet", "x"], 2, "--parquet needs Spark"),
        (["--exported", "/nowhere"], 2, "/nowhere has no exported samples"),
        (["--timezone", "Mars/Olympus"], 2, "use a name such as Europe/Berlin"),
        (["--rule", "patience=3"], 2, "patience is not a limit of the lag rules"),
        (["--since", "soon"], 2, "--since"),
        (["--since", "1h", "--until", "2h"], 2, "which is not behind its begin"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, sentence: str
) -> None:
    """In a sentence."""
    journal = [] if {"--journal", "--exported"} & {*options} else ["--journal", data_directory(tmp_path)]
    assert run(["lag", "report", *journal, *options]) == code
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_time_zone_is_the_machines_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """By TZ, else by the link of /etc/localtime; a nameless one is UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert lag_report_command.timezone_of(None) == "Asia/Tokyo"
    assert lag_report_command.timezone_of("UTC") == "UTC"
    monkeypatch.setenv("TZ", "Etc/UTC")
    assert lag_report_command.timezone_of(None) == "UTC"


def test_missing_packages_of_the_page_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any work, with what to install; other formats need none of them."""
    monkeypatch.setattr(lag_report_command, "find_spec", lambda name: None)
    words = ["lag", "report", "--journal", str(tmp_path), "--out", str(tmp_path / "out")]
    assert run(words) == 8
    assert "pip install 'pyddmq[server,report]'" in " ".join(capsys.readouterr().err.split())
    assert run([*words, "--format", "json"]) != 8
