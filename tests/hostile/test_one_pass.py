"""Calls that come in one turn of the loop are handled as a list, and each as if it had come alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.format.record import split
from broker.log.encoder import Encoder
from broker.log.put import Put
from broker.runtime.store_metrics import REFUSED
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.services.message_checks import MessageChecks
from proxy.services.producer_service import ProducerService
from pyddmq.codes import Repeat, ResultCode
from pyddmq.testing import NetworkFaults
from tests.access.world import AccessWorld, message
from tests.hostile.sim import MIB, HostileWorld, Raw
from tests.insides import opened_of
from tests.simulation.wire import Reply, consumer_idl, producer_idl
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.subscription import Subscription
from upstream.embedded.source import EmbeddedSource
from upstream.job import UpstreamJob

PRODUCER = "FEAAAAAAAAAA00000000"
OPEN = """access:
  networks: [{cidr: 127.0.0.0/8, principal: shop}]
  rules: [{principals: [shop], produce: [orders]}]
"""


def key_of(number: int) -> str:
    """Return the number of a message of one producer."""
    return f"{PRODUCER}{number:012X}"


def send_frame(client: Raw, seqid: int, body: bytes = b"x", **fields: Any) -> bytes:
    """Return a send of one message."""
    sent = producer_idl.Message(topic="orders", body=body, hashId=0, partitionId=0, **fields)
    return client.codec.call("sendSync", seqid, message=sent, timeout=1000)


class Passes(HostileWorld):
    """A node whose network delivers at once, so that what is written together is one pass."""

    def __init__(self) -> None:
        super().__init__()
        self.network.faults = NetworkFaults(delay_ms_max=0.0, fragment_share=0.0, window_bytes=MIB)

    def together(self, client: Raw, *frames: bytes) -> list[Reply]:
        """Send calls in one piece and return their answers."""
        seen = len(client.replies)
        client.transport.write(b"".join(frames))
        self.run(1.0)
        assert len(client.replies) == seen + len(frames)
        return client.replies[seen:]

    @property
    def bodies(self) -> list[bytes]:
        """What the topic holds, in the order of its queue."""
        store = opened_of(self.node).store
        units = store.topics["orders"].queues[0].read(0, 100)
        return [bytes(split(store.read(physical, size))[0]) for physical, size, _ in units]


def codes(replies: Sequence[Reply]) -> list[int]:
    """Return the codes of sends' answers."""
    return [reply.value.code for reply in replies]


def test_single_sends_of_many_clients_are_one_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are staged together and answered each with its own place."""
    world = Passes()
    clients = [world.connect("producer") for _ in range(8)]
    counts: list[int] = []
    append = opened_of(world.node).store.append

    def noted(puts: Sequence[Put], **how: Any) -> Any:
        counts.append(len(puts))
        return append(puts, **how)

    monkeypatch.setattr(opened_of(world.node).store, "append", noted)
    for client in clients:
        client.transport.write(send_frame(client, 1, client.transport.get_extra_info("sockname")[1].to_bytes(4, "big")))
    world.run(1.0)
    assert counts == [8]
    assert sorted(client.replies[0].value.offset for client in clients) == list(range(8))
    for client in clients:
        port = client.transport.get_extra_info("sockname")[1]
        assert world.bodies[client.replies[0].value.offset] == port.to_bytes(4, "big")


def test_equal_numbers_in_one_pass_are_one_message() -> None:
    """The second is answered as a repeat, with the first receipt."""
    world = Passes()
    client, other = world.connect("producer"), world.connect("producer")
    first = send_frame(client, 1, uniqKey=key_of(0))
    other.transport.write(first)
    one, two = world.together(client, first, send_frame(client, 2, uniqKey=key_of(0)))
    three = other.replies[0]
    assert codes([one, two, three]) == [ResultCode.OK] * 3
    assert {each.value.offset for each in (one, two, three)} == {0}
    assert sorted(each.value.repeat or 0 for each in (one, two, three)) == [
        0,
        Repeat.FIRST_RECEIPT,
        Repeat.FIRST_RECEIPT,
    ]
    assert world.bodies == [b"x"]


def test_refused_number_refuses_the_later_ones_of_its_producer_in_the_same_pass() -> None:
    """Else its producer's order would be broken when it comes again; what others send is stored."""
    world = Passes()
    client = world.connect("producer")
    replies = world.together(
        client,
        send_frame(client, 1, b"1", uniqKey=key_of(0)),
        send_frame(client, 2, b"", uniqKey=key_of(1)),
        send_frame(client, 3, b"3", uniqKey=key_of(2)),
        send_frame(client, 4, b"of nobody"),
    )
    assert codes(replies) == [ResultCode.OK, ResultCode.FAIL_ILLEGAL_MSG, ResultCode.FAIL_GAP, ResultCode.OK]
    assert world.bodies == [b"1", b"of nobody"]


