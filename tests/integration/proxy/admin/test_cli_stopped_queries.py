"""`delays`, `timers`, `transactions`, `dlq` with `--data`: a stopped node's directory answers, and stays as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import SystemClock
from broker.runtime.steps import run_now
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.transactions import State, Transactions
from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from pyddmq.testing import ManualScheduler
from pyddmq.testing.manual_time import ManualClock
from tests.integration.redrive_tools import dead_lettered, redrive, redrives
from tests.integration.store_tools import HOST, open_store

Capture = pytest.CaptureFixture[str]
HOUR_MS = 3_600_000


class Node:
    """A store with timers and dead letters, on the real disk, whose clock stands an hour before now."""

    def __init__(self, root: Path) -> None:
        self.root = root / "data"
        clock = ManualClock(SystemClock().wall_ms() - HOUR_MS)
        self.store: Store = open_store(RealDisk(), root=str(self.root), clock=clock, segment_bytes=1 << 20)
        self.store.create_topic("t", 2)
        scheduler = self.scheduler = ManualScheduler(clock)
        metrics, limited_log = Metrics(), RateLimitedLog(clock)
        opening = Timers.opening(
            self.store, disk=RealDisk(), clock=clock, scheduler=scheduler, metrics=metrics, limited_log=limited_log
        )
        self.timers = run_now(opening)
        delaying = Delays.opening(
            self.store, disk=RealDisk(), clock=clock, scheduler=scheduler, metrics=metrics, limited_log=limited_log
        )
        self.delays = run_now(delaying)
        offsets = ConsumerOffsets.open(str(self.root), disk=RealDisk(), clock=clock, metrics=metrics)
        self.transactions = run_now(
            Transactions.opening(
                self.store,
                offsets=offsets,
                disk=RealDisk(),
                clock=clock,
                scheduler=scheduler,
                metrics=metrics,
                limited_log=limited_log,
            )
        )
        self.ids = [
            self.store.put("t", b"x", delay_ms=delay_ms, key=key).unique_key.decode()
            for delay_ms, key in ((90_000_000, "late"), (8_000_000, "soon"), (60_000, "overdue"))
        ]
        for number in range(3):
            dead_lettered(self.store, b"dead-%d" % number, key=f"k{number}", reason="boom" if number else "quiet")
        known = redrives(self.store, RealDisk())  # type: ignore[arg-type]
        redrive(self.store, known, wanted={"key": "k0"})
        self.timers.start()
        scheduler.run_until_idle()

    def stop(self, *, killed: bool) -> None:
        """Stop in good order, or as a kill does."""
        if killed:
            self.delays.stop()
            self.timers.stop()
            self.transactions.stop()
            self.store.abandon()
        else:
            self.delays.close()
            self.transactions.close()
            self.timers.close()
            self.store.close()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A running one."""
    return Node(tmp_path)


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and moment of change of every file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def printed(capsys: Capture, *arguments: object) -> list[dict[str, Any]]:
    """Run a command with --json; return its lines."""
    assert run([*map(str, arguments), "--json"]) == ExitCode.OK
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("killed", [False, True])
def test_timers_of_a_stopped_node_are_listed(node: Node, capsys: Capture, *, killed: bool) -> None:
    """As by the node, after a kill too; what became due meanwhile stands first, and is counted as late."""
    node.stop(killed=killed)
    before = content(node.root)
    data = ("--data", node.root)
    found = printed(capsys, "timers", "list", *data)
    assert [(each["id"], each["topic"], each["key"]) for each in found] == [
        (node.ids[2], "t", "overdue"),
        (node.ids[1], "t", "soon"),
        (node.ids[0], "t", "late"),
    ]
    assert [each["key"] for each in printed(capsys, "timers", "list", *data, "--from", "in 1m", "--limit", "1")] == [
        "soon"
    ]
    [figures] = printed(capsys, "timers", "stats", *data)
    assert (figures["pendingTotal"], figures["topics"]) == (3, [{"topic": "t", "pending": 3}])
    assert figures["nextDueMs"] == found[0]["dueMs"]
    assert figures["lateMs"] >= HOUR_MS - 60_000
    [one] = printed(capsys, "timers", "show", node.ids[0], *data)
    assert (one["state"], one["topic"], one["dueMs"]) == ("pending", "t", found[2]["dueMs"])
    assert run(["timers", "show", "nothing", *map(str, data)]) == ExitCode.NOT_FOUND
    assert content(node.root) == before


