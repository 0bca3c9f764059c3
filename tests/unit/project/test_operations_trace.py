"""What a cut of the power leaves for whoever looks for a lost ack."""

from __future__ import annotations

from pathlib import Path
from random import Random

from pyddmq.testing import SimDisk
from tests.powerloss.operations_trace import LINES_MAX, OperationsTrace

JOURNAL = "/data/pyddmq/acks/0000000000000001.acks"


def written(disk: SimDisk, path: str, data: bytes, *, sync: bool) -> None:
    """Write a file."""
    disk.make_folder(path.rpartition("/")[0])
    file = disk.open(path, create=True)
    file.write(0, [data])
    if sync:
        file.sync()
        disk.sync_folder(path.rpartition("/")[0])


def test_cut_keeps_operations_and_files_before_and_after(tmp_path: Path) -> None:
    """Operations of all files in their order, and the files of acks and committed offsets; each cut begins anew."""
    disk, moments = SimDisk(), iter(range(100))
    trace = OperationsTrace(tmp_path / "cuts", lambda: next(moments))
    for path, sync in ((JOURNAL, True), ("/data/commitlog/0", True), ("/data/config/consumerOffset.json", False)):
        trace.note("write", path, 0, 5)
        written(disk, path, b"bytes", sync=sync)
    trace.cut(disk, lambda: disk.crash(Random(1), modes=("none",)))
    trace.cut(disk, disk.kill)
    folder = tmp_path / "cuts"
    assert (folder / "cut-0001.txt").read_text().splitlines() == [
        f"0.000000 write {JOURNAL} 0 5",
        "1.000000 write /data/commitlog/0 0 5",
        "2.000000 write /data/config/consumerOffset.json 0 5",
        "3.000000 cut",
    ]
    assert (folder / "cut-0002.txt").read_text() == "4.000000 cut\n"
    names = {path.name: path.read_bytes() for path in (folder / "cut-0001-before").iterdir()}
    assert names == {JOURNAL[1:].replace("/", "__"): b"bytes", "data__config__consumerOffset.json": b"bytes"}
    assert (
        names.keys() > {path.name for path in (folder / "cut-0001-after").iterdir()} == {JOURNAL[1:].replace("/", "__")}
    )


def test_long_life_keeps_its_latest_operations(tmp_path: Path) -> None:
    """It takes no more memory than a short one."""
    trace = OperationsTrace(tmp_path / "cuts", lambda: 0.0)
    for number in range(3 * LINES_MAX):
        trace.note("write", JOURNAL, number)
    trace.cut(SimDisk(), lambda: None)
    lines = (tmp_path / "cuts" / "cut-0001.txt").read_text().splitlines()
    assert LINES_MAX <= len(lines) <= 2 * LINES_MAX + 1
    assert lines[-2].endswith(f" {3 * LINES_MAX - 1}")