def test_call_that_breaks_costs_no_other_of_its_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guilty one gets an internal error; those before and behind it are stored once, in their order."""
    world = Passes()
    client = world.connect("producer")
    check = MessageChecks.check

    def broken(checks: MessageChecks, messages: Sequence[Any], puts: list[Put], *more: Any, **how: Any) -> Any:
        at = next((at for at, each in enumerate(messages) if each.body == b"bad"), None)
        if at is None:
            return check(checks, messages, puts, *more, **how)
        check(checks, messages[:at], puts, *more, **how)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(MessageChecks, "check", broken)
    with capture_logs() as logs:
        first, bad, last = world.together(
            client, send_frame(client, 1, b"first"), send_frame(client, 2, b"bad"), send_frame(client, 3, b"last")
        )
    assert codes([first, last]) == [ResultCode.OK] * 2
    assert "a fault of ours" in str(bad.error)
    assert world.bodies == [b"first", b"last"]
    assert [line["method"] for line in logs if line["event"] == "call_failed"] == ["sendSync"]


def test_append_that_breaks_is_repeated_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that the log cannot take refuses its own call alone, and is counted once."""
    world = Passes()
    client = world.connect("producer")
    monkeypatch.setattr(opened_of(world.node).store._encoder, "_record_bytes_max", 20_000)
    replies = world.together(
        client, send_frame(client, 1, b"a"), send_frame(client, 2, bytes(30_000)), send_frame(client, 3, b"c")
    )
    assert codes(replies) == [ResultCode.OK, ResultCode.FAIL_ILLEGAL_MSG, ResultCode.OK]
    assert world.bodies == [b"a", b"c"]
    assert world.node.runtime.metrics.value(REFUSED, "illegal") == 1


