"""Timers over Thrift: what is stored, what the receipt says, and what is refused, on both protocols."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.format.message import message_of
from broker.scheduled.timer.handle import RecallHandle
from broker.scheduled.timer.names import TIMER_TOPIC
from pyddmq import OutgoingMessage, SendRefused, WireProtocol
from tests.insides import opened_of
from tests.patient import Producer
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000, messageDelayLevel: 1h 2h, timerMaxDelaySec: 86400}
topics:
  orders: {queues: 4}
  later: {queues: 1, messageType: DELAY}
  now: {queues: 1, messageType: NORMAL}
groups: []
"""
HOUR_MS = 3_600_000
PAST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node; every test looks only at what it adds."""
    with RunningNode(YAML, tmp_path_factory.mktemp("timers") / "data") as running:
        yield running


@pytest.fixture(params=["binary", "compact"])
def producer(request: pytest.FixtureRequest, node: RunningNode) -> Iterator[Producer]:
    """A producer of each protocol."""
    protocol: WireProtocol = request.param
    with Producer(node.producer, protocol=protocol) as sender:
        yield sender


def waiting(node: RunningNode) -> list[dict[str, str]]:
    """Properties of the records of the timer topic."""
    store = opened_of(node.node).store
    topic = store.topics.get(TIMER_TOPIC)
    if topic is None:
        return []
    queue = topic.queues[0]
    units = queue.read(queue.min_offset, queue.max_offset)
    return [message_of(store.read(physical, size)).properties for physical, size, _ in units]


def now_ms(node: RunningNode) -> int:
    """The node's wall clock."""
    return node.node.parts.seams.clock.wall_ms()


def stored(node: RunningNode, topic: str) -> int:
    """Messages of a topic."""
    return sum(queue.max_offset for queue in opened_of(node.node).store.topics[topic].queues)


def test_timer_waits_in_the_timer_topic_until_its_moment(node: RunningNode, producer: Producer) -> None:
    """With its due time to the millisecond, and a handle in RocketMQ's form that names it."""
    due = now_ms(node) + HOUR_MS + 7
    receipt = producer.send("orders", b"later", key="k", tags="t", properties={"own": "1"}, deliver_at_ms=due)
    assert (receipt.qid, receipt.offset) == ("", -1)
    found = waiting(node)[-1]
    assert (found["TIMER_DELIVER_MS"], found["REAL_TOPIC"], found["KEYS"], found["own"]) == (
        str(due),
        "orders",
        "k",
        "1",
    )
    assert RecallHandle.parse(receipt.handle) == (
        "orders", node.node.in_force.config.node.broker_name, int(found["TIMER_OUT_MS"]) + 1, receipt.message_id,
    )  # fmt: skip
    assert found["UNIQ_KEY"] == receipt.message_id


def test_delay_counts_from_receipt(node: RunningNode, producer: Producer) -> None:
    """The due time is fixed when the message arrives (D35)."""
    before = now_ms(node)
    producer.send("orders", b"later", delay_ms=HOUR_MS)
    due = int(waiting(node)[-1]["TIMER_DELIVER_MS"])
    assert before + HOUR_MS <= due <= now_ms(node) + HOUR_MS


@pytest.mark.parametrize(
    "when", [{}, {"deliver_at_ms": 946_684_800_000}, {"delay_ms": 0}, {"deliver_at_ms": 1_700_000_000_000}]
)
def test_past_moment_is_now(node: RunningNode, producer: Producer, when: dict[str, int]) -> None:
    """Such a message is stored in its topic at once; its receipt has a place and no handle."""
    before = len(waiting(node))
    receipt = producer.send("orders", b"now", **when)  # type: ignore[arg-type]
    assert receipt.offset >= 0
    assert (receipt.qid[-2], receipt.handle) == ("_", "")
    assert len(waiting(node)) == before


