"""Samples around steps of a node's wall clock, which the node notes as events: what they cannot say is taken out.

A clock that was set back goes through some time twice. What was recorded before the step and what was recorded after
it are then mixed in the order of time: offsets seem to fall and rise. So of that time nothing is kept, and a report has
nothing known there. A clock that was set forward makes every moment of before it older at once: a group that was read
from a minute ago seems to have held for an hour. So of the window behind the step nothing is kept.

After either the store's own times lie: a message that was stored before the step has an age that is wrong by the step,
and it may wait for long. Its times are taken out of samples; its age is then not known, or known by bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lag.report import texts
from lag.report.options import MESSAGE_TIMES
from lag.rules.limits import LagLimits
from lag.samples import EventKind, QueueSample

LOOK_BACK_MS: Final = 86_400_000
"""How long before a window steps are looked for: their messages may still wait."""
_STEP: Final = re.compile(r"([+-]\d{1,15}) ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClockStep:
    """One step of one node's clock.

    Attributes:
        cluster, node: Whose.
        time_ms: The moment at which it was noticed, by the new clock.
        by_ms: By how much; below 0: back.
    """

    cluster: str
    node: str
    time_ms: int
    by_ms: int

    def unknown(self, limits: LagLimits) -> tuple[int, int]:
        """Return from when on, and to before when, nothing that the node recorded is kept."""
        # It is noticed with a round: what the new clock said before it is as little known.
        begin = self.time_ms - limits.stale_ms
        return begin, self.time_ms + (limits.window_ms if self.by_ms > 0 else -self.by_ms + limits.stale_ms)

    @property
    def stored_before_ms(self) -> int:
        """Times of messages up to this moment are of the old clock."""
        return self.time_ms if self.by_ms > 0 else self.time_ms - self.by_ms

    def sentence(self, limits: LagLimits) -> str:
        """Say it for people."""
        begin, end = (texts.moment(each) for each in self.unknown(limits))
        way = "forward" if self.by_ms > 0 else "back"
        return (
            f"{self.node}: its clock was set {way} by {texts.duration(abs(self.by_ms) / 1000)} at "
            f"{texts.moment(self.time_ms)}: what it recorded from {begin} to {end} is left out (clock)"
        )


def steps_of(events: Iterable[Mapping[str, Any]]) -> list[NodeClockStep]:
    """Return the steps among events, in the order of time; what is malformed is none."""
    found = []
    for event in events:
        said = _STEP.fullmatch(event["detail"] or "") if event["kind"] == EventKind.CLOCK.value else None
        if said is not None and int(said[1]):
            step = NodeClockStep(
                cluster=event["cluster"], node=event["node"], time_ms=event["time_ms"], by_ms=int(said[1])
            )
            found.append(step)
    return sorted(found, key=lambda step: (step.time_ms, step.cluster, step.node))


def reported(steps: Sequence[NodeClockStep], limits: LagLimits, from_ms: int, to_ms: int) -> list[str]:
    """Return sentences about those steps that take something out of a window."""
    return [each.sentence(limits) for each in steps if _meets(each.unknown(limits), from_ms, to_ms)]


def without_lies(
    steps: Sequence[NodeClockStep], limits: LagLimits
) -> Callable[[str, str, QueueSample], QueueSample | None]:
    """Return what makes of a node's sample one without times that a step made wrong; null where it is worthless."""
    by_node: dict[tuple[str, str], list[NodeClockStep]] = {}
    for step in steps:
        by_node.setdefault((step.cluster, step.node), []).append(step)

    def cleaned(cluster: str, node: str, sample: QueueSample) -> QueueSample | None:
        for step in by_node.get((cluster, node), ()):
            begin, end = step.unknown(limits)
            if begin <= sample.time_ms < end:
                return None
            if sample.time_ms >= end:
                times: dict[str, Any] = {name: getattr(sample, name) for name in MESSAGE_TIMES}
                before_ms = step.stored_before_ms
                wrong = {name: None for name, moment in times.items() if moment is not None and moment <= before_ms}
                sample = replace(sample, **{**times, **wrong}) if wrong else sample
        return sample

    return cleaned


def _meets(stretch: tuple[int, int], from_ms: int, to_ms: int) -> bool:
    return stretch[0] < to_ms and stretch[1] > from_ms
