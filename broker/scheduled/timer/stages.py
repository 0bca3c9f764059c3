"""The five stages of timers, RocketMQ's by name; each can be paused, and reports its depth and time."""

from __future__ import annotations

from enum import StrEnum
from types import TracebackType

from broker.runtime.metrics import Metrics
from broker.runtime.seams import Clock
from broker.scheduled.timer import metrics as counted


class TimerPipelineStage(StrEnum):
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
        self._paused: set[TimerPipelineStage] = set()
        self._inside = 0.0
        self._us = {stage: metrics.counter(counted.STAGE_US, stage.value) for stage in TimerPipelineStage}
        self._counts = {stage: metrics.counter(counted.STAGE_COUNT, stage.value) for stage in TimerPipelineStage}
        self._depths = {stage: metrics.counter(counted.STAGE_DEPTH, stage.value) for stage in TimerPipelineStage}
        self._gauges = {stage: metrics.counter(counted.STAGE_PAUSED, stage.value) for stage in TimerPipelineStage}

    def runs(self, stage: TimerPipelineStage) -> bool:
        """Whether a stage may work."""
        return not self._paused or stage not in self._paused

    @property
    def paused(self) -> frozenset[TimerPipelineStage]:
        """Those that are paused."""
        return frozenset(self._paused)

    def pause(self, stage: TimerPipelineStage) -> None:
        """Have a stage rest until `resume`; a restart resumes all."""
        self._paused.add(stage)
        self._gauges[stage].value = 1

    def resume(self, stage: TimerPipelineStage) -> None:
        """Resume a stage."""
        self._paused.discard(stage)
        self._gauges[stage].value = 0

    def timed(self, stage: TimerPipelineStage) -> Timed:
        """Count the time of what runs inside as a stage's, but for what another stage in there counts."""
        return Timed(self, stage)

    def begin(self) -> tuple[float, float]:
        """Begin a stage's time; what it returns is for `end`."""
        beside, self._inside = self._inside, 0.0
        return self._clock.monotonic(), beside

    def end(self, stage: TimerPipelineStage, begun: tuple[float, float]) -> None:
        """Count the time since `begin`."""
        began, beside = begun
        spent = self._clock.monotonic() - began
        self._us[stage].value += round((spent - self._inside) * 1e6)
        self._inside = beside + spent

    def passed(self, stage: TimerPipelineStage, count: int) -> None:
        """Count what went through a stage."""
        self._counts[stage].value += count

    def depth(self, stage: TimerPipelineStage, count: int) -> None:
        """Tell how many wait before a stage."""
        self._depths[stage].value = count


class Timed:
    """Made by `Stages.timed`; a generator's context manager costs three times as much, several times per step."""

    __slots__ = ("_begun", "_stage", "_stages")

    def __init__(self, stages: Stages, stage: TimerPipelineStage) -> None:
        self._stages = stages
        self._stage = stage

    def __enter__(self) -> None:
        self._begun = self._stages.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stages.end(self._stage, self._begun)
