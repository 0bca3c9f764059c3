"""One run of the demo of delays: a level, timers, a loop and cancels, sent and pulled over Thrift, and a verdict.

It uses topic and group of the sample configuration. Every message carries the run's id, and those of other runs are
acked and not judged: what an aborted run left waiting comes when it is due, to whoever pulls then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.runtime.seams import Clock
from proxy.demo.delay_checker import DelayChecker
from proxy.demo.events import CASE_COLUMN, RUN_PROPERTY
from proxy.demo.report import Judged
from proxy.demo.run import GROUP, TOPIC
from pyddmq import Consumer, OutgoingMessage, Producer

NAME_FIELD = "demo:name"
LEVEL = 2
LEVEL_MS = 5_000
TIMERS = 40
FIRST_TIMER_MS = 1_500
TIMER_GAP_MS = 211
LOOP_SECONDS = 3
LOOP_TIMES = 3
QUIET_MS = 2_500
"""How long after its moment a cancelled message may not come, until that is believed."""
_PULL_LINGER_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOptions:
    """What a run is made of: addresses, the run's id, what to spoil (`DelayChecker`), and seconds of patience."""

    producer: str
    consumer: str
    run: str
    spoil: str | None = None
    patience_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayReport(Judged):
    """What one run showed; late: from due to receipt, in ms."""

    deliveries: int
    late_ms_median: int
    late_ms_max: int
    foreign: int

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            **self.verdict(),
            "deliveries": self.deliveries,
            "lateMsMedian": self.late_ms_median,
            "lateMsMax": self.late_ms_max,
            "foreign": self.foreign,
        }


class DelayRun:
    """One run, in the caller's thread.

    Args:
        options: What it is made of.
        clock: The wall clock that due times and deliveries are told by; the node's must not run apart from it.
        told: Is told, in words, what is done.
    """

    def __init__(self, options: DelayOptions, *, clock: Clock, told: Callable[[str], object] = lambda _: None) -> None:
        self._options = options
        self._clock = clock
        self._told = told
        self._checker = DelayChecker(options.spoil)
        self._foreign = 0
        self._ids: dict[str, str] = {}

    def execute(self) -> DelayReport:
        """Send, pull, cancel and judge.

        Raises:
            ClientError: The node is not there, refuses, or went away.
        """
        options = self._options
        with (
            Producer(options.producer, resends=0, timeout_ms=30_000) as producer,
            Consumer(options.consumer, GROUP, TOPIC, linger_ms=_PULL_LINGER_MS, timeout_ms=30_000) as consumer,
        ):
            producer.connect()
            consumer.stats()
            self._send(producer)
            # Of what is cancelled it has to be seen that it does not come.
            until_ms = self._checker.last_due_ms + QUIET_MS
            patience_ms = until_ms + round(options.patience_seconds * 1000)
            while (now_ms := self._clock.wall_ms()) < until_ms or (not self._checker.complete and now_ms < patience_ms):
                self._pull(consumer)
                self._cancel_late(producer)
        late = sorted(self._checker.late_ms)
        return DelayReport(
            run=options.run,
            checks=self._checker.checks(),
            deliveries=len(late),
            late_ms_median=late[len(late) // 2] if late else 0,
            late_ms_max=late[-1] if late else 0,
            foreign=self._foreign,
        )

    def _send(self, producer: Producer) -> None:
        """Publish everything, due within some ten seconds."""
        self._told(f"a message of delay level {LEVEL}, which comes in {LEVEL_MS // 1000} s")
        self._checker.expect("level", "level", [self._clock.wall_ms() + LEVEL_MS])
        producer.send(TOPIC, self._body("level"), properties=self._properties(), delay_level=LEVEL)
        self._told(f"{TIMERS} timers, due {TIMER_GAP_MS} ms apart, by moment and by delay, in one batch")
        producer.send_batch([self._timer(number) for number in range(TIMERS)])
        now_s = self._clock.wall_ms() / 1000
        self._told(
            f"a loop: {LOOP_TIMES} times, every {LOOP_SECONDS} s; and one that is cancelled after its first time"
        )
        self._delay(producer, "loop", "loop", now_s + 1, LOOP_TIMES)
        self._delay(producer, "stopped loop", "loop", now_s + 1, LOOP_TIMES)
        self._told("a message that is cancelled at once, and one that is cancelled when it has come")
        self._delay(producer, "cancelled", "cancel", now_s + 6)
        self._delay(producer, "too late", "cancel", now_s + 1)
        unknown = self._ids["cancelled"][:-12] + "0" * 12
        for name, delay_id, right in (
            ("cancelled", self._ids["cancelled"], "cancelled"),
            ("unknown", unknown, "unknown"),
        ):
            self._checker.cancel(name, producer.cancel_delay(delay_id, TOPIC).value, right)

    def _timer(self, number: int) -> OutgoingMessage:
        name = f"timer {number}"
        delay_ms = FIRST_TIMER_MS + number * TIMER_GAP_MS
        due_ms = self._clock.wall_ms() + delay_ms
        self._checker.expect(name, "timer", [due_ms])
        by_moment = number % 2 == 0
        return OutgoingMessage(
            topic=TOPIC,
            body=self._body(name),
            properties=self._properties(),
            deliver_at_ms=due_ms if by_moment else 0,
            delay_ms=0 if by_moment else delay_ms,
        )

    def _delay(self, producer: Producer, name: str, kind: str, at: float, times: int | None = None) -> None:
        """Send a message as DDMQ's clients do; moments are whole seconds there, rounded up."""
        begin = -int(-at // 1)
        every = LOOP_SECONDS if times else None
        self._checker.expect(name, kind, [(begin + LOOP_SECONDS * each) * 1000 for each in range(times or 1)])
        self._ids[name] = producer.send_delay(
            TOPIC, self._body(name), at=begin, every=every, times=times, properties=self._properties()
        )

    def _cancel_late(self, producer: Producer) -> None:
        """Cancel what is to be cancelled once it has come."""
        for name, right in (("stopped loop", "cancelled"), ("too late", "too late")):
            if name in self._ids and self._checker.count(name):
                self._checker.cancel(name, producer.cancel_delay(self._ids.pop(name), TOPIC).value, right)

    def _pull(self, consumer: Consumer) -> None:
        batch = consumer.pull()
        now_ms = self._clock.wall_ms()
        for message in batch:
            if message.properties.get(RUN_PROPERTY) == self._options.run:
                self._checker.deliver(json.loads(message.body)[NAME_FIELD], now_ms)
            else:
                self._foreign += 1
            consumer.ack(message)

    def _body(self, name: str) -> bytes:
        """A JSON object with a case of its own, as the group wants it: messages do not wait for each other."""
        return json.dumps({CASE_COLUMN: f"{self._options.run} {name}", NAME_FIELD: name}).encode()

    def _properties(self) -> dict[str, str]:
        return {RUN_PROPERTY: self._options.run}