@pytest.mark.parametrize("killed", [False, True])
def test_delays_of_a_stopped_node_are_listed(node: Node, capsys: Capture, *, killed: bool) -> None:
    """By level and message by message; what was delivered before is not among them."""
    node.delays.start()
    for level, key in ((1, "delivered"), (18, "waits"), (1, "overdue")):
        node.store.put("t", b"x", delay_level=level, key=key)
        if key == "delivered":
            node.scheduler.advance(1)
            node.delays.stop()
    node.stop(killed=killed)
    before = content(node.root)
    data = ("--data", node.root)
    [levels] = printed(capsys, "delays", "list", *data)
    pending = {each["level"]: each for each in levels["levels"] if each["pending"]}
    assert [(level, each["pending"], each["delayMs"]) for level, each in pending.items()] == [
        (1, 1, None),
        (18, 1, None),
    ]
    assert pending[1]["lateMs"] >= HOUR_MS - 60_000
    assert pending[18]["lateMs"] == 0
    [shown] = printed(capsys, "delays", "show", *data)
    assert [(each["key"], each["level"], each["topic"]) for each in shown["messages"]] == [
        ("overdue", 1, "t"),
        ("waits", 18, "t"),
    ]
    assert shown["messages"][1]["dueMs"] - shown["messages"][1]["storedMs"] == 2 * HOUR_MS
    [one] = printed(capsys, "delays", "show", "18", *data, "--limit", "1")
    assert [each["key"] for each in one["messages"]] == ["waits"]
    [first] = printed(capsys, "delays", "show", *data, "--limit", "1")
    assert ([each["key"] for each in first["messages"]], first["cut"]) == (["overdue"], True)
    assert run(["delays", "show", "99", *map(str, data)]) == ExitCode.NOT_FOUND
    assert content(node.root) == before


@pytest.mark.parametrize("killed", [False, True])
def test_dead_letters_of_a_stopped_node_are_shown(node: Node, capsys: Capture, *, killed: bool) -> None:
    """With reasons and what was redriven; a filter narrows them."""
    node.stop(killed=killed)
    before = content(node.root)
    data = ("--data", node.root)
    [groups] = printed(capsys, "dlq", "list", *data)
    assert [(each["group"], each["deadLetters"]) for each in groups["groups"]] == [("g", 3)]
    [shown] = printed(capsys, "dlq", "show", "g", *data)
    assert [(each["key"], each["redriven"] is not None) for each in shown["deadLetters"]] == [
        ("k0", True),
        ("k1", False),
        ("k2", False),
    ]
    [some] = printed(capsys, "dlq", "show", "g", *data, "--reason", "boom", "--limit", "1")
    assert [each["key"] for each in some["deadLetters"]] == ["k1"]
    [figures] = printed(capsys, "dlq", "stats", "g", *data)
    assert (figures["redriven"], [each["count"] for each in figures["kinds"]]) == (1, [2, 1])
    assert run(["dlq", "show", "nobody", *map(str, data)]) == ExitCode.NOT_FOUND
    assert content(node.root) == before


def half(node: Node, number: int) -> tuple[str, str]:
    """Store a half; returns its handle and its id."""
    put = Put(node.store.topics["t"], 0, b"half", encode_properties({"KEYS": f"h{number}"}))
    made = node.transactions.half(put, group="shop")
    [position] = node.store.append([made], born_ms=1, born_host=HOST)
    node.store.flush()
    return node.transactions.handle_of(position), position.unique_key.decode()


@pytest.mark.parametrize("killed", [False, True])
def test_transactions_of_a_stopped_node_are_listed(node: Node, capsys: Capture, *, killed: bool) -> None:
    """What is undecided, and where a decided one stands."""
    halves = [half(node, number) for number in range(3)]
    outcomes: list[Any] = []
    node.transactions.decide(halves[1][0], State.COMMIT, outcomes.append)
    node.transactions.write_ops()
    node.store.flush()
    node.stop(killed=killed)
    before = content(node.root)
    data = ("--data", node.root)
    [found] = printed(capsys, "transactions", "list", *data)
    assert [(each["id"], each["key"]) for each in found["transactions"]] == [(halves[0][1], "h0"), (halves[2][1], "h2")]
    [figures] = printed(capsys, "transactions", "stats", *data)
    assert (figures["undecidedTotal"], figures["pending"]) == (2, [{"topic": "t", "group": "shop", "count": 2}])
    [shown] = printed(capsys, "transactions", "show", halves[1][1], *data)
    assert [each["state"] for each in shown["transactions"]] == ["committed"]
    assert run(["transactions", "show", "0" * 32, *map(str, data)]) == ExitCode.NOT_FOUND
    assert content(node.root) == before


def test_directory_in_use_is_refused(node: Node, capsys: Capture, tmp_path: Path) -> None:
    """While a node has it open, and where there is none; nothing is made there."""
    for command in (
        ["delays", "list"],
        ["delays", "show"],
        ["timers", "list"],
        ["timers", "stats"],
        ["transactions", "list"],
        ["dlq", "list"],
        ["dlq", "stats", "g"],
    ):
        assert run([*command, "--data", str(node.root)]) == ExitCode.DATA_UNUSABLE, command
        assert "in use" in capsys.readouterr().err
    assert run(["timers", "list", "--data", str(tmp_path / "nothing")]) == ExitCode.DATA_UNUSABLE
    assert "has no store" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
    node.stop(killed=False)


def test_timers_are_found_out_anew_without_their_files(node: Node, capsys: Capture) -> None:
    """Of a directory that lost timer log and wheel, without making them there."""
    node.stop(killed=False)
    for path in (node.root / "timerlog").iterdir():
        path.unlink()
    (node.root / "timerwheel").unlink()
    found = printed(capsys, "timers", "list", "--data", node.root)
    assert [each["key"] for each in found] == ["overdue", "soon", "late"]
    assert not (node.root / "timerwheel").exists()
