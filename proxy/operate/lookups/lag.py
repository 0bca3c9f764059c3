"""Consumption lag of a running node: its last samples, judged by `lag.rules`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from broker.runtime.steps import run_now
from lag.rules.waiting_rules import WaitingLag
from lag.samples import ScheduledSample
from lag.verdicts.windows import JudgedQueue
from proxy.node.node import Node
from proxy.operate.attention.judgement import LagQueues, judgement
from proxy.operate.views.lag import LagAnswer, LagQueue, LagWaiting
from proxy.recording.in_force import InForce
from proxy.recording.judging import TopicVerdicts
from proxy.recording.recorder import Recorder

FIGURES = (
    "lag",
    "unfinished",
    "filtered_lag",
    "in_flight",
    "time_lag_ms",
    "time_lag_low_ms",
    "time_lag_high_ms",
    "time_lag_method",
    "produce_rate",
    "consume_rate",
    "velocity",
    "catch_up_s",
    "retention_ratio",
    "loss_eta_s",
    "lost",
    "samples",
)
_TOPICS_AT_ONCE = 64


def lag_queues(
    recorder: Recorder, in_force: InForce, now_ms: int, *, leisurely: bool = False
) -> Generator[None, None, LagQueues]:
    """Judge the queues of all groups of a node, in steps of some tenths of a millisecond."""
    config = in_force.config.lag
    found = yield from recorder.judge.judging(now_ms, leisurely=leisurely)
    queues: list[LagQueue] = []
    made = 0
    for topic in found.topics:
        queues += _views(topic)
        made += 1 + len(topic.judged) // 4
        if made >= _TOPICS_AT_ONCE:
            made = 0
            yield
    return LagQueues(
        now_ms=now_ms,
        enabled=config.enabled,
        every_ms=config.every_ms,
        trouble=recorder.trouble,
        groups=list(in_force.groups),
        queues=queues,
        empty=found.empty,
        waiting=[waiting_of(sample, verdict) for sample, verdict in recorder.waiting() if sample.pending],
    )


def lag_of(node: Node, *, limit: int) -> LagAnswer:
    """Answer at once, by the lag rules alone: for a node that no admin port looks at, such as a demo's."""
    return judgement(run_now(lag_queues(node.recording.recorder, node.in_force, node.runtime.clock.wall_ms()))).as_lag(
        limit=limit
    )


def waiting_of(sample: ScheduledSample, verdict: WaitingLag) -> LagWaiting:
    """Return what is shown of messages that wait for their own time."""
    return LagWaiting(
        kind=sample.kind,
        topic=sample.topic,
        delay_level=sample.level,
        status=verdict.status,
        level=verdict.level,
        advice=verdict.advice,
        **verdict.figures,
    )


def _views(topic: TopicVerdicts) -> list[LagQueue]:
    """Return what is shown of the queues of a topic: made once, and of idle ones again the same with the new moment."""
    if not topic.views:
        topic.views = [queue_of(each) for each in topic.judged]
    elif topic.views[0].time_ms != topic.judged[0].sample.time_ms:
        pairs = zip(topic.views, topic.judged, strict=True)
        topic.views = [replace(view, time_ms=each.sample.time_ms) for view, each in pairs]
    return topic.views


def queue_of(judged: JudgedQueue) -> LagQueue:
    """Return what is shown of a queue."""
    (group, topic, queue), verdict, sample = judged
    figures: dict[str, Any] = {}
    for name in FIGURES:
        value = verdict.figures.get(name, getattr(sample, name, None))
        figures[name] = round(value, 3) if isinstance(value, float) else value
    return LagQueue(
        group=group,
        topic=topic,
        queue=queue,
        time_ms=sample.time_ms,
        status=verdict.status,
        level=verdict.level,
        cause=verdict.cause,
        evidence=verdict.evidence,
        advice=verdict.advice,
        committed=sample.committed,
        end=sample.end,
        held_key=sample.held_key,
        held_offset=sample.held_offset,
        **figures,
    )
