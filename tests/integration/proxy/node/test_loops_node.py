"""sendDelaySync on a whole node: what it takes and refuses, what consumers get, cancels, and what is sent again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.scheduled.recurring import metrics as counted
from pyddmq import CancelOutcome, PulledMessage, SendRefused
from tests.insides import opened_of
from tests.integration.ddmq_tools import Peer
from tests.patient import PATIENCE_MS, Consumer, Producer
from tests.running_node import RunningNode
from tests.simulation.wire import producer_idl

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 400000}
topics:
  orders: {queues: 4}
  plain: {queues: 1, messageType: NORMAL}
  waiting: {queues: 1, messageType: DELAY}
  slow: {queues: 1, maxTps: 1}
  closed: {queues: 1, enabled: false}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], maxPullBatchSize: 32}
"""
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
BINARY = bytes(range(256)) + b"\xff\xfe\x80"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    """A node with topics of several types."""
    with RunningNode(YAML, tmp_path / "data") as running:
        yield running


def now() -> int:
    """Seconds since the epoch."""
    return int(time.time())


def message(**fields: Any) -> Any:
    """An add that is right, with other fields in the place of its own."""
    return producer_idl.DelayMessage(
        **{
            "topic": "orders",
            "body": b"x",
            "action": 1,
            "timestamp": now() + 3600,
            "dmsgtype": 2,
            "uuid": UUID,
            **fields,
        }
    )


def loop(**fields: Any) -> Any:
    """A loop that is right."""
    return message(**{"dmsgtype": 3, "interval": 60, "times": 3, "expire": now() + 10_000, **fields})


def send(peer: Peer, what: Any) -> Any:
    """The DelayResult of a message."""
    reply = peer.call("sendDelaySync", delayMessage=what, timeout=100)
    assert reply.error is None, reply.error
    return reply.value


def pulled(node: RunningNode, count: int) -> list[PulledMessage]:
    """So many messages of the group."""
    found = []
    with Consumer(node.consumer, "billing") as consumer:
        for each in consumer.messages(idle_ms=PATIENCE_MS):
            found.append(each)
            if len(found) == count:
                return found
    raise AssertionError(f"waited in vain for {count} messages, got {len(found)}")


def test_missed_deliveries_of_a_loop_reach_a_consumer(node: RunningNode) -> None:
    """Each under an id of its own as key, body byte for byte (W78), in one queue in their order."""
    begin = now() - 9
    with Peer(node.producer) as peer:
        sent = loop(timestamp=begin, interval=3, times=4, body=BINARY, tags="t", properties={"own": "1"})
        answer = send(peer, sent)
    expire = sent.expire
    assert (answer.code, answer.uniqDelayMsgId) == (0, f"{begin}-3-{expire}-4-0-3-0-{UUID}")
    assert answer.cancelOutcome is None
    found = pulled(node, 4)
    assert [each.key for each in found] == [f"{begin + 3 * made}-3-{expire}-4-{made}-3-0-{UUID}" for made in range(4)]
    assert {(each.body, each.tag, each.properties["own"]) for each in found} == {(BINARY, "t", "1")}
    assert len({each.qid for each in found}) == 1
    assert all(each.properties.keys() == {"own", "from_chronos"} for each in found)


@pytest.mark.parametrize("compact", [False, True])
def test_every_refusal_is_answered_with_its_code(node: RunningNode, compact: bool) -> None:
    """W75: there always is an answer, on both protocols, and nothing is stored."""
    cases = [
        (message(topic="nowhere"), 14),
        (message(topic="closed"), 13),
        (message(topic="plain"), 18),
        (message(body=b""), 11),
        (message(body=None), 11),
        (message(body=bytes(400_001)), 11),
        (message(tags="t" * 256), 11),
        (message(properties={"TIMER_DELIVER_MS": "1"}), 11),
        (message(properties={"__PYDDMQ_LOOP": "1"}), 11),
        (message(properties={"a": " "}), 11),
        (message(action=3), 32),
        (message(action=None), 32),
        (message(timestamp=1), 33),
        (message(timestamp=now() + 63 * 86_400), 33),
        (message(dmsgtype=1), 31),
        (message(times=1), 35),
        (message(uuid=None), 11),
        (message(uuid=UUID.upper()), 11),
        (loop(times=0), 35),
        (loop(times=1 << 40), 35),
        (loop(expire=now()), 36),
        (loop(expire=1 << 40), 36),
        (loop(interval=2), 37),
        (loop(interval=1 << 40), 37),
        (loop(dmsgtype=4, interval=1), 38),
        (message(action=2), 30),
        (message(action=2, uniqDelayMsgId="7"), 30),
        (message(action=2, uniqDelayMsgId=f"{now()}-0-{now()}-0-0-0-0-{UUID}"), 31),
        (message(action=2, uniqDelayMsgId=f"{now()}-2-{now()}-0-0-0-1-{UUID}"), 34),
        (message(action=2, uniqDelayMsgId=f"{now()}-2-{now()}-0-0-0-0-{UUID}", body=None), 11),
    ]
    with Peer(node.producer, compact=compact) as peer:
        answers = [send(peer, each) for each, _ in cases]
        assert [answer.code for answer in answers] == [code for _, code in cases]
        assert all(answer.msg for answer in answers)
        # R106: the id of a refused cancel comes back, others are empty.
        assert answers[26].uniqDelayMsgId == "7"
        assert all(not answer.uniqDelayMsgId for answer in answers[:25])
        assert send(peer, loop()).code == 0
    assert node.call(lambda: sum(queue.max_offset for queue in opened_of(node.node).store.topics["orders"].queues)) == 0


