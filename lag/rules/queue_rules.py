"""One queue judged: its figures, status and cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lag.rules import causes, quantities, statuses
from lag.rules.expression import Value
from lag.rules.facts import WindowRow, facts_of, rows_of
from lag.rules.limits import LagLimits
from lag.rules.topic_rules import ALONE, beside
from lag.samples import QueueSample

DEFAULTS: Final = LagLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueVerdict:
    """What the rules say of one queue at one moment. Null means "not known"; `lag.rules.explain` explains each.

    Attributes:
        time_ms: When its newest sample was read.
        now_ms: The moment that was judged.
        figures: Each quantity of `lag.rules.quantities.ALL` by its name.
        status: Name of its status.
        level: `OK`, `WARN`, `ERR` or `UNKNOWN`.
        cause: Name of the cause; null where none fits.
        evidence: The figures that speak for the cause, as a sentence; "" without one.
        advice: What to do, of the cause or else of the status.
    """

    time_ms: int
    now_ms: int
    figures: Mapping[str, Any]
    status: str
    level: str
    cause: str | None
    evidence: str
    advice: str


def judge(
    samples: Sequence[QueueSample], now_ms: int, limits: LagLimits = DEFAULTS, reset_ms: int | None = None
) -> QueueVerdict:
    """Judge one queue without its topic's others: it is never hot, and has no skew.

    Args:
        samples: Its samples, oldest first; one before the window shows what was lost since.
        now_ms: The moment that is judged, in Unix ms.
        limits: Thresholds.
        reset_ms: When an operator last reset the group's offset on this queue (`EventKind.RESET`); null: never.

    Raises:
        ValueError: There is no sample, or they are not in the order of their times.
    """
    return _judged(figures_of(rows_of(samples), samples[-1], now_ms, limits, reset_ms) | dict(ALONE))


def judge_topic(
    queues: Mapping[int, Sequence[QueueSample]],
    now_ms: int,
    limits: LagLimits = DEFAULTS,
    resets_ms: Mapping[int, int] | None = None,
) -> dict[int, QueueVerdict]:
    """Judge all queues of a group's topic beside each other.

    Args:
        queues: The samples of each queue by its number, oldest first.
        now_ms: The moment that is judged, in Unix ms.
        limits: Thresholds.
        resets_ms: When an operator last reset the group's offset, by queue; queues that are not named never were.

    Raises:
        ValueError: As `judge`.
    """
    found = {}
    windows = {queue: (rows_of(samples), samples[-1]) for queue, samples in queues.items()}
    for each in judging_topic(windows, now_ms, limits, resets_ms):
        if each is not None:
            queue, verdict = each
            found[queue] = verdict
    return found


def judging_topic(
    windows: Mapping[int, tuple[Sequence[WindowRow], QueueSample]],
    now_ms: int,
    limits: LagLimits = DEFAULTS,
    resets_ms: Mapping[int, int] | None = None,
) -> Iterator[tuple[int, QueueVerdict] | None]:
    """Judge as `judge_topic`, by the rows and the newest sample of each queue, in steps of some tenths of a ms.

    Yields None, then each queue with its verdict.
    """
    resets = resets_ms or {}
    facts = {}
    for queue, (rows, newest) in windows.items():
        facts[queue] = figures_of(rows, newest, now_ms, limits, resets.get(queue))
        yield None
    for queue, others in beside(facts).items():
        yield queue, _judged(facts[queue] | others)


def figures_of(
    rows: Sequence[WindowRow], newest: QueueSample, now_ms: int, limits: LagLimits, reset_ms: int | None
) -> dict[str, Value]:
    """Return the facts of a queue with the quantities that need no other queue."""
    facts = facts_of(rows, newest, now_ms, limits, reset_ms)
    quantities.add_quantities(facts)
    return facts


def _judged(facts: dict[str, Value]) -> QueueVerdict:
    """Return the verdict on facts with all that is beside them."""
    quantities.add_topic_quantities(facts)
    status = facts["status"] = str(statuses.COMPILED(facts))
    cause = causes.COMPILED(facts)
    known: Any = facts
    return QueueVerdict(
        time_ms=known["time_ms"],
        now_ms=known["now_ms"],
        figures={name: facts[name] for name in quantities.ALL},
        status=status,
        level=statuses.BY_NAME[status].level.name,
        cause=None if cause is None else str(cause),
        evidence="" if cause is None else causes.evidence(str(cause), facts),
        advice=advice_of(status, None if cause is None else str(cause)),
    )


def advice_of(status: str, cause: str | None) -> str:
    """Return what to do: about the cause where there is one. A loss to retention has its own advice besides."""
    if cause is None:
        return statuses.BY_NAME[status].advice
    about_cause = causes.BY_NAME[cause].advice
    is_kept_too_short = status == "DATA_LOSS" and cause != "topic_deleted"
    return f"{about_cause} {statuses.BY_NAME[status].advice}" if is_kept_too_short else about_cause
