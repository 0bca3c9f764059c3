"""Samples around steps of a node's wall clock, which the node notes as events: what they cannot say is taken out.

A clock that was set back goes through some time twice. What was recorded before the step and what was recorded after
it are then mixed in the order of time: offsets seem to fall and rise. So of that time nothing is kept, and a report has
nothing known there. A clock that was set forward makes every moment of before it older at once: a group that was read
from a minute ago seems to have stood for an hour. So of the window behind the step nothing is kept.

After either the store's own times lie: a message that was stored before the step has an age that is wrong by the step,
and it may wait for long. Its times are taken out of samples; its age is then not known, or known by bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from lag.report import texts
from lag.rules.limits import Limits
from lag.samples import EventKind

LOOK_BACK_MS: Final = 86_400_000
"""How long before a window steps are looked for: their messages may still wait."""
_STEP: Final = re.compile(r"([+-]\d{1,15}) ms")
_STORED: Final = ("start_ms", "committed_ms", "started_ms", "end_ms")
"""Fields that are times of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep:
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

    def unknown(self, limits: Limits) -> tuple[int, int]:
        """Return from when on, and to before when, nothing that the node recorded is kept."""
        # It is noticed with a round: what the new clock said before it is as little known.
        begin = self.time_ms - limits.stale_ms
        return begin, self.time_ms + (limits.window_ms if self.by_ms > 0 else -self.by_ms + limits.stale_ms)

    @property
    def stored_before_ms(self) -> int:
        """Times of messages up to this moment are of the old clock."""
        return self.time_ms if self.by_ms > 0 else self.time_ms - self.by_ms

    def sentence(self, limits: Limits) -> str:
        """Say it for people."""
        begin, end = (texts.moment(each) for each in self.unknown(limits))
        way = "forward" if self.by_ms > 0 else "back"
        return (
            f"{self.node}: its clock was set {way} by {texts.duration(abs(self.by_ms) / 1000)} at "
            f"{texts.moment(self.time_ms)}: what it recorded from {begin} to {end} is left out (clock)"
        )


def steps_of(events: Iterable[Mapping[str, Any]]) -> list[ClockStep]:
    """Return the steps among events, in the order of time; what is malformed is none."""
    found = []
    for event in events:
        said = _STEP.fullmatch(event["detail"] or "") if event["kind"] == EventKind.CLOCK.value else None
        if said is not None and int(said[1]):
            step = ClockStep(cluster=event["cluster"], node=event["node"], time_ms=event["time_ms"], by_ms=int(said[1]))
            found.append(step)
    return sorted(found, key=lambda step: (step.time_ms, step.cluster, step.node))


def told(steps: Sequence[ClockStep], limits: Limits, from_ms: int, to_ms: int) -> list[str]:
    """Return sentences about those steps that take something out of a window."""
    return [each.sentence(limits) for each in steps if _meets(each.unknown(limits), from_ms, to_ms)]


def without_lies(samples: DataFrame, steps: Sequence[ClockStep], limits: Limits) -> DataFrame:
    """Return samples without those that a step made worthless, and without times that it made wrong."""
    if not steps:
        return samples
    kept, wrong = [], []
    for step in steps:
        of_node = f"cluster = '{_quoted(step.cluster)}' AND node = '{_quoted(step.node)}'"
        begin, end = step.unknown(limits)
        kept.append(f"NOT ({of_node} AND time_ms >= {begin}L AND time_ms < {end}L)")
        wrong.append((f"{of_node} AND time_ms >= {end}L", step.stored_before_ms))
    columns = []
    for name in samples.columns:
        if name in _STORED:
            cases = " ".join(f"WHEN {after} AND `{name}` <= {before_ms}L THEN NULL" for after, before_ms in wrong)
            columns.append(f"CASE {cases} ELSE `{name}` END AS `{name}`")
        else:
            columns.append(f"`{name}`")
    return samples.where(" AND ".join(kept)).selectExpr(*columns)


def _meets(stretch: tuple[int, int], from_ms: int, to_ms: int) -> bool:
    return stretch[0] < to_ms and stretch[1] > from_ms


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
