"""Queues judged from samples, as tests write them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lag.rules.facts import row_of
from lag.rules.limits import LagLimits
from lag.rules.queue_rules import QueueVerdict, judging_topic
from lag.samples import QueueSample

DEFAULTS: Final = LagLimits()


def judge(
    samples: Sequence[QueueSample], now_ms: int, limits: LagLimits = DEFAULTS, reset_ms: int | None = None
) -> QueueVerdict:
    """Judge one queue that is the only one of its topic, by its samples, oldest first."""
    return judge_topic({0: samples}, now_ms, limits, {} if reset_ms is None else {0: reset_ms})[0]


def judge_topic(
    queues: Mapping[int, Sequence[QueueSample]],
    now_ms: int,
    limits: LagLimits = DEFAULTS,
    resets_ms: Mapping[int, int] | None = None,
) -> dict[int, QueueVerdict]:
    """Judge all queues of a group's topic beside each other, by the samples of each, oldest first."""
    windows = {queue: ([row_of(each) for each in samples], samples[-1]) for queue, samples in queues.items()}
    return dict(each for each in judging_topic(windows, now_ms, limits, resets_ms) if each is not None)
