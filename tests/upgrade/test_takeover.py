"""A node of today opens the store of a killed node of 0.2.0 with its configuration, and owes what that one owed.

`fill_store.py` made the archive. The wall clock stands half a minute after the kill, and later two hours after it.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from broker.runtime.seams import SystemClock
from conf.loader import loads
from conf.problems import ConfigError
from proxy.cli.app import run as run_command
from proxy.operate.changes.groups import group_changes
from proxy.operate.changes.timers import timer_changes
from proxy.operate.changes.transactions import transaction_changes
from pyddmq import CancelOutcome, Fetcher, PulledMessage
from tests.integration.ddmq_tools import Peer
from tests.patient import LINGER_MS, Consumer, Producer
from tests.running_node import RunningNode
from tests.simulation.wire import producer_idl

HERE = Path(__file__).parent
REMOVED = {("lag", "alarms"): "was removed; use `webhook: URL` instead"}
"""Keys that 0.2.0 had and that are gone, with what is said of them."""


def text_of(name: str) -> str:
    """A configuration of 0.2.0 without the keys that were removed since."""
    tree: dict[str, Any] = yaml.safe_load((HERE / name).read_text(encoding="utf-8"))
    for section, key in REMOVED:
        tree[section].pop(key, None)
    return yaml.safe_dump(tree, sort_keys=False)


YAML = text_of("node-0.2.0.yaml")
SOON_MS, TWO_HOURS_MS = 30_000, 2 * 3_600_000


class ShiftedClock(SystemClock):
    """The machine's clocks, the wall clock beginning at a given moment."""

    def __init__(self, wall_ms: int) -> None:
        self._ahead_us = wall_ms * 1000 - SystemClock.wall_us(self)

    def wall_ms(self) -> int:
        return self.wall_us() // 1000

    def wall_us(self) -> int:
        return super().wall_us() + self._ahead_us


class Old:
    """The unpacked store, and the account of what it owes."""

    def __init__(self, folder: Path) -> None:
        subprocess.run(["tar", "-C", folder, "-xJf", HERE / "store-0.2.0.tar.xz"], check=True)
        self.data = folder / "data"
        self.account: dict[str, Any] = json.loads((folder / "account.json").read_text(encoding="utf-8"))

    def node(self, after_ms: int = SOON_MS) -> RunningNode:
        """A node on it, so long after the kill."""
        return RunningNode(YAML, self.data, clock=ShiftedClock(self.account["killedMs"] + after_ms))


@pytest.fixture
def old(tmp_path: Path) -> Old:
    """The store of 0.2.0."""
    return Old(tmp_path)


def drain(node: RunningNode, group: str, count: int) -> list[PulledMessage]:
    """Take and ack this many messages of a group, and look that none is left."""
    found: list[PulledMessage] = []
    with Consumer(node.consumer, group, linger_ms=LINGER_MS) as consumer:
        while len(found) < count:
            batch = consumer.pull()
            assert batch, f"{group}: {len(found)} of {count} messages came: {bodies(found)}"
            for message in batch:
                found.append(message)
                consumer.ack(message)
        consumer.flush()
    with Consumer(node.consumer, group, linger_ms=300) as consumer:
        assert consumer.pull() == []
    return found


def by_key(messages: Sequence[PulledMessage]) -> dict[str | None, list[str]]:
    """Bodies by key, as they came."""
    found = defaultdict(list)
    for message in messages:
        found[message.key].append(message.body.decode())
    return dict(found)


def bodies(messages: Sequence[PulledMessage]) -> list[str]:
    """Bodies, sorted."""
    return sorted(message.body.decode() for message in messages)


def change(node: RunningNode, name: str, **body: Any) -> Any:
    """Do what an operator does through the admin port."""
    node_ = node.node
    known = {each.name: each for each in (*group_changes(node_), *timer_changes(node_), *transaction_changes(node_))}

    async def run() -> Any:
        done = known[name].run(msgspec.convert(body, known[name].body))
        return await done if hasattr(done, "__await__") else done

    return node.wait_for(run())


def test_groups_get_what_they_had_not_acked(old: Old) -> None:
    """In order of each key; acks out of order hold, retries wait on, dead letters and a pause are there."""
    account = old.account
    with old.node() as node:
        left = account["by-key"]
        assert by_key(drain(node, "by-key", sum(map(len, left.values())))) == left
        wanted = sorted(chain(*account["unordered"].values()))
        assert bodies(drain(node, "unordered", len(wanted))) == wanted
        for group, name in (("by-retry-topic", "by-retry-topic, at once"), ("strict", "strict")):
            assert bodies(drain(node, group, len(account[name]))) == account[name]
        assert bodies(drain(node, "strict-repair", 4)) == account["strict-repair"]
        assert bodies(drain(node, "audit", 1)) == account["audit"]
        assert drain(node, "rests", 0) == drain(node, "inbox", 0) == []
        change(node, "resume", group="rests")
        assert bodies(drain(node, "rests", 1)) == ["rests"]
    with old.node() as node:
        for group in ("by-key", "unordered", "strict", "audit"):
            assert drain(node, group, 0) == []


