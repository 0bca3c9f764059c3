"""Delays, timers, loops and transactions on a real Kafka, by node processes, one of which is killed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer

from pyddmq import LocalState, OutgoingMessage, Producer, TransactionMessage, TransactionProducer
from tests.contract import test_halves as halves_contract
from tests.contract import test_time as contract
from tests.contract.test_time import UUID
from tests.contract.time_grounds import TimeCalls
from tests.kafka.nodes import NodeProcess
from tests.kafka.topics import make_topic, topic_names
from tests.kafka_world import Clients
from tests.patient import PATIENCE_SECONDS, until
from tests.simulation.wire import Frames, consumer_codec, producer_codec
from upstream.kafka.link import KafkaFailure, KafkaTransactions, OutgoingRecord
from upstream.kafka.waiting.topics import ANSWER_SETTINGS, TOPIC_SETTINGS

_CONFIG = """
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: {name}, drainSeconds: 5}}
kafka:
  main:
    bootstrapServers: "{address}"
    waiting: {{topic: {waiting}, answersTopic: {answers}, partitions: 4}}
topics:
  {topic}: {{brokerCluster: main}}
"""
LAST = UUID[:-1] + "0"
_QUICK_CHECKS = "drainSeconds: 5, transactionTimeOut: 1000, transactionCheckInterval: 3000"
_GROUP = """
groups:
  - group: {group}
    topics:
      - {{topic: {topic}, maxPullBatchSize: 32, consumeFromWhere: first}}
"""


class RealTimeGround(TimeCalls):
    """A node process before a real Kafka, with topics of its own."""

    late_ms = 3_000
    ahead_seconds = 400 * 86_400

    def __init__(self, address: str, topic: str, folder: Path) -> None:
        super().__init__()
        self.topic, self.group = topic, f"reads-{topic}"
        text = _config(address, topic, folder, "n") + _GROUP.format(group=self.group, topic=topic)
        self.process = NodeProcess(folder, "n", text=text)
        self._ports = {
            "pull": (self.process.consumers, consumer_codec()),
            "": (self.process.producers, producer_codec()),
        }
        self._connections: dict[str, tuple[socket.socket, Frames]] = {}
        until(self._is_served, "owners")
        assert self.cancel(f"1700000000-2-1700172800-0-0-0-0-{UUID}") == 3, "it never was"
        # A loop's partition is chosen when those of its topic are known.
        once = {"dmsgtype": 3, "interval": 3, "times": 1, "expire": 9_999_999_999}
        until(lambda: self.delay(b"first", LAST, timestamp=self.now_ms // 1000, **once).code == 0, "partitions")
        self.wait(3)
        self.delivered.clear()

    def _is_served(self) -> bool:
        """Whether timers of all partitions come."""
        if any(self.send(b"first", delayMs=1).code for _ in range(16)):
            return False
        self.wait(10)
        return len(self.delivered) >= 16

    @property
    def now_ms(self) -> int:
        """Wall clock."""
        return int(time.time() * 1000)

    def call(self, method: str, **arguments: Any) -> Any:
        """Call, and return the answer."""
        name = method if method in self._ports else ""
        where, codec = self._ports[name]
        if name not in self._connections:
            host, _, port = where.rpartition(":")
            self._connections[name] = socket.create_connection((host, int(port)), PATIENCE_SECONDS), Frames()
        connection, frames = self._connections[name]
        connection.sendall(codec.call(method, 1, **arguments))
        while True:
            for _, payload in frames.feed(connection.recv(65_536)):
                return codec.reply(payload).value

    def wait(self, seconds: float) -> None:
        """Pull for so long."""
        end, result = time.monotonic() + seconds, None
        while time.monotonic() < end or result is not None:
            result = self.note(self.call("pull", request=self.pulling(result)))

    def end(self) -> None:
        """Stop it."""
        for connection, _ in self._connections.values():
            connection.close()
        self.process.kill()


def _config(address: str, topic: str, folder: Path, name: str) -> str:
    """Return a node's configuration; its waiting topics are made where they are not there."""
    waiting, answers = f"__w-{topic[-20:]}", f"__a-{topic[-20:]}"
    if waiting not in topic_names(address):
        make_topic(address, waiting, 4, TOPIC_SETTINGS)
        make_topic(address, answers, 1, ANSWER_SETTINGS)
    return _CONFIG.format(data=folder / name, name=name, address=address, topic=topic, waiting=waiting, answers=answers)


