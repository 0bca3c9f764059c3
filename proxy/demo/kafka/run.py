"""One run: the permit events to a topic in Kafka with two node processes in front of it, one of them killed midway.

Clients pull from both nodes. When half of the events have succeeded, one node gets SIGKILL: Kafka gives its partitions
to the other once its session is over, and what it had not committed comes again, by key in order from there on. So
after the kill, and no sooner, the checker takes it that a case goes back; what it never takes is an event that is left
out, or comes before an earlier one that is unfinished, and a repeat of what had been answered long before the kill.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.runtime.seams import Clock
from proxy.demo.checker import Checker, Findings, Tamper
from proxy.demo.events import ACTIVITY_COLUMN, RUN_PROPERTY, Event, Seen, read_body
from proxy.demo.kafka.nodes import NodeProcess
from proxy.demo.report import Check, Judged, checks_of
from pyddmq import ClientError, Consumer, OutgoingMessage, Producer, PulledMessage

GROUP = "permits-audit"
PARTITIONS = 6
SEND_BATCH = 64
PULL_BATCH = 32
KILL_AT = 0.5
"""Share of the events that have succeeded when a node is killed."""
SHARE_SECONDS = 1.0
"""Between batches, from half of that share on until the node to be killed had an event."""
COMMIT_SECONDS = 5.0
"""An answer that was given so long before the kill is committed (D52: 100 ms and a round trip, on a machine that has
room); that much is left to a busy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaReport(Judged):
    """The outcome of a run.

    Attributes:
        events: Events sent.
        deliveries: Deliveries, with retries and repeats.
        failures: Deliveries failed on purpose.
        repeats: Deliveries of events that had succeeded.
        latest_ms: How long before the kill the oldest answer was given that is among those; null: none is.
        silence_ms: How long after the kill the first event came of a case that the killed node had had before; null:
            none came.
        seconds: From the first delivery to the last success.
        killed: Events that had succeeded when the node was killed.
    """

    events: int
    deliveries: int
    failures: int
    repeats: int
    latest_ms: int | None
    silence_ms: int | None
    seconds: float
    killed: int

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            **self.verdict(),
            "events": self.events,
            "deliveries": self.deliveries,
            "failedOnPurpose": self.failures,
            "repeats": self.repeats,
            "oldestRepeatMs": self.latest_ms,
            "silenceMs": self.silence_ms,
            "seconds": round(self.seconds, 3),
            "killedAt": self.killed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """What a run is made of.

    Attributes:
        address: Where Kafka is.
        topic: A new topic in it.
        run: Run id.
        clients: Pull clients of each node.
        spoil: As of `Tamper`.
        patience_seconds: How long nothing may arrive before it counts as lost.
    """

    address: str
    topic: str
    run: str
    clients: int
    spoil: str | None
    patience_seconds: float


