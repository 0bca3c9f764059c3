"""The client's TransactionProducer against a real node: decisions, checks, another process of the group."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from pyddmq import LocalState, OutgoingMessage, TransactionMessage
from tests.patient import PATIENCE_SECONDS, Consumer, TransactionProducer
from tests.running_node import RunningNode

YAML = """
node: {transactionTimeOut: 1000, transactionCheckInterval: 1000, transactionCheckMax: 15}
topics:
  orders: {queues: 2}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [PullServer]}
"""


class Listener:
    """Answers by the message's key, and remembers what it was asked."""

    def __init__(self, *, execute: LocalState | None, check: LocalState | None) -> None:
        self._answers = (execute, check)
        self.executed: list[TransactionMessage] = []
        self.checked: list[TransactionMessage] = []
        self.asked = threading.Semaphore(0)

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Answer as told; an argument that is an exception is raised."""
        self.executed.append(message)
        if isinstance(arg, Exception):
            raise arg
        return self._answers[0]

    def check(self, message: TransactionMessage) -> LocalState | None:
        """Answer as told."""
        self.checked.append(message)
        self.asked.release()
        return self._answers[1]

    def wait(self) -> None:
        """Wait for one more check."""
        assert self.asked.acquire(timeout=PATIENCE_SECONDS)


def order(text: str) -> OutgoingMessage:
    """A message."""
    return OutgoingMessage(topic="orders", body=text.encode(), key=text, properties={"kind": "order"})


def pulled(node: RunningNode, count: int) -> list[bytes]:
    """Bodies that a consumer gets until there are so many, and whatever comes at once after them."""
    found: list[bytes] = []
    with Consumer(node.consumer, "billing", linger_ms=20) as consumer:
        while len(found) < count or (messages := consumer.pull()):
            for message in consumer.pull() if len(found) < count else messages:
                found.append(message.body)
                consumer.ack(message)
    return found


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_transactions_end_as_their_listeners_say(tmp_path: Path, protocol: Any) -> None:
    """Commit delivers, rollback does not, an exception of execute leaves it to the check, which sees the same id."""
    with RunningNode(YAML, tmp_path) as node:
        commit = Listener(execute=LocalState.COMMIT, check=None)
        with TransactionProducer(node.producer, "shop", commit, protocol=protocol) as producer:
            result = producer.send_in_transaction(order("committed"))
        assert (result.status, result.decided, result.problem) == ("SEND_OK", True, "")
        assert result.transaction_id == commit.executed[0].transaction_id
        rollback = Listener(execute=LocalState.ROLLBACK, check=LocalState.COMMIT)
        with TransactionProducer(node.producer, "shop", rollback, protocol=protocol) as producer:
            assert producer.send_in_transaction(order("rolled back")).decided
            late = producer.send_in_transaction(order("checked"), OSError("the database is away"))
            assert (late.state, late.remark, late.decided) == (
                LocalState.UNKNOWN,
                "OSError: the database is away",
                False,
            )
            rollback.wait()
            assert sorted(pulled(node, 2)) == [b"checked", b"committed"]
        # Where its answer took longer than the interval, it was asked once more.
        seen = rollback.checked[0]
        assert (seen.transaction_id, seen.body, seen.check_times) == (late.transaction_id, b"checked", 1)
        assert (seen.topic, seen.key, seen.properties) == ("orders", "checked", {"kind": "order"})


def test_another_process_of_the_group_decides_when_the_first_has_died(tmp_path: Path) -> None:
    """Its producer never sent anything; one of another group is not asked."""
    with RunningNode(YAML, tmp_path) as node:
        first = Listener(execute=None, check=None)
        dying = TransactionProducer(node.producer, "shop", first)
        result = dying.send_in_transaction(order("left behind"))
        dying.close()
        stranger = Listener(execute=None, check=LocalState.ROLLBACK)
        second = Listener(execute=None, check=LocalState.COMMIT)
        with (
            TransactionProducer(node.producer, "other", stranger),
            TransactionProducer(node.producer, "shop", second),
        ):
            second.wait()
            assert pulled(node, 1) == [b"left behind"]
        assert second.checked[-1].transaction_id == result.transaction_id
        assert stranger.checked == []


def test_checks_go_on_over_restart_and_lost_connection(tmp_path: Path) -> None:
    """A node that was killed asks again; the thread connects again by itself."""
    with RunningNode(YAML, tmp_path) as node:
        with TransactionProducer(node.producer, "shop", Listener(execute=None, check=None)) as producer:
            producer.send_in_transaction(order("asked again"))
        node.kill()
    with RunningNode(YAML, tmp_path) as node:
        listener = Listener(execute=None, check=LocalState.COMMIT)
        heard: list[Exception] = []
        with TransactionProducer(node.producer, "shop", listener, on_check_error=heard.append) as producer:
            listener.wait()
            assert pulled(node, 1) == [b"asked again"]
            for each in list(node.node.producer.connections):
                node.call(each.abort)
            producer.send_in_transaction(order("after it"))
            listener.wait()
            assert pulled(node, 1) == [b"after it"]
        assert heard