@pytest.fixture
def ground(address: str, topic: Callable[..., str], tmp_path: Path) -> Iterator[RealTimeGround]:
    """A node, in the place of those of the contract."""
    made = RealTimeGround(address, topic(2), tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["deliverAtMs", "delayMs", "delayLevel"])
def test_message_waits(ground: RealTimeGround, kind: str) -> None:
    """As the contract has it."""
    contract.test_message_waits_and_comes_once(ground, kind)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        contract.test_moment_that_has_passed_is_now,
        contract.test_message_keeps_what_it_was_sent_with,
        contract.test_too_far_ahead_is_refused,
        contract.test_delay_message_is_delivered_once_or_cancelled,
        contract.test_delay_message_that_is_added_again_comes_once,
        contract.test_loop_comes_until_its_times_are_over,
        contract.test_loop_is_cancelled_by_the_id_of_any_occurrence,
    ],
    ids=lambda case: case.__name__,
)
def test_time(ground: RealTimeGround, case: Callable[[TimeCalls], None]) -> None:
    """As the contract has it."""
    case(ground)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        halves_contract.test_half_comes_by_its_commit_alone,
        halves_contract.test_decision_is_final_and_told_again,
        halves_contract.test_only_its_group_decides_a_half,
        halves_contract.test_delay_begins_with_the_commit,
        halves_contract.test_undecided_half_is_checked_and_decided_by_the_answer,
        halves_contract.test_half_that_is_sent_again_is_the_same,
        halves_contract.test_too_far_ahead_is_refused,
    ],
    ids=lambda case: case.__name__,
)
def test_halves(ground: RealTimeGround, case: Callable[[TimeCalls], None]) -> None:
    """As the contract has it."""
    case(ground)


Sent = OutgoingRecord


class Written:
    """How a transaction ended."""

    def __init__(self, clients: Clients, writer: KafkaTransactions, *records: OutgoingRecord) -> None:
        self.ended: list[tuple[KafkaFailure | None, object, object]] = []
        writer.write(records, lambda *how: self.ended.append(how))
        clients.until(lambda: self.ended, "a transaction to end")

    @property
    def failure(self) -> KafkaFailure | None:
        """What failed."""
        return self.ended[0][0]


def _begun(clients: Clients, name: str) -> KafkaTransactions:
    writer = clients.client().transactions(name)
    ended: list[KafkaFailure | None] = []
    writer.begin(ended.append)
    clients.until(lambda: ended, "an id to be taken")
    assert ended == [None]
    return writer


def test_transactions_are_fenced_and_whole(clients: Clients, topic: Callable[..., str]) -> None:
    """The former holder of an id is fenced; one refused record leaves nothing of its transaction."""
    first, small = topic(), topic(max_message_bytes="1000")
    old = _begun(clients, f"id-{first}")
    assert Written(clients, old, Sent(first, 0, b"k", b"1"), Sent(small, 0, b"k", b"1")).failure is None
    refused = Written(clients, old, Sent(first, 0, b"k", b"2"), Sent(small, 0, b"k", b"x" * 5_000))
    assert refused.failure is not None
    assert not refused.failure.fenced
    assert not refused.failure.unknown
    assert refused.ended[0][1].keys() == {small}  # type: ignore[attr-defined]
    missing = Written(clients, old, Sent(first, 0, b"k", b"3"), Sent(f"{first}-none", 0, b"k", b"3"))
    assert missing.ended[0][1].keys() == {f"{first}-none"}  # type: ignore[attr-defined]
    new = _begun(clients, f"id-{first}")
    fenced = Written(clients, old, Sent(first, 0, b"k", b"4")).failure
    assert fenced is not None
    assert fenced.fenced
    assert Written(clients, new, Sent(first, 0, b"k", b"5")).failure is None
    _, heard = clients.joined(f"reads-{first}", [first])
    clients.until(lambda: len(heard.got) == 2, "what is committed")
    assert heard.values() == [b"1", b"5"]
    old.close()
    new.close()


class Seen:
    """A plain consumer of Kafka's, read committed: what came when."""

    def __init__(self, address: str, topic: str) -> None:
        self.moments: dict[str, list[float]] = {}
        self._consumer = KafkaConsumer({
            "bootstrap.servers": address, "group.id": f"seen-{topic}", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        })  # fmt: skip
        self._consumer.subscribe([topic])

    def poll(self) -> int:
        """Take what is there; returns how many in all."""
        for message in self._consumer.consume(500, 0.01):
            if message.error() is None:
                self.moments.setdefault((message.value() or b"").decode(), []).append(time.time())
        return sum(map(len, self.moments.values()))

    def close(self) -> None:
        """End."""
        self._consumer.close()


