"""The client's TransactionProducer against a scripted node: what it tells, what it shows listeners, how it ends."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyddmq import (
    ClientMisuse,
    ConnectionLost,
    IllegalMessage,
    LocalState,
    OutgoingMessage,
    TransactionMessage,
    TransactionProducer,
    idl,
)
from pyddmq.testing.client import HANG_UP, SILENCE, ScriptedNode, application_exception
from tests.patient import PATIENCE_SECONDS, until

WIRE: Any = idl.load("producer")
ORDER = OutgoingMessage(topic="orders", body=b"\x00order", key="7", tags="new", properties={"shop": "a"}, delay_level=3)
OK = WIRE.Result(code=0, msg="OK")
HALF = WIRE.HalfResult(code=0, msg="OK", key="7", transactionId="ID", handle="H", offset=41)


class Node:
    """What the scripted node answers: `half` and `end` to the producer, `checks` in turn to the background thread.

    Without checks left a fetch waits for ever, as at a node where it is parked.
    """

    def __init__(self, half: object = HALF, end: object = OK, checks: list[object] | None = None) -> None:
        self.half = half
        self.ends = end if isinstance(end, list) else [end]
        self.checks = list(checks or [])
        self.ended: list[Any] = []
        self.fetches: list[Any] = []
        self.heard = threading.Condition()

    def __call__(self, method: str, arguments: Any) -> Any:
        with self.heard:
            self.heard.notify_all()
            if method == "sendHalfSync":
                return self.half
            if method == "endTransaction":
                self.ended.append(arguments.decision)
                return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
            self.fetches.append(arguments.request)
            return self.checks.pop(0) if self.checks else SILENCE

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, as calls come in."""
        with self.heard:
            assert self.heard.wait_for(condition, PATIENCE_SECONDS)


class Listener:
    """Answers what it is told to; an exception is raised."""

    def __init__(self, execute: object = LocalState.COMMIT, check: object = LocalState.COMMIT) -> None:
        self.answers = {"execute": execute, "check": check}
        self.seen: list[tuple[str, TransactionMessage, Any]] = []

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Note and answer."""
        self.seen.append(("execute", message, arg))
        return self._answer("execute")  # type: ignore[no-any-return]  # tests answer what no program should

    def check(self, message: TransactionMessage) -> LocalState | None:
        """Note and answer."""
        self.seen.append(("check", message, None))
        return self._answer("check")  # type: ignore[no-any-return]

    def _answer(self, name: str) -> Any:
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer


def check_of(handle: str, times: int = 1) -> Any:
    """A check as a node sends it."""
    message = WIRE.Message(topic="orders", key="7", body=b"\x00order", tags="new", partitionId=2, properties={"s": "a"})
    return WIRE.TransactionCheck(handle=handle, transactionId="ID", checkTimes=times, message=message, bornTimestamp=99)


def produce(node: Node, listener: Listener, **options: Any) -> Any:
    """Send one message in a transaction; returns (result or exception, scripted node)."""
    with (
        ScriptedNode("producer", node) as scripted,
        TransactionProducer(scripted.address, "shop", listener, resend_pause_ms=0, **options) as producer,
    ):
        node.wait(lambda: bool(node.fetches))
        return producer.send_in_transaction(ORDER, "arg")


def test_listener_sees_the_id_before_the_decision_and_the_result_says_all() -> None:
    """The half goes out whole, `execute` gets message and argument, its answer is told with the half's handle."""
    node, listener = Node(), Listener()
    result = produce(node, listener)
    [(_, seen, arg)] = listener.seen
    expected = {"topic": "orders", "body": b"\x00order", "key": "7", "tags": "new", "properties": {"shop": "a"}}
    assert seen == TransactionMessage(transaction_id="ID", **expected)  # type: ignore[arg-type]
    assert arg == "arg"
    [end] = node.ended
    reported = (end.producerGroup, end.handle, end.state, end.fromCheck, end.remark)
    assert reported == ("shop", "H", 8, False, None)
    assert (result.status, result.message_id, result.transaction_id, result.queue_offset) == ("SEND_OK", "ID", "ID", 41)
    assert (result.state, result.remark, result.decided, result.problem) == (LocalState.COMMIT, "", True, "")


def test_half_carries_the_whole_message_and_its_group() -> None:
    """Delay and properties too; the same for a group's other process."""
    with ScriptedNode("producer", Node()) as scripted:
        with TransactionProducer(scripted.address, "shop", Listener()) as producer:
            producer.send_in_transaction(ORDER)
        [half] = [arguments for method, arguments in scripted.calls if method == "sendHalfSync"]
    message = half.message
    assert (half.producerGroup, half.timeout, message.topic, message.body) == ("shop", 5000, "orders", b"\x00order")
    assert (message.key, message.tags, message.properties, message.delayLevel) == ("7", "new", {"shop": "a"}, 3)


