"""What waits for its time: counted from a store's files as its own broker counts it, whatever became of the others."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.sealed_file import sealed, unsealed
from broker.scheduled.cancelling import CancelEffect
from lag.report.page.backlog import Backlog, BacklogRow, rendered
from pyddmq.testing import SimDisk
from tests.integration import delay_tools, timer_tools
from tests.integration.store_tools import ROOT
from tests.integration.waiting_tools import START_MS, TOPIC


def copied(disk: SimDisk, to: Path, folder: str = ROOT) -> str:
    """Copy a simulated disk's folder to a real one."""
    to.mkdir(parents=True, exist_ok=True)
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        if disk.is_folder(path):
            copied(disk, to / name, path)
        else:
            file = disk.open(path)
            (to / name).write_bytes(file.read(0, file.size()))
    return str(to)


def rows_of(spark: Any, data: str, now_ms: int, **options: Any) -> list[BacklogRow]:
    """Count what waits in a store's folder."""
    from lag.spark.jobs.delivery import delivered
    from lag.spark.jobs.scheduled import scheduled

    return scheduled(spark, data, delivered(data), read_ms=now_ms, **options)


def counted(rows: list[BacklogRow], kind: str) -> dict[str, int]:
    """Return messages by name, without those of which there are none."""
    return {row.name: row.messages for row in rows if row.kind == kind and row.messages}


@pytest.fixture(scope="module")
def timers(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int, int, bytes]:
    """Return a store, the moment, how many timers its broker has, and the checkpoint before the last deliveries.

    Of seven timers one was delivered before the checkpoint, two behind it, one was cancelled, one has another moment,
    one was rolled; and one is overdue, since delivery is paused.
    """
    from broker.scheduled.timer.stages import TimerPipelineStage

    made = timer_tools.broker()
    made.send(b"early", 1_000)
    for body in (b"behind", b"behind too"):
        made.send(body, 20_000)
    cancelled, moved = made.send(b"no", 600_000), made.send(b"moved", 30_000)
    made.send(b"rolled", 400_000)
    made.scheduler.advance(12)
    assert made.timers.cancel(TOPIC, cancelled) is CancelEffect.CANCELLED
    made.timers.reschedule(TOPIC, moved, START_MS + 900_000)
    made.scheduler.advance(7)
    path = f"{ROOT}/pyddmq/timers.json"
    stale = made.disk.open(path).read(0, made.disk.open(path).size())
    assert unsealed(stale)["read_ms"] < START_MS + 20_000
    made.scheduler.advance(120)
    assert sorted(made.delivered()) == [b"behind", b"behind too", b"early"]
    made.timers.pause(TimerPipelineStage.DEQUEUE_GET_MESSAGE)
    made.send(b"late", 1_500)
    made.scheduler.advance(60)
    now_ms, pending = made.clock.wall_ms(), made.pending
    made.timers.stop()
    made.store.close()
    data = copied(made.disk, tmp_path_factory.mktemp("timers") / "data")
    return data, now_ms, pending, stale


def test_timers_are_those_that_the_broker_has(spark: Any, shipped: Any, timers: Any) -> None:
    """Neither delivered, cancelled, moved nor rolled ones; what is overdue, and for how long."""
    data, now_ms, pending, _ = timers
    rows = rows_of(spark, data, now_ms)
    assert counted(rows, "scheduled") == {f"{TOPIC} / timers": pending} == {f"{TOPIC} / timers": 3}
    assert counted(rows, "due") == {"overdue": 1, "in 1 min to 10 min": 1, "in 10 min to 1 h": 1}
    [row] = [row for row in rows if row.kind == "scheduled"]
    assert (row.group, row.bytes > 0) == ("", True)
    assert 50 < (row.oldest_seconds or 0) < 60
    assert row.detail.startswith("1 overdue, due from 2023-11-14 ")
    assert rows_of(spark, data, now_ms, topics=["another"]) == []