@pytest.mark.long
def test_two_nodes_one_killed(address: str, topic: Callable[..., str], tmp_path: Path) -> None:
    """Acknowledged timers come once, never early, though their owner is killed; cancelled ones do not come."""
    name = topic(3)
    drawn = Random(5)
    seen = Seen(address, name)

    def start(node: str) -> NodeProcess:
        text = _config(address, name, tmp_path, node)
        return NodeProcess(tmp_path, node, text=text)

    nodes = [start("one"), start("two")]
    dues: dict[str, int] = {}
    try:

        def ready() -> bool:
            try:
                with Producer(nodes[1].producers) as producer:
                    producer.send(name, b"ready", deliver_at_ms=int(time.time() * 1000) + 500)
            except Exception:
                return False
            return True

        until(ready, "a node to take timers")
        with Producer(nodes[1].producers) as producer:
            for number in range(400):
                body = f"m{number}"
                dues[body] = int(time.time() * 1000) + drawn.randint(500, 25_000)
                producer.send(name, body.encode(), deliver_at_ms=dues[body])
        until(lambda: seen.poll() > 60, "the first timers")
        nodes[0].kill()
        until(lambda: seen.poll() and not dues.keys() - seen.moments.keys(), "all")
        seen.poll()
        assert [body for body, moments in seen.moments.items() if len(moments) > 1 and body != "ready"] == []
        early = [body for body, due in dues.items() if seen.moments[body][0] * 1000 < due]
        assert early == []
    finally:
        seen.close()
        for node in nodes:
            node.kill()


class Shop:
    """Local transactions: every third rolls back, every fifth is left to a check, which answers as it would have."""

    def __init__(self) -> None:
        self.checked: set[str] = set()

    def outcome(self, body: bytes) -> LocalState:
        """What becomes of one."""
        return LocalState.ROLLBACK if int(body[1:]) % 3 == 0 else LocalState.COMMIT

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState:
        """Run one."""
        return LocalState.UNKNOWN if int(message.body[1:]) % 5 == 0 else self.outcome(message.body)

    def check(self, message: TransactionMessage) -> LocalState:
        """Say what became of one."""
        self.checked.add(message.body.decode())
        return self.outcome(message.body)


@pytest.mark.long
def test_transactions_over_two_nodes_one_killed(address: str, topic: Callable[..., str], tmp_path: Path) -> None:
    """Committed ones come once, rolled-back ones never, undecided ones by a check of whichever node owns them."""
    name = topic(3)
    seen = Seen(address, name)

    def start(node: str) -> NodeProcess:
        text = _config(address, name, tmp_path, node).replace("drainSeconds: 5", _QUICK_CHECKS)
        return NodeProcess(tmp_path, node, text=text)

    nodes = [start("one"), start("two")]
    shop = Shop()
    sent: dict[str, bool] = {}
    try:
        addresses = [each.producers for each in nodes]
        with TransactionProducer(addresses[1], "shop", shop, nodes=addresses[:1]) as producer:

            def ready() -> bool:
                try:
                    producer.send_in_transaction(OutgoingMessage(topic=name, body=b"m3"))
                except Exception:
                    return False
                return True

            until(ready, "a node to take halves")
            for number in range(1, 121):
                if number == 60:
                    nodes[0].kill()
                body = f"m{number}"
                # A half whose answer was lost would be a second one: none is sent again here.
                result = producer.send_in_transaction(OutgoingMessage(topic=name, body=body.encode()))
                sent[body] = result.decided
            committed = {body for body in sent if shop.outcome(body.encode()) is LocalState.COMMIT}
            until(lambda: seen.poll() and not committed - seen.moments.keys(), "all that is committed")
            # The last one rolls back: nothing but its check shows that it came.
            undecided = {f"m{number}" for number in range(5, 121, 5)}
            until(lambda: undecided <= shop.checked, "the checks")
            seen.poll()
        assert {body for body, moments in seen.moments.items() if len(moments) > 1} == set()
        assert seen.moments.keys() == committed
    finally:
        seen.close()
        for each in nodes:
            each.kill()
