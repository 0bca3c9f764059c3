"""A group's verdict, and its changes: pure, the clock is the rounds' own.

A group has the worst status of its queues. That is a verdict, and a change of it is worth a line in the log and a post:
at once where it is worse, and after `SETTLED_MS` where it is not, so that a group which goes to and fro does not post
every round. A group that is INCOMPLETE, as after a restart, keeps the verdict that it had.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lag.rules.limits import Limits
from lag.rules.statuses import BY_NAME, Level, worst
from lag.verdicts.windows import Judged, Windows

SILENT: Final = "SILENT"
"""Status of a node whose journal has no new round; only who looks from outside can tell."""
INCOMPLETE: Final = "INCOMPLETE"
SETTLED_MS: Final = 60_000
"""How long a verdict that is not worse must hold before it counts."""
_WORSE: Final = (Level.OK, Level.WARN, Level.UNKNOWN, Level.ERR)

LimitsOf = Callable[[str, str], Limits]
"""Limits of a group and topic."""
Wanted = Callable[[str, str], bool]
"""Whether a group's verdict takes a topic into account (DDMQ's `enableAlarm`)."""


def everything(_group: str, _topic: str) -> bool:
    """Take all topics into account."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the rules say of a group.

    Attributes:
        status: The worst status of its queues.
        since_ms: First round that had it.
        queues: How many queues have it.
        topic, queue, cause, evidence, advice, lag, time_lag_ms: Of the one with the largest lag among them; null where
            a figure is not known.
    """

    status: str
    since_ms: int
    queues: int = 0
    topic: str = ""
    queue: int = -1
    cause: str | None = None
    evidence: str = ""
    advice: str = ""
    lag: int | None = None
    time_lag_ms: int | None = None

    @property
    def level(self) -> Level:
        """How bad that is."""
        return Level.UNKNOWN if self.status == SILENT else BY_NAME[self.status].level


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    """A group's verdict changed.

    Attributes:
        group: The group; "" for the node itself.
        before: The status that it had; null: none is known, as after a restart.
        verdict: The new one.
        time_ms: The round in which it changed.
    """

    group: str
    before: str | None
    verdict: Verdict
    time_ms: int

    def as_fields(self, cluster: str, node: str, recipients: Sequence[str] = ()) -> dict[str, Any]:
        """Return it as JSON has it; `key` is the same for the same change, whoever sees it.

        Args:
            cluster, node: Where the group was judged.
            recipients: Names for routing (DDMQ's `alarmGroup`).
        """
        verdict = self.verdict
        identity = json.dumps([cluster, node, self.group, verdict.status, self.time_ms], separators=(",", ":"))
        return {
            "key": hashlib.sha256(identity.encode()).hexdigest()[:20],
            "cluster": cluster,
            "node": node,
            "group": self.group,
            "level": verdict.level.name,
            "status": verdict.status,
            "before": self.before,
            "timeMs": self.time_ms,
            "sinceMs": verdict.since_ms,
            "queues": verdict.queues,
            "topic": verdict.topic,
            "queue": verdict.queue,
            "cause": verdict.cause,
            "evidence": verdict.evidence,
            "advice": verdict.advice,
            "lag": verdict.lag,
            "timeLagMs": verdict.time_lag_ms,
            "alarmGroup": list(recipients),
        }


class Verdicts:
    """The verdicts of one node's groups.

    Attributes:
        current: By group.

    Args:
        settled_ms: How long a verdict that is not worse must hold before it counts.
    """

    def __init__(self, settled_ms: int = SETTLED_MS) -> None:
        self.current: dict[str, Verdict] = {}
        self._settled_ms = settled_ms
        self._next: dict[str, Verdict] = {}
        """What is not worse and has not held for long enough."""

    def take(self, judged: Iterable[Judged], time_ms: int, wanted: Wanted = everything) -> list[VerdictChange]:
        """Take a round; returns what changed, by group.

        Args:
            judged: All queues of the node.
            time_ms: The round's moment; an earlier one than before means that the clock was set back.
            wanted: What is left out is as if it were not there.
        """
        by_group: dict[str, list[Judged]] = {}
        for each in judged:
            group, topic, _ = each.place
            if wanted(group, topic):
                by_group.setdefault(group, []).append(each)
        for group in self.current.keys() - by_group.keys():
            # A group that left is no longer judged; it says nothing when it goes.
            del self.current[group]
            self._next.pop(group, None)
        changes = (self._of_group(group, queues, time_ms) for group, queues in sorted(by_group.items()))
        return [each for each in changes if each is not None]

    def _of_group(self, group: str, queues: Sequence[Judged], time_ms: int) -> VerdictChange | None:
        status = worst([each.verdict.status for each in queues])
        before = self.current.get(group)
        if status == INCOMPLETE:
            self._next.pop(group, None)
            return None
        found = _verdict([each for each in queues if each.verdict.status == status], status, time_ms)
        if before is None:
            self.current[group] = found
            return (
                None
                if found.level is Level.OK
                else VerdictChange(group=group, before=None, verdict=found, time_ms=time_ms)
            )
        if before.status == status:
            self._next.pop(group, None)
            self.current[group] = _since(found, before)
            return None
        if _WORSE.index(found.level) <= _WORSE.index(before.level):
            waiting = self._next.get(group)
            if waiting is not None and waiting.status == status:
                found = _since(found, waiting)
            self._next[group] = found
            if time_ms - found.since_ms < self._settled_ms:
                return None
        self._next.pop(group, None)
        self.current[group] = found
        return VerdictChange(group=group, before=before.status, verdict=found, time_ms=time_ms)


def judging(
    windows: Windows, time_ms: int, limits_of: LimitsOf, verdicts: Verdicts, wanted: Wanted = everything
) -> Generator[None, None, list[VerdictChange]]:
    """Judge what the windows have, in steps, and return what changed."""
    judged = yield from windows.judging(time_ms, limits_of)
    return verdicts.take(judged, time_ms, wanted)


def silence(last_ms: int, now_ms: int, silence_ms: int) -> VerdictChange | None:
    """Return the change of a node whose newest round is of `last_ms`; None: it is not silent for long enough."""
    if now_ms - last_ms < silence_ms:
        return None
    verdict = Verdict(
        status=SILENT,
        since_ms=last_ms,
        evidence=f"the newest round in its journal is {(now_ms - last_ms) // 1000} s old",
        advice="Check that the node runs and that its disk is not full.",
    )
    return VerdictChange(group="", before=None, verdict=verdict, time_ms=last_ms + silence_ms)


def _verdict(queues: Sequence[Judged], status: str, time_ms: int) -> Verdict:
    chosen = max(queues, key=lambda each: (each.verdict.figures["lag"] or -1, each.place[1], -each.place[2]))
    late_ms = chosen.verdict.figures["time_lag_low_ms"]
    return Verdict(
        status=status,
        since_ms=time_ms,
        queues=len(queues),
        topic=chosen.place[1],
        queue=chosen.place[2],
        cause=chosen.verdict.cause,
        evidence=chosen.verdict.evidence,
        advice=chosen.verdict.advice,
        lag=chosen.verdict.figures["lag"],
        time_lag_ms=None if late_ms is None else round(late_ms),
    )


def _since(found: Verdict, before: Verdict) -> Verdict:
    """Return the new verdict with the beginning of the one that it goes on with."""
    # After a step of the clock back, what began in the future begins now.
    return replace(found, since_ms=min(before.since_ms, found.since_ms))
