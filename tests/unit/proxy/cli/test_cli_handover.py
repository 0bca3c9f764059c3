"""`pyddmq store handover` in process: what is counted in a store, in both directions, and that it stays as it is."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.features import ALL
from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.options import StoreOptions
from broker.queues.consume_queue import UNIT
from broker.runtime.bundle import runtime_of
from broker.runtime.disk import RealDisk
from broker.runtime.file_writes import at_once
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.sealed_file import SealedFile
from broker.runtime.steps import run_now
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.delays import Delays
from broker.scheduled.pop_records import TIMER_TOPIC
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.recurring.occurrence import LOOP, Occurrence
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from pyddmq.testing import ManualClock, ManualScheduler
from tests.integration.store_tools import HOST
from upstream.delivery.pauses import Pauses
from upstream.embedded.queues import EmbeddedQueues, offsets_of
from upstream.progress.progress import Progress
from upstream.progress.tracker import FailureKind

NOW_S = 1_900_000_000
OPTIONS = StoreOptions(segment_bytes=1 << 16, queue_file_units=10)


def opened(data: Path) -> Store:
    """The store."""
    return Store.open(
        str(data),
        options=OPTIONS,
        features=ALL,
        disk=RealDisk(),
        clock=ManualClock(NOW_S * 1000),
        random=Random(3),
        metrics=Metrics(),
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store with ten messages."""
    store = opened(tmp_path)
    store.create_topic("t", 1)
    for number in range(10):
        store.put("t", b"%d" % number)
    store.close()
    return tmp_path


TO, FROM = ("--to", "rocketmq"), ("--from", "rocketmq")


