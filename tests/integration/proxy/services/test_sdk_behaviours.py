"""What DDMQ's client libraries do (docs/protocol.md, S1 to S9), scripted against a node on real sockets.

Each test plays one library's habit with plain frames: what it sends again, what it leaves out, how it goes away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pyddmq.codes import PullCode, ResultCode
from tests.insides import opened_of
from tests.integration.ddmq_tools import NODE, Peer, chain, result
from tests.patient import until
from tests.running_node import RunningNode
from tests.simulation.wire import consumer_idl, producer_idl

TOPICS = """
topics: {orders: {queues: 1}, notes: {queues: 1}}
groups:
  - group: billing
    topics:
      - {topic: orders, maxPullBatchSize: 32, retryIntervals: [1, -1], timeout: %d, maxRetry: 100}
      - {topic: notes, maxPullBatchSize: 32, timeout: 60000}
  - group: resting
    topics: [{topic: orders, enabled: false}]
"""
QID = "pyddmq_broker-0_0"
LONG = 600_000
TIMEOUTS_MS = (100, 1_000, 10_000, 60_000)
"""For what comes again after a timeout: where the machine was slower than one, the next is tried."""
SHORT = TIMEOUTS_MS[0]
JAVA_BATCH, JAVA_LINGER_MS = 8, 50
GO_BATCH, GO_LINGER_MS = 8, 50
DELAY_UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"


def run(data: Path, *, timeout_ms: int = LONG) -> RunningNode:
    """A node whose deliveries of `orders` time out after so long."""
    return RunningNode(NODE % "" + TOPICS % timeout_ms, data)


def publish(node: RunningNode, count: int, topic: str = "orders") -> None:
    """Send numbered messages."""
    with Peer(node.producer) as producer:
        for number in range(count):
            assert producer.send(topic, b"%d" % number).code == 0


def offsets(response: Any) -> list[int]:
    """Offsets of a pull's messages."""
    return [message.offset for message in response.messages]


def done(offset: int | list[int], topic: str = "orders") -> Any:
    """A result that finishes offsets."""
    return result("billing", topic, QID, offset if isinstance(offset, list) else [offset])


def watermark(node: RunningNode) -> int:
    """Committed offset of the group."""
    return node.call(lambda: opened_of(node.node).progress.trackers["billing", "orders", 0].watermark)


def wait_until(node: RunningNode, condition: Callable[[], bool]) -> None:
    """Ask the node again and again until something holds."""
    until(lambda: node.call(condition), "the node")


def count(node: RunningNode, name: str, *labels: str) -> int:
    """A counter of the group on `orders`."""
    return node.call(lambda: node.node.runtime.metrics.value(name, "billing", "orders", *labels))


def test_s1_a_pool_of_connections_shares_the_messages(tmp_path: Path) -> None:
    """S1: threads with a connection each, one of them for a named topic: everything is handed out once, to somebody."""
    with run(tmp_path) as node:
        publish(node, 12)
        publish(node, 3, "notes")
        pool = [Peer(node.consumer) for _ in range(3)]
        try:
            named = offsets(pool[0].pull("billing", topic="notes", maxBatchSize=JAVA_BATCH))
            shared = [offsets(peer.pull("billing", topic="orders", maxBatchSize=4)) for peer in pool]
        finally:
            for peer in pool:
                peer.socket.close()
        assert named == [0, 1, 2]
        assert shared == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_s2_results_are_sent_again_after_a_reconnect(tmp_path: Path) -> None:
    """S2: the reply to a pull is lost, its results come over a new connection: counted once, not delivered again."""
    with run(tmp_path) as node:
        publish(node, 2)
        with Peer(node.consumer) as first:
            assert offsets(first.pull("billing", maxBatchSize=2)) == [0, 1]
            first.socket.sendall(first.pull_frame("billing", linger_ms=JAVA_LINGER_MS, result=done([0, 1])))
        wait_until(
            node, lambda: watermark_now(node) == 2 and not node.node.in_force.groups["billing"].stats().parked_pulls
        )
        publish(node, 1)
        with Peer(node.consumer) as second:
            assert offsets(second.pull("billing", result=done([0, 1]))) == [2]
            assert second.submit(done([0, 1]), done(2))
        assert count(node, "pyddmq_finished_messages_total") == 3
        assert count(node, "pyddmq_repeated_successes_total") == 4
        assert watermark(node) == 3


def watermark_now(node: RunningNode) -> int:
    """As `watermark`, on the node's own thread."""
    return opened_of(node.node).progress.trackers["billing", "orders", 0].watermark


