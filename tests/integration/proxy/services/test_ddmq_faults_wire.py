"""Faults of DDMQ's API and wire that must not come back (docs/ddmq-faults.md, W1 to W11, W25, W35), on real sockets."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from pathlib import Path

import pytest

from broker.log.put import Put
from pyddmq.codes import PullCode
from pyddmq.testing import NetworkFaults
from tests.insides import opened_of
from tests.integration.ddmq_tools import NODE, Peer, chain, result
from tests.patient import LINGER_MS, until
from tests.running_node import RunningNode
from tests.simulation.caller import Caller
from tests.simulation.world import World

TOPICS = """
topics: {orders: {queues: 1}, notes: {queues: 1}}
groups:
  - group: first
    topics: [{topic: orders, maxPullBatchSize: 32}, {topic: notes, maxPullBatchSize: 32}]
  - group: second
    topics: [{topic: orders, maxPullBatchSize: 32}]
"""
QID = "pyddmq_broker-0_0"


def run(data: Path, settings: str = "", topics: str = TOPICS) -> RunningNode:
    """A node with further settings of its `node` section, as `, name: value`."""
    return RunningNode(NODE % settings + topics, data)


def test_consume_stats_are_found_with_and_without_a_topic(tmp_path: Path) -> None:
    """W1: group and topic are not mixed up; the committed offset moves with the acks; no topic means every topic."""
    with run(tmp_path) as node, Peer(node.producer) as producer, Peer(node.consumer) as consumer:
        for topic in ("orders", "orders", "notes"):
            producer.send(topic)
        consumer.pull("first", topic="orders")
        assert consumer.submit(result("first", "orders", QID, [0]))
        [row] = consumer.stats("first", "orders")
        assert (row.group, row.topic, row.consumeOffsets, row.produceOffsets) == ("first", "orders", {QID: 1}, {QID: 2})
        assert {row.topic: row.produceOffsets for row in consumer.stats("first")} == {
            "orders": {QID: 2},
            "notes": {QID: 1},
        }
        assert consumer.stats("first", "unknown") == []


def test_submit_is_false_for_what_it_did_not_take(tmp_path: Path) -> None:
    """W2: unknown group, topic, queue and offset, and what was never delivered, are told to the client."""
    with run(tmp_path) as node, Peer(node.producer) as producer, Peer(node.consumer) as consumer:
        producer.send("orders")
        assert not consumer.submit(result("first", "orders", QID, [0])), "never delivered"
        consumer.pull("first")
        assert not consumer.submit(result("nobody", "orders", QID, [0]))
        assert not consumer.submit(result("first", "unknown", QID, [0]))
        assert not consumer.submit(result("first", "orders", "pyddmq_broker-0_7", [0]))
        assert not consumer.submit(result("first", "orders", QID, [5]))
        assert consumer.submit(result("first", "orders", QID, [0]))
        assert consumer.submit(result("first", "orders", QID, [0])), "finished already is no failure"
        assert not consumer.submit(result("first", "orders", QID, [], [0])), "a fail comes too late"


def test_every_element_of_a_chain_counts_for_its_own_group(tmp_path: Path) -> None:
    """W4, W11: a chain over two groups finishes an offset of each, and the counters see both elements."""
    with run(tmp_path) as node, Peer(node.producer) as producer, Peer(node.consumer) as consumer:
        producer.send("orders")
        producer.send("orders")
        for group in ("first", "second"):
            assert len(consumer.pull(group).messages) == 2
        assert consumer.submit(result("first", "orders", QID, [0]), result("second", "orders", QID, [1]))
        trackers = opened_of(node.node).progress.trackers
        finished = {
            group: [trackers[group, "orders", 0].is_finished(offset) for offset in (0, 1)]
            for group in ("first", "second")
        }
        assert finished == {"first": [True, False], "second": [False, True]}
        count = node.node.runtime.metrics.value
        assert [count("pyddmq_finished_messages_total", group, "orders") for group in finished] == [1, 1]


def test_null_contexts_and_unknown_groups_do_not_stop_a_chain(tmp_path: Path) -> None:
    """W5, W11: what cannot be attributed is counted by reason; the good element behind it and the pull count."""
    with run(tmp_path) as node, Peer(node.producer) as producer, Peer(node.consumer) as consumer:
        producer.send("orders", b"1")
        consumer.pull("first")
        producer.send("orders", b"2")
        nameless = result("first", "orders", QID, [0])
        nameless.context = None
        results = chain(nameless, result("nobody", "orders", QID, [0]), result("first", "orders", QID, [0]))
        assert [message.value for message in consumer.pull("first", result=results).messages] == [b"2"]
        assert opened_of(node.node).progress.trackers["first", "orders", 0].watermark == 1
        count = node.node.runtime.metrics.value
        assert count("pyddmq_results_ignored_total", "null_context") == 1
        assert count("pyddmq_results_ignored_total", "no_such_group") == 1


def test_what_a_pull_can_never_get_is_told_by_code(tmp_path: Path) -> None:
    """W6: no such group, no such topic, a topic or a whole group that is disabled, and overload each have a code."""
    groups = """