def points(
    data: Path, capsys: pytest.CaptureFixture[str], *options: str, code: ExitCode = ExitCode.OK
) -> dict[str, tuple[int, list[str]]]:
    """What the command says, by kind; not a byte may change."""
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    capsys.readouterr()  # what opening the store has logged
    assert run(["store", "handover", str(data), "--json", *(options or TO)]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    assert all(point["text"] for point in document["points"])
    found = {point["kind"]: (point["count"], point["names"]) for point in document["points"]}
    return {**found, "direction": (0, [document["direction"]])}


def progress_of(data: Path, store: Store) -> Progress:
    """Trackers and acks."""
    clock = ManualClock(NOW_S * 1000)
    return run_now(
        Progress.opening(
            str(data),
            queues=EmbeddedQueues(store),
            runtime=runtime_of(RealDisk(), clock, metrics=Metrics(), scheduler=ManualScheduler(clock)),
        )
    )


def test_plain_store_has_its_sizes_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes are named as RocketMQ's broker.conf has them, in both directions."""
    found = points(data, capsys)
    assert found.pop("direction") == (0, ["to rocketmq"])
    assert list(found) == ["sizes"]
    assert "mappedFileSizeCommitLog = 65536" in found["sizes"][1]
    assert points(data, capsys, "--from", "rocketmq")["direction"] == (0, ["from rocketmq"])
    assert run(["store", "handover", str(data), "--to", "rocketmq"]) == ExitCode.OK
    assert "do: start RocketMQ with the output of `pyddmq store broker-conf`" in capsys.readouterr().out


def test_what_groups_have_beyond_their_offsets_is_counted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Acks above the committed offset, attempts, and pauses."""
    store = opened(data)
    progress = progress_of(data, store)
    tracker = progress.tracker("g", "t", 0, first_offset=lambda: 0)
    tracker.finish_range(3, 7)
    progress.fail(tracker, 1, kind=FailureKind.FAIL, count=1, due_wall_ms=0)
    disk = RealDisk()
    at_once(disk, Pauses.open(str(data), disk=disk, clock=ManualClock()).pausing("g", "t", who="test"))
    progress.close()
    store.close()
    found = points(data, capsys)
    assert found["acks_above"] == (4, ["g/t: 4"])
    assert found["attempts"] == (1, ["g/t: 1"])
    assert found["paused"] == (1, ["g/t"])


def test_what_waits_is_counted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Timers, loops, levels, and transactions with a delay."""
    from broker.transaction.settings import CheckSettings
    from broker.transaction.transactions import Transactions

    store = opened(data)
    clock = ManualClock(NOW_S * 1000)
    seams: dict[str, Any] = {
        "disk": RealDisk(),
        "clock": clock,
        "scheduler": ManualScheduler(clock),
        "metrics": Metrics(),
        "limited_log": RateLimitedLog(clock),
    }
    loops = Loops(store, runtime_of(RealDisk(), clock))
    occurrence = Occurrence(NOW_S + 60, LOOP, NOW_S + 9999, 10, 0, 60, 0, "14f22520-ad72-11e7-91be-6ee54da579e3")
    put = loops.first(Put(store.topics["t"], 0, b"loop", b""), occurrence)
    store.append([put], born_ms=1, born_host=HOST)
    store.put("t", b"timer", deliver_at_ms=(NOW_S + 60) * 1000)
    key = store.put("t", b"cancelled", deliver_at_ms=(NOW_S + 90) * 1000).unique_key
    timers = run_now(Timers.opening(store, **seams))
    timers.start()
    seams["scheduler"].run_until_idle()
    assert timers.cancel("t", key.decode()) is CancelEffect.CANCELLED
    timers.close()
    store.put("t", b"level", delay_level=9)
    progress = progress_of(data, store)
    checks = CheckSettings(timeout_ms=1, interval_ms=1, checks_max=1)
    transactions = run_now(Transactions.opening(store, offsets=offsets_of(progress), settings=checks, **seams))
    half = transactions.half(Put(store.topics["t"], 0, b"half", b""), group="p")
    store.append([half], born_ms=1, born_host=HOST)
    store.flush()
    run_now(Delays.opening(store, **seams)).close()
    progress.close()
    store.close()
    found = points(data, capsys)
    assert found["loops"] == (1, [f"t: {occurrence.id}"])
    assert found["timers"][0] == 2
    assert found["timers_cancelled"][0] == 1
    assert found["levels"] == (1, ["level 9: 1"])
    assert found["transactions"] == (1, ["p/t: 1"])


def test_lost_messages_old_fillers_and_topics_made_again_are_counted(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The form of a unit tells a filler; an older format is said with what to do."""
    path = data / "consumequeue" / "t" / "0" / f"{0:020d}"
    units = [*UNIT.iter_unpack(path.read_bytes())]
    with path.open("r+b") as file:
        file.seek(3 * UNIT.size)
        file.write(UNIT.pack(*units[4][:2], 0))
    store = opened(data)
    store.create_topic("gone", 1)
    store.put("gone", b"x")
    store.topic_changes.delete("gone")
    store.create_topic("gone", 1)
    store.close()
    found = points(data, capsys)
    assert found["fillers"] == (1, ["t: 1"])
    assert found["topics_made_again"] == (1, ["gone/0"])
    sizes = SealedFile(RealDisk(), f"{data}/pyddmq/store.json")
    sizes.save({**sizes.load(), "format": 1})
    assert "format_old" in points(data, capsys)


def test_what_rocketmq_left_is_counted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What its POP consumers have in flight and failed, and what it deleted; failed messages need --accept."""
    store = opened(data)
    for name, system in (
        ("deleted", False),
        ("rmq_sys_REVIVE_LOG_east", True),
        (TIMER_TOPIC, True),
        ("%RETRY%g_t", True),
    ):
        store.create_topic(name, 1, system=system)
    store.put("deleted", b"x")
    body = {"c": "g", "t": "t", "q": 0, "so": 0, "pt": 1, "it": 1, "n": 3, "bm": 0, "d": [0, 1, 2]}
    for topic, text, properties in (
        ("rmq_sys_REVIVE_LOG_east", json.dumps(body).encode(), {"TAGS": "ck"}),
        ("%RETRY%g_t", b"again", {}),
    ):
        put = Put(store.topics[topic], 0, text, encode_properties(properties))
        store.append([put], born_ms=1, born_host=HOST)
    store.flush()
    store.close()
    topics = json.loads((data / "config" / "topics.json").read_text())
    del topics["topicConfigTable"]["deleted"]
    (data / "config" / "topics.json").write_text(json.dumps(topics))
    (data / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"t@g": {"0": 5}}}))
    found = points(data, capsys, *FROM, code=ExitCode.REFUSED)
    assert points(data, capsys, *FROM, "--accept") == found
    assert found["direction"] == (0, ["from rocketmq"])
    assert found["popped"] == (3, ["g: 3"])
    assert found["topics_deleted"] == (1, ["deleted"])
    assert found["pop_retries"] == (1, ["%RETRY%g_t: 1"])


