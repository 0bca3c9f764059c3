"""The data directory: never among somebody's files, and for nobody's eyes but its owner's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from broker.errors import NotAStore, StoreError
from broker.runtime.disk import RealDisk
from pyddmq.testing import SimDisk
from tests.fuzz.image import disk_of
from tests.integration.store_tools import ROOT, bodies, open_store

OTHERS = [
    {"notes.txt": b"x"},
    {"src/main.py": b"x", "config/app.json": b"{}"},
    {"config/app.json": b"{}"},
    {"index/index.html": b"x"},
    {"checkpoint": b"", "model.bin": b"x"},
    {"consumequeue/x": b"", "README.md": b"x"},
]
FINE = [
    {},
    {".snapshot/x": b"x", "lost+found/x": b"x", ".hidden": b""},
    {"lock": b"lock"},
    {"config/topics.json": b'{"topicConfigTable":{}}', "config/consumerOffset.json": b"{}", "abort": b"1"},
    {"pyddmq/segment.new": b"", "notes.txt": b"x"},
]


@pytest.mark.parametrize("files", OTHERS)
def test_folder_of_somebody_elses_files_is_refused(files: dict[str, bytes]) -> None:
    """With a sentence that names some of them and says what to do; nothing is made there."""
    disk = disk_of({f"{ROOT}/{path}": content for path, content in files.items()})
    before = disk.list(ROOT)
    with pytest.raises(NotAStore, match="no store") as reported:
        open_store(disk)
    assert "new folder" in str(reported.value)
    assert any(name in str(reported.value) for name in before)
    assert disk.list(ROOT) == before


@pytest.mark.parametrize("files", FINE)
def test_empty_half_made_and_rocketmqs_folders_are_taken(files: dict[str, bytes]) -> None:
    """Also the root of a file system of its own, and what a kill left of the very first start."""
    store = open_store(disk_of({f"{ROOT}/{path}": content for path, content in files.items()}))
    store.close()


@pytest.mark.parametrize("changes", range(12))
def test_first_start_that_was_killed_anywhere_goes_on(changes: int) -> None:
    """At each of the first changes of the disk."""
    disk = SimDisk()
    disk.stop_after(changes)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the machine stops
        open_store(disk)
    disk.kill()
    store = open_store(disk)
    store.create_topic("t", 1)
    store.put("t", b"x")
    assert bodies(store) == {0: b"x"}


def test_open_data_directory_of_an_older_version_is_told_and_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program of another user may work on it, so that nothing is taken away; one line says how to close it."""
    disk = RealDisk()
    root = tmp_path / "data"
    open_store(disk, root=str(root)).close()
    capsys.readouterr()
    open_store(disk, root=str(root)).close()
    assert "data_directory_open_to_others" not in capsys.readouterr().out
    root.chmod(0o755)
    open_store(disk, root=str(root)).close()
    said = capsys.readouterr().out
    assert said.count("data_directory_open_to_others") == 1
    assert "chmod" in said
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    assert issubclass(NotAStore, StoreError)
