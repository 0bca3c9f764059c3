"""A whole node on real sockets, on asyncio's loop and on uvloop: what a client sees."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from proxy.node.turns import TURNS
from pyddmq import OutgoingMessage, PullRefused, SendRefused
from tests.insides import opened_of
from tests.patient import LINGER_MS, PATIENCE_SECONDS, Consumer, Producer, until
from tests.running_node import RunningNode
from tests.simulation.wire import Frames, Reply, consumer_codec, consumer_idl, producer_codec, producer_idl

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000}
topics:
  orders: {queues: 4}
  notes: {queues: 2}
  closed: {queues: 1, enabled: false}
groups:
  - group: billing
    topics:
      - topic: orders
        actions: [Json, Async, PullServer]
        orderKey: "$['customer id']"
        retryIntervals: [10]
        maxPullBatchSize: 32
        timeout: 60000
  - group: readers
    topics:
      - {topic: notes, actions: [Async, PullServer], maxPullBatchSize: 32, tags: [wanted]}
  - group: undertaker
    topics:
      - {topic: "%DLQ%billing", actions: [Async, PullServer]}
"""

Start = Callable[..., RunningNode]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts nodes on the same data directory; stops them at the end."""
    with ExitStack() as stack:

        def run(yaml: str = YAML) -> RunningNode:
            return stack.enter_context(RunningNode(yaml, tmp_path / "data"))

        yield run


class Raw:
    """A plain socket that speaks frames, for what a well-behaved client would not do."""

    def __init__(self, address: str, service: str = "consumer", *, compact: bool = True) -> None:
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
        self.codec = consumer_codec(compact=compact) if service == "consumer" else producer_codec(compact=compact)
        self._frames = Frames()
        self._replies: list[Reply] = []

    def reply(self) -> Reply | None:
        """The next reply, or None at the end of the stream."""
        while not self._replies:
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self._replies += [self.codec.reply(payload) for _, payload in self._frames.feed(data)]
        return self._replies.pop(0)

    def pull(self, seqid: int, group: str = "readers", linger_ms: int = 0, **more: object) -> bytes:
        """A pull's frame."""
        request = consumer_idl.PullRequest(groupId=group, maxLingerTime=linger_ms, **more)
        return self.codec.call("pull", seqid, request=request)

    def send(self, seqid: int, topic: str = "notes", body: bytes = b"x", **more: object) -> bytes:
        """A sendSync's frame."""
        message = producer_idl.Message(topic=topic, body=body, **more)
        return self.codec.call("sendSync", seqid, message=message, timeout=1000)


Connect = Callable[..., Raw]


@pytest.fixture
def connect(start: Start) -> Iterator[Connect]:
    """Opens plain sockets and closes them before the nodes stop."""
    with ExitStack() as stack:

        def run(address: str, service: str = "consumer", *, compact: bool = True) -> Raw:
            raw = Raw(address, service, compact=compact)
            stack.callback(raw.socket.close)
            return raw

        yield run


def test_publish_takes_one_turn(start: Start, connect: Connect) -> None:
    """The reply that a flush leads to leaves with the same turn, and asks for no further one."""
    node = start()
    raw = connect(node.producer, "producer")

    def turns() -> int:
        return int(node.call(lambda: node.node.runtime.metrics.counter(TURNS).value))

    taken = []
    for seqid in range(50):
        before = turns()
        raw.socket.sendall(raw.send(seqid))
        assert raw.reply() is not None
        taken.append(turns() - before)
    # What is due by the clock asks for some, too, now and then.
    assert median(taken) == 1


def test_message_travels_from_send_to_ack(start: Start) -> None:
    """What is sent is pulled with key, tag, body and properties, and after its ack the group has no lag."""
    node = start()
    body = json.dumps({"customer id": 7}).encode()
    with Producer(node.producer) as producer, Consumer(node.consumer, "billing", linger_ms=LINGER_MS) as consumer:
        receipt = producer.send("orders", body, key="k-1", tags="made", properties={"trace": "t"})
        [message] = consumer.pull()
        assert (message.body, message.key, message.tag, dict(message.properties)) == (
            body, "k-1", "made", {"trace": "t"},
        )  # fmt: skip
        assert (message.qid, message.offset) == (receipt.qid, receipt.offset)
        assert consumer.stats()[0].lag == 1
        consumer.ack(message)
        assert consumer.flush()
        assert consumer.stats()[0].lag == 0


