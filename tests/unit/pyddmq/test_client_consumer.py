"""Consumer: results ride on pulls, survive failures, and leaving a loop settles what was in hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyddmq import (
    CallTimedOut,
    CannotConnect,
    ClientMisuse,
    ConnectionLost,
    Consumer,
    PulledMessage,
    PullRefused,
    WireProtocol,
    idl,
)
from pyddmq.client.pulling.pulls import CHAIN_LENGTH_MAX, PendingResults
from pyddmq.testing.client import HANG_UP, SILENCE, ScriptedNode
from tests.patient import nobody_there

WIRE: Any = idl.load("consumer")

EMPTY = WIRE.PullResponse(context=WIRE.Context(), messages=[])


def batch(qid: str, *offsets: int) -> Any:
    """Build the reply with these messages of one queue."""
    messages = [WIRE.Message(key=f"k{n}", value=b"body-%d" % n, tag=None, offset=n) for n in offsets]
    return WIRE.PullResponse(context=WIRE.Context(groupId="g", topic="t", qid=qid), messages=messages)


def pulls(*answers: object, submit: object = True) -> Callable[[str, Any], object]:
    """Script: these answers for the pulls in turn and then nothing, one answer for every submit."""
    left = list(answers)
    return lambda method, _: submit if method == "submit" else left.pop(0) if left else EMPTY


def flatten(result: Any) -> list[tuple[str, list[int], list[int]]]:
    """Walk a nextResult chain."""
    rows = []
    while result is not None:
        rows.append((result.context.qid, result.successOffsets, result.failOffsets))
        result = result.nextResult
    return rows


def reported(node: ScriptedNode) -> list[list[tuple[str, list[int], list[int]]]]:
    """Results of every call in order."""
    return [flatten(args.request.result if method == "pull" else args.result) for method, args in node.calls]


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_pull_returns_messages_and_asks_as_configured(protocol: WireProtocol) -> None:
    """Request and reply carry every field, on both protocols; an empty reply is an empty list."""
    with (
        ScriptedNode("consumer", pulls(batch("q1", 4, 5)), protocol=protocol) as node,
        Consumer(node.address, "g", "t", batch_size=3, linger_ms=70, protocol=protocol) as consumer,
    ):
        got = consumer.pull()
        assert consumer.pull(count_max=1) == []
    assert got[1] == PulledMessage("t", "q1", 5, "k5", None, b"body-5", {})
    request = node.calls[0][1].request
    asked = (request.groupId, request.topic, request.maxBatchSize, request.maxLingerTime, request.result)
    assert asked == ("g", "t", 3, 70, None)
    assert node.calls[1][1].request.maxBatchSize == 1


def test_results_ride_on_the_next_pull_as_one_chain_per_queue() -> None:
    """One element per (topic, qid), successes and failures apart; an answered pull has reported them."""
    with (
        ScriptedNode("consumer", pulls(batch("q1", 1, 2), batch("q2", 9))) as node,
        Consumer(node.address, "g") as consumer,
    ):
        first, second = consumer.pull()
        consumer.ack(first)
        (third,) = consumer.pull()
        consumer.fail(second)
        consumer.ack(third)
        assert consumer.unsent == 2
        consumer.pull()
        assert consumer.unsent == 0
    assert reported(node) == [[], [("q1", [1], [])], [("q1", [], [2]), ("q2", [9], [])]]


def test_results_of_a_lost_pull_are_sent_again() -> None:
    """A pull without an answer keeps its results (S2)."""
    with (
        ScriptedNode("consumer", pulls(batch("q1", 1), HANG_UP)) as node,
        Consumer(node.address, "g") as consumer,
    ):
        consumer.ack(consumer.pull()[0])
        with pytest.raises(ConnectionLost):
            consumer.pull()
        assert consumer.unsent == 1
        consumer.pull()
    assert reported(node) == [[], [("q1", [1], [])], [("q1", [1], [])]]


def test_refused_pull_has_taken_the_results() -> None:
    """A PullException is an answer: the results count and are not sent again."""
    refusal = WIRE.PullException(code=1, message="no group 'g' is configured")
    with (
        ScriptedNode("consumer", pulls(batch("q1", 1), refusal)) as node,
        Consumer(node.address, "g") as consumer,
    ):
        consumer.ack(consumer.pull()[0])
        with pytest.raises(PullRefused, match="no group 'g'") as caught:
            consumer.pull()
        assert (caught.value.code, consumer.unsent) == (1, 0)
    assert len(node.calls) == 2


def test_flush_tells_whether_the_node_took_anything() -> None:
    """False is a final answer (W2): nothing stays to be sent."""
    with (
        ScriptedNode("consumer", pulls(batch("q1", 1), submit=False)) as node,
        Consumer(node.address, "g") as consumer,
    ):
        consumer.ack(consumer.pull()[0])
        assert consumer.flush() is False
        assert consumer.flush() is True
    assert [method for method, _ in node.calls] == ["pull", "submit"]


def test_close_submits_the_rest_in_up_to_three_tries() -> None:
    """S4: two lost submits, the third is answered."""
    left: list[object] = [batch("q1", 1), HANG_UP, HANG_UP, True]
    with ScriptedNode("consumer", lambda _method, _arguments: left.pop(0)) as node:
        with Consumer(node.address, "g") as consumer:
            consumer.ack(consumer.pull()[0])
        assert [method for method, _ in node.calls] == ["pull", "submit", "submit", "submit"]


def test_close_says_when_results_could_not_be_submitted() -> None:
    """The error reaches the caller; an exception that is under way is not replaced but gets a note."""

    def ack_one(address: str, inner: Exception | None) -> None:
        with Consumer(address, "g") as consumer:
            consumer.ack(consumer.pull()[0])
            if inner is not None:
                raise inner

    for inner in (None, RuntimeError("mine")):
        with (
            ScriptedNode("consumer", pulls(batch("q1", 1), submit=HANG_UP)) as node,
            pytest.raises((ConnectionLost, RuntimeError)) as caught,
        ):
            ack_one(node.address, inner)
        assert isinstance(caught.value, ConnectionLost if inner is None else RuntimeError)
        assert bool(getattr(caught.value, "__notes__", [])) == (inner is not None)


def test_iteration_acks_what_was_left_behind_and_fails_what_raised() -> None:
    """Going on acks, an exception that leaves the with block fails the message in hand, the rest is not reported."""

    def work(address: str) -> None:
        with Consumer(address, "g") as consumer:
            for message in consumer:
                if message.offset == 2:
                    raise RuntimeError("cannot")

    with ScriptedNode("consumer", pulls(batch("q1", 1, 2, 3))) as node:
        with pytest.raises(RuntimeError, match="cannot"):
            work(node.address)
        assert reported(node) == [[], [("q1", [1], [2])]]


def test_break_counts_as_done_and_skip_as_nothing() -> None:
    """Leaving the loop without an exception acks the message in hand; skip reports nothing (S3)."""
    with ScriptedNode("consumer", pulls(batch("q1", 1, 2, 3, 4))) as node:
        with Consumer(node.address, "g") as consumer:
            for message in consumer:
                if message.offset == 1:
                    consumer.skip(message)
                if message.offset == 2:
                    consumer.fail(message)
                if message.offset == 3:
                    break
        assert reported(node) == [[], [("q1", [3], [2])]]


def test_iteration_ends_when_idle() -> None:
    """idle_ms counts empty pulls; every message starts it anew."""
    with ScriptedNode("consumer", pulls(batch("q1", 1), EMPTY, batch("q1", 2))) as node:
        with Consumer(node.address, "g", linger_ms=50) as consumer:
            assert [message.offset for message in consumer.messages(idle_ms=100)] == [1, 2]
        assert len(node.calls) == 5
        assert reported(node)[3] == [("q1", [2], [])]


def test_run_fails_the_message_whose_handler_raised_and_goes_on() -> None:
    """An exception of the handler is that message's failure only, and somebody is told of it."""
    failures: list[tuple[int, str]] = []

    def handle(message: PulledMessage) -> None:
        if message.offset == 3:
            consumer.stop()
        if message.offset == 1:
            raise ValueError("not this one")

    with ScriptedNode("consumer", pulls(batch("q1", 1, 2, 3))) as node:
        with Consumer(node.address, "g") as consumer:
            consumer.run(handle, on_error=lambda message, error: failures.append((message.offset, str(error))))
        assert reported(node)[-1] == [("q1", [2, 3], [1])]
    assert failures == [(1, "not this one")]


