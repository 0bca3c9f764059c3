"""Many verdicts on one queue over time: objectives that were kept, and incidents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lag.rules.limits import Limits
from lag.rules.queue_rules import DEFAULTS, QueueLag
from lag.rules.statuses import worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A stretch of verdicts whose level is not OK.

    Attributes:
        from_ms: Moment of its first verdict.
        to_ms: Moment of the first verdict after it that is OK; of its last one where none follows at once.
        open: Whether it had not ended at the last verdict.
        peak_lag: Highest lag that was known in it; null: none was.
        peak_time_lag_ms: Highest time lag, or lower bound of one; null: none was known.
        status: Its worst status.
        cause: The one that held longest in that status, each verdict until the next, of equal ones the first; null: no
            verdict has one.
    """

    from_ms: int
    to_ms: int
    open: bool
    peak_lag: int | None
    peak_time_lag_ms: float | None
    status: str
    cause: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """How well a target was kept over a period.

    Attributes:
        samples: Verdicts that were looked at.
        unknown: Those of them whose time lag cannot be told from the target; they count as not kept.
        samples_share: Share of verdicts in time, 0.0 to 1.0; null: there is none.
        messages_share: The same, each verdict weighing what was produced since the one before; lost messages are not
            in time. Null: nothing was produced.
        over_ms: Time between verdicts that began over the target.
    """

    samples: int
    unknown: int
    samples_share: float | None
    messages_share: float | None
    over_ms: int


def objective(verdicts: Sequence[QueueLag], limits: Limits = DEFAULTS) -> Objective:
    """Return how well the target was kept.

    A gap longer than `stale_ms` counts neither as time over the target nor as production.

    Args:
        verdicts: Verdicts on one queue, oldest first.
        limits: The target, and what a gap is.

    Raises:
        ValueError: The verdicts are not in the order of their times.
    """
    _check(verdicts)
    kept = [_in_time(verdict, limits) for verdict in verdicts]
    produced = good = 0.0
    over_ms = 0
    for (before, after), (was_kept, is_kept) in zip(pairwise(verdicts), pairwise(kept), strict=True):
        passed = after.time_ms - before.time_ms
        if passed > limits.stale_ms:
            continue
        came = (after.figures["produce_rate"] or 0.0) * passed / 1000
        produced += came
        lost = max(0, (after.figures["lost"] or 0) - (before.figures["lost"] or 0))
        good += max(0.0, came - lost) if is_kept else 0.0
        over_ms += passed if was_kept is False else 0
    return Objective(
        samples=len(verdicts),
        unknown=kept.count(None),
        samples_share=kept.count(True) / len(kept) if kept else None,
        messages_share=good / produced if produced > 0 else None,
        over_ms=over_ms,
    )


def _in_time(verdict: QueueLag, limits: Limits) -> bool | None:
    """Whether a verdict's time lag is within the target; null where it cannot be told."""
    low, high = verdict.figures["time_lag_low_ms"], verdict.figures["time_lag_high_ms"]
    best = verdict.figures["time_lag_ms"]
    if verdict.status == "UNKNOWN":
        return None
    if best is not None:
        return bool(best <= limits.target_ms)
    if low is not None and low > limits.target_ms:
        return False
    return True if high is not None and high <= limits.target_ms else None


def incidents(verdicts: Sequence[QueueLag], limits: Limits = DEFAULTS) -> list[Incident]:
    """Return the incidents of one queue, oldest first.

    Args:
        verdicts: Verdicts on it, oldest first.
        limits: A gap longer than `stale_ms` ends an incident: nobody knows what was then.

    Raises:
        ValueError: The verdicts are not in the order of their times.
    """
    _check(verdicts)
    found: list[Incident] = []
    members: list[QueueLag] = []
    for verdict in verdicts:
        if members and verdict.time_ms - members[-1].time_ms > limits.stale_ms:
            found.append(_incident(members, members[-1].time_ms, is_open=False))
            members = []
        if verdict.level != "OK":
            members.append(verdict)
        elif members:
            found.append(_incident(members, verdict.time_ms, is_open=False))
            members = []
    if members:
        found.append(_incident(members, members[-1].time_ms, is_open=True))
    return found


def _incident(members: Sequence[QueueLag], to_ms: int, *, is_open: bool) -> Incident:
    status = worst(verdict.status for verdict in members)
    lags = [verdict.figures["lag"] for verdict in members if verdict.figures["lag"] is not None]
    lows = [verdict.figures["time_lag_low_ms"] for verdict in members]
    held: dict[str, int] = {}
    for verdict, after_ms in zip(members, [*(each.time_ms for each in members[1:]), to_ms], strict=True):
        if verdict.status == status and verdict.cause is not None:
            held[verdict.cause] = held.get(verdict.cause, 0) + after_ms - verdict.time_ms
    return Incident(
        from_ms=members[0].time_ms,
        to_ms=to_ms,
        open=is_open,
        peak_lag=max(lags, default=None),
        peak_time_lag_ms=max((low for low in lows if low is not None), default=None),
        status=status,
        cause=max(held, key=lambda cause: held[cause], default=None),
    )


def _check(verdicts: Sequence[QueueLag]) -> None:
    for before, after in pairwise(verdicts):
        if after.time_ms <= before.time_ms:
            raise ValueError(f"verdict at {after.time_ms} comes after one at {before.time_ms}: the oldest comes first")
