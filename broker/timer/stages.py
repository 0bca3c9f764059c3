"""The five stages of timers, RocketMQ's by name; each can be paused, and tells its depth and time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from broker.metrics import Metrics
from broker.seams import Clock
from broker.timer import metrics as counted


class Stage(StrEnum):
    """A stage; what comes before a paused one fills up and waits.

    ENQUEUE_GET reads records of the timer topic, ENQUEUE_PUT enters them in log and wheel, DEQUEUE_GET reads slots that
    come due, DEQUEUE_GET_MESSAGE reads the records of timers that are due, DEQUEUE_PUT_MESSAGE appends them.
    Nothing waits between the last two, since a cancel may come at any time: a pause of one holds both.
    """

    ENQUEUE_GET = "enqueue_get"
    ENQUEUE_PUT = "enqueue_put"
    DEQUEUE_GET = "dequeue_get"
    DEQUEUE_GET_MESSAGE = "dequeue_get_message"
    DEQUEUE_PUT_MESSAGE = "dequeue_put_message"


class Stages:
    """State and counters of the stages of one store."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._paused: set[Stage] = set()
        self._inside = 0.0
        self._us = {stage: metrics.counter(counted.STAGE_US, stage.value) for stage in Stage}
        self._counts = {stage: metrics.counter(counted.STAGE_COUNT, stage.value) for stage in Stage}
        self._depths = {stage: metrics.counter(counted.STAGE_DEPTH, stage.value) for stage in Stage}
        self._gauges = {stage: metrics.counter(counted.STAGE_PAUSED, stage.value) for stage in Stage}

    def runs(self, stage: Stage) -> bool:
        """Whether a stage may work."""
        return stage not in self._paused

    @property
    def paused(self) -> frozenset[Stage]:
        """Those that are paused."""
        return frozenset(self._paused)

    def pause(self, stage: Stage) -> None:
        """Have a stage rest until `resume`; a restart resumes all."""
        self._paused.add(stage)
        self._gauges[stage].value = 1

    def resume(self, stage: Stage) -> None:
        """Have a stage go on."""
        self._paused.discard(stage)
        self._gauges[stage].value = 0

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Count the time of what runs inside as a stage's, but for what another stage in there counts."""
        began = self._clock.monotonic()
        beside, self._inside = self._inside, 0.0
        try:
            yield
        finally:
            spent = self._clock.monotonic() - began
            self._us[stage].value += round((spent - self._inside) * 1e6)
            self._inside = beside + spent

    def passed(self, stage: Stage, count: int) -> None:
        """Count what went through a stage."""
        self._counts[stage].value += count

    def depth(self, stage: Stage, count: int) -> None:
        """Tell how many wait before a stage."""
        self._depths[stage].value = count