def test_topics_of_type_delay_take_them_and_rates_count(node: RunningNode) -> None:
    """R105: the rate of the topic is charged."""
    with Peer(node.producer) as peer:
        assert send(peer, message(topic="waiting", timestamp=now() - 1)).code == 0
        # In one write, so that the node's clock hardly moves between them.
        adds = [message(topic="slow", uuid=UUID[:-2] + str(number)) for number in range(10, 30)]
        peer.socket.sendall(b"".join(peer.frame("sendDelaySync", delayMessage=add, timeout=100) for add in adds))
        codes = [peer.reply("sendDelaySync").value.code for _ in adds]
    assert codes[0] == 0
    assert 15 in codes


def test_add_that_is_sent_again_is_one_message(node: RunningNode) -> None:
    """S9: the same id at once, in one frame after the other, and later; counted."""
    begin = now() - 10
    with Peer(node.producer) as peer, Peer(node.producer) as another:
        sent = message(timestamp=begin)
        peer.socket.sendall(b"".join(peer.frame("sendDelaySync", delayMessage=sent, timeout=1) for _ in range(3)))
        ids = {peer.reply("sendDelaySync").value.uniqDelayMsgId for _ in range(3)}
        ids.add(send(another, sent).uniqDelayMsgId)
        assert len(ids) == 1
        send(another, message(timestamp=begin, uuid=UUID[:-1] + "7"))
    assert next(each.key for each in pulled(node, 2)) in ids
    assert node.call(lambda: sum(queue.max_offset for queue in opened_of(node.node).store.topics["orders"].queues)) == 2
    assert node.call(lambda: node.node.runtime.metrics.value(counted.REPEATED)) == 3


def test_cancels_are_answered_with_what_became_of_them(node: RunningNode) -> None:
    """Code 0 always; by the client, as its enum; again, the same."""
    with Producer(node.producer) as producer:
        kept = producer.send_delay("orders", b"kept", at=time.time() - 5)
        gone = producer.send_delay("orders", b"gone", at=time.time() + 3600)
        ended = producer.send_delay("orders", b"ended", at=time.time() + 3600, every=60, times=9)
        assert [producer.cancel_delay(each, "orders") for each in (gone, ended, gone, kept)] == [
            CancelOutcome.CANCELLED,
            CancelOutcome.CANCELLED,
            CancelOutcome.CANCELLED,
            CancelOutcome.TOO_LATE,
        ]
        assert producer.cancel_delay(gone, "waiting") is CancelOutcome.UNKNOWN
        with pytest.raises(SendRefused) as refused:
            producer.cancel_delay("what", "orders")
    assert refused.value.code == 30
    assert node.call(lambda: node.node.runtime.metrics.value(counted.CANCELS, "cancelled")) == 3


def test_cancel_behind_its_add_in_one_write_is_in_time(node: RunningNode) -> None:
    """D18: frames of a connection take effect in their order."""
    sent = loop()
    delay_id = f"{sent.timestamp}-3-{sent.expire}-3-0-60-0-{UUID}"
    with Peer(node.producer) as peer:
        add = peer.frame("sendDelaySync", delayMessage=sent, timeout=1)
        cancel = message(action=2, uniqDelayMsgId=delay_id)
        peer.socket.sendall(add + peer.frame("sendDelaySync", delayMessage=cancel, timeout=1))
        answers = [peer.reply("sendDelaySync").value for _ in range(2)]
    assert [(each.code, each.uniqDelayMsgId, each.cancelOutcome) for each in answers] == [
        (0, delay_id, None),
        (0, delay_id, 1),
    ]


def test_loops_outlive_a_restart(tmp_path: Path) -> None:
    """What was missed meanwhile is delivered by the node that follows; a cancel holds."""
    with RunningNode(YAML, tmp_path / "data") as running, Producer(running.producer) as producer:
        cancelled = producer.send_delay("orders", b"cancelled", at=time.time() + 3600, every=3, times=5)
        # The second one is an hour later: however long the restart takes, the loop goes on behind it.
        kept = producer.send_delay("orders", b"kept", at=time.time() + 1, every=3600, times=5)
        assert producer.cancel_delay(cancelled, "orders") is CancelOutcome.CANCELLED
    with RunningNode(YAML, tmp_path / "data") as running:
        [first] = pulled(running, 1)
        assert (first.key, first.body) == (kept, b"kept")
        assert running.call(lambda: opened_of(running.node).timers.pending) == 1
        with Producer(running.producer) as producer:
            assert producer.cancel_delay(kept, "orders") is CancelOutcome.CANCELLED
            assert producer.cancel_delay(cancelled, "orders") is CancelOutcome.CANCELLED