class KafkaRun:
    """State that the sending thread (the caller's) and the pulling ones share, under one lock."""

    def __init__(
        self,
        events: Sequence[Event],
        options: KafkaOptions,
        folder: Path,
        *,
        clock: Clock,
        told: Callable[[str], None],
        progress: Callable[[int], None],
    ) -> None:
        """Set up.

        Args:
            events: What is sent.
            options: What the run is made of.
            folder: For files and data of the nodes.
            clock: For times in the report.
            told: Told a sentence when something is done.
            progress: Told now and then how many events have succeeded.

        Raises:
            ValueError: Too few events for the chosen `spoil`.
        """
        self._events = events
        self._options = options
        self._folder = folder
        self._clock = clock
        self._told = told
        self._progress = progress
        self._checker = Checker(events)
        self._tamper = Tamper(options.spoil, events, self._checker)
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._error: Exception | None = None
        self._succeeded: dict[int, float] = {}
        self._had: dict[str, int] = {}
        """By case, the node that handed out the last event of it."""
        self._late = Findings()
        self._killed_at: float | None = None
        self._killed = 0
        self._oldest_ms: int | None = None
        self._silence_ms: int | None = None
        self._orphans: set[str] = set()
        self._first = self._last = clock.monotonic()

    def execute(self) -> KafkaReport:
        """Start the nodes, send, pull, kill, wait and judge.

        Raises:
            NodeFailed: A node did not start.
            ClientError: The node that stays refuses, or went away.
        """
        nodes: list[NodeProcess] = []
        threads: list[threading.Thread] = []
        try:
            for name in ("stays", "killed"):
                nodes.append(self._node(name))
                self._told(f"node {name} serves consumers at {nodes[-1].consumers}")
            self._first = self._last = self._clock.monotonic()
            for number, node in enumerate(nodes):
                for _ in range(self._options.clients):
                    threads.append(threading.Thread(target=self._work, args=(number, node), daemon=True))
                    threads[-1].start()
            threads.append(threading.Thread(target=self._send, args=(nodes[0],), daemon=True))
            threads[-1].start()
            self._wait(nodes[1])
        finally:
            self._finished.set()
            for thread in threads:
                thread.join()
            for node in nodes:
                node.kill()
        if self._error is not None:
            raise self._error
        return self._report()

    def _node(self, name: str) -> NodeProcess:
        return NodeProcess(self._folder, name, address=self._options.address, topic=self._options.topic, group=GROUP)

    def _send(self, node: NodeProcess) -> None:
        try:
            # No resends: one may store a batch twice, and the check would blame the nodes for it.
            with Producer(node.producers, resends=0, timeout_ms=60_000) as producer:
                for start in range(0, len(self._events), SEND_BATCH):
                    if self._finished.is_set():
                        return
                    producer.send_batch([self._message(each) for each in self._events[start : start + SEND_BATCH]])
                    with self._lock:
                        self._last = self._clock.monotonic()
                        is_shared = 1 in self._had.values()
                    if start >= len(self._events) * KILL_AT / 2 and not is_shared:
                        # A fast node would be through with all before Kafka gave the other one its share.
                        self._finished.wait(SHARE_SECONDS)
        except ClientError as error:
            self._error = self._error or error
            self._finished.set()

    def _message(self, event: Event) -> OutgoingMessage:
        return OutgoingMessage(
            topic=self._options.topic,
            body=event.body(self._options.run),
            key=event.case,
            tags=event.row[ACTIVITY_COLUMN],
            properties={RUN_PROPERTY: self._options.run},
        )

    def _wait(self, victim: NodeProcess) -> None:
        """Kill a node when it is time; wait until every event succeeded, or nothing arrives any more."""
        while not self._finished.wait(0.05):
            with self._lock:
                done, quiet = self._tamper.done_count, self._clock.monotonic() - self._last
                is_due = done >= len(self._events) * KILL_AT and 1 in self._had.values()
                if self._killed_at is None and is_due:
                    self._killed_at, self._killed = self._clock.monotonic(), done
                    self._checker.rewinds = True
                    self._orphans = {case for case, number in self._had.items() if number == 1}
                    victim.kill()
                    self._told(f"node {victim.name} was killed with {done:,} events done")
            self._progress(done)
            if quiet > self._options.patience_seconds:
                return

    def _work(self, number: int, node: NodeProcess) -> None:
        """Pull from a node until the run is finished, or the node is dead; one thread's whole life."""
        try:
            with Consumer(
                node.consumers,
                GROUP,
                self._options.topic,
                batch_size=PULL_BATCH,
                linger_ms=200,
                timeout_ms=30_000,
            ) as consumer:
                while not self._finished.is_set():
                    if batch := consumer.pull():
                        self._take(number, consumer, batch)
        except ClientError as error:
            if number == 0 or self._killed_at is None:
                self._error = self._error or error
                self._finished.set()

    def _take(self, number: int, consumer: Consumer, batch: Sequence[PulledMessage]) -> None:
        parsed = [(message, read_body(message.body)) for message in batch]
        with self._lock:
            self._last = self._clock.monotonic()
            to_fail = set()
            for _, seen in parsed:
                if seen is not None:
                    self._note_repeat(seen, number)
                    if number == 0 or self._killed_at is None:
                        self._had[seen.case] = number
                    if self._tamper.deliver(seen):
                        to_fail.add(seen.sequence)
        for message, seen in parsed:
            if seen is None or seen.run != self._options.run:
                consumer.ack(message)
                continue
            success = seen.sequence not in to_fail
            with self._lock:
                self._tamper.note_outcome(seen, success=success)
                if success:
                    self._succeeded.setdefault(seen.sequence, self._clock.monotonic())
            if success:
                consumer.ack(message)
            else:
                consumer.fail(message)
        with self._lock:
            self._last = self._clock.monotonic()
            if self._tamper.done_count == len(self._events):
                self._finished.set()

    def _note_repeat(self, seen: Seen, number: int) -> None:
        """Look how old the answer is of what comes again, and how long a case of the dead node's waited."""
        killed_at = self._killed_at
        if killed_at is None:
            return
        if number == 0 and self._silence_ms is None and seen.case in self._orphans:
            self._silence_ms = round((self._last - killed_at) * 1000)
        at = self._succeeded.get(seen.sequence)
        if at is None or at > killed_at:
            return
        age = killed_at - at
        self._oldest_ms = max(self._oldest_ms or 0, round(age * 1000))
        if age > COMMIT_SECONDS:
            self._late.add(f"{seen.case}: event {seen.case_sequence}, done {age:.1f} s before the kill, came again")

    def _report(self) -> KafkaReport:
        checker = self._checker
        promise = f"nothing came again that was done {COMMIT_SECONDS:.0f} s before the kill"
        killed = Findings()
        if self._killed_at is None:
            killed.add("no node was killed: too few events succeeded, or Kafka gave it no partition")
        return KafkaReport(
            run=self._options.run,
            checks=(
                *checks_of(checker),
                Check(name="kill", promise="a node was killed with events left", findings=killed),
                Check(name="commits", promise=promise, findings=self._late),
            ),
            events=len(self._events),
            deliveries=checker.deliveries,
            failures=checker.failures,
            repeats=checker.repeats,
            latest_ms=self._oldest_ms,
            silence_ms=self._silence_ms,
            seconds=self._last - self._first,
            killed=self._killed,
        )
