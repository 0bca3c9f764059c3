"""`pyddmq lag export`, asked as its users ask it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from broker.runtime.disk import RealDisk
from lag.export.place import ExportPlace
from lag.journal.writer import FOLDER, JournalOrigin, JournalWriter, WriterLimits
from proxy.cli.app import run
from tests.conftest import need_module
from tests.unit.lag.samples import fleet


def data_directory(path: Path, snapshots: int = 5) -> str:
    """Make a journal in a data directory; return that."""
    journal = JournalWriter(
        RealDisk(),
        f"{path}/data/{FOLDER}",
        JournalOrigin(cluster="c", node="n", epoch=5),
        WriterLimits(free_bytes_min=0),
    )
    for rows in fleet(1, 3, snapshots):
        assert journal.write(rows[0][1].time_ms, rows)
    return f"{path}/data"


def test_samples_are_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the data directory or its folder; the second time there is nothing to do."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    data = data_directory(tmp_path)
    assert run(["lag", "export", "--journal", data, "--to", f"{tmp_path}/out"]) == 0
    assert "5 snapshots with 15 samples written" in capsys.readouterr().out
    arguments = ["lag", "export", "--journal", f"{data}/{FOLDER}/", "--to", f"{tmp_path}/out", "--compact", "--json"]
    assert run(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["files"], answer["knownSnapshots"], answer["gaps"]) == (0, 5, [])
    assert sum(live.last - live.first + 1 for live in ExportPlace(f"{tmp_path}/out").live("queues")) == 5


def test_times_bound_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As moments or ages."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    data = data_directory(tmp_path)
    arguments = ["lag", "export", "--journal", data, "--to", f"{tmp_path}/out", "--json", "--until"]
    assert run([*arguments, "2020-01-01T00:00:00Z"]) == 0
    assert json.loads(capsys.readouterr().out)["snapshots"] == 0
    assert run([*arguments, "tomorrow-ish"]) == 2
    assert "--until" in capsys.readouterr().err


def test_folder_without_a_journal_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to give instead."""
    assert run(["lag", "export", "--journal", str(tmp_path), "--to", f"{tmp_path}/out"]) == 11
    assert "has no lag journal; pass a data directory" in capsys.readouterr().err


def test_place_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its URL."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    assert run(["lag", "export", "--journal", data_directory(tmp_path), "--to", "nowhere://x"]) == 6
    assert "nowhere://x is not a valid place" in capsys.readouterr().err


def test_missing_pyarrow_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install, and no traceback."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run(["lag", "export", "--journal", data_directory(tmp_path), "--to", f"{tmp_path}/out"]) == 8
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install 'pyarrow" in error
