"""Since when messages could be consumed: the node's samples and Spark's files say the same of what waited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from broker.runtime.sealed_file import read_whole
from lag.spark.sources.store_files import StoreFiles
from pyddmq.testing import SimDisk
from tests.integration import delay_tools, timer_tools
from tests.integration.store_tools import ROOT
from tests.integration.waiting_tools import START_MS, TOPIC
from upstream.embedded.message_times import MessageTimes

LATE_MS = 100_000


def copied(disk: SimDisk, folder: str, to: Path) -> str:
    """Copy a folder to the real disk."""
    to.mkdir(parents=True, exist_ok=True)
    for name in disk.list(folder):
        if disk.is_folder(f"{folder}/{name}"):
            copied(disk, f"{folder}/{name}", to / name)
        else:
            (to / name).write_bytes(read_whole(disk, f"{folder}/{name}") or b"")
    return str(to)


def test_what_waited_counts_from_when_it_was_due(tmp_path: Path) -> None:
    """By a delay level and by a timer, each stored late since the node was down; what did not wait, from its store."""
    for number, tools in enumerate((delay_tools, timer_tools)):
        wait: dict[str, Any] = {"level": 2} if tools is delay_tools else {"delay_ms": 5_000}
        broker = tools.broker()
        broker.send(b"waited", **wait)
        broker.store.put(TOPIC, b"did not")
        broker.store.close()
        broker.clock.sleep((5_000 + LATE_MS) / 1000)
        broker = broker.opened_again()
        broker.scheduler.run_until_idle()
        assert broker.delivered() == [b"did not", b"waited"]
        broker.store.flush()

        times = MessageTimes(broker.store)
        node = [times.at(broker.store.topics[TOPIC].queues[0], offset) for offset in range(2)]
        broker.store.close()
        files = StoreFiles(copied(broker.disk, ROOT, tmp_path / str(number)))
        found = list(files.read(TOPIC, 0, 0, 2))
        assert [each.due_ms for each in found] == node == [START_MS, START_MS + 5_000]
        assert files.stored_ms(TOPIC, 0, 1, 2) == START_MS + 5_000 + LATE_MS