topics: {orders: {queues: 1}, notes: {queues: 1}}
groups:
  - {group: first, topics: [{topic: orders}, {topic: notes, enabled: false}]}
  - {group: resting, topics: [{topic: orders, enabled: false}]}
"""
    with run(tmp_path, ", maxParkedPulls: 1", groups) as node, Peer(node.consumer) as consumer:
        refusals = [
            consumer.refused_pull("nobody"),
            consumer.refused_pull("first", topic="unknown"),
            consumer.refused_pull("first", topic="notes"),
            consumer.refused_pull("resting"),
        ]
        with Peer(node.consumer) as waiting:
            waiting.socket.sendall(waiting.pull_frame("first", linger_ms=LINGER_MS))
            until(lambda: node.call(lambda: node.node.in_force.groups["first"].stats().parked_pulls), "the pull")
            refusals.append(consumer.refused_pull("first"))
    assert [refusal.code for refusal in refusals] == [
        PullCode.NO_SUCH_GROUP,
        PullCode.NO_SUCH_TOPIC,
        PullCode.GROUP_DISABLED,
        PullCode.GROUP_DISABLED,
        PullCode.OVERLOADED,
    ]
    for refusal, words in zip(refusals, ("'nobody'", "it has orders", "'notes'", "enable", "fewer"), strict=True):
        assert words in refusal.message


def test_linger_has_an_upper_bound(tmp_path: Path) -> None:
    """W7: a client cannot have its pull parked for weeks; the node's maxLingerTime ends it."""
    with run(tmp_path, ", maxLingerTime: 50") as node, Peer(node.consumer) as consumer:
        response = consumer.pull("first", linger_ms=2**31 - 1)
        assert response.messages == []
        assert node.call(lambda: node.node.in_force.groups["first"].stats().parked_pulls) == 0


@pytest.mark.parametrize("linger_ms", [0, -1, 1, 19, None])
def test_linger_has_a_lower_bound(linger_ms: int | None) -> None:
    """W7: whatever a client asks for, an empty reply takes 20 ms, so that nobody spins."""
    world = World(1, faults=NetworkFaults(delay_ms_max=0, fragment_share=0))
    world.start()
    caller = Caller(world, "10.9.0.1")
    caller.pull("by-key", linger_ms=20)
    began = world.loop.time()
    assert caller.pull("by-key", linger_ms=linger_ms) == []  # type: ignore[arg-type]
    assert 0.0195 <= world.loop.time() - began <= 0.03
    world.kill()


