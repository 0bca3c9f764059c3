"""How a consumer inside the program behaves; names and defaults are RocketMQ's where it has them (reference 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from broker.consumer.strategies import Strategy, averagely
from broker.feature import Feature

SUSPEND_MS_MIN = 10
SUSPEND_MS_MAX = 30_000
CONSUME_BATCH_MAX = 1024


CONSUMER_FEATURE = Feature(name="consumer", needs=("retry",))
"""Consumers inside the program, as `Store.open` takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer behaves.

    Attributes:
        batch_max: Messages that a listener gets at once (consumeMessageBatchMaxSize), 1 to 1024.
        suspend_ms: How long a queue pauses after a failure unless the listener says otherwise; 10 to 30,000.
        reconsume_max: Retries of a message before it becomes a dead letter; -1 means RocketMQ's default: no limit for
            an orderly consumer, 16 for a concurrent one.
        from_where: Where a group starts that is new to a topic; in queues that the topic gets later, it is the first.
        from_ms: With `timestamp`: the first message stored at or after this moment, ms since the epoch.
        strategy: Who of the group consumes which queues.
        concurrency: Batches of a concurrent consumer that run at one time (consumeThreadMax).
        span_max: How far a concurrent consumer reads ahead of its oldest unfinished message, in offsets.
    """

    batch_max: int = 1
    suspend_ms: int = 1000
    reconsume_max: int = -1
    from_where: Literal["first", "last", "timestamp"] = "first"
    from_ms: int = 0
    strategy: Strategy = averagely
    concurrency: int = 20
    span_max: int = 2000

    def __post_init__(self) -> None:
        if not 1 <= self.batch_max <= CONSUME_BATCH_MAX:
            raise ValueError(f"batch_max must be 1 to {CONSUME_BATCH_MAX}, got {self.batch_max}")
        if self.reconsume_max < -1:
            raise ValueError(f"reconsume_max must be -1 (the default limit) or more, got {self.reconsume_max}")
        if self.concurrency < 1 or self.span_max < 1:
            raise ValueError("concurrency and span_max must be 1 or more")


def clamp_suspend(milliseconds: int) -> int:
    """Bring a pause into RocketMQ's bounds (ConsumeMessageOrderlyService.submitConsumeRequestLater)."""
    return max(SUSPEND_MS_MIN, min(milliseconds, SUSPEND_MS_MAX))
