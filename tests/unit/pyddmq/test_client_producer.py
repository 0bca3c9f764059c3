"""Producer: what it sends, what its receipts say, and when it sends again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import pytest

from pyddmq import (
    CallRejected,
    CallTimedOut,
    CannotConnect,
    ClientMisuse,
    ConnectionLost,
    IllegalMessage,
    NotThrift,
    OutgoingMessage,
    Producer,
    RateLimited,
    SendRefused,
    TopicNotFound,
    WireProtocol,
    idl,
    parse_address,
)
from pyddmq.testing.client import HANG_UP, SILENCE, ScriptedNode, application_exception
from tests.insides import stream_of
from tests.patient import nobody_there, until

WIRE: Any = idl.load("producer")


def stored(**fields: object) -> Any:
    """Build the answer of a node that stored the message."""
    return WIRE.Result(code=0, msg="OK", **fields)


def in_turn(*answers: object) -> Callable[[str, Any], object]:
    """Script that gives one answer after the other, and the last one for ever."""
    left = list(answers)
    return lambda _method, _arguments: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_send_carries_every_field_and_returns_the_receipt(protocol: WireProtocol) -> None:
    """All that the caller gives reaches the node, and queue, offset and id come back, on both protocols."""
    answer = stored(msgId="0A", qid="pyddmq_broker-0_3", offset=41)
    with (
        ScriptedNode("producer", in_turn(answer), protocol=protocol) as node,
        Producer(node.address, protocol=protocol) as producer,
    ):
        receipt = producer.send(
            "orders", b"\xffbody", key="k", tags="t", properties={"a": "b"}, hash_id=-7, partition_id=2, timeout_ms=900
        )
    (method, arguments) = node.calls[0]
    assert (method, arguments.timeout) == ("sendSync", 900)
    message = arguments.message
    sent = (message.topic, message.body, message.key, message.tags, message.properties)
    assert sent == ("orders", b"\xffbody", "k", "t", {"a": "b"})
    assert (message.hashId, message.partitionId) == (-7, 2)
    assert (receipt.message_id, receipt.qid, receipt.offset, receipt.attempts) == ("0A", "pyddmq_broker-0_3", 41, 1)


def test_send_batch_asks_for_receipts_and_returns_one_per_message() -> None:
    """Receipts stand in the order of the messages."""
    receipts = [WIRE.Receipt(msgId=str(n), qid="q", offset=n) for n in range(3)]
    messages = [OutgoingMessage(topic="orders", body=bytes([n])) for n in range(3)]
    with (
        ScriptedNode("producer", in_turn(stored(receipts=receipts))) as node,
        Producer(node.address) as producer,
    ):
        got = producer.send_batch(messages)
    assert node.calls[0][1].receipts is True
    assert [each.offset for each in got] == [0, 1, 2]
    assert [message.body for message in node.calls[0][1].messages] == [b"\x00", b"\x01", b"\x02"]


def test_send_batch_to_a_node_without_receipts_tells_no_places() -> None:
    """A DDMQ node's answer still counts as stored; offset -1 says that the place is unknown."""
    with (
        ScriptedNode("producer", in_turn(stored())) as node,
        Producer(node.address) as producer,
    ):
        got = producer.send_batch([OutgoingMessage(topic="orders", body=b"x")] * 2)
        assert producer.send_batch([]) == []
    assert [(each.qid, each.offset) for each in got] == [("", -1), ("", -1)]
    assert len(node.calls) == 1


@pytest.mark.parametrize(("code", "kind"), [(11, IllegalMessage), (14, TopicNotFound), (33, SendRefused)])
def test_refusal_that_repeating_cannot_cure_is_raised_at_once(code: int, kind: type[SendRefused]) -> None:
    """The class follows the code, the sentence is the node's, and the message went out once."""
    with (
        ScriptedNode("producer", in_turn(WIRE.Result(code=code, msg="no, because"))) as node,
        Producer(node.address, resends=3) as producer,
        pytest.raises(kind, match="no, because") as caught,
    ):
        producer.send("orders", b"x")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.attempts, len(node.calls)) == (code, 1, 1)


def test_resend_after_a_lost_answer_is_told() -> None:
    """A message that was sent twice says so in its receipt, and the hook hears of the failure between."""
    heard: list[Exception] = []
    with (
        ScriptedNode("producer", in_turn(HANG_UP, stored(qid="q", offset=1))) as node,
        Producer(node.address, resend_pause_ms=0, on_resend=heard.append) as producer,
    ):
        receipt = producer.send("orders", b"x")
    assert receipt.attempts == 2
    assert [type(error) for error in heard] == [ConnectionLost]


def test_resend_happens_once_unless_asked_for_more() -> None:
    """The default is one resend; resends=0 is none; the failure counts the attempts."""
    for resends, sent in ((None, 2), (0, 1), (3, 4)):
        options: dict[str, Any] = {} if resends is None else {"resends": resends}
        with (
            ScriptedNode("producer", in_turn(WIRE.Result(code=15, msg="slow down"))) as node,
            Producer(node.address, resend_pause_ms=0, **options) as producer,
            pytest.raises(RateLimited) as caught,
        ):
            producer.send("orders", b"x")
        assert (len(node.calls), caught.value.attempts, caught.value.stored) == (sent, sent, False)


