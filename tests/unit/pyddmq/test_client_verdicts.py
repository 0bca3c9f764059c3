"""What a client says of a call that failed, over all of its attempts, and of a client that is used wrongly."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pyddmq import (
    CannotConnect,
    ClientError,
    ClientMisuse,
    Consumer,
    Fetcher,
    LocalState,
    NodeShuttingDown,
    OutgoingMessage,
    Producer,
    RateLimited,
    SendRefused,
    TransactionProducer,
    idl,
)
from pyddmq.client.pulling.pulls import PendingResults
from pyddmq.testing.client import HANG_UP, SILENCE, ScriptedNode
from tests.patient import nobody_there, until

WIRE: Any = idl.load("producer")
STORED = WIRE.Result(code=0, msg="OK")

Sending = Callable[[Producer], object]
SENDS: list[Sending] = [
    lambda producer: producer.send("orders", b"x"),
    lambda producer: producer.send_batch([OutgoingMessage(topic="orders", body=b"x")]),
    lambda producer: producer.send_delay("orders", b"x", at=2_000_000_000.0),
]


def first_hangs_up_then(answer: Callable[[str], object]) -> Callable[[str, Any], object]:
    """Script that reads the first call and hangs up, and answers those after it."""
    calls = []

    def script(method: str, _: Any) -> object:
        calls.append(method)
        return HANG_UP if len(calls) == 1 else answer(method)

    return script


def refused(code: int) -> Callable[[str], object]:
    """Answer of any send with a code."""
    return lambda method: (WIRE.DelayResult if "Delay" in method else WIRE.Result)(code=code, msg="no")


@pytest.mark.parametrize("send", SENDS)
@pytest.mark.parametrize(("code", "kind"), [(15, RateLimited), (20, NodeShuttingDown)])
def test_refusal_after_a_lost_answer_does_not_say_not_stored(send: Sending, code: int, kind: type[SendRefused]) -> None:
    """The first try may have been stored: only the second one certainly was not."""
    with (
        ScriptedNode("producer", first_hangs_up_then(refused(code))) as node,
        Producer(node.address, resend_pause_ms=0) as producer,
        pytest.raises(kind, match="earlier attempt may have taken effect") as caught,
    ):
        send(producer)
    assert (caught.value.stored, caught.value.undecided, caught.value.attempts) == (None, True, 2)


@pytest.mark.parametrize("send", SENDS)
def test_refused_connection_after_a_lost_answer_does_not_say_nothing_was_sent(send: Sending) -> None:
    """The node has gone after it read the message."""
    with ScriptedNode("producer", lambda _method, _arguments: HANG_UP) as node:

        def gone(_: Exception) -> None:
            listener = node._listener
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

        with (
            Producer(node.address, resend_pause_ms=0, on_resend=gone) as producer,
            pytest.raises(CannotConnect, match="earlier attempt may have taken effect") as caught,
        ):
            send(producer)
    assert (caught.value.sent, caught.value.undecided, caught.value.attempts) == (True, True, 2)


def test_attempts_that_all_stored_nothing_say_so() -> None:
    """Two refusals, or nobody there twice: nothing is stored."""
    with (
        ScriptedNode("producer", lambda method, _: refused(15)(method)) as node,
        Producer(node.address, resend_pause_ms=0) as producer,
        pytest.raises(RateLimited) as refusal,
    ):
        producer.send("orders", b"x")
    assert (refusal.value.stored, refusal.value.undecided) == (False, False)
    with nobody_there() as address, Producer(address, resend_pause_ms=0) as producer:
        with pytest.raises(CannotConnect) as absent:
            producer.send("orders", b"x")
        assert (absent.value.sent, absent.value.undecided, absent.value.attempts) == (False, False, 2)


class Threads:
    """Calls a function in threads at the same moment and keeps what they raised."""

    def __init__(self, count: int, work: Callable[[int], object]) -> None:
        self.raised: list[BaseException] = []
        barrier = threading.Barrier(count)

        def run(number: int) -> None:
            barrier.wait(timeout=60)
            try:
                work(number)
            except BaseException as error:
                self.raised.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_producer_is_shared_by_threads(protocol: Any) -> None:
    """Each send gets its own answer, none fails, over one connection."""

    def echo(_: str, arguments: Any) -> Any:
        return WIRE.Result(code=0, msg="OK", msgId=arguments.message.body.decode())

    with ScriptedNode("producer", echo, protocol=protocol) as node, Producer(node.address, protocol=protocol) as shared:

        def send(number: int) -> None:
            for each in range(50):
                text = f"{number}-{each}"
                assert shared.send("orders", text.encode()).message_id == text

        assert Threads(4, send).raised == []
        assert (len(node.calls), node.connections) == (200, 1)


def test_transaction_producer_is_shared_by_threads() -> None:
    """Halves and decisions of several threads; `execute` of one does not wait for that of another."""
    together = threading.Barrier(3)

    class Listener:
        def execute(self, _message: object, _arg: object) -> LocalState:
            together.wait(timeout=60)
            return LocalState.COMMIT

        def check(self, _message: object) -> LocalState:
            return LocalState.UNKNOWN

    def script(method: str, arguments: Any) -> Any:
        if method == "sendHalfSync":
            name = arguments.message.body.decode()
            return WIRE.HalfResult(code=0, msg="OK", transactionId=name, handle=name)
        return SILENCE if method == "fetchChecks" else STORED

    with ScriptedNode("producer", script) as node:
        producer = TransactionProducer(node.address, "shop", Listener())
        results = []

        def send(number: int) -> None:
            results.append(producer.send_in_transaction(OutgoingMessage(topic="orders", body=b"%d" % number)))

        raised = Threads(3, send).raised
        producer.close()
    assert raised == []
    assert sorted(result.transaction_id for result in results) == ["0", "1", "2"]
    assert all(result.decided for result in results)


def test_close_ends_a_send_that_waits_in_another_thread() -> None:
    """It raises there as a lost connection does, and is not sent again."""
    with ScriptedNode("producer", lambda _method, _arguments: SILENCE) as node:
        producer = Producer(node.address, resends=5)
        raised: list[Exception] = []

        def send() -> None:
            try:
                producer.send("orders", b"x")
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        until(lambda: node.calls, "the call to be read")
        producer.close()
        thread.join(timeout=60)
        assert not thread.is_alive()
        [error] = raised
        assert isinstance(error, ClientError)
        assert (error.undecided, len(node.calls)) == (True, 1)


def test_closed_clients_say_so() -> None:
    """A call after `close` is the program's mistake, and opens nothing."""
    with ScriptedNode("producer", lambda _method, _arguments: STORED) as node:
        producer = Producer(node.address)
        producer.send("orders", b"x")
        producer.close()
        producer.close()
        connect: Sending = Producer.connect
        for call in (*SENDS, connect):
            with pytest.raises(ClientMisuse, match="producer is closed"):
                call(producer)
        assert node.connections == 1
    with ScriptedNode("consumer", lambda _method, _arguments: True) as node:
        consumer = Consumer(node.address, "billing")
        consumer.close()
        consumer.close()
        consuming: list[Callable[[], object]] = [consumer.pull, consumer.stats, consumer.connect]
        for call_it in consuming:
            with pytest.raises(ClientMisuse, match="consumer is closed"):
                call_it()
        assert node.connections == 0


