"""Every threshold of the rules, in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from typing import Any

NO_LIMIT = (1 << 63) - 1
"""More messages than a queue can have."""
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class LagLimits:
    """Thresholds of the lag rules. All have values that suit most groups; `target_ms` is the one to set.

    Attributes:
        target_ms: Maximum time lag of a group, in ms.
        target_messages: Maximum of unfinished messages of a group; the default sets no limit.
        floor_messages: A lag of this number of messages or fewer is treated as none.
        floor_ms: A lag whose oldest message is at most this old is treated as none.
        dead_band: Share of the produce rate that the lag may rise or fall by without having a trend.
        window_ms: How far back the window of samples reaches.
        samples_min: With fewer samples in the window a queue is INCOMPLETE, unless its status is worse.
        stale_ms: Maximum age of the newest sample for a present verdict.
        recent_ms: Time span of the displayed rates; trends use the whole window.
        growing_ms: A lag that only rises for this long is a warning, also under the target.
        absent_ms: A group without an active client for this long has no consumer.
        stop_ms: A queue with lag and without progress for this long is stopped, stalled or blocked.
        blocked_attempts: A message with this number of attempts that blocks others beyond stop_ms blocks its queue.
        poison_attempts: A message with this number of failures blocks its queue immediately.
        all_fail_ms: If several messages fail and none succeeds for this long, all fail.
        retention_percent: Share of the stored messages that lag may reach before retention threatens it, in percent.
        loss_eta_limit_s: Retention threatens messages that it will delete sooner, in s.
        late_ms: A timer or delayed message that is overdue for this long is late.
        undecided_ms: A transaction that waits for a decision for this long is undecided.
        surge: A produce rate that rises by this factor within the window is a surge.
        queues_min: A topic with fewer queues has no hot one.
    """

    target_ms: int = 60_000
    target_messages: int = NO_LIMIT
    floor_messages: int = 10
    floor_ms: int = 1_000
    dead_band: float = 0.05
    window_ms: int = 300_000
    samples_min: int = 3
    stale_ms: int = 60_000
    recent_ms: int = 30_000
    growing_ms: int = 60_000
    absent_ms: int = 60_000
    stop_ms: int = 180_000
    blocked_attempts: int = 2
    poison_attempts: int = 5
    all_fail_ms: int = 60_000
    retention_percent: float = 80.0
    loss_eta_limit_s: float = 3_600.0
    late_ms: int = 3_000
    undecided_ms: int = 240_000
    surge: float = 1.5
    queues_min: int = 3

    def __post_init__(self) -> None:
        """Refuse limits by which rules would say nonsense.

        Raises:
            ValueError: A limit is out of bounds; the text says which, and what would be right.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.type in ("int", int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise ValueError(f"{field.name} must be {'an integer' if whole else 'a number'}, got {value!r}")
            if value < 0 or not isfinite(value):
                raise ValueError(f"{field.name} must be 0 or more, got {value}")
        least = {"window_ms": 1, "samples_min": 2, "stop_ms": 1, "stale_ms": 1, "blocked_attempts": 1, "queues_min": 3}
        least |= {"recent_ms": 1, "growing_ms": 1, "absent_ms": 1, "poison_attempts": 1, "all_fail_ms": 1}
        least |= {"late_ms": 1, "undecided_ms": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} must be {bound} or more, got {getattr(self, name)}")
        if self.stop_ms > self.window_ms:
            raise ValueError(
                f"stop_ms is {self.stop_ms} and window_ms {self.window_ms}: the window must be at least as long"
            )
        if self.floor_ms > self.target_ms:
            raise ValueError(f"floor_ms must be at most target_ms, {self.target_ms}, got {self.floor_ms}")
        if self.dead_band >= 1:
            raise ValueError(f"dead_band must be a share below 1, got {self.dead_band}")
        if not 0 < self.retention_percent <= 100:
            raise ValueError(f"retention_percent must be above 0 and at most 100, got {self.retention_percent}")
        if self.surge <= 1:
            raise ValueError(f"surge must be a factor above 1, got {self.surge}")


def name_of(field: str) -> str:
    """Return the name of a limit as people write it: `stop` of `stop_ms`, `deadBand` of `dead_band`."""
    first, *rest = field.removesuffix("_ms").removesuffix("_s").split("_")
    return first + "".join(word.capitalize() for word in rest)


NAMES = {name_of(field.name): field.name for field in fields(LagLimits)}
"""The fields of `LagLimits` by the names that people write, in YAML and in options."""


def limits_from(given: Mapping[str, str | float], base: LagLimits | None = None) -> LagLimits:
    """Return limits with some of them replaced.

    Args:
        given: Values by name (`NAMES`): durations such as `3m`, and numbers, also as text.
        base: The other limits; the defaults when absent.

    Raises:
        ValueError: A name or value is wrong; the text says which, and what would be right.
    """
    return LagLimits(**{**asdict(base or LagLimits()), **values_of(given)})


def with_target(seconds: float) -> LagLimits:
    """Return limits with a target. Raises ValueError: it is none."""
    if not isfinite(seconds) or seconds < 0:
        raise ValueError(f"the target must be a number of seconds of 0 or more, got {seconds}")
    target_ms = round(seconds * 1000)
    return LagLimits(target_ms=target_ms, floor_ms=min(LagLimits().floor_ms, target_ms))


def for_samples(limits: LagLimits, every_ms: int) -> LagLimits:
    """Return limits that are long enough for samples so far apart: three are not stale, and five make a window."""
    return replace(limits, stale_ms=max(limits.stale_ms, 3 * every_ms), window_ms=max(limits.window_ms, 5 * every_ms))


def values_of(given: Mapping[str, str | float]) -> dict[str, Any]:
    """Return fields of `LagLimits` by their names, each checked by itself. Arguments and errors as `limits_from`."""
    for name in given:
        if name not in NAMES:
            raise ValueError(f"{name} is not a limit of the lag rules; use one of {', '.join(NAMES)}")
    return {NAMES[name]: _value(name, value) for name, value in given.items()}


def _value(name: str, value: str | float) -> int | float:
    field, text = NAMES[name], str(value).strip()
    if field.endswith(("_ms", "_s")):
        found = _DURATION.fullmatch(text)
        if found is None:
            raise ValueError(f"invalid {name} {text!r}; write a number and one of ms, s, m, h, d, such as 90s or 3m")
        span_ms = int(found[1]) * _UNITS_MS[found[2]]
        return span_ms if field.endswith("_ms") else span_ms / 1000
    is_whole = isinstance(getattr(LagLimits(), field), int)
    try:
        return int(text) if is_whole else float(text)
    except ValueError as error:
        raise ValueError(f"{name} must be {'an integer' if is_whole else 'a number'}, got {text!r}") from error
