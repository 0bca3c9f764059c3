"""Time of the stages of timers."""

from __future__ import annotations

from broker.runtime.metrics import Metrics
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.stages import Stages, TimerPipelineStage
from pyddmq.testing.manual_time import ManualClock


def test_time_of_a_stage_within_another_is_its_own() -> None:
    """An append within the reading of due timers is counted once, as an append."""
    clock = ManualClock()
    metrics = Metrics()
    stages = Stages(clock, metrics)
    for _ in range(2):
        with stages.timed(TimerPipelineStage.DEQUEUE_GET_MESSAGE):
            clock.advance(1)
            with stages.timed(TimerPipelineStage.DEQUEUE_PUT_MESSAGE):
                clock.advance(2)
            clock.advance(4)
            with stages.timed(TimerPipelineStage.DEQUEUE_PUT_MESSAGE):
                clock.advance(8)
    with stages.timed(TimerPipelineStage.ENQUEUE_GET):
        clock.advance(16)
    seconds = {stage: metrics.value(counted.STAGE_US, stage.value) / 1e6 for stage in TimerPipelineStage}
    assert seconds == {
        TimerPipelineStage.ENQUEUE_GET: 16,
        TimerPipelineStage.ENQUEUE_PUT: 0,
        TimerPipelineStage.DEQUEUE_GET: 0,
        TimerPipelineStage.DEQUEUE_GET_MESSAGE: 10,
        TimerPipelineStage.DEQUEUE_PUT_MESSAGE: 20,
    }