def test_batch_mixes_all_kinds_of_delay(node: RunningNode, producer: Producer) -> None:
    """Plain, level, moment, delay and past: one unit, a receipt for each in order, handles for the timers alone."""
    due = now_ms(node) + HOUR_MS
    kinds = [{}, {"delay_level": 2}, {"deliver_at_ms": due}, {"delay_ms": 2 * HOUR_MS}, {"deliver_at_ms": PAST_MS}]
    batch = [OutgoingMessage(topic="orders", body=b"%d" % n, **kind) for n, kind in enumerate(kinds)]  # type: ignore[arg-type]
    receipts = producer.send_batch(batch)
    assert [each.offset >= 0 for each in receipts] == [True, False, False, False, True]
    assert [bool(each.handle) for each in receipts] == [False, False, True, True, False]
    assert [each["UNIQ_KEY"] for each in waiting(node)[-2:]] == [receipts[2].message_id, receipts[3].message_id]
    assert RecallHandle.parse(receipts[2].handle).unique_key == receipts[2].message_id
    assert len({each.message_id for each in receipts}) == 5


DELAYS = ("delayLevel, deliverAtMs and delayMs exclude each other", 11)
FAR_MS = 3_000 * 86_400_000


@pytest.mark.parametrize(
    ("asked", "sentence", "code"),
    [
        ({"delay_ms": -1}, "delayMs -1 is negative", 11),
        ({"deliver_at_ms": -5}, "deliverAtMs -5 is negative", 11),
        ({"deliver_at_ms": 1_760_000_000}, "1970-01-21T08:53:20Z; it looks like seconds: write 1760000000000", 11),
        ({"deliver_at_ms": 1_760_000_000_000_000}, "it looks like microseconds: write 1760000000000", 11),
        ({"delay_level": -2, "delay_ms": 5}, "delayLevel -2 is negative", 11),
        ({"delay_ms": 5, "deliver_at_ms": 5}, *DELAYS),
        ({"delay_level": 1, "delay_ms": 5}, *DELAYS),
        ({"delay_level": 1, "deliver_at_ms": 5}, *DELAYS),
        ({"delay_ms": FAR_MS}, "due in 3,000.0 days", 11),
        ({"delay_ms": (1 << 63) - 1}, "days", 11),
        ({"deliver_at_ms": 4_102_444_800_000}, "days", 11),
        ({"deliver_at_ms": (1 << 63) - 1}, "is after the year 9999", 11),
        ({"delay_ms": 5, "properties": {"TIMER_OUT_MS": "1"}}, "reserved by the broker", 11),
        ({"properties": {"TIMER_DELAY_SEC": "1"}}, "reserved by the broker", 11),
        ({"properties": {"TIMER_DEL_UNIQKEY": "k"}}, "reserved by the broker", 11),
    ],
)
def test_impossible_moments_are_refused(
    node: RunningNode, producer: Producer, asked: dict[str, int], sentence: str, code: int
) -> None:
    """With a code that no client library repeats for ever, and a sentence; in a batch nothing is stored."""
    before = (stored(node, "orders"), len(waiting(node)))
    with pytest.raises(SendRefused, match=sentence) as caught:
        producer.send("orders", b"x", **asked)  # type: ignore[arg-type]
    assert caught.value.code == code
    with pytest.raises(SendRefused, match=f"message 1 of 2: .*{sentence}"):
        producer.send_batch(
            [OutgoingMessage(topic="orders", body=b"a"), OutgoingMessage(topic="orders", body=b"b", **asked)]  # type: ignore[arg-type]
        )
    assert (stored(node, "orders"), len(waiting(node))) == before


def test_types_of_topics_know_timers(node: RunningNode, producer: Producer) -> None:
    """A topic for delays takes a timer and refuses what has none; one for ordinary messages the other way round."""
    assert producer.send("later", b"x", delay_ms=HOUR_MS).handle
    with pytest.raises(SendRefused) as caught:
        producer.send("later", b"x")
    assert caught.value.code == 19
    with pytest.raises(SendRefused) as caught:
        producer.send("now", b"x", deliver_at_ms=now_ms(node) + HOUR_MS)
    assert caught.value.code == 18


def test_refused_timers_are_counted(node: RunningNode, producer: Producer) -> None:
    """By their code."""
    counted = {
        labels: value for spec, labels, value in node.node.runtime.metrics if spec.name == "pyddmq_sends_refused_total"
    }
    with pytest.raises(SendRefused):
        producer.send("orders", b"x", delay_ms=-1)
    after = {
        labels: value for spec, labels, value in node.node.runtime.metrics if spec.name == "pyddmq_sends_refused_total"
    }
    assert after[("11",)] == counted.get(("11",), 0) + 1
