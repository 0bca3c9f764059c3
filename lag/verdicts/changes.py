"""A group's verdict, and its changes: pure, the clock is the rounds' own.

A group has the worst status of its queues. That is a verdict, and a change of it is worth a line in the log and a post:
at once where it is worse, and after `SETTLED_MS` where it is not, so that a group which goes to and fro does not post
every round. A group that is INCOMPLETE, as after a restart, keeps the verdict that it had. A group that was
not OK and is no longer judged is REMOVED: a receiver of changes can close it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from broker.runtime.steps import run_now
from lag.rules.statuses import BY_NAME, Level, worst
from lag.verdicts.windows import JudgedQueue

SILENT: Final = "SILENT"
"""Status of a node whose journal has no new round; only an observer outside the node can report it."""
INCOMPLETE: Final = "INCOMPLETE"
REMOVED: Final = "REMOVED"
"""Status of a group that was removed, or whose alarms were disabled."""
SETTLED_MS: Final = 60_000
"""How long a verdict that is not worse must hold before it counts."""
_WORSE: Final = (Level.OK, Level.WARN, Level.UNKNOWN, Level.ERR)

_ROWS_AT_ONCE = 512

Wanted = Callable[[str, str], bool]
"""Whether a group's verdict takes a topic into account (DDMQ's `enableAlarm`)."""


def everything(_group: str, _topic: str) -> bool:
    """Take all topics into account."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerdict:
    """What the rules say of a group.

    Attributes:
        status: The worst status of its queues; the kind of a finding that is worse than all of them.
        severity: Of such a finding: `bad` or `watch`.
        since_ms: First round that had it.
        queues: How many queues have it.
        topic, queue, cause, evidence, advice, lag, time_lag_ms: Of the one with the largest lag among them; null where
            a figure is not known.
    """

    status: str
    since_ms: int
    severity: str | None = None
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
        if self.status == REMOVED:
            return Level.OK
        if self.status in BY_NAME:
            return BY_NAME[self.status].level
        return {"bad": Level.ERR, "watch": Level.WARN}.get(self.severity or "", Level.UNKNOWN)


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
    verdict: GroupVerdict
    time_ms: int

    def as_fields(self, cluster: str, node: str, recipients: Sequence[str] = ()) -> dict[str, Any]:
        """Return the fields of the JSON form; `key` is the same in each report of the same change.

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
        self.current: dict[str, GroupVerdict] = {}
        self._settled_ms = settled_ms
        self._next: dict[str, tuple[int, GroupVerdict]] = {}
        """What is not worse and has not held for long enough: begin of the run of such verdicts, and the last."""
        self._lost: set[str] = set()
        """Groups whose last report may be lost: the next verdict is reported, OK or not."""

    def take(self, judged: Iterable[JudgedQueue], time_ms: int, wanted: Wanted = everything) -> list[VerdictChange]:
        """Take a round; returns what changed, by group.

        Args:
            judged: All queues of the node.
            time_ms: The round's moment; an earlier one than before means that the clock was set back.
            wanted: What is left out is as if it were not there.
        """
        return self.take_all(run_now(_verdicts(judged, time_ms, wanted)), time_ms)

    def take_all(self, found: dict[str, GroupVerdict], time_ms: int) -> list[VerdictChange]:
        """Take a round in which groups, and the node by the name "", have these verdicts; returns what changed."""
        for group in (self.current.keys() | self._lost) - found.keys():
            found[group] = GroupVerdict(status=REMOVED, since_ms=time_ms)
        changes = (self.note(group, verdict, time_ms) for group, verdict in sorted(found.items()))
        return [each for each in changes if each is not None]

    def recall(
        self, judged: Iterable[JudgedQueue], time_ms: int, wanted: Wanted = everything
    ) -> Generator[None, None, None]:
        """Take a round of before a restart, of the last `SETTLED_MS`, in steps; arguments as of `take`.

        The change of a group that was not OK may not have been posted, and its receiver waits for the end of it.
        """
        for group, verdict in (yield from _verdicts(judged, time_ms, wanted)).items():
            if verdict.level is not Level.OK and verdict.status != INCOMPLETE:
                self._lost.add(group)

    def end(self, time_ms: int) -> list[VerdictChange]:
        """Forget all, since nothing is judged any more; returns the end of each verdict whose receiver waits for it."""
        reported = {group: found.status for group, found in self.current.items() if found.level is not Level.OK}
        befores = {**dict.fromkeys(self._lost), **reported}
        self.current, self._next, self._lost = {}, {}, set()
        removed = GroupVerdict(status=REMOVED, since_ms=time_ms)
        return [
            VerdictChange(group=group, before=before, verdict=removed, time_ms=time_ms)
            for group, before in sorted(befores.items())
        ]

    def note(self, group: str, found: GroupVerdict, time_ms: int) -> VerdictChange | None:
        """Take the verdict on one group in a round; returns the change, if it is one."""
        before = self.current.get(group)
        if found.status == INCOMPLETE:
            self._next.pop(group, None)
            return None
        if before is None:
            is_lost = group in self._lost
            self._lost.discard(group)
            self._keep(group, found)
            is_quiet = found.level is Level.OK and not is_lost
            return None if is_quiet else VerdictChange(group=group, before=None, verdict=found, time_ms=time_ms)
        if before.status == found.status:
            self._keep(group, _since(found, before))
            return None
        if found.status == REMOVED and before.level is Level.OK:
            self._keep(group, found)
            return None
        if _WORSE.index(found.level) <= _WORSE.index(before.level):
            began_ms, waiting = self._next.get(group, (time_ms, found))
            if waiting.status == found.status:
                found = _since(found, waiting)
            began_ms = min(began_ms, time_ms)
            self._next[group] = began_ms, found
            if time_ms - began_ms < self._settled_ms:
                return None
        self._keep(group, found)
        return VerdictChange(group=group, before=before.status, verdict=found, time_ms=time_ms)

    def _keep(self, group: str, verdict: GroupVerdict) -> None:
        self._next.pop(group, None)
        if verdict.status == REMOVED:
            self.current.pop(group, None)
        else:
            self.current[group] = verdict


def _verdicts(
    judged: Iterable[JudgedQueue], time_ms: int, wanted: Wanted
) -> Generator[None, None, dict[str, GroupVerdict]]:
    by_group: dict[str, list[JudgedQueue]] = {}
    for number, each in enumerate(judged, start=1):
        if number % _ROWS_AT_ONCE == 0:
            yield
        group, topic, _ = each.place
        if wanted(group, topic):
            by_group.setdefault(group, []).append(each)
    found = {}
    for number, (group, queues) in enumerate(by_group.items(), start=1):
        if number % _ROWS_AT_ONCE == 0:
            yield
        found[group] = _verdict(queues, time_ms)
    return found


def _verdict(every: Sequence[JudgedQueue], time_ms: int) -> GroupVerdict:
    status = worst([each.verdict.status for each in every])
    queues = [each for each in every if each.verdict.status == status]
    chosen = max(queues, key=lambda each: (each.verdict.figures["lag"] or -1, each.place[1], -each.place[2]))
    late_ms = chosen.verdict.figures["time_lag_low_ms"]
    return GroupVerdict(
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


def _since(found: GroupVerdict, before: GroupVerdict) -> GroupVerdict:
    """Return the new verdict with the beginning of the one that it continues."""
    # After a step of the clock back, what began in the future begins now.
    return replace(found, since_ms=min(before.since_ms, found.since_ms))