def test_silent_node_times_out_and_the_late_answer_cannot_be_mistaken() -> None:
    """After a timeout the next call uses a new connection."""
    with (
        ScriptedNode("producer", in_turn(SILENCE, stored())) as node,
        Producer(node.address, resends=0) as producer,
    ):
        with pytest.raises(CallTimedOut, match="did not answer sendSync") as caught:
            producer.send("orders", b"x", timeout_ms=-950)
        assert caught.value.sent
        until(lambda: node.calls, "the first call to be read")
        producer.send("orders", b"x")
        assert node.connections == 2


def test_connection_closed_while_idle_is_replaced_before_sending() -> None:
    """A node's restart between two sends costs no resend."""
    with (
        ScriptedNode("producer", in_turn(stored())) as node,
        Producer(node.address, resends=0) as producer,
    ):
        producer.send("orders", b"1")
        node.hang_up()
        until(stream_of(producer).has_ended, "the end to arrive")
        assert producer.send("orders", b"2").attempts == 1
    assert len(node.calls) == 2


def test_producer_of_a_forked_process_is_another_one() -> None:
    """With a connection and numbers of its own: a node would take its messages for those that the parent stored."""

    def script(_method: str, arguments: Any) -> Any:
        return stored(msgId=arguments.message.uniqKey)

    with ScriptedNode("producer", script) as node, Producer(node.address, timeout_ms=10_000) as producer:
        producer.send_soon(OutgoingMessage(topic="orders", body=b"before")).result()
        producer.send("orders", b"before, too")
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                producer.send("orders", b"of the child")
                producer.send_soon(OutgoingMessage(topic="orders", body=b"of the child, too")).result(10)
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send("orders", b"of the parent")
        producer.send_soon(OutgoingMessage(topic="orders", body=b"of the parent, too")).result()
        assert len({arguments.message.uniqKey for _, arguments in node.calls}) == len(node.calls) == 6
        assert node.connections == 4


def test_absent_node_is_reported_with_its_address() -> None:
    """Nothing was sent, so `sent` is false."""
    with (
        nobody_there() as address,
        Producer(address, resends=0) as producer,
        pytest.raises(CannotConnect, match=f"cannot connect to {address}: connection refused") as caught,
    ):
        producer.send("orders", b"x")
    assert not caught.value.sent


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "admin port"),
        (b"\xff\xff\xff\xff", "not a valid frame length"),
        (b"\x00\x00\x00\x02hi", "does not decode"),
        (b"\x7f\xff\xff\xff", "not a valid frame length"),
    ],
)
def test_answer_that_is_no_thrift_is_named(answer: bytes, text: str) -> None:
    """Whatever else listens there, the error says that it is no Thrift port."""
    with (
        ScriptedNode("producer", in_turn(answer)) as node,
        Producer(node.address) as producer,
        pytest.raises(NotThrift, match=text),
    ):
        producer.send("orders", b"x")


def test_application_exception_carries_kind_and_text() -> None:
    """A TApplicationException becomes CallRejected."""
    with (
        ScriptedNode("producer", in_turn(application_exception(7, "bad arguments"))) as node,
        Producer(node.address) as producer,
        pytest.raises(CallRejected, match="bad arguments") as caught,
    ):
        producer.send("orders", b"x")
    assert caught.value.code == 7


@pytest.mark.parametrize("protocol", ["binary", "compact"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"partition_id": 2**31},
        {"hash_id": -(2**63) - 1},
        {"deliver_at_ms": 2**63},
        {"key": "\udcff"},
        {"key": 7},
        {"properties": {"a": 1}},
    ],
)
def test_value_that_does_not_fit_its_field_is_misuse(protocol: WireProtocol, wrong: dict[str, Any]) -> None:
    """Nothing is sent, the error is one of the client's own, and the connection serves the next call."""
    with (
        ScriptedNode("producer", in_turn(stored()), protocol=protocol) as node,
        Producer(node.address, protocol=protocol) as producer,
    ):
        fields: dict[str, Any] = {"topic": "orders", "body": b"x", **wrong}
        with pytest.raises(ClientMisuse, match="sendSync cannot be sent"):
            producer.send(**fields)
        producer.send("orders", b"x")
        assert len(node.calls) == 1


def test_malformed_addresses_are_misuse() -> None:
    """An address is host:port with a port that exists; IPv6 stands in brackets."""
    assert parse_address("[::1]:9613") == ("::1", 9613)
    assert parse_address("node.example:1") == ("node.example", 1)
    assert parse_address("fe80::1%eth0:1") == ("fe80::1%eth0", 1)
    assert parse_address("bücher.example.:1") == ("bücher.example.", 1)
    wrong = (
        "",
        "9613",
        "host",
        "host:",
        ":9613",
        "host:0",
        "host:65536",
        "host:x",
        "node..example:1",
        f"{'h' * 64}.a:1",
    )
    for text in wrong:
        with pytest.raises(ClientMisuse, match="host:port"):
            Producer(text)
    with pytest.raises(ClientMisuse, match="speak Thrift, not http; write host:port"):
        Producer("http://127.0.0.1:9613")
    with pytest.raises(ClientMisuse):
        Producer("h:1", resends=-1)