@pytest.mark.parametrize("body", ["text", None, 7, ["x"]])
def test_body_that_is_no_bytes_is_misuse(body: Any) -> None:
    """A text has no bytes before somebody chooses how: nothing is sent, and the error says what to do."""
    with ScriptedNode("producer", lambda _method, _arguments: STORED) as node, Producer(node.address) as producer:
        with pytest.raises(ClientMisuse, match=r"body .* give bytes"):
            producer.send("orders", body)
        with pytest.raises(ClientMisuse, match=r"body .* give bytes"):
            producer.send_batch([OutgoingMessage(topic="orders", body=b"x"), OutgoingMessage(topic="t", body=body)])
        with pytest.raises(ClientMisuse, match=r"body .* give bytes"):
            producer.send_delay("orders", body, at=2_000_000_000.0)
        assert node.calls == []


def test_bytes_of_other_kinds_are_bodies() -> None:
    """A bytearray and a memoryview hold bytes, too."""
    with ScriptedNode("producer", lambda _method, _arguments: STORED) as node, Producer(node.address) as producer:
        for body in (bytearray(b"abc"), memoryview(b"abc")):
            producer.send("orders", body)
        assert [arguments.message.body for _, arguments in node.calls] == [b"abc", b"abc"]


def test_consumer_in_two_threads_is_misuse_and_costs_nothing() -> None:
    """The second thread is told; the pull of the first goes on and gets its answer."""
    consumer_wire: Any = idl.load("consumer")
    answer = threading.Event()

    def script(method: str, _: Any) -> Any:
        answer.wait(timeout=60)
        return consumer_wire.PullResponse(context=consumer_wire.Context(), messages=[])

    with ScriptedNode("consumer", script) as node, contextlib.ExitStack() as stack:
        consumer = stack.enter_context(contextlib.closing(Consumer(node.address, "billing")))
        pulled: list[object] = []
        thread = threading.Thread(target=lambda: pulled.append(consumer.pull()))
        thread.start()
        until(lambda: node.calls, "the pull to be read")
        with pytest.raises(ClientMisuse, match="another thread"):
            consumer.pull()
        answer.set()
        thread.join(timeout=60)
        assert pulled == [[]]
        assert len(node.calls) == 1


def test_fetcher_that_is_closed_in_another_thread_keeps_its_connection() -> None:
    """The thread that closes is told; the fetch of the first goes on and gets its answer."""
    answer = threading.Event()

    def script(_method: str, _arguments: Any) -> Any:
        answer.wait(timeout=60)
        return idl.load("consumer").FetchResponse(results=[])

    with ScriptedNode("consumer", script) as node:
        fetcher = Fetcher(node.address, "low")
        fetched: list[object] = []
        thread = threading.Thread(target=lambda: fetched.append(fetcher.fetch()))
        thread.start()
        until(lambda: node.calls, "the fetch to be read")
        with pytest.raises(ClientMisuse, match="another thread"):
            fetcher.close()
        answer.set()
        thread.join(timeout=60)
        assert fetched == [[]]
        fetcher.close()


def test_results_noted_by_other_threads_during_a_call_are_kept() -> None:
    """A call that is answered has carried what there was when it began."""
    pending = PendingResults()
    pending.add("t", "q", 1, success=True)
    chain = pending.next_chain()
    pending.add("t", "q", 2, success=True)
    pending.add("t", "q", 3, success=False)
    pending.answered(chain)
    assert [(each.success, each.fail) for each in pending.next_chain()] == [([2], [3])]
