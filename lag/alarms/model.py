"""What alarms are made of: rules, findings of one round, alarms, what is told of them, and mutes. No I/O.

Moments are Unix milliseconds; an alarm's are those of the rounds that it was seen in, never of who looks at them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from broker.deduplication.numbers import MARK, NAME_BYTES, first_number
from lag.rules.statuses import BY_NAME

SILENT: Final = "SILENT"
"""Status of a node that recorded nothing for too long; no rule of a queue gives it."""
STATUSES: Final = (*BY_NAME, SILENT)
"""What an alarm may be about."""
UNDECIDED: Final = frozenset({"UNKNOWN", "INCOMPLETE"})
"""A group that has one of these is not known to be rid of another status."""
DEFAULT_STATUSES: Final = frozenset({name for name, each in BY_NAME.items() if each.level.name == "ERR"} | {SILENT})
SEVERITIES: Final = {"ERR": "critical", "WARN": "warning", "UNKNOWN": "unknown", "OK": "info"}
"""By the level of a status."""
SINKS: Final = ("file", "topic", "webhook")
"""Places that may be told."""
OPENED, REPEATED, CLOSED = "opened", "repeated", "closed"
_ID_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRule:
    """Which statuses of which groups are an alarm, and where that is told.

    Attributes:
        statuses: Names of statuses; all of level ERR, and SILENT, by default.
        groups: Patterns of names, with `*` and `?`; the silence of a node is of no group and fits every rule.
        for_ms: How long a status must hold.
        close_after_ms: How long it must be gone.
        repeat_ms: How often an open alarm is told again; 0: never.
        sinks: Names of the places that are told: `file`, `topic`, `webhook`.
    """

    statuses: frozenset[str] = DEFAULT_STATUSES
    groups: tuple[str, ...] = ("*",)
    for_ms: int = 0
    close_after_ms: int = 60_000
    repeat_ms: int = 0
    sinks: tuple[str, ...] = ("file",)

    def __post_init__(self) -> None:
        """Refuse what is no rule. Raises ValueError."""
        wrong = sorted(self.statuses - set(STATUSES))
        if wrong:
            raise ValueError(f"there is no status {wrong[0]!r}; there are {', '.join(STATUSES)}")
        if min(self.for_ms, self.close_after_ms, self.repeat_ms) < 0:
            raise ValueError("for, closeAfter and repeat are 0 or more")
        if not set(self.sinks) <= set(SINKS):
            raise ValueError(f"sinks are of {', '.join(SINKS)}")

    def fits(self, group: str, status: str) -> bool:
        """Whether it is about this status of this group; "" is a node."""
        return status in self.statuses and (not group or any(fnmatchcase(group, each) for each in self.groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mute:
    """A group whose alarms are kept and not told.

    Attributes:
        until_ms: Up to this moment, which is not in it.
        reason: Why, one line.
    """

    until_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One queue as judged; `lag` and `time_lag_ms` are null where they are not known."""

    group: str
    topic: str
    queue: int
    status: str
    cause: str | None = None
    evidence: str = ""
    advice: str = ""
    lag: int | None = None
    time_lag_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRound:
    """All queues of one node at one moment.

    Attributes:
        cluster, node: Whose.
        time_ms: The round's moment.
        findings: One per queue.
    """

    cluster: str
    node: str
    time_ms: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A status that holds, or held a moment ago; an alarm from `opened_ms` on.

    Attributes:
        cluster, node: Where.
        group: Whose; "" the node's own.
        status: Which.
        since_ms: First round of the present stretch that had it.
        opened_ms: When it became an alarm; null: it does not hold for long enough yet.
        gone_ms: First round that no longer had it; null: the last one had it.
        told: How often it was told: what is told next has this number.
        told_ms: When last; 0 never.
        queues: How many queues had it, in the last round that had it.
        topic, queue, cause, evidence, advice, lag, time_lag_ms: Of the worst of them: that with the largest lag.
    """

    cluster: str
    node: str
    group: str
    status: str
    since_ms: int
    opened_ms: int | None = None
    gone_ms: int | None = None
    told: int = 0
    told_ms: int = 0
    queues: int = 0
    topic: str = ""
    queue: int = -1
    cause: str | None = None
    evidence: str = ""
    advice: str = ""
    lag: int | None = None
    time_lag_ms: int | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is kept under."""
        return self.cluster, self.node, self.group, self.status

    @property
    def id(self) -> str:
        """Its id. Only an open alarm has one."""
        assert self.opened_ms is not None, "only an open alarm has an id"
        return alarm_id(self.cluster, self.group or f"node {self.node}", self.status, self.opened_ms)

    @property
    def level(self) -> str:
        """What its status makes of a group."""
        return "UNKNOWN" if self.status == SILENT else BY_NAME[self.status].level.name


