"""Rates of the node and of topics, and the one second try of a send above one (R94, R95), in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from pyddmq.codes import ResultCode
from tests.hostile.sim import HostileWorld, Raw
from tests.insides import opened_of
from tests.simulation.wire import Codec, consumer_idl, producer_idl

YAML = """
node:
  {segmentBytes: 1048576, maxMessageBytes: 500000, producerPort: 9613, consumerPort: 9713%s}
topics:
  orders: {queues: 1, maxTps: 10%s}
  notes: {queues: 1}
groups:
  - group: billing
    topics: [{topic: orders, maxPullBatchSize: 100}, {topic: notes, maxPullBatchSize: 100}]
"""
REFUSED = ResultCode.FAIL_REFUSED_BY_RATE_LIMITER
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"


def world(node: str = "", topic: str = "") -> HostileWorld:
    """A node whose topic `orders` takes ten messages a second."""
    return HostileWorld(YAML % (node, topic))


def send(client: Raw, body: bytes, *, timeout_ms: int = 500, topic: str = "orders") -> bytes:
    """The frame of a send."""
    message = producer_idl.Message(topic=topic, body=body, hashId=0, partitionId=0)
    return client.codec.call("sendSync", 1, message=message, timeout=timeout_ms)


def spend(world: HostileWorld, client: Raw, topic: str = "orders", count: int = 10) -> None:
    """Take the tokens that a topic has."""
    client.transport.write(b"".join(send(client, b"spent", topic=topic) for _ in range(count)))
    world.run(0.01)
    assert codes(client) == [0] * count
    client.replies.clear()


def codes(client: Raw) -> list[int]:
    """Codes of the answers so far."""
    return [reply.value.code for reply in client.replies]


def stored(world: HostileWorld) -> list[bytes]:
    """Bodies of what is in `orders`, in its order, without what `spend` sent."""
    client = world.connect("consumer")
    request = consumer_idl.PullRequest(groupId="billing", topic="orders", maxLingerTime=20)
    client.transport.write(client.codec.call("pull", 1, request=request))
    world.run(0.5)
    return [message.value for message in client.replies[0].value.messages if message.value != b"spent"]


@pytest.mark.parametrize(
    ("interval", "timeout_ms", "answered_after"),
    [
        ("", 500, 0.1),  # R95: at most 100 ms
        ("", 70, 0.06),  # 10 ms before the timeout
        ("", 20, 0.0),  # nothing left to wait in
        ("", 0, 0.0),
        (", limiterFailureRetryInterval: 0", 500, 0.0),
        (", limiterFailureRetryInterval: 300", 0, 0.3),
        (", limiterFailureRetryInterval: -1", 500, 0.1),
    ],
)
def test_send_above_its_rate_is_tried_once_more(interval: str, timeout_ms: int, answered_after: float) -> None:
    """When, as R95 has it; and what finds a token then is stored."""
    here = world(topic=interval)
    client = here.connect("producer")
    spend(here, client)
    client.transport.write(send(client, b"limited", timeout_ms=timeout_ms))
    if answered_after:
        here.run(answered_after - 0.005)
        assert codes(client) == []
        here.run(0.01)
    else:
        here.run(0.005)
    # A token comes every 100 ms.
    assert codes(client) == [0 if answered_after >= 0.1 else REFUSED]
    assert here.node.runtime.metrics.value("pyddmq_sends_waited_total") == bool(answered_after)
    assert stored(here) == [b"limited"] * (answered_after >= 0.1)


def test_second_try_is_the_last() -> None:
    """Two messages for one token: the other one is refused, counted once, and nothing of it stays."""
    here = world()
    first, second = here.connect("producer"), here.connect("producer")
    spend(here, first)
    held = [each.held_bytes for _, each in here.node.connections()]
    first.transport.write(send(first, b"one"))
    second.transport.write(send(second, b"one"))
    here.run(0.3)
    assert sorted(codes(first) + codes(second)) == [0, REFUSED]
    assert here.node.runtime.metrics.value("pyddmq_sends_refused_total", str(int(REFUSED))) == 1
    assert [each.held_bytes for _, each in here.node.connections()] == held
    assert stored(here) == [b"one"]


def test_messages_behind_one_that_waits_keep_their_order() -> None:
    """Sends of one connection take effect in their order, whatever topic waits (D18); others are not held up."""
    here = world(topic=", limiterFailureRetryInterval: 250")
    client, other = here.connect("producer"), here.connect("producer")
    spend(here, client)
    one, two, three = (send(client, b"%d" % number) for number in range(3))
    late: dict[str, Any] = {"topic": "notes", "body": b"x", "action": 1, "dmsgtype": 2, "uuid": UUID}
    late["timestamp"] = here.node.parts.seams.clock.wall_ms() // 1000
    delayed = client.codec.call("sendDelaySync", 1, delayMessage=producer_idl.DelayMessage(**late), timeout=100)
    note = producer_idl.Message(topic="notes", body=b"note", hashId=0, partitionId=0)
    batch = client.codec.call("sendBatchSync", 1, messages=[note, note])
    client.transport.write(one + two + batch + delayed + three)
    here.run(0.2)
    other.transport.write(send(other, b"other", topic="notes"))
    here.run(0.01)
    assert codes(client) == []
    assert codes(other) == [0]
    here.run(1.5)
    assert codes(client) == [0] * 5
    assert stored(here) == [b"0", b"1", b"2"]


def test_send_of_a_later_turn_follows_one_that_waits() -> None:
    """It is not part of the turn in which it arrived any more when it is taken."""
    here = world(topic=", limiterFailureRetryInterval: 250")
    client, other = here.connect("producer"), here.connect("producer")
    spend(here, client)
    client.transport.write(send(client, b"one"))
    here.run(0.05)
    other.transport.write(send(other, b"other", topic="notes"))
    client.transport.write(send(client, b"two"))
    here.run(0.01)
    assert (codes(client), codes(other)) == ([], [0])
    here.run(1.5)
    assert codes(client) == [0, 0]
    assert stored(here) == [b"one", b"two"]


def test_client_that_has_gone_stores_nothing_later() -> None:
    """It sends again elsewhere, so a message of its that waits would be a second copy."""
    here = world()
    gone, other = here.connect("producer"), here.connect("producer")
    spend(here, other)
    gone.transport.write(send(gone, b"gone") + send(gone, b"behind"))
    here.run(0.02)
    gone.transport.abort()
    here.run(0.5)
    assert stored(here) == []
    assert here.node.runtime.metrics.value("pyddmq_sends_refused_total", str(int(REFUSED))) == 0


def test_as_many_wait_as_are_allowed() -> None:
    """Beyond limiterFailureRetryQueueSize, or where memory is short, the answer comes at once."""
    here = world(node=", limiterFailureRetryQueueSize: 1")
    clients = [here.connect("producer") for _ in range(2)]
    spend(here, clients[0])
    for client in clients:
        client.transport.write(send(client, b"x"))
        here.run(0.01)
    assert [codes(client) for client in clients] == [[], [REFUSED]]
    here.run(0.5)
    assert codes(clients[0]) == [0]


def test_rate_of_the_node_is_over_all_topics() -> None:
    """R94: the topic first, then the node; a message that one of them refuses costs the other nothing."""
    here = world(node=", maxTps: 12")
    client = here.connect("producer")
    spend(here, client)
    spend(here, client, "notes", 2)
    client.transport.write(send(client, b"x", topic="notes", timeout_ms=0) + send(client, b"x", timeout_ms=0))
    here.run(0.01)
    assert codes(client) == [REFUSED, REFUSED]
    assert "node" in client.replies[0].value.msg
    assert "orders" in client.replies[1].value.msg
    here.run(0.5)
    client.replies.clear()
    # Half a second brought five tokens to the topic and six to the node.
    client.transport.write(b"".join(send(client, b"y", timeout_ms=0) for _ in range(6)))
    client.transport.write(send(client, b"y", topic="notes", timeout_ms=0) * 2)
    here.run(0.01)
    assert codes(client) == [0] * 5 + [REFUSED] + [0, REFUSED]


@pytest.mark.parametrize("method", ["sendBatchSync", "sendDelaySync", "sendHalfSync"])
def test_other_sends_are_tried_once_more_too(method: str) -> None:
    """A batch only where the topic says when, as it has no timeout; all of it, or nothing."""
    here = world(topic=", limiterFailureRetryInterval: 200")
    client = here.connect("producer")
    spend(here, client)
    if method == "sendBatchSync":
        message = producer_idl.Message(topic="orders", body=b"batch", hashId=0, partitionId=0)
        arguments: dict[str, Any] = {"messages": [message, message]}
    elif method == "sendHalfSync":
        message = producer_idl.Message(topic="orders", body=b"half", hashId=0, partitionId=0)
        arguments = {"message": message, "producerGroup": "shop", "timeout": 100}
    else:
        fields = {"topic": "orders", "body": b"later", "action": 1, "dmsgtype": 2, "uuid": UUID}
        fields["timestamp"] = here.node.parts.seams.clock.wall_ms() // 1000
        arguments = {"delayMessage": producer_idl.DelayMessage(**fields), "timeout": 100}
    codec = Codec(producer_idl.TransactionProducerService)
    client.codec = codec
    client.transport.write(codec.call(method, 1, **arguments))
    here.run(0.1)
    assert codes(client) == []
    here.run(0.2)
    assert codes(client) == [0]


@pytest.mark.parametrize("method", ["sendSync", "sendDelaySync", "sendHalfSync"])
def test_second_try_that_fails_by_a_fault_is_answered(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an exception, over a connection whose next call is served."""
    here = world(topic=", limiterFailureRetryInterval: 200")
    client = here.connect("producer")
    spend(here, client)
    codec = client.codec = Codec(producer_idl.TransactionProducerService)
    message = producer_idl.Message(topic="orders", body=b"x", hashId=0, partitionId=0)
    arguments: dict[str, Any] = {"message": message, "timeout": 100}
    if method == "sendHalfSync":
        arguments["producerGroup"] = "shop"
    elif method == "sendDelaySync":
        fields = {"topic": "orders", "body": b"later", "action": 1, "dmsgtype": 2, "uuid": UUID}
        fields["timestamp"] = here.node.parts.seams.clock.wall_ms() // 1000
        arguments = {"delayMessage": producer_idl.DelayMessage(**fields), "timeout": 100}
    client.transport.write(codec.call(method, 1, **arguments))
    here.run(0.1)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patched:
        patched.setattr("proxy.services.message_checks.MessageChecks.check", broken)
        patched.setattr("proxy.services.message_checks.MessageChecks.charge", broken)
        here.run(0.2)
    [reply] = client.replies
    assert "a fault" in str(reply.error)
    client.replies.clear()
    here.run(1)
    client.transport.write(codec.call("sendSync", 2, message=message, timeout=0))
    here.run(0.1)
    assert codes(client) == [0]


def test_half_behind_a_send_that_waits_keeps_its_place() -> None:
    """It does not overtake what its connection sent before (D18)."""
    here = world(topic=", limiterFailureRetryInterval: 250")
    client = here.connect("producer")
    spend(here, client)
    client.codec = Codec(producer_idl.TransactionProducerService)
    message = producer_idl.Message(topic="orders", body=b"half", hashId=0, partitionId=0)
    half = client.codec.call("sendHalfSync", 2, message=message, producerGroup="shop", timeout=100)
    client.transport.write(send(client, b"first"))
    here.run(0.15)
    # A token has come by now, but the send before it waits on.
    client.transport.write(half)
    here.run(0.05)
    assert codes(client) == []
    assert "RMQ_SYS_TRANS_HALF_TOPIC" not in opened_of(here.node).store.topics
    here.run(0.1)
    # A token came every 100 ms, so the half found one when its turn came.
    assert codes(client) == [0, 0]
    assert opened_of(here.node).store.topics["RMQ_SYS_TRANS_HALF_TOPIC"].queues[0].max_offset == 1