def test_s2_pull_with_bad_results_may_be_sent_for_ever(tmp_path: Path) -> None:
    """S2: a library sends results again until a pull succeeds, so one that can never count must not fail its pull."""
    with run(tmp_path) as node, Peer(node.consumer) as consumer:
        bad = chain(
            result("nobody", "orders", QID, [0]),
            result("billing", "unknown", QID, [0]),
            result("billing", "orders", "old_cluster_0", [0]),
            consumer_idl.ConsumeResult(successOffsets=[1], failOffsets=[]),
            done([1 << 40]),
        )
        for number in range(20):
            publish(node, 1)
            assert offsets(consumer.pull("billing", maxBatchSize=JAVA_BATCH, result=bad)) == [number]
        assert watermark(node) == 0
        assert count(node, "pyddmq_stale_results_total", "unknown_offset") == 20


def test_s2_chain_of_many_batches_counts_whole(tmp_path: Path) -> None:
    """S2: results of every batch since the last reply ride on one pull, linked by nextResult, over several topics."""
    with run(tmp_path) as node, Peer(node.consumer) as consumer:
        publish(node, 3)
        publish(node, 2, "notes")
        for topic, most in (("orders", 1), ("orders", 1), ("orders", 1), ("notes", 2)):
            consumer.pull("billing", topic=topic, maxBatchSize=most)
        results = chain(done(0), done(2), done(1), done([0, 1], "notes"))
        assert offsets(consumer.pull("billing", linger_ms=20, result=results)) == []
        finished = node.call(
            lambda: [
                opened_of(node.node).progress.trackers["billing", topic, 0].watermark for topic in ("orders", "notes")
            ]
        )
        assert finished == [3, 2]


def test_s2_offsets_that_a_batch_does_not_list_time_out(tmp_path: Path) -> None:
    """S2: the batch processor names some offsets only; the others are neither acked nor failed and come again."""
    for timeout_ms in TIMEOUTS_MS:
        with run(tmp_path / str(timeout_ms), timeout_ms=timeout_ms) as node, Peer(node.consumer) as consumer:
            publish(node, 3)
            assert offsets(consumer.pull("billing")) == [0, 1, 2]
            again = offsets(consumer.pull("billing", result=result("billing", "orders", QID, [1], [])))
            assert count(node, "pyddmq_failed_attempts_total") == 0
            assert count(node, "pyddmq_timeout_attempts_total") >= 1
        if set(again) <= {0, 2}:
            break
    else:
        pytest.fail("the listed offset came again, however long it had")


def test_s3_skipped_message_is_decided_by_the_timeout(tmp_path: Path) -> None:
    """S3: a processor that answers SKIP reports nothing: the timeout brings the message again, as a fail does."""
    for timeout_ms in TIMEOUTS_MS:
        with run(tmp_path / str(timeout_ms), timeout_ms=timeout_ms) as node, Peer(node.consumer) as consumer:
            publish(node, 1)
            assert offsets(consumer.pull("billing")) == [0]
            assert offsets(consumer.pull("billing")) == [0]
            failed = result("billing", "orders", QID, [], [0])
            assert offsets(consumer.pull("billing", result=failed)) == [0]
            if consumer.submit(done(0)):
                assert watermark(node) == 1
                break
    else:
        pytest.fail("no success was in time, however long it had")


def test_s4_close_submits_the_rest_up_to_three_times(tmp_path: Path) -> None:
    """S4: the same submit three times over is true each time and counts once; then the connection goes."""
    with run(tmp_path) as node:
        publish(node, 4)
        with Peer(node.consumer) as consumer:
            assert len(consumer.pull("billing").messages) == 4
            for _ in range(3):
                assert consumer.submit(done([0, 1]), done(2))
        assert count(node, "pyddmq_finished_messages_total") == 3
        assert watermark(node) == 3


def test_s4_interrupted_client_leaves_its_messages_to_others(tmp_path: Path) -> None:
    """S4: a pool that interrupts its threads closes connections amid a batch; nothing is lost with them."""
    with run(tmp_path, timeout_ms=SHORT) as node:
        publish(node, 2)
        with Peer(node.consumer) as interrupted:
            assert offsets(interrupted.pull("billing")) == [0, 1]
        with Peer(node.consumer) as other:
            again: list[int] = []
            while len(again) < 2:
                again += offsets(other.pull("billing"))
            assert again == [0, 1]


