"""Transactions over Thrift as an independent client speaks it, in both protocols (D33): halves, decisions, checks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException

from pyddmq.codes import ResultCode
from tests.apache_structs import CheckRequest, EndTransaction, ProducedMessage
from tests.insides import opened_of
from tests.integration.proxy.services.test_apache_client import ApacheClient
from tests.patient import LINGER_MS, PATIENCE_SECONDS, Consumer
from tests.running_node import RunningNode

YAML = """
node: {transactionTimeOut: 1, transactionCheckInterval: 600000, maxMessageBytes: 1000}
topics:
  orders: {queues: 4}
  halves: {queues: 1, messageType: TRANSACTION}
  plain: {queues: 1, messageType: NORMAL}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [PullServer]}
"""
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
PROTOCOLS = pytest.mark.parametrize("protocol", [TCompactProtocol, TBinaryProtocol], ids=["compact", "binary"])


class Side:
    """A producer's view of a node."""

    def __init__(self, node: RunningNode, protocol: Any) -> None:
        self.node = node
        self._protocol = protocol
        self._clients: list[ApacheClient] = []
        self.client = self.connect()

    def connect(self) -> ApacheClient:
        """Open one more connection."""
        self._clients.append(ApacheClient(self.node.producer, self._protocol))
        return self._clients[-1]

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            client.close()

    def half(self, *, group: str = "shop", **fields: Any) -> Any:
        """Send a half."""
        message = {"topic": "orders", "body": b"\x00order", "hashId": 0, "partitionId": -1, **fields}
        return self.client.call("sendHalfSync", message=ProducedMessage(**message), producerGroup=group, timeout=1000)

    def end(self, handle: str, state: int, *, group: str = "shop", **fields: Any) -> tuple[int, str]:
        """Decide; code and text."""
        decision = EndTransaction(producerGroup=group, handle=handle, state=state, **fields)
        result = self.client.call("endTransaction", decision=decision)
        return result.code, result.msg

    def fetch(
        self,
        *,
        client: ApacheClient | None = None,
        group: str = "shop",
        answers: Any = None,
        linger_ms: int = LINGER_MS,
        **fields: Any,
    ) -> Any:
        """Fetch checks."""
        request = CheckRequest(producerGroup=group, maxLingerTime=linger_ms, answers=answers, **fields)
        return (client or self.client).call("fetchChecks", request=request)

    def counter(self, name: str, *labels: str) -> float:
        """A counter of the node."""
        return self.node.call(self.node.node.runtime.metrics.value, name, *labels)

    def pulled(self, count: int) -> list[tuple[bytes, str | None]]:
        """Bodies and keys that a consumer gets until it has so many, and whatever comes at once after them."""
        found: list[tuple[bytes, str | None]] = []
        with Consumer(self.node.consumer, "billing", linger_ms=20) as consumer:
            while len(found) < count:
                for message in consumer.pull():
                    found.append((message.body, message.key))
                    consumer.ack(message)
            for message in consumer.pull():
                found.append((message.body, message.key))
                consumer.ack(message)
        return found


@pytest.fixture(params=[TCompactProtocol, TBinaryProtocol], ids=["compact", "binary"])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Side]:
    """Give a connection to a fresh node."""
    with RunningNode(YAML, tmp_path / "data") as node:
        side = Side(node, request.param)
        yield side
        side.close()


def test_half_is_stored_unseen_and_its_commit_delivers_it_once(side: Side) -> None:
    """The reply names the transaction; nobody sees it before the commit, and a second commit stores nothing."""
    half = side.half(key="7", tags="new", properties={"shop": "a"}, partitionId=2)
    assert (half.code, half.msg, half.key, half.offset) == (0, "OK", "7", 0)
    assert half.transactionId
    assert half.handle
    sent = side.client.call(
        "sendSync", message=ProducedMessage(topic="orders", body=b"plain", partitionId=-1), timeout=9
    )
    assert sent.code == 0
    assert [body for body, _ in side.pulled(1)] == [b"plain"]
    assert side.end(half.handle, COMMIT)[0] == 0
    assert side.end(half.handle, COMMIT, remark="once more")[0] == 0
    with Consumer(side.node.consumer, "billing", linger_ms=LINGER_MS) as consumer:
        [message] = consumer.pull()
        assert (message.body, message.key, message.tag, message.properties) == (b"\x00order", "7", "new", {"shop": "a"})
        assert message.qid.endswith("_2")
        consumer.ack(message)
    assert side.pulled(0) == []


def test_message_counts_as_published_when_it_is_committed(side: Side) -> None:
    """Its half counts as a half: one that is rolled back, or never decided, was not published."""

    def counts() -> list[float]:
        names = ("messages_published", "bytes_published", "transactions_halves")
        return [side.node.node.runtime.metrics.value(f"pyddmq_{name}_total", "orders") for name in names]

    handles = [side.half(body=b"12345").handle for _ in range(3)]
    assert counts() == [0, 0, 3]
    assert side.end(handles[0], ROLLBACK)[0] == ResultCode.OK
    assert counts() == [0, 0, 3]
    assert side.end(handles[1], COMMIT)[0] == ResultCode.OK
    assert side.end(handles[1], COMMIT)[0] == ResultCode.OK
    assert counts() == [1, 5, 3]