def test_acks_survive_restart_and_only_the_rest_comes_again(start: Start) -> None:
    """After a stop the acked do not come again, also those acked out of order, and the others do."""
    node = start()
    with Producer(node.producer) as producer, Consumer(node.consumer, "readers", linger_ms=LINGER_MS) as consumer:
        producer.send_batch([
            OutgoingMessage(topic="notes", body=b"%d" % n, tags="wanted", partition_id=0) for n in range(10)
        ])  # fmt: skip
        first = consumer.pull(count_max=32)
        for message in first[1::2]:
            consumer.ack(message)
        consumer.flush()
    node.kill()
    again = start()
    with Consumer(again.consumer, "readers", linger_ms=LINGER_MS) as consumer:
        assert [m.body for m in consumer.pull(count_max=32)] == [b"0", b"2", b"4", b"6", b"8"]


def test_failed_message_is_retried_then_dead_lettered_with_its_reason(start: Start) -> None:
    """A message failed once too often goes to the dead-letter topic with reason and origin; its key goes on."""
    node = start()
    with (
        Producer(node.producer) as producer,
        Consumer(node.consumer, "billing", linger_ms=LINGER_MS) as consumer,
        Consumer(node.consumer, "undertaker", linger_ms=LINGER_MS) as undertaker,
    ):
        sent = producer.send("orders", b'{"customer id": 1, "n": 1}', key="k", partition_id=1)
        producer.send("orders", b'{"customer id": 1, "n": 2}', key="k", partition_id=2)
        for _ in range(2):
            [message] = consumer.pull()
            assert json.loads(message.body)["n"] == 1
            consumer.fail(message)
        [message] = consumer.pull()
        assert json.loads(message.body)["n"] == 2
        [dead] = undertaker.pull()
        assert json.loads(dead.body)["n"] == 1
        assert sent.message_id in dead.properties.values()
        assert any("orders" in value for value in dead.properties.values())


def test_batch_is_stored_whole_or_not_at_all(start: Start) -> None:
    """One bad member refuses the batch with its index, and nothing of it is stored."""
    node = start()
    good = OutgoingMessage(topic="notes", body=b"x", tags="wanted")
    with Producer(node.producer) as producer:
        with pytest.raises(SendRefused, match="message 1 of 2"):
            producer.send_batch([good, OutgoingMessage(topic="notes", body=b"", tags="wanted")])
        receipts = producer.send_batch([good, good, good])
        assert {receipt.offset for receipt in receipts} <= {0, 1}
        assert len({receipt.message_id for receipt in receipts}) == 3


@pytest.mark.parametrize(
    ("topic", "changes", "code"),
    [
        ("missing", {}, 14),
        ("closed", {}, 13),
        ("%DLQ%billing", {}, 13),
        ("notes", {"body": b""}, 11),
        ("notes", {"key": "k" * 256}, 11),
        ("notes", {"key": "a\x01b"}, 11),
        ("notes", {"properties": {"TAGS": "x"}}, 11),
        ("notes", {"properties": {"TIMER_DELIVER_MS": "1"}}, 11),
        ("notes", {"properties": {" ": "x"}}, 11),
    ],
)
def test_send_that_breaks_a_rule_gets_ddmqs_code(
    start: Start, connect: Connect, topic: str, changes: dict[str, Any], code: int
) -> None:
    """R91, D7, D34: each refusal has DDMQ's code and a sentence, and stores nothing."""
    node = start()
    raw = connect(node.producer, "producer")
    raw.socket.sendall(raw.send(1, topic, **changes))
    reply = raw.reply()
    assert reply is not None
    assert (reply.value.code, reply.seqid) == (code, 1)
    assert len(reply.value.msg) > 10
    assert all(queue.max_offset == 0 for queue in opened_of(node.node).store.topics["notes"].queues)


