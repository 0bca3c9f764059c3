"""One queue judged: its figures, status and cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lag.rules import causes, quantities, statuses
from lag.rules.expression import Value
from lag.rules.facts import WindowRow, facts_of
from lag.rules.limits import LagLimits
from lag.rules.topic_rules import beside
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


def judging_topic(
    windows: Mapping[int, tuple[Sequence[WindowRow], QueueSample]],
    now_ms: int,
    limits: LagLimits = DEFAULTS,
    resets_ms: Mapping[int, int] | None = None,
) -> Iterator[tuple[int, QueueVerdict] | None]:
    """Judge all queues of a topic by the rows, oldest first, and the newest sample of each, in steps of tenths of a ms.

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