def test_rollback_is_final_and_seen_by_nobody(side: Side) -> None:
    """Told twice it is the same; a commit after it is refused with its own code and sentence."""
    half = side.half()
    assert side.end(half.handle, ROLLBACK)[0] == 0
    assert side.end(half.handle, ROLLBACK)[0] == 0
    code, text = side.end(half.handle, COMMIT)
    assert (code, "rolled back" in text) == (ResultCode.FAIL_DECIDED_OTHERWISE, True)
    assert side.pulled(0) == []


def test_every_bad_decision_has_its_code_and_sentence_and_decides_nothing(side: Side) -> None:
    """Another group, no group, no such handle, no such state; the half can be committed after all of them."""
    half = side.half()
    for decision, code, text in (
        ((half.handle, COMMIT, {"group": "other"}), ResultCode.FAIL_OTHER_PRODUCER_GROUP, "group"),
        ((half.handle, COMMIT, {"group": " "}), ResultCode.FAIL_ILLEGAL_PRODUCER_GROUP, "producerGroup"),
        ((half.handle, COMMIT, {"group": "g" * 300}), ResultCode.FAIL_ILLEGAL_PRODUCER_GROUP, "at most"),
        ((half.handle, 4, {}), ResultCode.FAIL_ILLEGAL_TRANSACTION_STATE, "use 8 to commit"),
        (("nothing", COMMIT, {}), ResultCode.FAIL_NO_SUCH_HALF, "handle"),
        ((half.handle.replace(half.transactionId, "0" * 32), COMMIT, {}), ResultCode.FAIL_NO_SUCH_HALF, "no such"),
    ):
        handle, state, fields = decision
        found, said = side.end(handle, state, **fields)
        assert (found, text in said) == (code, True), (decision, said)
    assert side.end(half.handle, UNKNOWN, remark="not yet")[0] == 0
    assert side.end(half.handle, COMMIT)[0] == 0
    assert [body for body, _ in side.pulled(1)] == [b"\x00order"]


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"group": ""}, ResultCode.FAIL_ILLEGAL_PRODUCER_GROUP, "producerGroup"),
        ({"group": "a\x01b"}, ResultCode.FAIL_ILLEGAL_PRODUCER_GROUP, "invalid producerGroup"),
        ({"topic": "nowhere"}, ResultCode.FAIL_TOPIC_NOT_EXIST, "nowhere"),
        ({"topic": "plain"}, ResultCode.FAIL_ILLEGAL_MSG, "accepts no half messages"),
        ({"body": b""}, ResultCode.FAIL_ILLEGAL_MSG, "empty"),
        ({"body": bytes(1001)}, ResultCode.FAIL_ILLEGAL_MSG, "1001"),
        ({"properties": {"TRAN_MSG": "true"}}, ResultCode.FAIL_ILLEGAL_MSG, "TRAN_MSG"),
        ({"properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "9"}}, ResultCode.FAIL_ILLEGAL_MSG, "reserved"),
        ({"delayLevel": -1}, ResultCode.FAIL_ILLEGAL_MSG, "delayLevel"),
    ],
)
def test_half_is_refused_by_the_rules_of_every_message(
    side: Side, fields: dict[str, Any], code: ResultCode, text: str
) -> None:
    """With the code of a send, a sentence, and nothing stored (D34)."""
    reply = side.half(**fields)
    assert (reply.code, text in reply.msg, reply.handle) == (code, True, None)
    assert side.node.call(lambda: "RMQ_SYS_TRANS_HALF_TOPIC" not in opened_of(side.node.node).store.topics)


def test_topic_of_transactions_takes_halves_only(side: Side) -> None:
    """Its type is kept for halves, and their commit is delivered there."""
    refused = side.client.call("sendSync", message=ProducedMessage(topic="halves", body=b"x"), timeout=9)
    assert refused.code == ResultCode.FAIL_ILLEGAL_MSG
    half = side.half(topic="halves")
    assert side.end(half.handle, COMMIT)[0] == 0
    assert side.node.call(lambda: opened_of(side.node.node).store.topics["halves"].queues[0].max_offset) == 1