def test_queue_is_chosen_by_partition_then_hash_then_key_then_in_turn(start: Start) -> None:
    """D7: an absent hashId does not put everything on queue 0 as DDMQ does; negative hashes are no trouble (W80)."""
    node = start()
    with Producer(node.producer) as producer:

        def queue(**choice: object) -> int:
            return int(producer.send("orders", b"{}", **choice).qid.rpartition("_")[2])  # type: ignore[arg-type]

        assert [queue(partition_id=n) for n in (0, 5, 7)] == [0, 1, 3]
        assert [queue(hash_id=n) for n in (6, -6, -(2**63))] == [2, 2, 0]
        assert queue(key="hello") == 99162322 % 4  # Java's hash of "hello"
        assert sorted(queue() for _ in range(4)) == [0, 1, 2, 3]


def test_pulls_that_cannot_be_served_say_why(start: Start) -> None:
    """W6: an unknown group and a topic that the group does not have are told apart from an empty queue."""
    node = start()
    with pytest.raises(PullRefused, match="nobody"), Consumer(node.consumer, "nobody") as consumer:
        consumer.pull()
    with pytest.raises(PullRefused, match="it has notes"), Consumer(node.consumer, "readers", "orders") as consumer:
        consumer.pull()


def test_bad_results_never_fail_their_pull(start: Start, connect: Connect) -> None:
    """D13: null context, unknown group, unknown queue and unknown offsets are counted, and the pull is answered."""
    node = start()
    with Producer(node.producer) as producer:
        producer.send("notes", b"x", tags="wanted")
    context = consumer_idl.Context(groupId="readers", topic="notes", qid="pyddmq_broker-0_99")
    bad = consumer_idl.ConsumeResult(context=context, successOffsets=[1], failOffsets=[2])
    other = consumer_idl.Context(groupId="nobody", topic="notes", qid="q")
    bad = consumer_idl.ConsumeResult(context=other, successOffsets=[5], failOffsets=[], nextResult=bad)
    bad = consumer_idl.ConsumeResult(successOffsets=[1], failOffsets=[], nextResult=bad)
    raw = connect(node.consumer)
    raw.socket.sendall(raw.pull(1, linger_ms=LINGER_MS, result=bad) + raw.codec.call("submit", 2, result=bad))
    pulled, submitted = raw.reply(), raw.reply()
    assert pulled is not None
    assert [message.value for message in pulled.value.messages] == [b"x"]
    assert submitted is not None
    assert submitted.value is False
    assert node.node.runtime.metrics.value("pyddmq_results_ignored_total") == 4


def test_parked_pull_delays_later_replies_but_not_their_acks(start: Start, connect: Connect) -> None:
    """D18: a submit behind a parked pull takes effect at once and is answered in its turn."""
    node = start()
    with Producer(node.producer) as producer:
        producer.send("notes", b"1", tags="wanted", partition_id=0)
    raw = connect(node.consumer)
    raw.socket.sendall(raw.pull(1, linger_ms=LINGER_MS))
    first = raw.reply()
    assert first is not None
    result = consumer_idl.ConsumeResult(
        context=first.value.context, successOffsets=[first.value.messages[0].offset], failOffsets=[]
    )
    raw.socket.sendall(raw.pull(2, linger_ms=LINGER_MS) + raw.codec.call("submit", 3, result=result))
    with Consumer(node.consumer, "readers") as observer, Producer(node.producer) as producer:
        until(lambda: observer.stats()[0].lag == 0, "the ack")
        producer.send("notes", b"2", tags="wanted")
    second, third = raw.reply(), raw.reply()
    assert second is not None
    assert third is not None
    assert (second.seqid, [message.value for message in second.value.messages]) == (2, [b"2"])
    assert (third.seqid, third.value) == (3, True)


def test_end_of_file_answers_parked_pulls(start: Start, connect: Connect) -> None:
    """D18: a client that stops sending gets its replies and then the end of the stream."""
    node = start()
    raw = connect(node.consumer)
    raw.socket.sendall(raw.pull(1, linger_ms=LINGER_MS) + raw.pull(2, linger_ms=LINGER_MS))
    raw.socket.shutdown(socket.SHUT_WR)
    assert [reply.seqid for reply in (raw.reply(), raw.reply()) if reply] == [1, 2]
    assert raw.reply() is None