def test_waiting_messages_come_at_their_time(old: Old) -> None:
    """Delay levels, timers, loops, retries; what 0.2.0 or today's node cancelled does not come."""
    account = old.account
    with old.node() as node, Producer(node.producer) as producer:
        cancels = change(node, "cancel_timers", timers=[{"topic": "reminders", "id": account["cancel timer"]}])
        assert [each.outcome for each in cancels.results] == ["cancelled"]
        assert producer.cancel_delay(account["cancel loop"], "reminders") is CancelOutcome.CANCELLED
    with old.node(TWO_HOURS_MS) as node:
        wanted = account["inbox, after two hours"]
        assert bodies(drain(node, "inbox", len(wanted))) == wanted
        left = account["by-key"] | account["by-key, after an hour"]
        assert by_key(drain(node, "by-key", sum(map(len, left.values())))) == left
        wanted = sorted(
            body for name in ("", ", after an hour") for body in chain(*account[f"unordered{name}"].values())
        )
        assert bodies(drain(node, "unordered", len(wanted))) == wanted
        wanted = sorted(account["by-retry-topic, at once"] + account["by-retry-topic, after an hour"])
        assert bodies(drain(node, "by-retry-topic", len(wanted))) == wanted


def test_halves_are_decided(old: Old) -> None:
    """Those that 0.2.0 had not decided, either way, once and for all."""
    halves = old.account["halves"]
    with old.node() as node:
        for number, name in enumerate(halves.values()):
            state = "commit" if number % 2 else "rollback"
            change(node, "decide_transaction", id=name, state=state)
        wanted = ["transfer 0", *list(halves)[1::2]]
        assert bodies(drain(node, "audit", len(wanted))) == sorted(wanted)


def test_numbered_message_that_comes_again_gets_its_first_receipt(old: Old) -> None:
    """Of a producer whose answers 0.2.0 gave."""
    with old.node() as node, Peer(node.producer) as peer:
        for body, (name, qid, offset) in old.account["receipts"].items():
            message = producer_idl.Message(topic="orders", body=body.encode(), key=body.split()[0], uniqKey=name)
            result = peer.call("sendSync", message=message, timeout=1000).value
            assert (result.code, result.repeat, result.msgId, result.qid, result.offset) == (0, 1, name, qid, offset)


def test_fetcher_goes_on_at_its_positions(old: Old) -> None:
    """A low-level group has them from the store."""
    wanted = sorted(chain(*old.account["positions"].values()))
    found: list[str] = []
    with old.node() as node, Fetcher(node.consumer, "positions", linger_ms=LINGER_MS) as fetcher:
        while len(found) < len(wanted):
            fetched = [message.body.decode() for queue in fetcher.fetch() for message in queue.messages]
            assert fetched, f"only {sorted(found)} came"
            found += fetched
    assert sorted(found) == wanted


def test_lag_journal_goes_on(old: Old, capsys: pytest.CaptureFixture[str]) -> None:
    """Today's command reads what 0.2.0 noted, and what today's node notes behind it."""
    journal = old.data / "pyddmq" / "lag"

    def noted() -> list[str]:
        capsys.readouterr()
        assert (
            run_command(["lag", "slo", "--journal", str(journal), "--since", "1000d", "--coverage", "0", "--json"]) == 0
        )
        return sorted(each["group"] for each in json.loads(capsys.readouterr().out)["kept"])

    groups = set(loads(YAML).config.groups)
    assert groups == set(noted())
    size = sum(each.stat().st_size for each in journal.iterdir())
    with old.node():
        pass
    assert groups == set(noted())
    assert sum(each.stat().st_size for each in journal.iterdir()) > size


@pytest.mark.parametrize("opened", [False, True], ids=["as it was left", "after a start"])
def test_store_is_sound(old: Old, opened: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """`pyddmq store check` finds nothing, before and after a node of today had it."""
    if opened:
        with old.node():
            pass
    assert run_command(["store", "check", str(old.data)]) == 0, capsys.readouterr().out


def test_full_configuration_of_0_2_0_is_read() -> None:
    """Its file of reference, which has every key that it knew."""
    assert loads(text_of("reference-0.2.0.yaml")).config.groups


@pytest.mark.parametrize(("section", "key"), REMOVED)
@pytest.mark.parametrize("name", ["node-0.2.0.yaml", "reference-0.2.0.yaml"])
def test_removed_key_is_refused_with_its_line_and_its_replacement(section: str, key: str, name: str) -> None:
    """And nothing else of the file."""
    text = (HERE / name).read_text(encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        loads(text)
    [problem] = refused.value.problems
    assert problem.path == f"{section}.{key}"
    assert problem.text.startswith(REMOVED[section, key])
    assert f"{key}:" in text.splitlines()[(problem.line or 0) - 1]