def test_store_that_cannot_be_looked_at_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No store, one in use, both directions at once, and none."""
    assert run(["store", "handover", str(data / "none"), *TO]) == ExitCode.DATA_UNUSABLE
    assert "has no store" in capsys.readouterr().err
    assert not (data / "none").exists()
    store = opened(data)
    assert run(["store", "handover", str(data), *TO]) == ExitCode.DATA_UNUSABLE
    store.close()
    assert run(["store", "handover", str(data)]) == ExitCode.USAGE
    assert run(["store", "handover", str(data), "--to", "rocketmq", "--from", "rocketmq"]) == ExitCode.USAGE


def test_failed_messages_of_ordinary_consumers_need_accept(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is in `%RETRY%<group>` from the committed offset on is refused without --accept; `store check` notes it."""
    store = opened(data)
    store.create_topic("%RETRY%billing", 1, system=True)
    for number in range(4):
        put = Put(store.topics["%RETRY%billing"], 0, b"%d" % number, encode_properties({"RETRY_TOPIC": "t"}))
        store.append([put], born_ms=1, born_host=HOST)
    store.flush()
    store.close()
    offsets = {"offsetTable": {"t@billing": {"0": 10}, "%RETRY%billing@billing": {"0": 1}}}
    (data / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    assert run(["store", "check", str(data), "--json"]) == ExitCode.OK
    [note] = [line for line in capsys.readouterr().out.splitlines() if "retries_unread" in line]
    assert json.loads(note)["count"] == 3
    assert "retryTopic: true" in json.loads(note)["costs"]
    assert points(data, capsys, *FROM, code=ExitCode.REFUSED)["retries"] == (3, ["%RETRY%billing: 3"])
    assert run(["store", "handover", str(data), *FROM]) == ExitCode.REFUSED
    assert "not accepted: retries" in capsys.readouterr().err
    assert run(["store", "handover", str(data), *FROM, "--accept"]) == ExitCode.OK
    assert "retries" not in points(data, capsys, *TO)
    offsets["offsetTable"]["%RETRY%billing@billing"]["0"] = 4
    (data / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    assert "retries" not in points(data, capsys, *FROM)


def test_what_is_in_rocksdb_needs_accept(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named with what may be lost, and changes nothing in the store; the start of a node refuses it, too."""
    (data / "kvStore").mkdir()
    (data / "kvStore" / "CURRENT").write_text("MANIFEST-000005\n")
    (data / "kvStore" / "000011.sst").write_bytes(bytes(1520))
    assert points(data, capsys, *FROM, code=ExitCode.REFUSED)["pop_in_rocksdb"] == (1, [])
    assert "pop_in_rocksdb" in points(data, capsys, *FROM, "--accept")
    serve = ["serve", "--data", str(data), "--producer-port", "0", "--consumer-port", "0", "--admin-port", "0"]
    assert run(serve) == ExitCode.DATA_UNUSABLE
    assert "pyddmq serve --accept" in capsys.readouterr().err
    assert "leftovers" not in {each.name for each in threading.enumerate()}, "only the command's own process is ended"
