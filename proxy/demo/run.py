"""One run of the demo: sends the events, pulls them with several clients at once, and draws the verdict.

It speaks Thrift to a running node and nothing else. Messages carry the run's id: those of older, aborted runs are
acked and not judged. What an aborted run's clients still hold comes back after the subscription's timeout, so the run
continues as long as anything arrives and for `patience_seconds` beyond.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.runtime.seams import Clock
from proxy.demo.checker import DemoChecker, Tamper
from proxy.demo.events import ACTIVITY_COLUMN, RUN_PROPERTY, DemoEvent, Seen, read_body
from proxy.demo.report import DemoReport, checks_of
from pyddmq import Consumer, OutgoingMessage, Producer, PulledMessage

TOPIC = "permits"
GROUP = "permits-audit"

SEND_BATCH = 64
PULL_BATCH = 32
PULL_LINGER_MS = 200

_LAG_TRIES = 20
_LAG_PAUSE_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What a run is made of.

    Attributes:
        producer: Address of the producer port.
        consumer: Address of the consumer port.
        run: Run id, new for each run.
        clients: Pull clients, a thread and a connection each.
        spoil: "order", "loss" or None: what `Tamper` does.
        patience_seconds: How long nothing of the run may arrive before it counts as lost. Longer than the
            subscription's timeout, so that deliveries held by clients of an aborted run come back first.
    """

    producer: str
    consumer: str
    run: str
    clients: int = 4
    spoil: str | None = None
    patience_seconds: float = 60.0


Progress = Callable[[int, int], None]
"""Told now and then: events sent, events that succeeded."""


class DemoRun:
    """State shared by the sending thread (the caller's) and the pulling threads, under one lock."""

    def __init__(self, events: Sequence[DemoEvent], options: DemoOptions, *, clock: Clock, progress: Progress) -> None:
        """Set up; `execute` does the work.

        Raises:
            ValueError: Too few events for the chosen `spoil`.
        """
        self._events = events
        self._options = options
        self._clock = clock
        self._progress = progress
        self._checker = DemoChecker(events)
        self._tamper = Tamper(options.spoil, events, self._checker)
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._error: Exception | None = None
        self._sent_at: list[float] = []
        self._foreign = 0
        self._first_delivery = self._last_success = self._last_arrival = clock.monotonic()

    def execute(self) -> DemoReport:
        """Send, pull, wait and judge.

        Raises:
            ClientError: The node is not there, refuses, or went away.
        """
        options = self._options
        consumers = [self._consumer() for _ in range(options.clients)]
        # A node that is not there, or does not know topic or group, is reported before anything else happens.
        with self._producer() as producer:
            producer.connect()
            for consumer in consumers:
                consumer.connect()
            consumers[0].stats()
            threads = [threading.Thread(target=self._work, args=(consumer,), daemon=True) for consumer in consumers]
            for thread in threads:
                thread.start()
            try:
                send_seconds = self._send(producer)
                self._wait()
            finally:
                self._finished.set()
                for thread in threads:
                    thread.join()
        if self._error is not None:
            raise self._error
        return self._report(send_seconds)

    def _producer(self) -> Producer:
        # No resends: a resend may store a batch twice, and the check would blame the node for it.
        return Producer(self._options.producer, resends=0, timeout_ms=30_000)

    def _consumer(self) -> Consumer:
        return Consumer(
            self._options.consumer, GROUP, TOPIC, batch_size=PULL_BATCH, linger_ms=PULL_LINGER_MS, timeout_ms=30_000
        )

    def _send(self, producer: Producer) -> float:
        """Publish all events in order; returns how long it took in seconds."""
        began = self._clock.monotonic()
        for start in range(0, len(self._events), SEND_BATCH):
            if self._error is not None:
                break
            batch = self._events[start : start + SEND_BATCH]
            moment = self._clock.monotonic()
            producer.send_batch([self._message(event) for event in batch])
            with self._lock:
                self._sent_at.extend([moment] * len(batch))
            self._progress(len(self._sent_at), self._tamper.done_count)
        return self._clock.monotonic() - began

    def _message(self, event: DemoEvent) -> OutgoingMessage:
        run = self._options.run
        return OutgoingMessage(
            topic=TOPIC,
            body=event.body(run),
            key=event.case,
            tags=event.row[ACTIVITY_COLUMN],
            properties={RUN_PROPERTY: run},
        )

    def _wait(self) -> None:
        """Wait until every event succeeded, a client failed, or nothing arrived for the patience."""
        while not self._finished.wait(0.1):
            with self._lock:
                quiet_seconds = self._clock.monotonic() - self._last_arrival
            self._progress(len(self._sent_at), self._tamper.done_count)
            if quiet_seconds > self._options.patience_seconds:
                return

    def _work(self, consumer: Consumer) -> None:
        """Pull until the run is finished; one thread's whole life."""
        try:
            with consumer:
                while not self._finished.is_set():
                    batch = consumer.pull()
                    if batch:
                        self._take(consumer, batch)
        except Exception as error:
            # The sending thread raises it for all.
            self._error = self._error or error
            self._finished.set()

    def _take(self, consumer: Consumer, batch: Sequence[PulledMessage]) -> None:
        """Judge a batch as delivered, then work on it message by message."""
        now = self._clock.monotonic()
        parsed = [(message, self._own(message)) for message in batch]
        with self._lock:
            self._last_arrival = now
            if not self._checker.deliveries:
                self._first_delivery = now
            to_fail = {seen.sequence for _, seen in parsed if seen is not None and self._tamper.deliver(seen)}
        for message, seen in parsed:
            if seen is None:
                consumer.ack(message)
                continue
            success = seen.sequence not in to_fail
            with self._lock:
                self._tamper.note_outcome(seen, success=success)
            if success:
                consumer.ack(message)
            else:
                consumer.fail(message)
        with self._lock:
            self._foreign += sum(seen is None for _, seen in parsed)
            self._last_success = self._clock.monotonic()
            if self._tamper.done_count == len(self._events):
                self._finished.set()

    def _own(self, message: PulledMessage) -> Seen | None:
        """Read a message of this run; None for one of another run or producer."""
        if message.properties.get(RUN_PROPERTY) != self._options.run:
            return None
        seen = read_body(message.body)
        return seen if seen is not None and seen.run == self._options.run else None

    def _report(self, send_seconds: float) -> DemoReport:
        lag = self._lag()
        return DemoReport(
            run=self._options.run,
            events=len(self._events),
            clients=self._options.clients,
            checks=checks_of(self._checker),
            deliveries=self._checker.deliveries,
            failures=self._checker.failures,
            repeats=self._checker.repeats,
            foreign=self._foreign,
            send_seconds=send_seconds,
            consume_seconds=self._last_success - self._first_delivery,
            lag=lag,
            lag_seconds=self._lag_seconds(),
        )

    def _lag(self) -> int:
        """Messages of the group's lag on the topic, once the last acks have moved the committed offsets."""
        pause = threading.Event()
        # A run that is incomplete has a lag that waiting does not change.
        tries = _LAG_TRIES if self._tamper.done_count == len(self._events) else 1
        with self._consumer() as consumer:
            while (lag := sum(stats.lag for stats in consumer.stats())) and (tries := tries - 1):
                pause.wait(_LAG_PAUSE_SECONDS)
        return lag

    def _lag_seconds(self) -> float:
        """Age of the oldest event of this run that has not succeeded; 0.0 when all have."""
        now = self._clock.monotonic()
        ages = (now - at for sequence, at in enumerate(self._sent_at) if not self._checker.is_done(sequence))
        return max(ages, default=0.0)
