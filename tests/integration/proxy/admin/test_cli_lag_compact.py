"""`pyddmq lag compact`, asked as its users ask it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.runtime.disk import RealDisk
from lag.export.export import export
from lag.export.place import ExportPlace
from lag.journal.reader import JournalQuery
from lag.journal.writer import FOLDER
from proxy.cli.app import run
from tests.conftest import need_module
from tests.integration.proxy.admin.test_cli_lag_export import data_directory
from tests.unit.lag.samples import NOW_MS


@pytest.fixture
def place(tmp_path: Path) -> ExportPlace:
    """Export five snapshots, each alone."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    data = data_directory(tmp_path)
    place = ExportPlace(f"{tmp_path}/out")
    for number in range(1, 6):
        export(RealDisk(read_only=True), f"{data}/{FOLDER}", place, JournalQuery(until_ms=NOW_MS + number * 10_000))
    assert len(place.names("queues")) == 5
    return place


def test_days_that_are_over_get_one_file(place: ExportPlace, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that it replaced go with the next run, so that who reads them now can end."""
    rows = sum(place.read(live).num_rows for live in place.live("queues"))
    assert run(["lag", "compact", place.url, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["days"], answer["made"], answer["removed"]) == (1, 1, 0)
    assert len(place.names("queues")) == 6
    assert run(["lag", "compact", place.url]) == 0
    assert "0 files merged from smaller ones and 5 deleted, of 1 day; 1 file in" in capsys.readouterr().out
    assert sum(place.read(live).num_rows for live in place.live("queues")) == rows == 15


def test_what_was_replaced_can_go_at_once(place: ExportPlace, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody reads."""
    assert run(["lag", "compact", place.url, "--remove-old", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"days": 1, "made": 1, "removed": 5, "files": 1}


def test_place_without_exports_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what writes them; and one that is no place."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    assert run(["lag", "compact", str(tmp_path)]) == 11
    assert "has no exported files; `pyddmq lag export --to`" in " ".join(capsys.readouterr().err.split())
    assert run(["lag", "compact", "nowhere://x"]) == 6
