"""Producer.send_delay and cancel_delay: what they send, and what they make of the answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from pyddmq import CancelOutcome, ClientMisuse, Producer, SendRefused, TopicKindMismatch, WireProtocol, idl
from pyddmq.testing.client import HANG_UP, ScriptedNode

WIRE: Any = idl.load("producer")
AT = 1_800_000_000


def answered(code: int = 0, **fields: object) -> Any:
    """Build a DelayResult."""
    return WIRE.DelayResult(code=code, msg="said", uniqDelayMsgId="id", **fields)


def sent(**options: Any) -> Any:
    """The DelayMessage of a `send_delay`."""
    with ScriptedNode("producer", lambda *_: answered()) as node, Producer(node.address) as producer:
        assert producer.send_delay("orders", b"\xff", **options) == "id"
    [(method, arguments)] = node.calls
    assert method == "sendDelaySync"
    return arguments.delayMessage


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_loop_carries_every_field(protocol: WireProtocol) -> None:
    """All that the caller gives reaches the node, on both protocols, with a uuid of its own each time."""
    options: dict[str, Any] = {"tags": "t", "properties": {"a": "b"}, "timeout_ms": 900}
    with (
        ScriptedNode("producer", lambda *_: answered(), protocol=protocol) as node,
        Producer(node.address, protocol=protocol) as producer,
    ):
        for _ in range(2):
            producer.send_delay("orders", b"\xff", at=AT, every=60, times=3, expire=AT + 600, **options)
    first, second = (arguments.delayMessage for _, arguments in node.calls)
    fields = (first.topic, first.body, first.tags, first.properties, first.action, node.calls[0][1].timeout)
    assert fields == ("orders", b"\xff", "t", {"a": "b"}, 1, 900)
    assert (first.dmsgtype, first.timestamp, first.interval, first.times, first.expire) == (3, AT, 60, 3, AT + 600)
    assert first.uuid != second.uuid


def test_kinds() -> None:
    """Once, every so often, with growing gaps; the end that is not given is the furthest."""
    once = sent(at=AT)
    assert (once.dmsgtype, once.interval, once.times, once.expire) == (2, 0, 0, 0)
    loop = sent(at=AT, every=5, expire=AT + 9)
    assert (loop.dmsgtype, loop.interval, loop.times, loop.expire) == (3, 5, (1 << 31) - 1, AT + 9)
    growing = sent(at=AT, growth=2, times=4)
    assert (growing.dmsgtype, growing.interval, growing.times, growing.expire) == (4, 2, 4, 9_999_999_999)


def test_moments_are_never_early() -> None:
    """The wire has whole seconds: a first delivery is rounded up, an end down; zones count."""
    assert sent(at=AT + 0.001).timestamp == AT + 1
    when = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
    assert sent(at=when).timestamp == AT
    assert sent(at=when.astimezone(timezone(timedelta(hours=9)))).timestamp == AT
    assert sent(at=AT, every=3, expire=AT + 9.9).expire == AT + 9


@pytest.mark.parametrize(
    "options",
    [
        {"every": 3, "growth": 2, "times": 1},
        {"every": 3},
        {"growth": 2},
        {"times": 3},
        {"expire": AT + 1},
        {"at": datetime(2027, 1, 15)},
    ],
)
def test_what_makes_no_sense_is_not_sent(options: dict[str, Any]) -> None:
    """A loop needs a gap and an end, a moment a zone."""
    with (
        ScriptedNode("producer", lambda *_: answered()) as node,
        Producer(node.address) as producer,
        pytest.raises(ClientMisuse),
    ):
        producer.send_delay("orders", b"x", **{"at": AT, **options})
    assert not node.calls


def test_add_that_is_sent_again_has_the_same_uuid() -> None:
    """A lost answer: the second try is the same message."""
    answers = [HANG_UP, answered()]
    with (
        ScriptedNode("producer", lambda *_: answers.pop(0)) as node,
        Producer(node.address, resend_pause_ms=0) as producer,
    ):
        producer.send_delay("orders", b"x", at=AT)
    first, second = (arguments.delayMessage.uuid for _, arguments in node.calls)
    assert first == second


@pytest.mark.parametrize(
    ("reported", "outcome"),
    [
        (1, CancelOutcome.CANCELLED),
        (2, CancelOutcome.TOO_LATE),
        (3, CancelOutcome.UNKNOWN),
        (None, CancelOutcome.UNTOLD),
        (99, CancelOutcome.UNTOLD),
    ],
)
def test_cancel_tells_what_became_of_it(reported: int | None, outcome: CancelOutcome) -> None:
    """The additive field says it; DDMQ's own answer says nothing. A body goes along, which DDMQ asks for (R103)."""
    answer = answered(cancelOutcome=reported)
    with ScriptedNode("producer", lambda *_: answer) as node, Producer(node.address) as producer:
        assert producer.cancel_delay("the id", "orders") is outcome
    message = node.calls[0][1].delayMessage
    assert (message.action, message.uniqDelayMsgId, message.topic) == (2, "the id", "orders")
    assert message.body


def test_refusals_are_raised_with_their_code() -> None:
    """As for plain sends."""
    answers = [answered(18), answered(33)]
    with ScriptedNode("producer", lambda *_: answers.pop(0)) as node, Producer(node.address) as producer:
        with pytest.raises(TopicKindMismatch):
            producer.send_delay("orders", b"x", at=AT)
        with pytest.raises(SendRefused) as refused:
            producer.send_delay("orders", b"x", at=AT)
    assert (refused.value.code, refused.value.attempts) == (33, 1)