def test_fault_in_the_append_costs_its_own_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is repeated call by call, and nothing of it is stored twice."""
    world = Passes()
    client = world.connect("producer")
    measure = Encoder.measure

    def broken(encoder: Encoder, puts: Sequence[Put], *more: Any, **how: Any) -> Any:
        if any(bytes(put.body) == b"bad" for put in puts):
            raise RuntimeError("a fault of ours")
        return measure(encoder, puts, *more, **how)

    monkeypatch.setattr(Encoder, "measure", broken)
    with capture_logs():
        first, bad, last = world.together(
            client, send_frame(client, 1, b"first"), send_frame(client, 2, b"bad"), send_frame(client, 3, b"last")
        )
    assert codes([first, last]) == [ResultCode.OK] * 2
    assert "a fault of ours" in str(bad.error)
    assert world.bodies == [b"first", b"last"]


def test_pass_that_breaks_ends_its_connections_and_no_other_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not happen; if it does, its clients send again, and others are served on."""
    world = Passes()
    client, other = world.connect("producer"), world.connect("producer")
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(ProducerService, "_is_plain", lambda *_: 1 // 0)
        client.transport.write(send_frame(client, 1))
        world.run(1.0)
    assert client.lost
    assert [line["event"] for line in logs if line["event"] == "call_failed"] == ["call_failed"]
    assert world.publish(other, b"later") == ResultCode.OK


@pytest.mark.parametrize("end", ["end of file", "reset", "both"])
def test_frame_that_came_before_the_end_of_its_connection_takes_effect(end: str) -> None:
    """A send is stored and results count, whoever is there to hear of it; a pull takes nothing."""
    world = Passes()
    producer, consumer = world.connect("producer"), world.connect("consumer")
    for body in (b"one", b"two"):
        world.publish(producer, body)
    request = consumer_idl.PullRequest(groupId="billing", maxBatchSize=1)
    [pulled] = world.together(consumer, consumer.codec.call("pull", 1, request=request))
    served = {each.address: each for _, each in world.node.connections()}
    result = consumer_idl.ConsumeResult(
        context=pulled.value.context, successOffsets=[pulled.value.messages[0].offset], failOffsets=[]
    )
    request.result = result
    ends: dict[str, list[Callable[[Connection], Any]]] = {
        "end of file": [Connection.eof_received],
        "reset": [lambda connection: connection.connection_lost(ConnectionResetError())],
        "both": [Connection.eof_received, lambda connection: connection.connection_lost(None)],
    }
    for client, frame in (
        (producer, send_frame(producer, 9, b"three")),
        (consumer, consumer.codec.call("pull", 2, request=request)),
    ):
        host, port = client.transport.get_extra_info("sockname")
        connection = served[f"{host}:{port}"]
        connection.data_received(frame)
        for happens in ends[end]:
            happens(connection)
    world.run(1.0)
    assert world.bodies == [b"one", b"two", b"three"]
    [group] = world.node.in_force.all_groups()
    [(_, committed, *_)] = group.offsets("orders")
    assert committed == {"pyddmq_broker-0_0": 1}
    assert group.stats().in_flight_total == 0


def test_call_that_is_handled_alone_does_not_overtake_those_before_it() -> None:
    """Statistics behind a submit on one connection show what it did, and a submit behind a pull counts behind it."""
    world = Passes()
    producer, consumer = world.connect("producer"), world.connect("consumer")
    for body in (b"one", b"two"):
        world.publish(producer, body)
    pulled = world.pull(consumer).value
    stats = consumer.codec.call("getConsumeStats", 3, request=consumer_idl.ConsumeStatsRequest(group="billing"))

    def submit(offset: int) -> bytes:
        result = consumer_idl.ConsumeResult(context=pulled.context, successOffsets=[offset], failOffsets=[])
        return consumer.codec.call("submit", 2, result=result)

    replies = world.together(consumer, stats, submit(0), stats, submit(1), stats)
    shown = [dict(replies[at].value[0].consumeOffsets)["pyddmq_broker-0_0"] for at in (0, 2, 4)]
    assert shown == [0, 1, 2]


def test_results_of_a_pass_count_before_any_pull_takes_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients pull in one turn, the second with a result: that is applied first."""
    world = Passes()
    producer, one, two = world.connect("producer"), world.connect("consumer"), world.connect("consumer")
    for body in (b"one", b"two"):
        world.publish(producer, body)
    request = consumer_idl.PullRequest(groupId="billing", maxBatchSize=1)
    [pulled] = world.together(two, two.codec.call("pull", 1, request=request))
    done: list[str] = []
    for name in ("apply", "pull"):
        original = getattr(ConsumerGroup, name)

        def noted(*given: Any, name: str = name, original: Callable[..., Any] = original) -> Any:
            done.append(name)
            return original(*given)

        monkeypatch.setattr(ConsumerGroup, name, noted)
    one.transport.write(one.codec.call("pull", 1, request=request))
    request.result = consumer_idl.ConsumeResult(
        context=pulled.value.context, successOffsets=[pulled.value.messages[0].offset], failOffsets=[]
    )
    two.transport.write(two.codec.call("pull", 2, request=request))
    world.run(0.01)
    assert done[:3] == ["apply", "pull", "pull"]


def pulled_at_once(monkeypatch: pytest.MonkeyPatch, *, bad: int | None = None) -> tuple[list[Reply], list[int]]:
    """Three clients pull 1, 2 and 1 of four messages in one turn; returns the replies, and the sizes of look-ups.

    To look up the message at the offset `bad` is a fault.
    """
    world = Passes()
    producer = world.connect("producer")
    for body in (b"one", b"two", b"three", b"four"):
        world.publish(producer, body)
    slices, original = Subscription.slices, EmbeddedSource.located
    sizes: list[int] = []

    def noted(subscription: Subscription, jobs: Sequence[UpstreamJob]) -> Any:
        sizes.append(len(jobs))
        if any(job.offset == bad for job in jobs):
            raise RuntimeError("a fault of ours")
        return slices(subscription, jobs)

    def located(source: EmbeddedSource, job: UpstreamJob) -> Any:
        if job.offset == bad:
            raise RuntimeError("a fault of ours")
        return original(source, job)

    monkeypatch.setattr(Subscription, "slices", noted)
    monkeypatch.setattr(EmbeddedSource, "located", located)
    clients = [world.connect("consumer") for _ in range(3)]
    for client, count in zip(clients, (1, 2, 1), strict=True):
        request = consumer_idl.PullRequest(groupId="billing", maxBatchSize=count)
        client.transport.write(client.codec.call("pull", 1, request=request))
    world.run(1.0)
    return [client.replies[-1] for client in clients], sizes


def test_messages_of_all_pulls_of_a_pass_are_looked_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client gets its own."""
    replies, sizes = pulled_at_once(monkeypatch)
    assert [[each.value for each in reply.value.messages] for reply in replies] == [
        [b"one"], [b"two", b"three"], [b"four"]
    ]  # fmt: skip
    assert sizes == [4]


def test_fault_in_the_look_up_of_a_pass_costs_its_own_pull_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others get their messages."""
    (first, bad, last), _ = pulled_at_once(monkeypatch, bad=2)
    assert [[each.value for each in reply.value.messages] for reply in (first, last)] == [[b"one"], [b"four"]]
    assert "a fault of ours" in str(bad.error)


def test_rights_are_those_of_the_moment_in_the_order_of_frames() -> None:
    """A send before a failed `authenticate` is stored, one behind it is denied, although all came together."""
    world = AccessWorld(OPEN)
    world.network.faults = NetworkFaults(delay_ms_max=0.0, fragment_share=0.0, window_bytes=MIB)
    client = world.client("producer")
    frames = [
        client.codec.call("sendSync", 1, message=message("orders"), timeout=1000),
        client.codec.call("authenticate", 2, token="wrong"),
        client.codec.call("sendSync", 3, message=message("orders"), timeout=1000),
    ]
    client.transport.write(b"".join(frames))
    world.run(1.0)
    before, denied, behind = client.replies
    assert [before.value.code, denied.error is None] == [ResultCode.OK, False]
    assert behind.value.code == ResultCode.FAIL_TOPIC_NOT_ALLOWED


def test_pass_is_cut_by_calls_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much comes in a turn, no list is longer than its bounds, but for the call that reaches them."""
    lengths: list[tuple[int, int]] = []
    take = ProducerService.take

    def noted(service: ProducerService, slots: Sequence[ReplySlot]) -> None:
        lengths.append((len(slots), sum(len(slot.call.frame) for slot in slots)))
        take(service, slots)

    monkeypatch.setattr(ProducerService, "take", noted)
    monkeypatch.setattr("proxy.port.calls_pass.CALLS_MAX", 16)
    monkeypatch.setattr("proxy.port.calls_pass.BYTES_MAX", 50_000)
    world = Passes()
    clients = [world.connect("producer") for _ in range(40)]
    for at, client in enumerate(clients):
        client.transport.write(send_frame(client, 1, bytes(10_000 if at > 20 else 10)))
    world.run(1.0)
    assert max(count for count, _ in lengths) == 16
    assert max(size for _, size in lengths) < 50_000 + 11_000
    assert all(codes(client.replies) == [ResultCode.OK] for client in clients)
