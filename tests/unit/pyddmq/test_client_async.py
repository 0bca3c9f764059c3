"""The asyncio consumer and sends in the background at a scripted node: cancelled pulls, and what callbacks may do."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from pyddmq import AsyncConsumer, AsyncProducer, ClientMisuse, OutgoingMessage, Producer, RateLimited, idl
from pyddmq.testing.client import HANG_UP, ScriptedNode
from tests.patient import PATIENCE_MS, PATIENCE_SECONDS, until

PULLS: Any = idl.load("consumer")
SENDS: Any = idl.load("producer")


def pulled(*offsets: int) -> Any:
    """Reply with messages of one queue."""
    messages = [PULLS.Message(value=b"%d" % offset, offset=offset) for offset in offsets]
    return PULLS.PullResponse(context=PULLS.Context(groupId="g", topic="t", qid="q"), messages=messages)


def test_pull_that_was_cancelled_goes_on_and_the_next_one_gets_its_messages() -> None:
    """The node was asked once, and what it handed out then is not lost to the group's timeout."""
    go = threading.Event()

    def script(method: str, _arguments: Any) -> Any:
        go.wait(PATIENCE_SECONDS)
        return pulled(3, 4) if method == "pull" else True

    async def consume(address: str) -> list[int]:
        async with AsyncConsumer(address, "g", timeout_ms=PATIENCE_MS) as consumer:
            waiting = asyncio.create_task(consumer.pull())
            await asyncio.to_thread(until, lambda: node.calls, "the pull")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            go.set()
            return [message.offset for message in await consumer.pull()]

    with ScriptedNode("consumer", script) as node:
        assert asyncio.run(consume(node.address)) == [3, 4]
        assert [method for method, _ in node.calls] == ["pull"]
        assert node.connections == 1


def test_results_of_a_call_that_was_lost_go_out_again_with_the_next() -> None:
    """And closing submits what is left."""
    answers = iter([pulled(1, 2), HANG_UP, pulled(), True])

    async def consume(address: str) -> None:
        async with AsyncConsumer(address, "g", timeout_ms=PATIENCE_MS) as consumer:
            first, second = await consumer.pull()
            consumer.ack(first)
            assert await consumer.pull(patience_ms=PATIENCE_MS) == []
            assert consumer.unsent == 0
            consumer.fail(second, "why")

    with ScriptedNode("consumer", lambda _method, _arguments: next(answers)) as node:
        asyncio.run(consume(node.address))
        carried = [arguments.request.result for method, arguments in node.calls if method == "pull"]
        assert [result and result.successOffsets for result in carried] == [None, [1], [1]]
        (submitted,) = [arguments.result for method, arguments in node.calls if method == "submit"]
        assert (submitted.failOffsets, submitted.reasons) == ([2], {2: "why"})


def test_callback_that_fails_or_calls_its_producer_fails_that_send_alone() -> None:
    """It runs in the background, where waiting would never end."""
    refused: list[bytes] = []

    def script(_method: str, arguments: Any) -> Any:
        body = arguments.message.body
        if body in (b"a", b"b") and body not in refused:
            refused.append(body)
            return SENDS.Result(code=15, msg="slowly")
        return SENDS.Result(code=0, msgId=arguments.message.uniqKey)

    def call_back(error: Exception) -> None:
        assert isinstance(error, RateLimited)
        if len(refused) == 1:
            producer.send("t", b"x")
        raise CancelledError("of my own")

    with ScriptedNode("producer", script) as node:
        producer = Producer(node.address, timeout_ms=PATIENCE_MS, on_resend=call_back)
        with producer:
            futures = [producer.send_soon(OutgoingMessage(topic="t", body=body)) for body in (b"a", b"b", b"c")]
            assert isinstance(futures[0].exception(PATIENCE_SECONDS), ClientMisuse)
            assert isinstance(futures[1].exception(PATIENCE_SECONDS), CancelledError)
            assert futures[2].result(PATIENCE_SECONDS).numbered


def test_callback_of_a_future_may_send_whoever_waits_for_room() -> None:
    """It runs where room is made: had another thread taken that, all sends would hang."""
    futures: list[Future[Any]] = []

    def script(_method: str, arguments: Any) -> Any:
        go.wait(PATIENCE_SECONDS)
        return SENDS.Result(code=0, msgId=arguments.message.uniqKey)

    def send_next(_ended: Future[Any]) -> None:
        until(lambda: not waiter.is_alive(), "another thread to take the room")
        futures.append(producer.send_soon(OutgoingMessage(topic="t", body=b"next")))
        behind.set()

    go, behind = threading.Event(), threading.Event()
    with ScriptedNode("producer", script) as node, Producer(node.address, in_flight_max=1) as producer:
        first = producer.send_soon(OutgoingMessage(topic="t", body=b"first"))
        waiter = threading.Thread(
            target=lambda: futures.append(producer.send_soon(OutgoingMessage(topic="t", body=b"waited")))
        )
        waiter.start()
        first.add_done_callback(send_next)
        go.set()
        assert behind.wait(PATIENCE_SECONDS)
        assert all(each.result(PATIENCE_SECONDS).numbered for each in futures)
        assert len(futures) == 2


def test_callback_that_wants_to_exit_ends_its_send_and_not_the_thread_of_all() -> None:
    """Who reads the future gets its SystemExit; the message behind is sent."""

    def script(_method: str, arguments: Any) -> Any:
        if arguments.message.body == b"a":
            return SENDS.Result(code=15, msg="slowly")
        return SENDS.Result(code=0, msgId=arguments.message.uniqKey)

    def leave(error: Exception) -> None:
        raise SystemExit(f"cannot send: {error}")

    with ScriptedNode("producer", script) as node, Producer(node.address, on_resend=leave) as producer:
        futures = [producer.send_soon(OutgoingMessage(topic="t", body=body)) for body in (b"a", b"b")]
        assert isinstance(futures[0].exception(PATIENCE_SECONDS), SystemExit)
        assert futures[1].result(PATIENCE_SECONDS).numbered


def test_no_more_than_the_bound_is_under_way_and_nothing_before_numbers_are_known() -> None:
    """Whoever sends more waits; a node that does not know numbers gets one call at a time."""
    go, numbers = threading.Event(), [True]

    def script(_method: str, arguments: Any) -> Any:
        if arguments.message.body != b"0":
            go.wait(PATIENCE_SECONDS)
        return SENDS.Result(code=0, msgId=arguments.message.uniqKey if numbers[0] else "other")

    async def send(address: str) -> list[bool]:
        async with AsyncProducer(address, timeout_ms=PATIENCE_MS, in_flight_max=3) as producer:
            await producer.send("t", b"0")
            for _ in range(3):
                await producer.send_soon(OutgoingMessage(topic="t", body=b"1"))
            more = asyncio.create_task(producer.send_soon(OutgoingMessage(topic="t", body=b"1")))
            await asyncio.to_thread(until, lambda: len(node.calls) >= 2, "a call")
            has_waited = not more.done()
            go.set()
            return [has_waited, (await (await more)).numbered]

    for known in (True, False):
        numbers[0] = known
        go.clear()
        with ScriptedNode("producer", script) as node:
            assert asyncio.run(send(node.address)) == [True, known]
            assert len(node.calls) == 5
