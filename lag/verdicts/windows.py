"""The last samples of each queue, in memory: what the rules judge by, in a running node and in `watch`.

A window reaches as far back as the rules look, with one sample before it. Where there are many queues, or rounds follow
each other quickly, its samples are further apart: no rule needs more than some tens of one queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from broker.runtime.steps import run_now
from lag.rules.facts import WindowRow, row_of
from lag.rules.limits import LagLimits
from lag.rules.queue_rules import QueueVerdict, judging_topic
from lag.samples import EventKind, LagEvent, QueueKey, QueueSample

SAMPLES_MAX = 100_000
"""Samples of all queues together: some tens of megabytes."""
QUEUE_SAMPLES = (4, 40)
"""Samples of one queue: at least, and at most."""
_ADDED_AT_ONCE = 512

Place = tuple[str, str, int]
"""Group, topic, number of the queue."""


class JudgedQueue(NamedTuple):
    """A queue, what the rules say of it, and its newest sample."""

    place: Place
    verdict: QueueVerdict
    sample: QueueSample


class NodeWindows:
    """The windows of one node.

    Attributes:
        window_ms: How far back the rules look; may change.
        changes: Rises with each change of the windows.

    Args:
        window_ms: How far back the rules look.
    """

    def __init__(self, window_ms: int = LagLimits().window_ms) -> None:
        self.window_ms = window_ms
        self.changes = 0
        self._rows: dict[Place, deque[WindowRow]] = {}
        self._newest: dict[Place, QueueSample] = {}
        self._resets: dict[Place, int] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def round(self, queues: Iterable[tuple[QueueKey, QueueSample]]) -> None:
        """`taking_round` at once."""
        run_now(self.taking_round(queues))

    def taking_round(self, queues: Iterable[tuple[QueueKey, QueueSample]]) -> Generator[None, None, None]:
        """Take a round, in steps; queues that are not in it any more are forgotten."""
        found = {}
        for number, (key, sample) in enumerate(queues, start=1):
            found[key.group, key.topic, key.queue] = sample
            if number % _ADDED_AT_ONCE == 0:
                yield
        gone = []
        for number, place in enumerate(list(self._newest), start=1):
            if place not in found:
                gone.append(place)
            if number % _ADDED_AT_ONCE == 0:
                yield
        for place in gone:
            self.forget(place)
        for number, (place, sample) in enumerate(found.items(), start=1):
            self.add(place, sample)
            if number % _ADDED_AT_ONCE == 0:
                yield

    def add(self, place: Place, sample: QueueSample) -> None:
        """Take one sample, the newest of its queue."""
        self.changes += 1
        window = self._rows.setdefault(place, deque())
        self._newest[place] = sample
        if window and sample.time_ms < window[-1].time_ms:
            # The clock was set back: nothing from before it can be compared.
            window.clear()
        least, most = QUEUE_SAMPLES
        spacing_ms = self.window_ms / max(least, min(most, SAMPLES_MAX // len(self._rows)))
        is_near = len(window) >= 2 and sample.time_ms - window[-2].time_ms < spacing_ms
        # Nothing is divided by the time between two samples of one moment, as a step of the clock makes them.
        if is_near or (window and sample.time_ms == window[-1].time_ms):
            window[-1] = row_of(sample)
        else:
            window.append(row_of(sample))
        while len(window) > 2 and window[1].time_ms < sample.time_ms - self.window_ms:
            window.popleft()

    def note(self, event: LagEvent) -> None:
        """Take notice of a reset by an operator, which is no fault of the group's."""
        self.changes += 1
        if event.kind is EventKind.RESET:
            self._resets[event.group, event.topic, event.queue] = event.time_ms

    def forget(self, place: Place) -> None:
        """Forget a queue that is none of its group's any more."""
        self.changes += 1
        self._rows.pop(place, None)
        self._newest.pop(place, None)
        self._resets.pop(place, None)

    def clear(self) -> None:
        """Forget all."""
        self.changes += 1
        self._rows.clear()
        self._newest.clear()
        self._resets.clear()

    def judged(
        self, now_ms: int, limits_of: Callable[[str, str], LagLimits], group: str | None = None
    ) -> list[JudgedQueue]:
        """Judge at once, as `judging` does in steps."""
        return [each for each in self._judged(now_ms, limits_of, group) if each is not None]

    def judging(
        self, now_ms: int, limits_of: Callable[[str, str], LagLimits], group: str | None = None
    ) -> Generator[None, None, list[JudgedQueue]]:
        """Judge every queue, or those of a group, beside the others of its topic, in steps of some tenths of a ms.

        Args:
            now_ms: The moment that is judged.
            limits_of: Thresholds of a group and topic.
            group: Only this one.

        Returns:
            By group, topic and number; what left meanwhile is not in it.
        """
        found = []
        for each in self._judged(now_ms, limits_of, group):
            if each is not None:
                found.append(each)
            yield
        return found

    def topics(self, group: str | None = None) -> dict[tuple[str, str], list[int]]:
        """Return the numbers of all queues, or of a group's, by group and topic, in order."""
        found: dict[tuple[str, str], list[int]] = {}
        for name, topic, queue in sorted(self._newest):
            if group in (None, name):
                found.setdefault((name, topic), []).append(queue)
        return found

    def newest(self, place: Place) -> QueueSample | None:
        """Return the newest sample of a queue; None of one that is not known."""
        return self._newest.get(place)

    def judging_topic(
        self, group: str, topic: str, numbers: Iterable[int], now_ms: int, limits: LagLimits
    ) -> Iterator[JudgedQueue | None]:
        """Judge queues of one topic beside each other, in steps of some tenths of a ms; None: a step without one."""
        queues = {
            queue: (list(self._rows[place]), self._newest[place])
            for queue in numbers
            if (place := (group, topic, queue)) in self._newest
        }
        if not queues:
            return
        resets = {queue: at for queue in queues if (at := self._reset_ms((group, topic, queue))) is not None}
        # A round may have begun after the moment: nothing is newer than now.
        latest_ms = max(now_ms, *(newest.time_ms for _, newest in queues.values()))
        for each in judging_topic(queues, latest_ms, limits, resets):
            yield None if each is None else JudgedQueue((group, topic, each[0]), each[1], queues[each[0]][1])

    def _reset_ms(self, place: Place) -> int | None:
        """Return when a queue was last reset; an event is of all groups, topics or queues where its name says none."""
        if not self._resets:
            return None
        group, topic, queue = place
        names = ((one, other, number) for one in (group, "") for other in (topic, "") for number in (queue, -1))
        return max((at for name in names if (at := self._resets.get(name)) is not None), default=None)

    def _judged(
        self, now_ms: int, limits_of: Callable[[str, str], LagLimits], group: str | None
    ) -> Iterator[JudgedQueue | None]:
        for (name, topic), numbers in self.topics(group).items():
            yield from self.judging_topic(name, topic, numbers, now_ms, limits_of(name, topic))