@pytest.mark.parametrize("kept", ["stale", "none", "anew"])
def test_old_checkpoint_costs_reading_and_changes_nothing(
    spark: Any, shipped: Any, timers: Any, tmp_path: Path, kept: str
) -> None:
    """What was delivered behind it stands in the log; without one all of that is looked through."""
    from lag.spark.jobs.delivery import delivered

    data, now_ms, pending, stale = timers
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    if kept == "stale":
        (copy / "pyddmq/timers.json").write_bytes(stale)
    elif kept == "anew":
        (copy / "pyddmq/timers.json").write_bytes(sealed({"anew": [0, 0]}))
    else:
        shutil.rmtree(copy / "pyddmq")
        (copy / "config/timercheck").unlink()
    assert len(delivered(str(copy)).replaced) >= 2, "the log says what was delivered"
    assert counted(rows_of(spark, str(copy), now_ms), "scheduled") == {f"{TOPIC} / timers": pending}


def test_levels_are_those_that_the_broker_has(spark: Any, shipped: Any, tmp_path: Path) -> None:
    """By level and topic; what is delivered above one that is refused does not count, nor what is cancelled."""
    made = delay_tools.broker()
    made.store.create_topic("gone", 1)
    made.send(b"refused", 3, topic="gone")
    made.store.topic_changes.delete("gone")
    for body in (b"a", b"b"):
        made.send(body, 3)
    made.scheduler.advance(11)
    assert made.delivered() == [b"a", b"b"]
    cancelled = made.store.put(TOPIC, b"no", delay_level=5).unique_key.decode()
    for body in (b"c", b"d"):
        made.send(body, 5)
    made.send(b"e", 18)
    assert made.delays.cancel(TOPIC, cancelled) is CancelEffect.CANCELLED
    made.scheduler.advance(6)
    now_ms, pending = made.clock.wall_ms(), made.pending
    made.delays.stop()
    made.store.close()
    data = copied(made.disk, tmp_path / "data")

    rows = rows_of(spark, data, now_ms)
    expected = {f"{TOPIC} / level 5": 2, f"{TOPIC} / level 18": 1, "gone / level 3": 1}
    assert counted(rows, "scheduled") == expected
    assert sum(expected.values()) == pending
    assert counted(rows, "due") == {"overdue": 1, "in 10 s to 1 min": 2, "in 1 h to 6 h": 1}


def test_store_of_rocketmq_says_by_its_checkpoints_alone(timers: Any, tmp_path: Path) -> None:
    """It names no deliveries; keys of its tables may have no quotes; what is damaged counts as absent."""
    from lag.spark.jobs.delivery import delivered

    copy = tmp_path / "data"
    shutil.copytree(timers[0], copy)
    shutil.rmtree(copy / "pyddmq")
    (copy / "config/timercheck").write_bytes(struct.pack(">qqq", START_MS, 52, 3).ljust(4096, b"\0"))
    (copy / "config/delayOffset.json").write_text('{"offsetTable":{3:7}}')
    found = delivered(str(copy))
    assert (found.slot_ms, found.entered, list(found.replaced)) == (START_MS, 3, [])
    os.truncate(copy / "config/timercheck", 20)
    (copy / "config/delayOffset.json").write_text("{")
    found = delivered(str(copy))
    assert found.slot_ms == found.entered == 0
    assert len(found.replaced) >= 3


def test_it_stands_behind_the_groups(timers: Any) -> None:
    """In every form, under a heading of its own."""
    rows = [BacklogRow(group="", kind="scheduled", name="t / level 3", messages=2, detail="1 overdue")]
    backlog = Backlog(data="d", read_ms=START_MS, rows=rows)
    assert "\nWaiting for their time, by where they go\n" in rendered(backlog, "table")
    assert "\n## Waiting for their time, by where they go\n" in rendered(backlog, "markdown")
    assert json.loads(rendered(backlog, "json"))["rows"][0]["group"] == ""
