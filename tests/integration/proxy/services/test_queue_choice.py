"""One key, one queue: every way into the store chooses it by one rule, and what another rule stored keeps its order."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from broker.format.java import queue_of_hash, queue_of_key, string_hash
from broker.query import at_offset
from broker.queues.message_queue import queue_names
from broker.selectors import SelectedMessage, select_by_hash
from pyddmq import LocalState, OutgoingMessage
from pyddmq.testing import SimDisk
from tests.insides import opened_of
from tests.integration.redrive_tools import dead_lettered, opened, redrive, redrives
from tests.patient import Consumer, Producer, TransactionProducer
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 400000}
topics:
  orders: {queues: QUEUES}
groups:
  - group: billing
    topics:
      - {topic: orders, orderKey: KEY, actions: [Async, PullServer], maxPullBatchSize: 32, timeout: 60000}
"""
VECTORS = [
    ("polygenelubricants", -(2**31), {1: 0, 3: 2, 5: 3, 7: 2, 8: 0}),
    ("_RECALL_TAG_", -847619372, {1: 0, 3: 2, 5: 2, 7: 5, 8: 4}),
    ("hello", 99162322, {1: 0, 3: 1, 5: 2, 7: 0, 8: 2}),
    ("订单", 1129459, {1: 0, 3: 1, 5: 4, 7: 2, 8: 3}),
    ("order-7", -1207111304, {1: 0, 3: 2, 5: 4, 7: 0, 8: 0}),
    ("é-7", 225363, {1: 0, 3: 0, 5: 3, 7: 5, 8: 3}),
]
"""Keys, Java's hash of each, and the queue by the number of queues: |hash % queues| with Java's remainder."""
KEYS = [key for key, _, _ in VECTORS] + [f"customer-{number}" for number in range(60)]


class Commit:
    """Commits every transaction."""

    def execute(self, message: Any, arg: Any) -> LocalState:
        """The local work is done."""
        return LocalState.COMMIT

    def check(self, message: Any) -> LocalState:
        """It was done."""
        return LocalState.COMMIT


@pytest.mark.parametrize(("key", "value", "queues"), VECTORS)
def test_keys_go_where_javas_remainder_sends_them(key: str, value: int, queues: dict[int, int]) -> None:
    """Negative hashes and the smallest integer among them."""
    assert string_hash(key) == value
    assert {count: queue_of_key(key, count) for count in queues} == queues


