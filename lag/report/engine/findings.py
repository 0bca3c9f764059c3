"""What a reader has to know of a window: findings, worst first, the events around them, and one sentence of summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lag.report.data import EventMark, GroupPart, Incident, ReportFinding
from lag.report.options import ReportWindow
from lag.rules import causes, statuses

FINDINGS_MAX: Final = 10
MARKS_MAX: Final = 200
TOGETHER_MS: Final = 120_000
"""Findings of several groups that begin and end this close to each other have one reason."""
SAME_MS: Final = 60_000
"""Equal events within this time are one mark: a reset of a topic is an event for each of its queues."""
LEFT: Final = "LEFT"
"""Status of a group, or queue, that was deleted or left the configuration."""


def findings_of(parts: Sequence[GroupPart]) -> tuple[list[ReportFinding], int]:
    """Return the worst findings of all groups, and how many more there are."""
    found: list[ReportFinding] = []
    for part in parts:
        mine = _of_incidents(part)
        if part.status not in ("OK", LEFT) and all(each.to_ms is not None for each in mine):
            mine.append(_of_end(part))
        found += mine
    found.sort(key=_order)
    joined: list[ReportFinding] = []
    for each in found:
        for place, other in enumerate(joined):
            if _is_like(other, each):
                joined[place] = _together(other, each)
                break
        else:
            joined.append(each)
    joined.sort(key=_order)
    return joined[:FINDINGS_MAX], max(0, len(joined) - FINDINGS_MAX)


def _order(finding: ReportFinding) -> tuple[int, bool, int, int, int, Sequence[str]]:
    """Place of a finding in the list: the worst status first, then what is still open, then what cost the most."""
    return (
        -statuses.SEVERITY[finding.status],
        finding.to_ms is not None,
        -finding.lost,
        -(finding.peak_lag or 0),
        finding.from_ms,
        finding.groups,
    )


def _of_incidents(part: GroupPart) -> list[ReportFinding]:
    """Return a finding for each status and cause of a group, over all its incidents."""
    found: dict[tuple[str, str], ReportFinding] = {}
    for incident in part.incidents:
        one = _of_incident(part, incident)
        key = incident.status, incident.cause
        found[key] = _joined(found[key], one) if key in found else one
    return list(found.values())


def _of_incident(part: GroupPart, incident: Incident) -> ReportFinding:
    """Return the finding that an incident is; an open one has the cause of the window's end, and not of its begin."""
    is_now = incident.to_ms is None and incident.status == part.status and part.cause != ""
    cause, evidence = (part.cause, part.evidence) if is_now else (incident.cause, incident.evidence)
    is_known = incident.to_ms is not None or part.status != "UNKNOWN" or incident.status == "UNKNOWN"
    return ReportFinding(
        groups=[part.group],
        topic=incident.topic,
        from_ms=incident.from_ms,
        to_ms=incident.to_ms,
        seen_ms=None if is_known or not part.spans else max(incident.from_ms, part.spans[-1].from_ms),
        times=1,
        status=incident.status,
        level=statuses.BY_NAME[incident.status].level.name,
        cause=cause,
        evidence=evidence,
        status_advice=statuses.BY_NAME[incident.status].advice,
        cause_advice=_advice(cause),
        peak_lag=incident.peak_lag,
        peak_seconds=incident.peak_seconds,
        lost=incident.lost,
        contacts=part.contacts,
    )


def _of_end(part: GroupPart) -> ReportFinding:
    """Return the finding of a status at the end without an incident: paused, catching up, or not known."""
    return ReportFinding(
        groups=[part.group],
        topic="",
        from_ms=part.spans[-1].from_ms if part.spans else 0,
        to_ms=None,
        times=1,
        status=part.status,
        level=part.level,
        cause=part.cause,
        evidence=part.evidence,
        status_advice=statuses.BY_NAME[part.status].advice,
        cause_advice=_advice(part.cause),
        peak_lag=part.lag,
        peak_seconds=part.seconds,
        lost=0,
        contacts=part.contacts,
    )


def _advice(cause: str) -> str:
    known = causes.BY_NAME.get(cause.replace(" ", "_"))
    return "" if known is None else known.advice


def _joined(one: ReportFinding, other: ReportFinding) -> ReportFinding:
    """Return one finding of two with the same status and cause; evidence is that of the one with the most lag."""
    worse = other if (other.peak_lag or 0) > (one.peak_lag or 0) else one
    # Of those that are open a reader asks since when; of all others what they span.
    begins = [each.from_ms for each in (one, other) if each.to_ms is None]
    return replace(
        worse,
        groups=one.groups,
        topic=one.topic if one.topic == other.topic else "",
        from_ms=min(begins or (one.from_ms, other.from_ms)),
        to_ms=None if begins else max(one.to_ms or 0, other.to_ms or 0),
        times=one.times + other.times,
        peak_seconds=max((each.peak_seconds for each in (one, other) if each.peak_seconds is not None), default=None),
        lost=one.lost + other.lost,
        contacts=[*one.contacts, *(each for each in other.contacts if each not in one.contacts)],
    )


def _is_like(one: ReportFinding, other: ReportFinding) -> bool:
    """Whether findings of two groups have one reason: equal in status and cause, and at the same time."""
    if (one.status, one.cause) != (other.status, other.cause) or (one.to_ms is None) != (other.to_ms is None):
        return False
    return abs(one.from_ms - other.from_ms) <= TOGETHER_MS and abs((one.to_ms or 0) - (other.to_ms or 0)) <= TOGETHER_MS


def _together(one: ReportFinding, other: ReportFinding) -> ReportFinding:
    return replace(_joined(one, other), groups=[*one.groups, *other.groups])


def worst_open(parts: Sequence[GroupPart]) -> str:
    """Return the level of the worst status at the window's end; without groups nothing can be said."""
    found = [part.status for part in parts if part.status != LEFT]
    if found:
        return statuses.level(found).name
    return statuses.Level.OK.name if parts else statuses.Level.UNKNOWN.name


def marks_of(events: Iterable[Mapping[str, Any]], window: ReportWindow) -> tuple[list[EventMark], int]:
    """Return the events of a window, equal ones joined, and how many more there are."""
    found: list[EventMark] = []
    newest: dict[tuple[str, str, str], int] = {}
    inside = [each for each in events if window.from_ms <= each["time_ms"] < window.to_ms]
    for event in sorted(inside, key=lambda each: (each["time_ms"], each["node"], each["kind"], each["group"])):
        key = event["node"], event["kind"], event["group"]
        place = newest.get(key)
        if place is not None and event["time_ms"] - found[place].time_ms <= SAME_MS:
            mark = found[place]
            topic = mark.topic if mark.topic == event["topic"] else ""
            found[place] = replace(mark, topic=topic, count=mark.count + 1)
            continue
        newest[key] = len(found)
        mark = EventMark(
            time_ms=event["time_ms"],
            kind=event["kind"],
            node=event["node"],
            group=event["group"],
            topic=event["topic"],
            count=1,
            detail=event["detail"] or "",
        )
        found.append(mark)
    if len(found) <= MARKS_MAX:
        return found, 0
    # Retention continues all day; what people did is what a reader looks for.
    kept = sorted(found, key=lambda mark: (mark.kind == "retention", mark.time_ms))[:MARKS_MAX]
    return sorted(kept, key=lambda mark: mark.time_ms), len(found) - MARKS_MAX