@pytest.mark.parametrize(
    ("answer", "state", "remark"),
    [
        (None, LocalState.UNKNOWN, None),
        (LocalState.UNKNOWN, LocalState.UNKNOWN, None),
        (LocalState.ROLLBACK, LocalState.ROLLBACK, None),
        (ValueError("no stock"), LocalState.UNKNOWN, "ValueError: no stock"),
        (KeyError(), LocalState.UNKNOWN, "KeyError"),
        (8, LocalState.UNKNOWN, "the listener answered 8, which is not a LocalState"),
    ],
)
def test_every_answer_and_failure_of_a_listener_becomes_a_state(
    answer: object, state: LocalState, remark: str | None
) -> None:
    """Nothing raises; None and exceptions are UNKNOWN, and what they say travels as remark."""
    node = Node()
    result = produce(node, Listener(execute=answer))
    assert (result.state, result.remark or None, result.decided) == (state, remark, state is LocalState.ROLLBACK)
    assert [(end.state, end.remark) for end in node.ended] == [(int(state), remark)]


def test_refused_half_raises_and_runs_nothing() -> None:
    """The exception is that of a send, and the local transaction does not begin."""
    listener = Listener()
    with pytest.raises(IllegalMessage, match="too long"):
        produce(Node(half=WIRE.HalfResult(code=11, msg="the body is too long")), listener)
    assert listener.seen == []


def test_half_that_may_be_stored_is_not_sent_again() -> None:
    """A second half would be a second transaction; one that was not stored is sent again."""
    heard: list[Exception] = []
    node = Node(half=HANG_UP)
    with ScriptedNode("producer", node) as scripted:
        with (
            TransactionProducer(scripted.address, "shop", Listener(), resends=3, on_resend=heard.append) as producer,
            pytest.raises(ConnectionLost),
        ):
            producer.send_in_transaction(ORDER)
        assert [method for method, _ in scripted.calls].count("sendHalfSync") == 1
    assert heard == []
    halves = iter([WIRE.HalfResult(code=15, msg="slow down"), HALF])
    node = Node()
    with (
        ScriptedNode(
            "producer", lambda method, arguments: next(halves) if "Half" in method else node(method, arguments)
        ) as scripted,
        TransactionProducer(scripted.address, "shop", Listener(), resend_pause_ms=0) as producer,
    ):
        assert producer.send_in_transaction(ORDER).attempts == 2


def test_decision_that_cannot_be_told_is_no_exception() -> None:
    """It is told again where that may help; then the result says what is wrong, and the node will ask."""
    node = Node(end=[HANG_UP, OK])
    result = produce(node, Listener())
    assert (result.decided, result.problem, len(node.ended)) == (True, "", 2)
    node = Node(end=WIRE.Result(code=45, msg="too late"))
    result = produce(node, Listener())
    assert (result.state, result.decided, result.problem) == (LocalState.COMMIT, False, "too late (code 45)")
    assert len(node.ended) == 1
    result = produce(Node(end=HANG_UP), Listener())
    assert (result.decided, "lost during endTransaction" in result.problem) == (False, True)


def test_checks_are_answered_in_the_background_with_the_next_fetch() -> None:
    """The listener sees the message, its id and which check it is; answers ride on the next fetch, once."""
    listener = Listener(check=LocalState.ROLLBACK)
    node = Node(checks=[[check_of("h1"), check_of("h2", 3)], []])
    with (
        ScriptedNode("producer", node) as scripted,
        TransactionProducer(scripted.address, "shop", listener, check_batch_size=7, check_linger_ms=900),
    ):
        node.wait(lambda: len(node.fetches) == 3)
    first, second, third = node.fetches
    assert (first.producerGroup, first.maxBatchSize, first.maxLingerTime, first.answers) == ("shop", 7, 900, None)
    assert [(each.handle, each.state, each.fromCheck) for each in second.answers] == [
        ("h1", 12, True),
        ("h2", 12, True),
    ]
    assert third.answers is None
    seen = listener.seen[1][1]
    assert (seen.transaction_id, seen.topic, seen.body, seen.queue) == ("ID", "orders", b"\x00order", 2)
    assert (seen.check_times, seen.born_ms, seen.properties) == (3, 99, {"s": "a"})


def test_answers_of_a_lost_fetch_go_out_again() -> None:
    """Over a new connection, with the exception of the listener as remark; each failure is told."""
    heard: list[Exception] = []
    node = Node(checks=[[check_of("h")], HANG_UP, application_exception(6, "the node is starting")])
    listener = Listener(check=RuntimeError("no database"))
    with (
        ScriptedNode("producer", node) as scripted,
        TransactionProducer(scripted.address, "shop", listener, on_check_error=heard.append),
    ):
        node.wait(lambda: len(node.fetches) == 4)
    answered = [[(each.handle, each.state, each.remark) for each in fetch.answers or ()] for fetch in node.fetches]
    answer = ("h", 0, "RuntimeError: no database")
    assert answered == [[], [answer], [answer], [answer]]
    assert ["starting" in str(error) for error in heard] == [False, True]


