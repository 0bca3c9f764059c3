"""The broker inside a program: one argument is enough, and stdout stays the program's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker.options import StoreOptions
from pyddmq.broker import open_store

PROGRAM = """
import sys
from pyddmq.broker import open_store
store = open_store(sys.argv[1])
topic = store.create_topic("permits", queues=1)
store.put(topic, b"received", key="case-7")
store.abandon()
"""
ROOT = Path(__file__).parents[4]


def test_store_opens_with_its_folder_alone_and_keeps_its_sizes(tmp_path: Path) -> None:
    """Made with sizes of its own, it is opened again without them; what was put is there."""
    store = open_store(tmp_path / "data", options=StoreOptions(segment_bytes=1 << 20))
    topic = store.create_topic("permits", queues=1)
    store.put(topic, b"received", key="case-7")
    store.close()
    again = open_store(tmp_path / "data")
    assert again.options.segment_bytes == 1 << 20
    assert again.topics["permits"].queues[0].max_offset == 1
    again.close()


@pytest.mark.parametrize("lives", [1, 2])
def test_log_lines_go_to_stderr(tmp_path: Path, lives: int) -> None:
    """Also those of a recovery: a program that says nothing of logs has stdout for itself."""
    for _ in range(lives):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "data"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    assert done.stdout == ""
    assert "store_opened" in done.stderr
