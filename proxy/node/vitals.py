"""What a node remembers of its last minutes, for what needs attention: how fast counters rise, and clock steps.

Each second `look` takes notice of the clocks; every few seconds it keeps the values of the counters that are watched,
and each minute it begins a window of the histograms.
Nothing here is done per message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from broker.runtime.metrics import Metrics, Rises
from broker.runtime.seams import Clock
from broker.runtime.store_metrics import FILES_DELETED, REFUSED
from proxy.node.logs import LOST
from proxy.port.server import CONNECTIONS_REFUSED
from proxy.services.consumer_service import PULLS_REFUSED
from proxy.services.publishing import SENDS_REFUSED
from upstream.figures.counters import (
    DEAD_LETTERS,
    ERRORS,
    FAILED,
    FINISHED,
    SENT_BACK_AGAIN,
    SKIPPED,
    TIMEOUTS,
)

WINDOW_SECONDS = 60.0
_SAMPLE_SECONDS = 5.0
STEP_SECONDS = 1.0
"""A wall clock that goes otherwise than the monotonic one by more, within a second or so, was set."""
WATCHED = frozenset(
    (
        CONNECTIONS_REFUSED,
        DEAD_LETTERS,
        ERRORS,
        FAILED,
        FILES_DELETED,
        FINISHED,
        LOST,
        PULLS_REFUSED,
        REFUSED,
        SENT_BACK_AGAIN,
        SENDS_REFUSED,
        SKIPPED,
        TIMEOUTS,
    )
)
"""Counters whose rise within the last minute is known."""

Labels = tuple[str, ...]
Series = tuple[str, Labels]


class ClockStep(NamedTuple):
    """The wall clock was set by `seconds` (forward, or back: negative), `ago` seconds ago."""

    seconds: float
    ago: float


class Vitals:
    """Watches one node.

    Args:
        metrics: Its counters.
        clock: Its clocks.
        watched: Names of the counters of which the rise is wanted.
    """

    def __init__(self, metrics: Metrics, clock: Clock, *, watched: Collection[str] = WATCHED) -> None:
        self._metrics = metrics
        self._clock = clock
        self._watched = Rises(metrics, watched)
        self._rises: deque[tuple[float, dict[Series, int]]] = deque()
        """Of the last minute, the time at which each ends first: only what rose."""
        self._windows: Iterator[None] = iter(())
        self._sampled_at = self._window_began = clock.monotonic()
        self._offset_ms: float | None = None
        self._latest_ms = 0
        self._stepped_at = 0.0
        self._stepped_seconds = 0.0

    def look(self) -> None:
        """Take notice; to be called each second."""
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        offset_ms = wall_ms - now * 1000
        if self._offset_ms is not None and abs(offset_ms - self._offset_ms) > STEP_SECONDS * 1000:
            self._stepped_at, self._stepped_seconds = now, (offset_ms - self._offset_ms) / 1000
        self._offset_ms = offset_ms
        self._latest_ms = max(self._latest_ms, wall_ms)
        if now - self._sampled_at >= _SAMPLE_SECONDS:
            self._sampled_at = now
            self._rises.append((now, self._watched.look()))
            while self._rises[0][0] <= now - WINDOW_SECONDS:
                self._rises.popleft()
        if now - self._window_began >= WINDOW_SECONDS:
            self._window_began = now
            self._windows = self._metrics.beginning_windows()
        # One piece with each look: those of a hundred thousand series begin within a minute.
        next(self._windows, None)

    def risen(self) -> Mapping[str, Mapping[Labels, int]]:
        """Return by how much watched counters rose within the last minute, by name and labels; only those that did."""
        risen: dict[str, dict[Labels, int]] = {}
        for rises in (self._watched.look(keep=False), *(each for _, each in self._rises)):
            for (name, labels), more in rises.items():
                of_name = risen.setdefault(name, {})
                of_name[labels] = of_name.get(labels, 0) + more
        return risen

    # Clocks

    @property
    def clock_step(self) -> ClockStep | None:
        """The last time that the wall clock was set, None when it never was."""
        if not self._stepped_seconds:
            return None
        return ClockStep(self._stepped_seconds, self._clock.monotonic() - self._stepped_at)

    @property
    def clock_behind_seconds(self) -> float:
        """By how much the wall clock is behind what it has shown before; 0.0 while it is not."""
        return max(0.0, (self._latest_ms - self._clock.wall_ms()) / 1000)