def test_iteration_goes_on_over_a_restart_of_the_node() -> None:
    """Lost connections are patience, not the end (W93)."""
    with (
        ScriptedNode("consumer", pulls(HANG_UP, HANG_UP, batch("q1", 1))) as node,
        Consumer(node.address, "g") as consumer,
    ):
        assert next(iter(consumer)).offset == 1
        assert node.connections == 3


def test_iteration_gives_up_after_its_patience() -> None:
    """With nobody there and no patience the first failure is raised."""
    with (
        nobody_there() as address,
        Consumer(address, "g", patience_ms=0) as consumer,
        pytest.raises(CannotConnect),
    ):
        next(iter(consumer))


def test_patience_counts_the_calls_too() -> None:
    """A node that is silent costs each call its time limit: pauses alone would make minutes of half a minute."""
    with ScriptedNode("consumer", lambda _method, _arguments: SILENCE) as node:
        consumer = Consumer(node.address, "g", linger_ms=0, timeout_ms=400, patience_ms=300)
        with pytest.raises(CallTimedOut):
            next(iter(consumer))
        assert len(node.calls) == 2


def test_stats_sum_up_the_lag() -> None:
    """The lag is produced less committed; a queue without a commit counts from 0."""
    row = WIRE.ConsumeStats(group="g", topic="t", consumeOffsets={"q1": 4}, produceOffsets={"q1": 10, "q2": 3})
    with (
        ScriptedNode("consumer", lambda _method, _arguments: [row]) as node,
        Consumer(node.address, "g", "t") as consumer,
    ):
        (stats,) = consumer.stats()
    assert (stats.lag, stats.committed, node.calls[0][1].request.topic) == (9, {"q1": 4}, "t")