def test_s5_low_level_client_of_a_pulled_group_is_refused(tmp_path: Path) -> None:
    """S5: its fetches get a code and no queue, its acks false; it passes over nothing."""
    with run(tmp_path) as node, Peer(node.consumer) as consumer:
        publish(node, 1)
        names = {"consumerId": "1@host#0", "groupId": "billing", "cluster": "pyddmq"}
        for _ in range(5):
            request = consumer_idl.FetchRequest(**names, fetchOffset={"orders": {QID: 0}})
            reply = consumer.call("fetch", request=request).value
            assert (reply.code, reply.results) == (PullCode.NOT_LOW_LEVEL, [])
            assert (
                consumer.call("ack", result=consumer_idl.AckResult(**names, offsets={"orders": {QID: 1}})).value
                is False
            )
        assert offsets(consumer.pull("billing")) == [0], "an ack of this kind passes over nothing"


def test_s5_low_level_client_fetches_and_acks(tmp_path: Path) -> None:
    """S5: positions rebuilt from each reply, acks of offset + 1 now and then and at its end, no sleep when empty."""
    low = "topics: {orders: {queues: 2}}\ngroups: [{group: low, topics: [{topic: orders, actions: [LowLevel]}]}]\n"
    names = {"consumerId": "1@host#0", "groupId": "low", "cluster": "pyddmq"}
    with RunningNode(NODE % "" + low, tmp_path) as node, Peer(node.consumer) as consumer:
        publish(node, 20)
        positions: dict[str, dict[str, int]] = {}
        acks: dict[str, dict[str, int]] = {}
        seen: list[bytes] = []
        for _ in range(10):
            request = consumer_idl.FetchRequest(**names, fetchOffset=positions, maxBatchSize=8, maxLingerTime=50)
            rows = consumer.call("fetch", request=request).value.results
            positions = {}
            for row in rows:
                positions.setdefault(row.topic, {})[row.qid] = row.nextRequestOffset
                for message in row.messages:
                    seen.append(message.value)
                    acks.setdefault(row.topic, {})[row.qid] = message.offset + 1
        assert sorted(seen) == sorted(b"%d" % number for number in range(20))
        assert consumer.call("ack", result=consumer_idl.AckResult(**names, offsets=acks)).value is True
        [stats] = consumer.call("getConsumeStats", request=consumer_idl.ConsumeStatsRequest(group="low")).value
        assert stats.consumeOffsets == stats.produceOffsets


def test_s6_empty_reply_is_followed_by_the_next_pull(tmp_path: Path) -> None:
    """S6: an empty reply has a context without fields; the client pauses and pulls again over the same connection."""
    with run(tmp_path) as node, Peer(node.consumer) as consumer:
        for _ in range(5):
            response = consumer.pull("billing", maxBatchSize=GO_BATCH, linger_ms=GO_LINGER_MS)
            assert response.messages == []
            assert (response.context.groupId, response.context.topic, response.context.qid) == (None, None, None)
        publish(node, 1)
        while not (found := offsets(consumer.pull("billing", maxBatchSize=GO_BATCH, linger_ms=GO_LINGER_MS))):
            pass
        assert found == [0]


def test_s6_client_that_gives_up_a_waiting_pull_takes_no_message_with_it(tmp_path: Path) -> None:
    """S6: the client's own timeout closes the connection while the pull waits; what comes then goes to others."""
    with run(tmp_path) as node:
        with Peer(node.consumer) as gone:
            gone.socket.sendall(gone.pull_frame("billing", linger_ms=LONG))
            wait_until(node, lambda: node.node.in_force.groups["billing"].stats().parked_pulls == 1)
        wait_until(node, lambda: node.node.in_force.groups["billing"].stats().parked_pulls == 0)
        publish(node, 1)
        with Peer(node.consumer) as again:
            assert offsets(again.pull("billing")) == [0]
        assert count(node, "pyddmq_delivered_messages_total") == 1


def test_s7_batch_is_no_larger_than_asked(tmp_path: Path) -> None:
    """S7: no more messages than the client has routines to process them, batch after batch, one result each."""
    with run(tmp_path) as node, Peer(node.consumer) as consumer:
        publish(node, 7)
        found: list[list[int]] = []
        last = None
        while sum(map(len, found)) < 7:
            found.append(offsets(consumer.pull("billing", topic="orders", maxBatchSize=3, result=last)))
            last = done(found[-1])
        assert found == [[0, 1, 2], [3, 4, 5], [6]]
        assert watermark(node) == 6


