"""`pyddmq store broker-conf` in process."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.features import ALL
from broker.options import StoreOptions
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.store import Store
from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from pyddmq.testing import ManualClock


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a store of small files."""
    options = StoreOptions(segment_bytes=4096, queue_file_units=30)
    root = tmp_path / "data"
    store = Store.open(
        str(root),
        options=options,
        features=ALL,
        disk=RealDisk(),
        clock=ManualClock(),
        random=Random(1),
        metrics=Metrics(),
    )
    store.close()
    return root


def test_broker_conf_has_the_sizes_of_the_store(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One setting a line, as RocketMQ's -c reads it; the store is left alone."""
    before = sorted(path.name for path in data.rglob("*"))
    assert run(["store", "broker-conf", str(data)]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert f"storePathRootDir = {data}" in lines
    assert "mappedFileSizeCommitLog = 4096" in lines
    assert "mappedFileSizeConsumeQueue = 600" in lines
    assert sorted(path.name for path in data.rglob("*")) == before


def test_broker_conf_as_json_has_the_same_settings(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mapping of name to text."""
    assert run(["store", "broker-conf", str(data), "--json"]) == ExitCode.OK
    settings = json.loads(capsys.readouterr().out)["brokerConf"]
    assert run(["store", "broker-conf", str(data)]) == ExitCode.OK
    assert [f"{name} = {value}" for name, value in settings.items()] == capsys.readouterr().out.splitlines()


def test_broker_conf_of_a_store_that_may_only_be_read(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy on a file system that is mounted for reading, or of another user: it writes nothing."""
    opened = os.open

    def read_only(path: str, flags: int, *mode: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return opened(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", read_only)
    assert run(["store", "broker-conf", str(data)]) == ExitCode.OK
    assert f"storePathRootDir = {data}" in capsys.readouterr().out


def test_folder_without_store_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is created there."""
    assert run(["store", "broker-conf", str(tmp_path / "none")]) == ExitCode.DATA_UNUSABLE
    assert "has no store" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_damaged_store_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes are not guessed."""
    (data / "pyddmq" / "store.json").write_text("{")
    assert run(["store", "broker-conf", str(data)]) == ExitCode.DATA_UNUSABLE
    assert "damaged" in capsys.readouterr().err


def test_broker_conf_notes_what_is_not_read(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, so that stdout stays the file."""
    (data / "config" / "topicQueueMapping.json").write_text('{"topicQueueMappingInfoMap":{"spread":{}}}')
    assert run(["store", "broker-conf", str(data)]) == ExitCode.OK
    captured = capsys.readouterr()
    assert "note: topics spread are spread over brokers" in captured.err
    assert "note:" not in captured.out


def test_broker_conf_has_the_delay_levels(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RocketMQ must have the node's; a list that is none is refused before anything is printed."""
    assert run(["store", "broker-conf", str(data)]) == ExitCode.OK
    assert "messageDelayLevel = 1s 5s 10s" in capsys.readouterr().out
    assert run(["store", "broker-conf", str(data), "--delay-levels", "7s 1d"]) == ExitCode.OK
    assert "messageDelayLevel = 7s 1d" in capsys.readouterr().out
    assert run(["store", "broker-conf", str(data), "--delay-levels", "soon"]) == ExitCode.USAGE
    assert "'soon' is not a valid delay" in capsys.readouterr().err