def test_numbers_out_of_range_are_misuse() -> None:
    """A consumer that cannot work is not built."""
    wrong: list[dict[str, Any]] = [{"batch_size": 0}, {"linger_ms": -1}, {"submit_tries": 0}, {"timeout_ms": 0}]
    for options in wrong:
        with pytest.raises(ClientMisuse):
            Consumer("127.0.0.1:9713", "g", **options)
    with pytest.raises(ClientMisuse, match="protocol"):
        Consumer("127.0.0.1:9713", "g", protocol="json")  # type: ignore[arg-type]


def test_pending_results_stay_until_answered() -> None:
    """Results added after an unanswered call join their queue's earlier ones; long chains are cut."""
    pending = PendingResults()
    pending.add("t", "q1", 1, success=True)
    assert [each.success for each in pending.next_chain()] == [[1]]
    pending.add("t", "q2", 5, success=False)
    pending.add("t", "q1", 2, success=True)
    chain = pending.next_chain()
    assert [(each.qid, each.success, each.fail) for each in chain] == [("q1", [1, 2], []), ("q2", [], [5])]
    pending.answered(chain)
    assert len(pending) == 0
    for number in range(CHAIN_LENGTH_MAX + 1):
        pending.add("t", str(number), number, success=True)
    pending.answered(pending.next_chain())
    assert len(pending) == 1


def chains(node: ScriptedNode) -> list[tuple[Any, Any, Any, Any]]:
    """What the first element of the results of each call said."""
    found = []
    for _, arguments in node.calls:
        result = arguments.request.result if hasattr(arguments, "request") else arguments.result
        if result is not None:
            found.append((result.successOffsets, result.failOffsets, result.deliveries, result.reasons))
    return found


def test_results_name_the_deliveries_that_had_a_number() -> None:
    """An offset without one stays out of the map, which is always there; what is answered is forgotten."""
    reply = batch("q1", 1, 2)
    reply.messages[1].delivery = 1 << 60
    with ScriptedNode("consumer", pulls(reply)) as node, Consumer(node.address, "g") as consumer:
        first, second = consumer.pull()
        assert (first.delivery, second.delivery) == (0, 1 << 60)
        consumer.ack(second)
        consumer.pull()
        consumer.ack(first)
        consumer.pull()
    assert chains(node) == [([2], [], {2: 1 << 60}, None), ([1], [], {}, None)]


class _Silent(Exception):
    """Cannot say anything."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such account"), "ValueError: no such account"),
        (KeyError(), "KeyError"),
        (_Silent(), "_Silent"),
        (ValueError("\ud800"), "ValueError: ?"),
        (ValueError("x" * 999), "ValueError: " + "x" * 288),
    ],
)
def test_failed_handler_tells_why(error: Exception, said: str) -> None:
    """Its exception's kind and text ride on the next pull; nothing that it says can break the call."""
    with ScriptedNode("consumer", pulls(batch("q1", 1))) as node, Consumer(node.address, "g", linger_ms=0) as consumer:

        def handler(_: PulledMessage) -> None:
            consumer.stop()
            raise error

        consumer.run(handler)
        consumer.flush()
    assert chains(node) == [([], [1], {}, {1: said})]


def test_reason_of_a_failure_may_be_given() -> None:
    """And an exception that leaves the block is one."""

    def work(address: str) -> None:
        with Consumer(address, "g") as consumer:
            messages = consumer.messages()
            consumer.fail(next(messages), "out of stock")
            next(messages)
            raise ValueError("boom")

    with ScriptedNode("consumer", pulls(batch("q1", 1, 2))) as node, pytest.raises(ValueError, match="boom"):
        work(node.address)
    assert chains(node) == [([], [1, 2], {}, {1: "out of stock", 2: "ValueError: boom"})]
