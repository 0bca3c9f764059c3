"""Figures as people read them: counts, durations, moments, shares. What is not known is a dash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from lag.spans import span

if TYPE_CHECKING:
    from lag.report.data import EventMark, GroupPart, LagReportData, ReportFinding, WaitingCount

DASH = "–"


def count(value: float | None) -> str:
    """Write a count in full, with thin groups of three digits: 1 234 567."""
    return DASH if value is None else f"{value:,.0f}".replace(",", "\u202f")


def short_count(value: float | None) -> str:
    """Write a count with three digits: 950, 1.2 k, 34 M."""
    if value is None:
        return DASH
    for limit, divisor, unit in ((1e3, 1, ""), (1e6, 1e3, "\u202fk"), (1e9, 1e6, "\u202fM"), (1e15, 1e9, "\u202fG")):
        if abs(value) < limit * 0.9995:
            scaled = value / divisor
            return f"{scaled:.0f}{unit}" if divisor == 1 or abs(scaled) >= 10 else f"{scaled:.1f}{unit}"
    return f"{value:.1e}"


def rate(value: float | None) -> str:
    """Write a rate in messages per second."""
    if value is None:
        return DASH
    return f"{value:.2g}/s" if abs(value) < 10 else f"{short_count(value)}/s"


def duration(seconds: float | None) -> str:
    """Write a duration by its two greatest units: 0.4 s, 12 s, 3 min 20 s, 5 h, 2 d 4 h."""
    if seconds is None:
        return DASH
    if seconds < 0:
        return f"-{duration(-seconds)}"
    return span(seconds)


def moment(time_ms: int | None, zone: str = "UTC", *, seconds: bool = True) -> str:
    """Write a moment in a time zone: 2024-05-06 07:08:09."""
    if time_ms is None:
        return DASH
    return _in_zone(time_ms, zone).strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def clock(time_ms: int, near_ms: int, zone: str = "UTC") -> str:
    """Write a moment in a time zone and UTC, without its day where that is the day of another moment."""
    here = _in_zone(time_ms, zone)
    said = here.strftime("%H:%M" if here.date() == _in_zone(near_ms, zone).date() else "%Y-%m-%d %H:%M")
    return said if zone == "UTC" else f"{said} ({_in_zone(time_ms, 'UTC'):%H:%M} UTC)"


def _in_zone(time_ms: int, zone: str) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC if zone == "UTC" else ZoneInfo(zone))


def sentence(text: str) -> str:
    """Write what a rule says as a sentence of its own: a capital at its begin, a full stop at its end."""
    text = text.strip()
    if not text:
        return ""
    return f"{text[:1].upper()}{text[1:]}{'' if text[-1] in '.!?' else '.'}"


def evidence(finding: ReportFinding) -> str:
    """Write the evidence of a finding as a sentence; that of an ended one is of an earlier moment."""
    return sentence(finding.evidence if finding.to_ms is None else f"then: {finding.evidence}")


def share(value: float | None) -> str:
    """Write a share in percent, never rounded up to 100: 99.95 %, 100 %."""
    if value is None:
        return DASH
    percent = value * 100
    if value >= 1.0:
        return "100 %"
    digits = 2 if percent >= 99 else 1
    scale = 10**digits
    return f"{int(percent * scale) / scale:.{digits}f} %"


def names(groups: Sequence[str]) -> str:
    """Write the names of groups, three at most: a, b, c and 9 more."""
    return ", ".join(groups[:3]) + (f" and {len(groups) - 3} more" if len(groups) > 3 else "")


def when(finding: ReportFinding, report: LagReportData) -> str:
    """Write since when a finding is, and until when: since 02:14, still open."""
    since = clock(finding.from_ms, report.to_ms, report.timezone)
    times = f", {finding.times} times in the window" if finding.times > 1 else ""
    if finding.to_ms is None and finding.seen_ms is not None:
        seen = clock(finding.seen_ms, report.to_ms, report.timezone)
        return f"since {since}, still open when the last sample was recorded at {seen}{times}"
    if finding.to_ms is None:
        return f"since {since}, still open after {duration((report.to_ms - finding.from_ms) / 1000)}{times}"
    until = clock(finding.to_ms, report.to_ms, report.timezone)
    return f"{since} to {until} ({duration((finding.to_ms - finding.from_ms) / 1000)}){times}"


def costs(finding: ReportFinding) -> str:
    """Write what a finding cost: peak lag 1 204, the oldest message 3 min, 12 lost."""
    found = [
        f"peak lag {count(finding.peak_lag)}" if finding.peak_lag else "",
        f"the oldest message {duration(finding.peak_seconds)}" if finding.peak_seconds else "",
        f"{count(finding.lost)} lost" if finding.lost else "",
    ]
    return ", ".join(each for each in found if each)


def usual(finding: ReportFinding) -> str:
    """Write what was usual at the hour of a finding: usual at this hour: peak lag 12 000, produced 35/s."""
    found = finding.usual
    if found is None:
        return ""
    oldest = "" if found.seconds is None else f", the oldest message {duration(found.seconds)}"
    of = f" for {finding.groups[0]}" if len(finding.groups) > 1 else ""
    weeks = f"{found.weeks} of 4 weeks known"
    return f"usual at this hour{of}: peak lag {count(found.lag)}{oldest}, produced {rate(found.produced)} ({weeks})"


def event(mark: EventMark) -> str:
    """Write an event: reset of billing, orders (1 024 queues): to 99000."""
    about = ", ".join(each for each in (mark.group, mark.topic) if each)
    times = f" ({count(mark.count)} times)" if mark.count > 1 else ""
    detail = f": {mark.detail}" if mark.detail else ""
    return f"{mark.kind} of {about or f'node {mark.node}'}{times}{detail}"


def waiting(each: WaitingCount) -> str:
    """Write what waits: delay level 3 of node n1."""
    kinds = {"timer": "timers", "delay": f"delay level {each.delay_level}", "half": "undecided transactions"}
    topic = f", {each.topic}" if each.topic else ""
    return f"{kinds.get(each.kind, each.kind)}{topic} of node {each.node}"


def status(part: GroupPart, to_ms: int, zone: str) -> str:
    """Write the status of a group; of a deleted one when it left."""
    return f"left at {clock(part.left_ms, to_ms, zone)}" if part.left_ms is not None else part.status
