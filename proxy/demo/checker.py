"""Judges one run from what its consumers saw: pure bookkeeping, no network, no time.

Consumers report a delivery before they work on it and the outcome before they answer the node, so the order of these
calls is the order in which the node handed out and heard. A node that keeps its promises never has a second event of
a case out before it heard of the first, and never hands out a later event of a case while an earlier one is to be
retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.demo.events import DemoEvent, Seen

EXAMPLES_MAX = 5


@dataclass(slots=True)
class Findings:
    """What was wrong with one promise: how often, and the first few in words."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Note one."""
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(text)


class DemoChecker:
    """The state of one run.

    Attributes:
        order: Events out of order in their case, or two of a case out at once.
        retries: Failed events that did not come again before later ones of their case.
        deliveries: Deliveries of this run's events, repeats counted.
        failures: Deliveries that were failed on purpose.
        repeats: Deliveries of events that had succeeded already; at-least-once allows them for a case's latest event.
    """

    def __init__(self, events: Sequence[DemoEvent]) -> None:
        self.order = Findings()
        self.retries = Findings()
        self.deliveries = 0
        self.failures = 0
        self.repeats = 0
        self._events = events
        self._done = bytearray(len(events))
        self._done_count = 0
        self._failed = bytearray(len(events))
        self._next: dict[str, int] = {}
        self._out: dict[str, int] = {}
        self._retrying: dict[str, int] = {}

    @property
    def done_count(self) -> int:
        """Events that succeeded."""
        return self._done_count

    @property
    def complete(self) -> bool:
        """Whether every event succeeded."""
        return self._done_count == len(self._events)

    def is_done(self, sequence: int) -> bool:
        """Whether the event at this position of the run succeeded."""
        return bool(self._done[sequence])

    def deliver(self, seen: Seen) -> bool:
        """Note a delivery.

        Returns:
            Whether the consumer is to fail it.
        """
        event = self._events[seen.sequence]
        self.deliveries += 1
        out = self._out.get(seen.case)
        if out is not None and out != seen.case_sequence:
            self.order.add(f"{seen.case}: event {seen.case_sequence} arrived while {out} was in flight")
        self._out[seen.case] = seen.case_sequence
        expected = self._next.get(seen.case, 0)
        retrying = self._retrying.get(seen.case)
        if retrying is not None and retrying < seen.case_sequence:
            self.retries.add(f"{seen.case}: event {seen.case_sequence} arrived before the retry of {retrying}")
        if seen.case_sequence == expected - 1 or out == seen.case_sequence:
            # Once more after a timeout or a lost answer.
            self.repeats += 1
        elif seen.case_sequence != expected:
            self.order.add(f"{seen.case}: event {seen.case_sequence} arrived where {expected} was due")
        return self._failed[seen.sequence] < event.failures and not self._done[seen.sequence]

    def note_outcome(self, seen: Seen, *, success: bool) -> None:
        """Note the outcome that the consumer is about to report."""
        self._out.pop(seen.case, None)
        if not success:
            self.failures += 1
            self._failed[seen.sequence] += 1
            self._retrying[seen.case] = seen.case_sequence
            return
        if self._retrying.get(seen.case) == seen.case_sequence:
            del self._retrying[seen.case]
        self._next[seen.case] = max(self._next.get(seen.case, 0), seen.case_sequence + 1)
        if not self._done[seen.sequence]:
            self._done[seen.sequence] = 1
            self._done_count += 1

    def missing(self) -> Findings:
        """Events that never succeeded."""
        findings = Findings()
        for event in self._events:
            if not self._done[event.sequence]:
                findings.add(f"{event.case}: event {event.case_sequence} (message {event.sequence} of the run)")
        return findings

    def unretried(self) -> Findings:
        """List what is wrong with retries: those out of place, and failed events that never succeeded."""
        findings = Findings(self.retries.count, list(self.retries.examples))
        for event in self._events:
            if self._failed[event.sequence] and not self._done[event.sequence]:
                findings.add(f"{event.case}: event {event.case_sequence} failed and was never redelivered")
            elif self._done[event.sequence] and self._failed[event.sequence] < event.failures:
                # More often is possible: a delivery that timed out and its successor may both be failed.
                times = self._failed[event.sequence]
                findings.add(f"{event.case}: event {event.case_sequence} failed {times} times, not {event.failures}")
        return findings


class Tamper:
    """Sits between consumers and checker and, on request, spoils what the checker sees, to show that it can fail.

    `order`: two events that follow each other in one case change places. `loss`: the last event of one case is never
    seen. The node gets honest answers all the same, so a spoilt run leaves nothing behind.

    Attributes:
        done_count: Events of the run that succeeded, in truth.
    """

    def __init__(self, kind: str | None, events: Sequence[DemoEvent], checker: DemoChecker) -> None:
        """Choose the victim.

        Args:
            kind: "order", "loss" or None for honesty.
            events: The events of the run.
            checker: Where honest and spoilt observations go.

        Raises:
            ValueError: The run is too short for a victim.
        """
        self.done_count = 0
        self._checker = checker
        self._done = bytearray(len(events))
        self._lost = _last_of_a_case(events) if kind == "loss" else None
        self._first: int | None = None
        self._second: int | None = None
        if kind == "order":
            self._first, self._second = _neighbours(events)
        self._held: Seen | None = None

    def deliver(self, seen: Seen) -> bool:
        """Note a delivery, as `DemoChecker.deliver` does."""
        if seen.sequence == self._lost or (seen.sequence == self._first and not self._done[seen.sequence]):
            return False
        return self._checker.deliver(seen)

    def note_outcome(self, seen: Seen, *, success: bool) -> None:
        """Note an outcome, as `DemoChecker.note_outcome` does."""
        new = success and not self._done[seen.sequence]
        if new:
            self._done[seen.sequence] = 1
            self.done_count += 1
        if seen.sequence == self._lost:
            return
        if seen.sequence == self._first and new:
            self._held = seen
            return
        self._checker.note_outcome(seen, success=success)
        if seen.sequence == self._second and self._held is not None:
            held, self._held = self._held, None
            self._checker.deliver(held)
            self._checker.note_outcome(held, success=True)


def _neighbours(events: Sequence[DemoEvent]) -> tuple[int, int]:
    """Sequences of two events in a row of one case that no consumer fails on purpose."""
    last: dict[str, DemoEvent] = {}
    for event in events:
        before = last.get(event.case)
        if before is not None and before.failures == 0 and event.failures == 0:
            return before.sequence, event.sequence
        last[event.case] = event
    raise ValueError("no case has two events in this run; use more --events")


def _last_of_a_case(events: Sequence[DemoEvent]) -> int:
    """Sequence of an event that no other of its case follows and no consumer fails on purpose."""
    last = {event.case: event for event in events}
    for event in last.values():
        if event.failures == 0:
            return event.sequence
    raise ValueError("every case of this run ends with a failure on purpose; use more --events")
