"""`pyddmq lag incidents`, as its users call it: each form of one small history."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import sys
from pathlib import Path

import pytest

from broker.runtime.disk import RealDisk
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.samples import EventKind, LagEvent
from proxy.cli.app import run
from tests.integration.proxy.admin.test_cli_lag_export import data_directory
from tests.unit.lag.report.test_incidents import PLACE, late, ok
from tests.unit.lag.samples import NOW_MS

HISTORY = ["--since", "2026-02-02T00:00:00Z", "--until", "2026-02-03T00:00:00Z", "--timezone", "UTC"]


def journal(path: Path, rounds: int = 120) -> str:
    """Write a history of twenty minutes in which a group was late for five, after a reload."""
    folder = f"{path}/j"
    made = JournalWriter(
        RealDisk(), folder, JournalOrigin(cluster="c", node="n", epoch=1), WriterLimits(free_bytes_min=0)
    )
    for number in range(rounds):
        is_late = 60 <= number < 90
        row = late(number, limited=True, dead_letters=1) if is_late else ok(number, 300 if number < 60 else 500)
        if number == 50:
            made.note(LagEvent(time_ms=row.time_ms, kind=EventKind.RELOAD, detail="node.yaml | =1"))
        assert made.write(row.time_ms, [(PLACE, row)])
    made.close(NOW_MS + 1_200_000)
    return folder


def test_ledger_has_what_when_why_and_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, JSON, CSV and Markdown; the sums by month follow."""
    command = ["lag", "incidents", "--journal", journal(tmp_path), *HISTORY]
    assert run(command) == 0
    lines = [[word.strip() for word in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    [incident, month] = [line for line in lines if line]
    assert incident == [
        "02-02 02:50", "5 min", "g", "t 0", "WARN rate limit", "200", "0", "02:48 reload of node n: node.yaml | =1",
    ]  # fmt: skip
    assert month == ["2026-02", "rate limit", "1", "5 min", "0"]
    assert run([*command, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["incidents"][0]["cause"], found["incidents"][0]["seconds"]) == ("rate limit", 300.0)
    assert found["months"] == [{"month": "2026-02", "cause": "rate limit", "incidents": 1, "seconds": 300.0, "lost": 0}]
    assert run([*command, "--format", "csv"]) == 0
    [row] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["group"], row["status"], row["to_ms"]) == ("g", "WARN", str(found["incidents"][0]["to_ms"]))
    assert run([*command, "--format", "markdown"]) == 0
    assert "reload of node n: node.yaml \\| =1 |" in capsys.readouterr().out


@pytest.mark.parametrize(("until", "said"), [("03:30", "3 min 10 s, open"), ("06:00", "3 min 10 s, then not recorded")])
def test_open_incident_is_open_as_long_as_it_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], until: str, said: str
) -> None:
    """Of a node that has recorded nothing for hours nothing is known."""
    moments = ["--since", "2026-02-02T00:00:00Z", "--until", f"2026-02-02T{until}:00Z", "--timezone", "UTC"]
    assert run(["lag", "incidents", "--journal", journal(tmp_path, 80), *moments]) == 0
    assert f"│ {said} " in capsys.readouterr().out


def test_no_incident_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And ends with 0, in each form; months without samples are passed over at once."""
    command = ["lag", "incidents", "--journal", journal(tmp_path), "--since", "30000d", "--timezone", "UTC"]
    for form, said in (("text", "No incidents, "), ("markdown", "No incidents, "), ("json", '"incidents": []')):
        assert run([*command, "--cause", "no_consumer", "--format", form]) == 0
        assert said in capsys.readouterr().out


def test_journal_that_cannot_be_read_is_missing_and_not_without_incidents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of its files says of which time it is: what there is may be of any day."""
    folder = journal(tmp_path)
    for file in Path(folder).iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    assert run(["lag", "incidents", "--journal", folder, *HISTORY]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "No incidents, " in printed
    assert f"missing: {folder}" in printed


@pytest.mark.parametrize(
    ("command", "code"),
    [(["check"], 3), (["slo"], 6), (["incidents"], 6), (["report"], 6), (["export", "--to", "nowhere"], 6), ([], 6)],
)
def test_journal_of_another_user_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str], code: int
) -> None:
    """With the code of a check whose result is unknown: 1 would be a warning of the group."""
    folder = journal(tmp_path)

    def denied(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "listdir", denied)
    assert run(["lag", *command, "--journal", folder]) == code
    assert f"{folder} cannot be read: Permission denied" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("form", ["text", "json"])
def test_ledger_that_cannot_be_written_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """In each form, with the code of a failure: a script that keeps it must not take a lost one for a short one."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(["lag", "incidents", "--journal", journal(tmp_path), *HISTORY, "--format", form]) == 1
    assert capsys.readouterr().err == "pyddmq: cannot write the output: no space left on device; pass another file\n"


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--journal", "/nowhere"], 11, "has no lag journal; pass a data directory"),
        (["--format", "html"], 2, "--format is 'html': it is one of text, json, csv, markdown"),
        (["--rule", "patience=3"], 2, "patience is not a limit of the lag rules"),
        (["--since", "1h", "--until", "2h"], 2, "which is not behind its begin"),
    ],
)
def test_wrong_options_of_incidents_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, sentence: str
) -> None:
    """In a sentence."""
    given = [] if "--journal" in options else ["--journal", data_directory(tmp_path)]
    assert run(["lag", "incidents", *given, *options]) == code
    assert sentence in " ".join(capsys.readouterr().err.split())