def test_parsed_body_is_handed_out_as_stored(tmp_path: Path) -> None:
    """W21: spaces, order of keys, repeated keys and odd numbers come as they were sent, though Json read them."""
    topics = """
topics: {orders: {queues: 1}}
groups:
  - group: first
    topics: [{topic: orders, actions: [Json, Async, PullServer], orderKey: $.b}]
"""
    body = b' {"b" : 1.50e2,\t"a": 9007199254740993, "b": "\\u00e9", "c": [ ] }\n'
    with run(tmp_path, topics=topics) as node, Peer(node.producer) as producer, Peer(node.consumer) as consumer:
        assert producer.send("orders", body).code == 0
        assert [message.value for message in consumer.pull("first").messages] == [body]


def test_transformed_body_is_handed_out_where_asked(tmp_path: Path) -> None:
    """W21: what Transit made keeps numbers as they were sent; another group of the topic gets the body as stored."""
    topics = """
topics: {orders: {queues: 1}}
groups:
  - group: first
    topics:
      - topic: orders
        actions: [Json, Transit, Async, PullServer]
        options: {Transit: {fields: {$.n: $.a.n, $.m: $.a.m}}, PullServer: {body: transformed}}
  - group: second
    topics: [{topic: orders, actions: [Json, Async, PullServer]}]
"""
    body = b' {"a": {"n": 9223372036854775808, "m": 1e400}, "b": 0.10}'
    with run(tmp_path, topics=topics) as node, Peer(node.producer) as producer, Peer(node.consumer) as consumer:
        assert producer.send("orders", body, key="k", tags="red", properties={"p": "1"}).code == 0
        [made] = consumer.pull("first").messages
        assert (made.value, made.key, made.tag) == (b'{"n":9223372036854775808,"m":1e400}', "k", "red")
        assert made.properties == {"p": "1"}
        assert [message.value for message in consumer.pull("second").messages] == [body]
        assert consumer.submit(result("first", "orders", QID, [0]))


def test_reply_cap_counts_keys_and_properties(tmp_path: Path) -> None:
    """W8: no frame is longer than maxRecvMsgsLength, although the bodies alone would fit in one many times over."""
    with (
        run(tmp_path, ", maxRecvMsgsLength: 20000") as node,
        Peer(node.producer) as producer,
        Peer(node.consumer) as consumer,
    ):
        for _ in range(20):
            assert producer.send("orders", key="k" * 200, properties={"trace": "p" * 3200}).code == 0
        sizes, got = [], 0
        while got < 20:
            got += len(consumer.pull("first").messages)
            sizes.append(consumer.frame_bytes)
        assert max(sizes) <= 20_000
        assert len(sizes) == 4


def test_parked_pull_of_a_client_that_left_gets_nothing(tmp_path: Path) -> None:
    """W9: a message that arrives after the client closed goes to another one at once, and burns no retry."""
    with run(tmp_path) as node, Peer(node.producer) as producer:
        with Peer(node.consumer) as gone:
            gone.socket.sendall(gone.pull_frame("first", linger_ms=LINGER_MS))
            until(lambda: node.call(lambda: node.node.in_force.groups["first"].stats().parked_pulls), "the pull")
        producer.send("orders")
        with Peer(node.consumer) as alive:
            assert len(alive.pull("first").messages) == 1
        assert node.node.runtime.metrics.value("pyddmq_delivered_messages_total", "first", "orders") == 1


ONE_BY_ONE = """
topics: {orders: {queues: 1}}
groups:
  - group: first
    topics: [{topic: orders, maxPullBatchSize: 1, maxRetry: 0, timeout: 600000}]
"""
"""Each message is out alone, and has one attempt."""


def test_replies_that_never_left_are_no_deliveries(tmp_path: Path) -> None:
    """W9: what was queued for a client that did not read and closed is available at once; with maxRetry 0, still."""
    with run(tmp_path, topics=ONE_BY_ONE) as node, Peer(node.producer) as producer:
        for _ in range(30):
            assert producer.send("orders", bytes(400_000)).code == 0
        count = node.node.runtime.metrics.value
        with Peer(node.consumer, receive_bytes=32_768) as deaf:
            for _ in range(30):
                deaf.socket.sendall(deaf.pull_frame("first", linger_ms=LINGER_MS))
            until(lambda: count("pyddmq_delivered_messages_total", "first", "orders") == 30, "thirty deliveries")
        with Peer(node.consumer) as alive:
            offsets = [alive.pull("first").messages[0].offset]
            given_back = count("pyddmq_given_back_messages_total", "first", "orders")
            assert given_back > 5
            offsets += [alive.pull("first").messages[0].offset for _ in range(given_back - 1)]
        assert offsets == list(range(30 - given_back, 30))
        assert count("pyddmq_dead_letters_total") == 0