def test_file_that_is_gone_for_a_moment_does_not_end_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a token is replaced while the client connects again: the next fetch brings what waits."""
    heard: list[Exception] = []
    node, listener = Node(checks=[[check_of("h")]]), Listener()
    monkeypatch.setenv("PYDDMQ_TOKEN_FILE", str(tmp_path / "token"))
    with (
        ScriptedNode("producer", node) as scripted,
        TransactionProducer(scripted.address, "shop", listener, on_check_error=heard.append),
    ):
        until(lambda: heard, "a fetch that fails")
        monkeypatch.delenv("PYDDMQ_TOKEN_FILE")
        node.wait(lambda: len(node.fetches) == 2)
    assert isinstance(heard[0], ClientMisuse)
    assert [each.handle for each in node.fetches[1].answers] == ["h"]


def test_on_check_error_that_raises_does_not_end_the_checks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is called in the background, where nobody waits for its exception: the log has it."""

    def fails(error: Exception) -> None:
        heard.append(error)
        raise LookupError("no such pager")

    heard: list[Exception] = []
    node, listener = Node(checks=[[check_of("h")]]), Listener()
    monkeypatch.setenv("PYDDMQ_TOKEN_FILE", "/nowhere/token")
    with (
        ScriptedNode("producer", node) as scripted,
        TransactionProducer(scripted.address, "shop", listener, on_check_error=fails),
    ):
        until(lambda: heard, "a fetch that fails")
        monkeypatch.delenv("PYDDMQ_TOKEN_FILE")
        node.wait(lambda: len(node.fetches) == 2)
    assert [each.handle for each in node.fetches[1].answers] == ["h"]
    assert "no such pager" in caplog.text


def test_check_that_raises_system_exit_does_not_end_the_checks() -> None:
    """As the thread of checks would, silently; it is an answer as any other exception is."""

    class Leaving(Listener):
        def check(self, message: TransactionMessage) -> LocalState | None:
            raise SystemExit("no database")

    node = Node(checks=[[check_of("h")]])
    with ScriptedNode("producer", node) as scripted, TransactionProducer(scripted.address, "shop", Leaving()):
        node.wait(lambda: len(node.fetches) == 2)
    [answer] = node.fetches[1].answers
    assert (answer.handle, answer.state) == ("h", LocalState.UNKNOWN)
    assert answer.remark == "RuntimeError: it raised SystemExit: no database"


def test_close_tells_what_was_answered_and_ends_a_fetch_that_waits() -> None:
    """Whatever the listener has answered when the producer closes is told before the end, or had been told before."""
    node = Node(checks=[[check_of("h1"), check_of("h2")]])
    answered: list[int] = []
    closers: list[threading.Thread] = []

    class Busy(Listener):
        def check(self, message: TransactionMessage) -> LocalState | None:
            if not closers:
                closers.append(threading.Thread(target=producer.close))
                closers[0].start()
            answered.append(1)
            return LocalState.COMMIT

    with ScriptedNode("producer", node) as scripted:
        producer = TransactionProducer(scripted.address, "shop", Busy())
        producer.start()
        producer.start()
        node.wait(lambda: bool(node.ended) or len(node.fetches) == 2)
        closers[0].join(PATIENCE_SECONDS)
        assert not closers[0].is_alive()
    reported = [each.handle for fetch in node.fetches for each in fetch.answers or ()] + [
        end.handle for end in node.ended
    ]
    assert set(reported) == {f"h{number + 1}" for number in range(len(answered))}


def test_misuse_is_told_at_once() -> None:
    """No group, no address, a number out of range; and a listener that closes its own producer."""
    with pytest.raises(ClientMisuse, match="producer group"):
        TransactionProducer("127.0.0.1:1", "", Listener())
    with pytest.raises(ClientMisuse, match="check_batch_size"):
        TransactionProducer("127.0.0.1:1", "shop", Listener(), check_batch_size=0)
    with pytest.raises(ClientMisuse, match="address"):
        TransactionProducer("nowhere", "shop", Listener())
    caught: list[str] = []

    class Closing(Listener):
        def check(self, message: TransactionMessage) -> LocalState | None:
            try:
                producer.close()
            except ClientMisuse as error:
                caught.append(str(error))
            return None

    node = Node(checks=[[check_of("h")]])
    with ScriptedNode("producer", node) as scripted:
        producer = TransactionProducer(scripted.address, "shop", Closing())
        with producer:
            node.wait(lambda: len(node.fetches) == 2)
    assert "another thread" in caught[0]


def test_producer_of_a_forked_process_answers_checks() -> None:
    """By a thread and a connection of its own from its first transaction on; a fork copies neither thread nor fetch."""
    node = Node()
    with (
        ScriptedNode("producer", node) as scripted,
        TransactionProducer(scripted.address, "shop", Listener()) as producer,
    ):
        node.wait(lambda: len(node.fetches) == 1)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(writing)
            with contextlib.suppress(BaseException):
                producer.send_in_transaction(ORDER)
                os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        try:
            node.wait(lambda: len(node.fetches) == 2)
        finally:
            os.close(writing)
            os.waitpid(child, 0)
