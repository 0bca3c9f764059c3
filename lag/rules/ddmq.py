"""DDMQ's thresholds as a mode: the fields of a DDMQ subscription, and the alarm that its lag monitor would write.

Unlike that monitor: what could not be read is an alarm, and not a lag of -1 below every threshold; a queue whose time
lag is not known is judged by its lower bound, and not by 0; `enableAlarm: false` does silence it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OFF = -1
"""A threshold of this value is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DdmqThresholds:
    """Thresholds of one subscription, with DDMQ's defaults.

    Attributes:
        committed_lag_threshold: `committedLagThreshold`: lag in messages that is still none; -1: off.
        delay_time_threshold: `delayTimeThreshold`: time lag in ms that is still none; -1: off.
        enable_alarm: `enableAlarm`: whether it alarms at all.
        alarm_group: `alarmGroup`: whom it alarms.
    """

    committed_lag_threshold: int = 10_000
    delay_time_threshold: int = 300_000
    enable_alarm: bool = True
    alarm_group: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse thresholds that are no thresholds.

        Raises:
            ValueError: One is below -1.
        """
        for name, value in (
            ("committedLagThreshold", self.committed_lag_threshold),
            ("delayTimeThreshold", self.delay_time_threshold),
        ):
            if value < OFF:
                raise ValueError(f"{name} is {value}: it must be 0 or more, or {OFF} for off")


@dataclass(frozen=True, slots=True, kw_only=True)
class DdmqAlarm:
    """One alarm.

    Attributes:
        kind: `lag`, `delay`, `not consumed` or `unknown`.
        text: What is wrong, with the figures.
        alarm_group: Whom it is for.
    """

    kind: str
    text: str
    alarm_group: tuple[str, ...]


def alarms(figures: Mapping[str, Any], status: str, thresholds: DdmqThresholds) -> list[DdmqAlarm]:
    """Return the alarms of one queue, none where the subscription wants none.

    Args:
        figures: Its quantities by name (`lag.rules.queue_rules.QueueLag.figures`).
        status: Its status.
        thresholds: Those of the subscription.
    """
    if not thresholds.enable_alarm:
        return []
    found: list[tuple[str, str]] = []
    lag, late = figures["lag"], figures["time_lag_low_ms"]
    lag_limit, late_limit = thresholds.committed_lag_threshold, thresholds.delay_time_threshold
    if status == "NOT_CONSUMED":
        found.append(("not consumed", "nobody has ever read this queue"))
    elif status == "UNKNOWN" or lag is None:
        found.append(("unknown", "the lag is not known"))
    if lag_limit != OFF and lag is not None and lag > lag_limit:
        found.append(("lag", f"a lag of {lag} messages is above {lag_limit}"))
    if late_limit != OFF and late is not None and late > late_limit:
        found.append(("delay", f"a time lag of {late:.0f} ms is above {late_limit}"))
    return [DdmqAlarm(kind=kind, text=text, alarm_group=thresholds.alarm_group) for kind, text in found]