def test_replies_to_a_closed_connection_are_no_deliveries(tmp_path: Path) -> None:
    """W9: of the replies to pulls whose client is gone already, none counts as a delivery: all come to the next one."""
    with run(tmp_path, topics=ONE_BY_ONE) as node, Peer(node.producer) as producer:
        for _ in range(30):
            assert producer.send("orders").code == 0
        count = node.node.runtime.metrics.value
        with Peer(node.consumer) as hasty:
            hasty.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            hasty.stats("first")
            pulls = b"".join(hasty.pull_frame("first", linger_ms=LINGER_MS) for _ in range(30))

            def pull_and_close() -> None:
                # On the node's own thread, so that it reads the pulls when the connection is gone already.
                hasty.socket.sendall(pulls)
                hasty.socket.close()

            node.call(pull_and_close)
        with Peer(node.consumer) as alive:
            got = [alive.pull("first").messages[0].offset for _ in range(30)]
        assert sorted(got) == list(range(30))
        assert count("pyddmq_dead_letters_total") == 0


def test_names_that_clients_make_up_cost_no_memory(tmp_path: Path) -> None:
    """W10: no series, buffer or tracker is kept for a group, topic or queue that is not configured."""
    with run(tmp_path) as node, Peer(node.consumer) as consumer:

        def ask(number: int) -> None:
            name = f"made-up-{number}"
            consumer.refused_pull(name)
            consumer.refused_pull("first", topic=name)
            consumer.submit(result(name, "orders", QID, [0]), result("first", name, QID, [0]))
            consumer.submit(result("first", "orders", name, [0], [1]))
            consumer.stats("first", name)

        def kept() -> tuple[Counter[str], int, int]:
            series = Counter(spec.name for spec, _, _ in node.node.runtime.metrics)
            return series, len(node.node.in_force.groups), len(opened_of(node.node).progress.trackers)

        ask(0)
        before = node.call(kept)
        for number in range(1, 50):
            ask(number)
        assert node.call(kept) == before


def test_message_without_a_body_is_delivered_with_its_neighbours(tmp_path: Path) -> None:
    """W25: a record without a body, as another program may store it, comes as an empty value and stalls nothing."""
    with run(tmp_path) as node, Peer(node.consumer) as consumer:

        def store() -> None:
            topic = opened_of(node.node).store.topics["orders"]
            puts = [Put(topic, 0, body, b"") for body in (b"before", b"", b"after")]
            opened_of(node.node).store.append(puts, born_ms=0, born_host=bytes(8))

        node.call(store)
        response = consumer.pull("first")
        assert [message.value for message in response.messages] == [b"before", b"", b"after"]
        assert consumer.submit(result("first", "orders", response.context.qid, [0, 1, 2]))
        assert opened_of(node.node).progress.trackers["first", "orders", 0].watermark == 3


def test_queue_id_is_one_text_everywhere(tmp_path: Path) -> None:
    """W35: receipt, delivery, ack and statistics name a queue alike, whatever the cluster is called."""
    with (
        run(tmp_path, ", brokerCluster: east-1, brokerName: b.2") as node,
        Peer(node.producer) as producer,
        Peer(node.consumer) as consumer,
    ):
        receipt = producer.send("orders")
        response = consumer.pull("first")
        assert receipt.qid == response.context.qid == "east-1_b.2_0"
        assert consumer.submit(result("first", "orders", receipt.qid, [receipt.offset]))
        assert consumer.stats("first", "orders")[0].consumeOffsets == {receipt.qid: 1}