def alarm_id(cluster: str, group: str, status: str, opened_ms: int) -> str:
    """Return the id of an alarm, 20 upper-case hex digits: the same for whoever saw it open at that moment."""
    text = json.dumps([cluster, group, status, opened_ms], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS].upper()


def unique_key(key: str) -> bytes:
    """Return the UNIQ_KEY of the message that tells an event: that of the only message of a deduplicating producer.

    Its name is made of the event's key, so the same event is the same message, whoever sends it: node or watch.
    """
    digits = hashlib.sha256(key.encode()).hexdigest().upper().encode()
    name = MARK + digits[: NAME_BYTES - len(MARK)]
    return b"%b%012X" % (name, first_number(name))


def event_of(alarm: Alarm, event: str, time_ms: int, recipients: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what is told of an alarm, as JSON.

    Args:
        alarm: As it is now.
        event: `opened`, `repeated` or `closed`.
        time_ms: Moment of the round in which it happened.
        recipients: Whom it is for (DDMQ's `alarmGroup`).
    """
    number = alarm.told
    suffix = f"{event}-{number}" if event == REPEATED else event
    return {
        "key": f"{alarm.id}-{suffix}",
        "id": alarm.id,
        "number": number,
        "event": event,
        "severity": SEVERITIES[alarm.level],
        "cluster": alarm.cluster,
        "node": alarm.node,
        "group": alarm.group,
        "status": alarm.status,
        "timeMs": time_ms,
        "sinceMs": alarm.since_ms,
        "openedMs": alarm.opened_ms,
        "queues": alarm.queues,
        "topic": alarm.topic,
        "queue": alarm.queue,
        "cause": alarm.cause,
        "evidence": alarm.evidence,
        "advice": alarm.advice,
        "lag": alarm.lag,
        "timeLagMs": alarm.time_lag_ms,
        "alarmGroup": list(recipients),
    }


@dataclass(slots=True, kw_only=True)
class AlarmState:
    """All that must outlive a process; `lag.alarms.state` writes it.

    Attributes:
        alarms: By cluster, node, group and status.
        mutes: By group.
        outbox: What is told and not yet taken by a place: event and names of the places, oldest first.
        marks: What whoever keeps the state remembers beside it, whole numbers by name.
        dropped: Tellings that a full outbox cost, of all time.
    """

    alarms: dict[tuple[str, str, str, str], Alarm] = field(default_factory=dict)
    mutes: dict[str, Mute] = field(default_factory=dict)
    outbox: list[tuple[dict[str, Any], tuple[str, ...]]] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    dropped: int = 0

    def open_alarms(self) -> list[Alarm]:
        """Return the open ones, the longest open first."""
        found = [each for each in self.alarms.values() if each.opened_ms is not None]
        return sorted(found, key=lambda each: (each.opened_ms or 0, each.group, each.status))

    def waiting(self, sink: str) -> list[dict[str, Any]]:
        """Return what a place has not taken yet, in order."""
        return [event for event, sinks in self.outbox if sink in sinks]

    def took(self, sink: str, keys: frozenset[str]) -> bool:
        """Note that a place has taken events; returns whether that was news."""
        left = []
        for event, sinks in self.outbox:
            kept = tuple(each for each in sinks if each != sink) if event["key"] in keys else sinks
            if kept:
                left.append((event, kept))
        changed = left != self.outbox
        self.outbox = left
        return changed