def test_s7_result_survives_a_pull_that_is_refused(tmp_path: Path) -> None:
    """S7: the result of a refused pull counts, and again with the next one it changes nothing."""
    with run(tmp_path) as node, Peer(node.consumer) as consumer:
        publish(node, 2)
        assert offsets(consumer.pull("billing", maxBatchSize=1)) == [0]
        assert consumer.refused_pull("resting", result=done(0)).code == PullCode.GROUP_DISABLED
        assert watermark(node) == 1
        assert offsets(consumer.pull("billing", result=done(0))) == [1]
        assert count(node, "pyddmq_finished_messages_total") == 1


def test_s8_last_result_counts_though_nobody_reads_its_answer(tmp_path: Path) -> None:
    """S8: the client submits once and is gone; what it had not started is not reported and comes again."""
    for timeout_ms in TIMEOUTS_MS:
        with run(tmp_path / str(timeout_ms), timeout_ms=timeout_ms) as node:
            publish(node, 3)
            with Peer(node.consumer) as leaving:
                assert offsets(leaving.pull("billing")) == [0, 1, 2]
                leaving.socket.sendall(leaving.frame("submit", result=done(0)))
            counter = partial(node.node.runtime.metrics.value, "pyddmq_requests_total", "consumer", "submit")
            until(partial(node.call, counter), "the submit")
            if watermark(node) == 0:
                continue
            again: list[int] = []
            with Peer(node.consumer) as other:
                while len(again) < 2:
                    again += offsets(other.pull("billing"))
            assert again == [1, 2]
            break
    else:
        pytest.fail("no success was in time, however long it had")


def test_s9_producer_sends_again_when_its_answer_was_lost(tmp_path: Path) -> None:
    """S9: the client gives up after 100 ms and sends again over another connection: both copies are there."""
    with run(tmp_path) as node:
        message = producer_idl.Message(topic="orders", body=b"once", key="abcdefghij012345", partitionId=0)
        with Peer(node.producer) as impatient:
            impatient.socket.sendall(impatient.frame("sendSync", message=message, timeout=50))
        with Peer(node.producer) as patient:
            wait_until(node, lambda: opened_of(node.node).store.topics["orders"].queues[0].max_offset == 1)
            assert patient.call("sendSync", message=message, timeout=50).value.code == ResultCode.OK
        with Peer(node.consumer) as consumer:
            copies = consumer.pull("billing").messages
        assert [(each.key, each.value) for each in copies] == [("abcdefghij012345", b"once")] * 2


def test_s9_delayed_message_that_is_sent_again_is_one(tmp_path: Path) -> None:
    """S9: over another connection, with the same uuid: the same id, one message, and one cancel ends it."""
    with run(tmp_path) as node:
        message = producer_idl.DelayMessage(
            topic="orders", body=b"later", action=1, timestamp=int(time.time()) + 60, dmsgtype=2, uuid=DELAY_UUID
        )
        with Peer(node.producer) as impatient:
            impatient.socket.sendall(impatient.frame("sendDelaySync", delayMessage=message, timeout=50))
        with Peer(node.producer) as patient:
            topics = opened_of(node.node).store.topics
            wait_until(node, lambda: "rmq_sys_wheel_timer" in topics and opened_of(node.node).timers.pending == 1)
            answer = patient.call("sendDelaySync", delayMessage=message, timeout=50).value
            assert answer.code == ResultCode.OK
            assert topics["rmq_sys_wheel_timer"].queues[0].max_offset == 1
            cancel = producer_idl.DelayMessage(
                topic="orders", body=b"-", action=2, uniqDelayMsgId=answer.uniqDelayMsgId
            )
            outcomes = [patient.call("sendDelaySync", delayMessage=cancel, timeout=50).value for _ in range(2)]
        assert [(each.code, each.cancelOutcome) for each in outcomes] == [(ResultCode.OK, 1)] * 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "orders", "body": b""}, ResultCode.FAIL_ILLEGAL_MSG),
        ({"topic": "orders", "body": b"x", "properties": {"UNIQ_KEY": "1"}}, ResultCode.FAIL_ILLEGAL_MSG),
        ({"topic": "unknown", "body": b"x"}, ResultCode.FAIL_TOPIC_NOT_EXIST),
    ],
)
def test_s9_refusals_leave_the_node_in_rotation(tmp_path: Path, fields: dict[str, Any], code: ResultCode) -> None:
    """S9: what no retry can help has a code from 11 to 15, so that a library does not take the node for broken."""
    assert 11 <= code <= 15
    with run(tmp_path) as node, Peer(node.producer) as producer:
        for _ in range(3):
            message = producer_idl.Message(**fields)
            assert producer.call("sendSync", message=message, timeout=50).value.code == code
        assert producer.send("orders", b"good").code == ResultCode.OK
