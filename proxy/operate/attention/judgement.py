"""One list of findings, and the levels that follow from it: every place that shows a verdict shows this one.

A `Judgement` has the findings about the node and its groups, and the verdicts of the lag rules on queues. What the
lag rules find wrong is a finding too: one per group, topic and status, with the worst queue as evidence.

Where a finding and a lag status say the same thing, there is one finding:

| kind | lag statuses that it is for |
| --- | --- |
| `lost_to_retention` | DATA_LOSS |
| `near_retention` | RETENTION_RISK |
| `no_puller` | STOP, NOT_CONSUMED, unless the rules name another cause; WARN with the cause `no_consumer` |
| `poison`, `stopped`, `key_held`, `call_stuck`, `no_answer`, `dead_letters_refused` | BLOCKED, STALL, STOP |
| `sink_waits`, `push_failing`, `not_starting`, `queues_owned`, `reading_stopped` | these, and NOT_CONSUMED |
| `retry_storm` | STALL |
| `lag` | every other status that is not OK |

`FindingKind.statuses` has this table; `FindingKind.causes` has causes that a finding explains with any status, such as
WARN. The finding that exists takes over the status, with cause, evidence and queue; without one the status becomes a
finding of its own kind, with the advice of the rules.

Levels: `bad` is ERR, `watch` is WARN. A group has the worst level of its queues and its findings, the node the worst
of its groups and of its own findings. UNKNOWN is worse than WARN and better than ERR. INCOMPLETE, as in the first
seconds of a node, is a level (UNKNOWN) and no finding. A node that takes no samples is UNKNOWN unless it is ERR.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from msgspec.structs import replace

from broker.runtime.steps import run_now
from lag.rules.statuses import BY_NAME, worst
from proxy.operate.attention.kinds import KINDS, FindingKind, command, found
from proxy.operate.text import amount
from proxy.operate.views.findings import Finding
from proxy.operate.views.lag import LagAnswer, LagGroup, LagQueue, LagWaiting

LEVELS = ("OK", "WARN", "UNKNOWN", "ERR")
"""From the best to the worst."""
_PLACES = {kind: place for place, kind in enumerate(KINDS)}
_QUIET = ("INCOMPLETE",)
_GROUPS_AT_ONCE, _ROWS_AT_ONCE, _STATUSES_AT_ONCE = 64, 1024, 64
"""What is looked at in one step, of about a millisecond."""
_OWN_KINDS = {
    "DATA_LOSS": "lost_to_retention",
    "RETENTION_RISK": "near_retention",
    "BLOCKED": "poison",
    "STOP": "no_puller",
    "NOT_CONSUMED": "no_puller",
}
"""Kind of the finding that a lag status becomes; `lag` for every other."""
_COMMANDS = {"poison": ("groups", "stuck"), "no_puller": ("groups", "show")}
"""What shows more of such a finding; `lag` for every other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagQueues:
    """The queues of a node as the lag rules judge them.

    Attributes:
        now_ms: The moment that was judged.
        enabled: Whether the node takes samples.
        every_ms: Time between samples.
        trouble: Why the last samples are not in the lag journal; null: they are.
        groups: Names of the groups, those without queues too.
        queues: All queues that were judged.
        empty: By group: queues that were never written to.
        waiting: What waits in the node for its own time.
    """

    now_ms: int
    enabled: bool = True
    every_ms: int = 0
    trouble: str | None = None
    groups: Sequence[str] = ()
    queues: Sequence[LagQueue] = ()
    empty: dict[str, int] = field(default_factory=dict)
    waiting: Sequence[LagWaiting] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is wrong with a node and its groups at one moment.

    Attributes:
        now_ms: The moment.
        level: Level of the node.
        findings: The bad first.
        groups: Every group by name, with its level.
        queues: All queues that were judged, the worst first.
        lag: What the queues were judged by.
    """

    now_ms: int
    level: str
    findings: Sequence[Finding]
    groups: Sequence[LagGroup]
    queues: Sequence[LagQueue]
    lag: LagQueues

    def about(self, group: str | None) -> list[Finding]:
        """Return the findings about one group and about the node; all without a group."""
        return [each for each in self.findings if group is None or each.group in (None, group)]

    def as_lag(self, *, limit: int, group: str | None = None) -> LagAnswer:
        """Return the answer about lag, of one group if given, with at most `limit` queues."""
        groups = [each for each in self.groups if group in (None, each.group)]
        queues = [each for each in self.queues if group in (None, each.group)]
        findings = [each for each in self.about(group) if group is None or each.group is not None or _stops_all(each)]
        level = self.level if group is None else worst_level([*levels(groups), *levels(findings)])
        if not groups and group is not None:
            level = "UNKNOWN"
        return LagAnswer(
            now_ms=self.now_ms,
            enabled=self.lag.enabled,
            every_ms=self.lag.every_ms,
            trouble=self.lag.trouble,
            level=level,
            findings=findings,
            groups=groups,
            queues_total=len(queues),
            queues_empty=sum(count for name, count in self.lag.empty.items() if group in (None, name)),
            queues=queues[:limit],
            waiting=self.lag.waiting if group is None else (),
        )


def judgement(lag: LagQueues, found: Iterable[Finding] = ()) -> Judgement:
    """Join at once, as `joining` does in steps."""
    return run_now(joining(lag, found))


def joining(lag: LagQueues, found: Iterable[Finding] = ()) -> Generator[None, None, Judgement]:
    """Join, in steps, what the lag rules say with the other findings about a node.

    Args:
        lag: The queues.
        found: The findings about the node and its groups.
    """
    joined = yield from _joining(list(found), lag.queues)
    findings = sorted(joined, key=lambda each: (not each.bad, _PLACES[each.finding]))
    yield
    by_group: dict[str, list[LagQueue]] = {name: [] for name in (*lag.groups, *lag.empty)}
    for queue in lag.queues:
        by_group.setdefault(queue.group, []).append(queue)
    yield
    about: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.group is not None:
            about.setdefault(finding.group, []).append(finding)
            by_group.setdefault(finding.group, [])
    yield
    groups = []
    for number, name in enumerate(sorted(by_group), start=1):
        groups.append(group_of(name, by_group[name], about.get(name, ()), lag.empty.get(name, 0)))
        if number % _GROUPS_AT_ONCE == 0:
            yield
    own = [each for each in findings if each.group is None]
    ranked = []
    for number, queue in enumerate(lag.queues, start=1):
        ranked.append((_bad(queue), queue))
        if number % _ROWS_AT_ONCE == 0:
            yield
    ranked.sort(key=itemgetter(0))
    yield
    return Judgement(
        now_ms=lag.now_ms,
        level=worst_level([*levels(groups), *levels(own), "OK" if lag.enabled else "UNKNOWN"]),
        findings=findings,
        groups=groups,
        queues=[queue for _, queue in ranked],
        lag=lag,
    )


def group_of(name: str, queues: Sequence[LagQueue], findings: Sequence[Finding] = (), empty: int = 0) -> LagGroup:
    """Return what queues and findings of a group are together; one with empty queues alone is OK."""
    statuses = [each.status for each in queues]
    level = worst_level(levels(queues)) if queues or empty else "UNKNOWN"
    statuses += [each.status for each in findings if each.status is not None]
    lags = [each.lag for each in queues if each.lag is not None]
    left = [each.unfinished for each in queues if each.unfinished is not None]
    return LagGroup(
        group=name,
        status=worst(statuses) if statuses or not empty else "OK",
        level=worst_level([level, *levels(findings)]),
        finding=findings[0].finding if findings else None,
        queues=len(queues),
        queues_unknown=len(queues) - len(left),
        lag=sum(lags) if lags or (not queues and empty) else None,
        unfinished=sum(left) if left or (not queues and empty) else None,
        time_lag_ms=max((each.time_lag_ms for each in queues if each.time_lag_ms is not None), default=None),
    )


def worst_level(found: Iterable[str]) -> str:
    """Return the worst of levels; OK of none."""
    return max(found, key=LEVELS.index, default="OK")


def levels(found: Iterable[LagGroup | LagQueue | Finding]) -> list[str]:
    """Return the level of each."""
    return [each.level for each in found]


def _stops_all(finding: Finding) -> bool:
    return KINDS[finding.finding].stops_all


def _bad(each: LagQueue) -> tuple[int, int, int, str, str, int]:
    return -LEVELS.index(each.level), -(each.time_lag_ms or 0), -(each.lag or 0), each.group, each.topic, each.queue


def _joining(findings: list[Finding], queues: Iterable[LagQueue]) -> Generator[None, None, list[Finding]]:
    """Put each lag status into the finding that says the same, or add a finding of its own."""
    alike: dict[tuple[str, str, str], list[LagQueue]] = {}
    for each in queues:
        if each.level != "OK" and each.status not in _QUIET:
            alike.setdefault((each.group, each.topic, each.status), []).append(each)
    yield
    if not alike:
        return findings
    places: dict[tuple[str, str], list[int]] = {}
    for place, finding in enumerate(findings):
        if finding.group is not None and finding.topic is not None:
            places.setdefault((finding.group, finding.topic), []).append(place)
    for number, ((group, topic, _), members) in enumerate(alike.items(), start=1):
        if number % _STATUSES_AT_ONCE == 0:
            yield
        worst_queue = max(members, key=lambda each: (each.lag or -1, -each.queue))
        fitting = [
            place
            for place in places.get((group, topic), ())
            if findings[place].status is None and _explains(KINDS[findings[place].finding], worst_queue)
        ]
        fitting.sort(key=lambda place: (not _is_held(findings[place], members), _PLACES[findings[place].finding]))
        if fitting:
            findings[fitting[0]] = _with_status(findings[fitting[0]], worst_queue)
        else:
            findings.append(_of_status(worst_queue, len(members)))
    return findings


def _explains(kind: FindingKind, queue: LagQueue) -> bool:
    return queue.status in kind.statuses or queue.cause in kind.causes


def _is_held(finding: Finding, queues: Sequence[LagQueue]) -> bool:
    """Whether a finding is about the message that holds one of the queues up."""
    return any((each.queue, each.held_offset) == (finding.queue, finding.offset) for each in queues)


def _with_status(finding: Finding, queue: LagQueue) -> Finding:
    is_own = finding.finding in _OWN_KINDS.values()
    own = is_own or queue.cause != "no_consumer"
    return replace(
        finding,
        advice=queue.advice if is_own and queue.cause is not None else finding.advice,
        severity="bad" if queue.level == "ERR" else finding.severity,
        status=queue.status,
        cause=queue.cause if own else None,
        evidence=queue.evidence if own else "",
        queue=queue.queue if finding.queue is None else finding.queue,
    )


def _of_status(queue: LagQueue, count: int) -> Finding:
    """Return the finding that a lag status is; `queue` is the worst of `count`."""
    kind = _OWN_KINDS.get(queue.status, "lag")
    if kind == "no_puller" and queue.cause not in (None, "no_consumer"):
        kind = "lag"
    elif queue.status == "WARN" and queue.cause == "no_consumer":
        # The stop limit has not passed, and yet it is known who is missing.
        kind = "no_puller"
    where = f"queue {queue.queue}" if count == 1 else f"{amount(count, 'queue')}, the worst is {queue.queue}"
    why = queue.evidence or BY_NAME[queue.status].meaning.rstrip(".")
    text = f"Group {queue.group} on topic {queue.topic}: {queue.status} in {where}: {why}."
    return replace(
        found(kind, queue.level == "ERR", text),
        group=queue.group,
        topic=queue.topic,
        advice=f"{queue.advice} `{command(*_COMMANDS.get(kind, ('lag',)), queue.group)}` shows more.",
        status=queue.status,
        cause=queue.cause,
        evidence=queue.evidence,
        queue=queue.queue,
        offset=queue.held_offset if queue.status == "BLOCKED" else None,
        count=count,
    )