@given(some.integers(-(2**63), 2**63 - 1), some.integers(1, 1 << 20))
def test_queue_of_a_hash_is_javas_remainder_without_its_sign(value: int, queues: int) -> None:
    """Java: Math.abs(value % queues), whose remainder cuts towards zero; it cannot overflow (W80)."""
    truncated = value - queues * (-(-value // queues) if value < 0 else value // queues)
    assert queue_of_hash(value, queues) == abs(truncated) < queues


@pytest.mark.parametrize("queues", [3, 4, 7])
def test_every_way_in_sends_a_key_to_its_queue(tmp_path: Path, queues: int) -> None:
    """Sends, batches, waits, transactions, puts of a program, redrives, selectors: the same queue for the same key."""
    found: dict[str, set[str]] = {}
    with RunningNode(YAML.replace("QUEUES", str(queues)), tmp_path / "data") as running:
        with Producer(running.producer) as producer:
            for key in KEYS:
                producer.send("orders", b"send", key=key)
                producer.send("orders", b"hash", key=key, partition_id=-1, hash_id=string_hash(key))
                producer.send("orders", b"wait", key=key, delay_ms=1)
            producer.send_batch([OutgoingMessage(topic="orders", body=b"batch", key=key) for key in KEYS])
        with TransactionProducer(running.producer, "shop", Commit()) as transactional:
            for key in KEYS:
                transactional.send_in_transaction(OutgoingMessage(topic="orders", body=b"half", key=key))
        for key in KEYS:
            running.call(lambda key=key: opened_of(running.node).store.put("orders", b"put", key=key))
        with Consumer(running.consumer, "billing") as consumer:
            left = 6 * len(KEYS)
            while left:
                for message in consumer.pull(patience_ms=10_000):
                    found.setdefault(message.key or "", set()).add(message.qid.rpartition("_")[2])
                    consumer.ack(message)
                    left -= 1
    assert found == {key: {str(queue_of_key(key, queues))} for key in KEYS}
    names = queue_names("orders", "b", range(queues))
    assert all(
        select_by_hash(names, SelectedMessage("orders", b""), key).queue_id == queue_of_key(key, queues) for key in KEYS
    )


def test_redrive_chooses_a_queue_by_the_same_rule() -> None:
    """A letter that goes to another topic, or whose own queue is no longer there, goes where its key is sent."""
    disk = SimDisk()
    store = opened(disk)
    store.create_topic("other", 7)
    for key, _, _ in VECTORS:
        dead_lettered(store, b"x", key=key)
    answer = redrive(store, redrives(store, disk), to="other")
    assert [each["target"]["queue"] for each in answer["results"]] == [queue_of_key(key, 7) for key, _, _ in VECTORS]


def test_redrive_keeps_a_keys_order_over_the_queues_of_two_rules() -> None:
    """Each goes to the queue that it came from; in the log they stand in the order of their deaths."""
    disk = SimDisk()
    store = opened(disk)
    key = VECTORS[0][0]
    queues = [0, 1, 1, 0, queue_of_key(key, 2)]
    for number, queue_id in enumerate(queues):
        dead_lettered(store, b"%d" % number, queue_id=queue_id, key=key)
    targets = [each["target"] for each in redrive(store, redrives(store, disk))["results"]]
    again = [at_offset(store, "t", target["queue"], target["offset"]) for target in targets]
    assert [target["queue"] for target in targets] == queues
    assert sorted(again, key=lambda message: message.physical) == again
    assert [message.body() for message in again] == [b"%d" % number for number in range(len(queues))]


def test_key_that_another_rule_stored_elsewhere_keeps_its_order(tmp_path: Path) -> None:
    """The log decides (D14): queues by an older rule, then by this one, then of a widened topic, over restarts."""
    keys = [key for key in KEYS if string_hash(key) < 0][:12]
    sent: dict[str, list[str]] = {key: [] for key in keys}

    def note(key: str, name: str) -> bytes:
        sent[key].append(f"{name}-{len(sent[key])}")
        return sent[key][-1].encode()

    got: dict[str, list[str]] = {key: [] for key in keys}

    def take(consumer: Consumer) -> None:
        for message in consumer.pull(patience_ms=10_000):
            got[message.key or ""].append(message.body.decode())
            consumer.ack(message)

    with RunningNode(YAML.replace("QUEUES", "4"), tmp_path / "data") as running:
        store = opened_of(running.node).store
        for key in keys * 3:
            old = (string_hash(key) & 0x7FFF_FFFF) % 4
            running.call(lambda key=key, old=old: store.put("orders", note(key, "old"), key=key, queue_id=old))
        assert any((string_hash(key) & 0x7FFF_FFFF) % 4 != queue_of_key(key, 4) for key in keys)
        running.kill()
    for queues in (4, 7):
        with (
            RunningNode(YAML.replace("QUEUES", str(queues)), tmp_path / "data") as running,
            Producer(running.producer) as producer,
            Consumer(running.consumer, "billing") as consumer,
        ):
            for key in keys * 3:
                producer.send("orders", note(key, f"of {queues}"), key=key)
            take(consumer)
    with (
        RunningNode(YAML.replace("QUEUES", "7"), tmp_path / "data") as running,
        Consumer(running.consumer, "billing") as consumer,
    ):
        while sum(map(len, got.values())) < sum(map(len, sent.values())):
            take(consumer)
    assert got == sent


ROOT = Path(__file__).parents[4]
ROOMS = ["broker", "proxy", "upstream", "actions", "conf", "lag", "pyddmq"]
NOT_BY_HASH = {
    ("broker/format/java.py", "abs(value) % queues"),
    ("broker/store.py", "self._round_robin % len(topic.queues)"),
    ("proxy/services/message_checks.py", "partition_id % queues"),
    ("proxy/services/message_checks.py", "(port.round + 1) % queues"),
    ("proxy/services/check_accelerator.pyx", "partition_id % queues"),
    ("proxy/services/check_accelerator.pyx", "(port.round + 1) % queues"),
    ("upstream/delivery/group.py", "number % QUEUES_AT_ONCE"),
    ("upstream/embedded/expiry.py", "number % _QUEUES_AT_ONCE"),
    ("broker/opening/recovery.py", "number % _QUEUES_AT_ONCE"),
    ("proxy/services/check_accelerator.pyx", "(<u64>value if value > 0 else 0 - <u64>value) % <u64>queues"),
}
"""Every remainder by a number of queues: the rule, its accelerator, the queue asked for, taking turns, and steps."""


def remainders(path: Path) -> set[str]:
    """Return the remainders by a number of queues in a file, as they stand there."""
    text = path.read_text()
    if path.suffix == ".pyx":
        return {found.strip() for found in re.findall(r"(?:=|return)([^=\n]* % [^\n]*queue[^\n]*)", text)}
    return {
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and "queue" in ast.unparse(node.right).lower()
        if not isinstance(node.left, ast.Constant | ast.JoinedStr) and not isinstance(node.right, ast.Tuple)
    }


def test_no_other_place_computes_a_queue_from_a_hash() -> None:
    """One function in the whole project; a remainder by a number of queues elsewhere is named here or wrong."""
    files = [path for room in ROOMS for kind in ("*.py", "*.pyx") for path in sorted((ROOT / room).rglob(kind))]
    found = {(str(path.relative_to(ROOT)), each) for path in files for each in remainders(path)}
    assert found == NOT_BY_HASH, "take broker.format.java.queue_of_key or queue_of_hash"