def test_moment_of_a_half_counts_from_its_commit(side: Side) -> None:
    """A delay in ms runs from the commit, a moment that has passed is now, one beyond the horizon is refused."""
    later, past = side.half(delayMs=3_600_000), side.half(deliverAtMs=1_700_000_000_000)
    far = side.half(deliverAtMs=4_000_000_000_000)
    assert (later.code, past.code, far.code) == (0, 0, ResultCode.FAIL_ILLEGAL_MSG)

    def waiting() -> int:
        topic = opened_of(side.node.node).store.topics.get("rmq_sys_wheel_timer")
        return 0 if topic is None else topic.queues[0].max_offset

    assert side.node.call(waiting) == 0
    assert side.end(later.handle, COMMIT)[0] == 0
    assert side.node.call(waiting) == 1
    assert side.end(past.handle, COMMIT)[0] == 0
    assert side.pulled(1) == [(b"\x00order", None)]
    assert side.node.call(waiting) == 1


def test_check_carries_the_message_and_its_answer_rides_on_the_next_fetch(side: Side) -> None:
    """Topic, queue, key, tags, properties, body, count; the answer takes effect before the next fetch waits."""
    half = side.half(key="7", tags="new", properties={"shop": "a"}, partitionId=2)
    [check] = side.fetch()
    assert (check.transactionId, check.checkTimes) == (half.transactionId, 1)
    assert check.bornTimestamp > 0
    message = check.message
    assert (message.topic, message.partitionId, message.key, message.tags) == ("orders", 2, "7", "new")
    assert (message.body, message.properties) == (b"\x00order", {"shop": "a"})
    answer = EndTransaction(producerGroup="shop", handle=check.handle, state=COMMIT, fromCheck=True)
    assert side.fetch(answers=[answer], linger_ms=20) == []
    assert side.pulled(1) == [(b"\x00order", "7")]


def test_bad_answers_never_fail_their_fetch(side: Side) -> None:
    """They are counted by reason; good ones among them count, and checks come all the same."""
    first = side.half()
    [check] = side.fetch()
    second = side.half(key="second")
    answers = [
        EndTransaction(producerGroup="shop", handle="nothing", state=COMMIT),
        EndTransaction(producerGroup="shop", handle=check.handle, state=99),
        EndTransaction(producerGroup="other", handle=check.handle, state=ROLLBACK),
        EndTransaction(handle=check.handle, state=COMMIT, fromCheck=True),
    ]
    [other] = side.fetch(answers=answers)
    assert (check.transactionId, other.transactionId) == (first.transactionId, second.transactionId)
    assert side.pulled(1) == [(b"\x00order", None)]
    refused = "pyddmq_transactions_end_refused_total"
    reasons = ("unknown_handle", "fail_illegal_transaction_state", "wrong_group")
    assert [side.counter(refused, reason) for reason in reasons] == [1, 1, 1]


def test_fetch_waits_for_a_check_of_its_group(side: Side) -> None:
    """Parked, it is answered when a half comes up; one of another group gets nothing."""
    with answering(lambda client: side.fetch(client=client), side) as answer:
        side.half(group="other")
        half = side.half()
        [check] = answer()
    assert check.transactionId == half.transactionId
    [check] = side.fetch(group="other", maxBatchSize=5)
    assert check.checkTimes == 1
    assert side.fetch(linger_ms=20) == []


def test_two_pollers_never_hold_one_check(side: Side) -> None:
    """While one has it the other gets nothing; each of many checks goes to one of them."""
    ids = {side.half().transactionId for _ in range(20)}
    found: list[str] = []
    other = side.connect()
    while len(found) < 20:
        found += [check.transactionId for check in side.fetch(maxBatchSize=3)]
        found += [check.transactionId for check in side.fetch(client=other, maxBatchSize=3, linger_ms=20)]
    assert len(found) == len(ids)
    assert set(found) == ids


def test_fetch_takes_no_more_than_a_reply_may_hold(side: Side) -> None:
    """MaxBatchSize is the client's bound; others stay for the next fetch."""
    for _ in range(5):
        side.half()
    side.fetch(group="nobody", linger_ms=50)
    sizes: list[int] = []
    while sum(sizes) < 5:
        sizes.append(len(side.fetch(maxBatchSize=2)))
    assert max(sizes) <= 2


def test_fetch_that_cannot_be_served_says_why(side: Side) -> None:
    """A TApplicationException of kind 6 with a sentence, counted."""
    with pytest.raises(TApplicationException, match="producerGroup") as caught:
        side.fetch(group="")
    assert caught.value.type == 6
    assert side.counter("pyddmq_check_fetches_refused_total", "group") == 1


@contextlib.contextmanager
def answering(call: Callable[[ApacheClient], Any], side: Side) -> Iterator[Callable[[], Any]]:
    """Make a call on a connection of its own in the background; the function waits for what it returns."""
    import threading

    client = side.connect()
    results: list[Any] = []
    before = side.counter("pyddmq_requests_total", "producer", "fetchChecks")
    thread = threading.Thread(target=lambda: results.append(call(client)))
    thread.start()
    while side.counter("pyddmq_requests_total", "producer", "fetchChecks") == before:
        assert thread.is_alive()

    def answer() -> Any:
        thread.join(PATIENCE_SECONDS)
        return results[0]

    yield answer
    thread.join(PATIENCE_SECONDS)
