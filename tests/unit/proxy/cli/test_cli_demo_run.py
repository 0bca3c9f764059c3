"""The demo's run against small scripted nodes that break one promise each: the right check must fail.

A healthy node is what the acceptance tests run it against; a node that reorders or loses cannot be had otherwise.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker.runtime.seams import SystemClock
from proxy.demo.events import DemoEvent, load_events, read_body
from proxy.demo.report import DemoReport
from proxy.demo.run import GROUP, TOPIC, DemoOptions, DemoRun
from pyddmq import Unreachable, idl
from pyddmq.testing.client import HANG_UP, ScriptedNode

PRODUCER: Any = idl.load("producer")
CONSUMER: Any = idl.load("consumer")
EVENTS = load_events(200)


class MiniNode:
    """One queue in memory, one message per pull, one event of a case out at a time, unless `fault` says otherwise.

    Faults: `lose` drops a message, `reorder` hands out the case's last message first, `forget` takes failures for
    successes, `leave` goes away after some pulls.
    """

    def __init__(self, fault: str | None = None) -> None:
        self.fault = fault
        self.waiting: list[tuple[int, Any]] = []
        self.out: dict[int, Any] = {}
        self.produced = 0
        self.finished = 0
        self.pulls = 0
        self.failures = 0
        self.lock = threading.Lock()
        self.victim = next(event.case for event in EVENTS if self.length(event) > 2)

    @staticmethod
    def length(event: DemoEvent) -> int:
        """Count the events of the event's case."""
        return sum(each.case == event.case for each in EVENTS)

    def is_over(self) -> bool:
        """Whether all was sent, handed out and answered."""
        with self.lock:
            return self.produced >= len(EVENTS) and not self.waiting and not self.out

    def publish(self, _method: str, arguments: Any) -> Any:
        """Script of the producer port."""
        with self.lock:
            for message in arguments.messages:
                lost = self.fault == "lose" and self.produced == 100
                if not lost:
                    self.waiting.append((self.produced, message))
                self.produced += 1
        return PRODUCER.Result(code=0, msg="OK")

    def consume(self, method: str, arguments: Any) -> Any:
        """Script of the consumer port."""
        with self.lock:
            if method == "getConsumeStats":
                row = CONSUMER.ConsumeStats(group=GROUP, topic=TOPIC)
                row.consumeOffsets, row.produceOffsets = {"q": self.finished}, {"q": self.produced}
                return [row]
            self.pulls += 1
            if self.fault == "leave" and self.pulls > 50:
                return HANG_UP
            self.apply(arguments.request.result if method == "pull" else arguments.result)
            return self.take() if method == "pull" else True

    def apply(self, result: Any) -> None:
        """Take results: acked messages are gone, failed ones wait again in their old place."""
        if result is None:
            return
        for offset in result.successOffsets:
            del self.out[offset]
            self.finished += 1
        for offset in result.failOffsets:
            self.failures += 1
            message = self.out.pop(offset)
            if self.fault == "forget":
                self.finished += 1
            else:
                self.waiting.append((offset, message))
                self.waiting.sort(key=lambda item: item[0])

    def take(self) -> Any:
        """Answer a pull."""
        busy = {message.key for message in self.out.values()}
        free = [item for item in self.waiting if item[1].key not in busy]
        if self.fault == "reorder":
            all_there = sum(item[1].key == self.victim for item in self.waiting) > 1 or self.produced == len(EVENTS)
            victims = [item for item in free if item[1].key == self.victim]
            others = [item for item in free if item[1].key != self.victim]
            free = others or (victims[::-1] if all_there and self.produced == len(EVENTS) else [])
        if not free:
            return CONSUMER.PullResponse(context=CONSUMER.Context(), messages=[])
        offset, message = free[0]
        self.waiting.remove(free[0])
        self.out[offset] = message
        reported = CONSUMER.Message(key=message.key, value=message.body, offset=offset, properties=message.properties)
        return CONSUMER.PullResponse(context=CONSUMER.Context(groupId=GROUP, topic=TOPIC, qid="q"), messages=[reported])


class Hurried(SystemClock):
    """Goes on by an hour once the node has given all that it will ever give: nobody waits for what never comes."""

    def __init__(self, mini: MiniNode) -> None:
        self._mini = mini

    def monotonic(self) -> float:
        """Seconds, an hour later when it is over."""
        return super().monotonic() + (3600.0 if self._mini.is_over() else 0.0)


@contextlib.contextmanager
def running(mini: MiniNode, *, spoil: str | None = None) -> Iterator[DemoRun]:
    """Serve a mini node on two ports and prepare a run against it."""
    with ScriptedNode("producer", mini.publish) as producer, ScriptedNode("consumer", mini.consume) as consumer:
        options = DemoOptions(
            producer=producer.address,
            consumer=consumer.address,
            run="run-1",
            clients=3,
            patience_seconds=60.0,
            spoil=spoil,
        )
        yield DemoRun(EVENTS, options, clock=Hurried(mini), progress=lambda _sent, _done: None)


def failed(report: DemoReport) -> set[str]:
    """Names of the checks that failed."""
    return {check.name for check in report.checks if not check.passed}


def test_run_against_a_node_that_keeps_its_promises() -> None:
    """Everything passes, and the report adds up."""
    mini = MiniNode()
    with running(mini) as run:
        report = run.execute()
    assert failed(report) == set()
    assert (report.lag, report.lag_seconds, report.foreign) == (0, 0.0, 0)
    assert report.failures == mini.failures == sum(event.failures for event in EVENTS) > 0
    assert report.deliveries == len(EVENTS) + report.failures
    assert report.as_json()["passed"] is True


def test_messages_of_other_runs_are_acked_and_not_judged() -> None:
    """Whatever stands in the topic from before, whoever sent it, is taken away and counted."""
    mini = MiniNode()
    older = [PRODUCER.Message(topic=TOPIC, key="x", body=body) for body in (EVENTS[0].body("run-0"), b"not ours")]
    older[0].properties = {"demoRun": "run-0"}
    with running(mini) as run:
        mini.publish("sendBatchSync", PRODUCER.ProducerService.sendBatchSync_args(messages=older))
        report = run.execute()
    assert (failed(report), report.foreign, report.lag) == (set(), 2, 0)
    assert read_body(EVENTS[0].body("run-0")) is not None


@pytest.mark.parametrize(
    ("fault", "checks"),
    [("lose", {"delivery", "order"}), ("reorder", {"order"}), ("forget", {"delivery", "order", "retry"})],
)
def test_broken_node_fails_the_run(fault: str, checks: set[str]) -> None:
    """A lost message, a case out of order, a failure that is not retried: each is found and named."""
    with running(MiniNode(fault)) as run:
        report = run.execute()
    assert failed(report) <= checks
    assert failed(report)
    assert {"lose": "delivery", "reorder": "order", "forget": "retry"}[fault] in failed(report)
    assert report.lag_seconds > 0 or fault == "reorder"


def test_node_that_goes_away_ends_the_run_with_its_error() -> None:
    """The pulling thread's failure reaches the caller, and no thread is left behind."""
    before = set(threading.enumerate())
    with running(MiniNode("leave")) as run, pytest.raises(Unreachable):
        run.execute()
    assert not set(threading.enumerate()) - before
