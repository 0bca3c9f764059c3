"""All features of the broker, as `Store.open` takes them: the one place that knows the core and every feature."""

from __future__ import annotations

from broker.consumer.options import CONSUMER_FEATURE
from broker.feature import Feature
from broker.retry.puts import RETRY_FEATURE
from broker.scheduled.delay.levels import STANDARD_LEVELS
from broker.scheduled.delay.puts import delay_feature
from broker.scheduled.pop_records import POP_FEATURE
from broker.scheduled.recurring.ended_loops import LOOP_FEATURE
from broker.scheduled.timer.names import TimerOptions
from broker.scheduled.timer.puts import timer_feature
from broker.transaction.names import TRANSACTION_FEATURE


def features(*, delay_levels: str = STANDARD_LEVELS, timers: TimerOptions | None = None) -> tuple[Feature, ...]:
    """Return all features, set as asked.

    Args:
        delay_levels: Delays of the levels, as RocketMQ's messageDelayLevel writes them.
        timers: How far timers go, and how they are kept.

    Raises:
        ValueError: The delays are not valid (`DelayLevels`).
    """
    return (
        delay_feature(delay_levels),
        timer_feature(timers),
        LOOP_FEATURE,
        TRANSACTION_FEATURE,
        RETRY_FEATURE,
        CONSUMER_FEATURE,
        # Deduplicating producers: what a store does for them is kept beside it (`broker.deduplication`).
        Feature(name="deduplication"),
        POP_FEATURE,
    )


ALL = features()
"""All of them, as RocketMQ's defaults are."""