@pytest.mark.parametrize("step", [1, 7])
def test_fragmented_and_pipelined_frames_are_answered_in_order(start: Start, connect: Connect, step: int) -> None:
    """D18: bytes may come in any pieces, and several calls at once."""
    node = start()
    raw = connect(node.producer, "producer", compact=False)
    data = b"".join(raw.send(n, body=b"m%d" % n, tags="wanted", partitionId=0) for n in range(1, 6))
    for at in range(0, len(data), step):
        raw.socket.sendall(data[at : at + step])
    replies = [raw.reply() for _ in range(5)]
    assert [(reply.seqid, reply.value.code, reply.value.offset) for reply in replies if reply] == [
        (n, 0, n - 1) for n in range(1, 6)
    ]


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 400"),
        (struct.pack(">i", 0x7FFFFFFF), b""),
        (struct.pack(">i", -5) + b"xxxxx", b""),
        (b"\x80\x01\x00\x01\x00\x00\x00\x04pull", b""),
        (struct.pack(">i", 6) + b"\x99garbage", b""),
    ],
)
def test_garbage_closes_its_connection_and_nothing_else(
    start: Start, connect: Connect, data: bytes, answer: bytes
) -> None:
    """Promise 7: what is no frame ends its own connection, an HTTP client is told where to go, others go on."""
    node = start()
    healthy = connect(node.consumer)
    host, port = node.consumer.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as bad:
        bad.sendall(data)
        received = b""
        while piece := _received(bad):
            received += piece
    assert received.startswith(answer)
    healthy.socket.sendall(healthy.pull(1))
    reply = healthy.reply()
    assert reply is not None
    assert reply.error is None


def test_undecodable_arguments_and_unknown_methods_keep_the_connection(start: Start, connect: Connect) -> None:
    """D21: kind 7 for arguments that lack a required field, kind 1 for a method nobody has."""
    node = start()
    raw = connect(node.consumer)
    no_group = raw.codec.call("pull", 1)
    unknown = raw.pull(2).replace(b"\x04pull", b"\x04pulp")
    nobody = consumer_idl.FetchRequest(consumerId="", groupId="readers", cluster="")
    raw.socket.sendall(no_group + unknown + raw.codec.call("fetch", 3, request=nobody) + raw.pull(4))
    replies = [raw.reply() for _ in range(4)]
    assert [reply.error.type if reply and reply.error else None for reply in replies] == [7, 1, 7, None]


def test_tags_filter_what_a_group_gets(start: Start) -> None:
    """The subscription's tags decide; what is filtered out leaves no lag behind."""
    node = start()
    with Producer(node.producer) as producer, Consumer(node.consumer, "readers", linger_ms=LINGER_MS) as consumer:
        for tag in ("other", "wanted", "other"):
            producer.send("notes", tag.encode(), tags=tag, partition_id=0)
        [message] = consumer.pull()
        consumer.ack(message)
        consumer.flush()
        assert message.body == b"wanted"
        assert consumer.stats()[0].lag == 0


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


def test_batch_over_topics_has_a_receipt_per_message_and_one_larger_than_a_log_file_is_refused(start: Start) -> None:
    """A batch may go to several topics; one that no log file can hold is refused with its size, whole."""
    yaml = "node: {segmentBytes: 131072, maxMessageBytes: 30000}\ntopics: {one: {queues: 1}, two: {queues: 1}}"
    node = start(yaml)
    small = [OutgoingMessage(topic=topic, body=b"x") for topic in ("one", "two", "one", "two")]
    large = [OutgoingMessage(topic=topic, body=bytes(30_000)) for topic in ("one", "two", "one", "two", "one")]
    with Producer(node.producer) as producer:
        with pytest.raises(
            SendRefused, match=r"the batch of 5 needs 15\d{4} bytes in the log; the limits are 131064 bytes"
        ) as refusal:
            producer.send_batch(large)
        assert refusal.value.code == 11
        receipts = producer.send_batch(small)
        assert [(receipt.qid[-2:], receipt.offset) for receipt in receipts] == [
            ("_0", 0),
            ("_0", 0),
            ("_0", 1),
            ("_0", 1),
        ]
        assert len({receipt.message_id for receipt in receipts}) == 4
