"""From the few rows that an engine makes of samples to the report: the same for every engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lag.report import texts
from lag.report.data import (
    GroupPart,
    HeatMap,
    HeatRow,
    Incident,
    LagReportData,
    LagSeries,
    Objective,
    QueueFigures,
    StatusSpan,
)
from lag.report.engine import clock_steps
from lag.report.engine.findings import LEFT, findings_of, marks_of, worst_open
from lag.report.options import (
    BUCKETS,
    HEAT_BUCKETS,
    PRECISE,
    QUEUES_MAX,
    Figures,
    Group,
    Reduced,
    ReportOptions,
    ReportWindow,
    status_of,
)
from lag.rules import causes, statuses
from lag.rules.limits import LagLimits
from lag.rules.queue_rules import advice_of
from lag.rules.statuses import Level

# One sentence of summary: how many groups were in trouble, which still are and since when, and what was lost.


NAMED_MAX: Final = 3
_TROUBLE: Final = (Level.WARN.name, Level.ERR.name)


def summary_of(parts: Sequence[GroupPart], window: ReportWindow, timezone: str) -> str:
    """Return the sentence."""
    if not parts:
        return "This window has no samples of any group, so the report is empty."
    total = len(parts)
    troubled = [part for part in parts if part.level in _TROUBLE or any(map(_is_trouble, _statuses(part)))]
    still = [part for part in parts if part.level in _TROUBLE]
    unknown = [part for part in parts if part.level == Level.UNKNOWN.name and part.status != LEFT]
    lost = sum(part.lost for part in parts)
    if not troubled:
        said = "The only group was OK" if total == 1 else f"All {total} groups were OK"
        said = said if not unknown else f"No trouble is known of {_groups(total)}"
    else:
        said = f"{len(troubled)} of {_groups(total)} {_was(len(troubled))} in trouble"
        said += f"; {_still(still, window, timezone)}" if still else "; none of them still is"
    if unknown:
        named = ", ".join(part.group for part in unknown[:NAMED_MAX])
        more = f" and {len(unknown) - NAMED_MAX} more" if len(unknown) > NAMED_MAX else ""
        said += f"; nothing is known of {named}{more} at the end"
    if lost:
        said += f"; {texts.count(lost)} {'message was' if lost == 1 else 'messages were'} lost"
    return f"{said}."


def _groups(count: int) -> str:
    return f"{count} group" if count == 1 else f"{count} groups"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _statuses(part: GroupPart) -> list[str]:
    return [each.status for each in part.incidents]


def _is_trouble(status: str) -> bool:
    return statuses.BY_NAME[status].level.name in _TROUBLE


def _still(still: Sequence[GroupPart], window: ReportWindow, timezone: str) -> str:
    named = [f"{part.group} {part.status}{_since(part, window, timezone)}" for part in still[:NAMED_MAX]]
    more = f" and {len(still) - NAMED_MAX} more" if len(still) > NAMED_MAX else ""
    return f"{len(still)} still {'is' if len(still) == 1 else 'are'}: {', '.join(named)}{more}"


def _since(part: GroupPart, window: ReportWindow, timezone: str) -> str:
    """Say since when, by the open incident of this status, or the stretch that the window ends with."""
    found = [each.from_ms for each in part.incidents if each.to_ms is None and each.status == part.status]
    found = found or [each.from_ms for each in part.spans[-1:]]
    if not found:
        return ""
    cause = f" ({part.cause})" if part.cause else ""
    return f" since {texts.clock(min(found), window.to_ms, timezone)}{cause}"


GAPS_MAX: Final = 20
_NO_OBJECTIVE: Final = Objective(
    target_seconds=0, samples_share=None, messages_share=None, over_seconds=0, samples=0, coverage=0.0
)


def assemble(options: ReportOptions, reduced: Reduced) -> LagReportData:
    """Return the report of what an engine found."""
    limits, window = options.limits, replace(options.window, pause_ms=reduced.pause_ms)
    buckets, last = _by_group(reduced.buckets), _by_group(reduced.last)
    heat, incidents = _by_group(reduced.heat), _by_group(reduced.incidents)
    earlier = {(row["cluster"], row["group"]): row for row in reduced.earlier}
    parts = []
    for row in reduced.objectives:
        group = row["cluster"], row["group"]
        part = _part(group, window, buckets[group], last[group])
        parts.append(
            replace(
                part,
                lost=row["lost"],
                objective=_objective(row, limits, window, earlier.get(group)),
                heat=_heat(heat[group], window),
                incidents=_incidents(incidents[group]),
                contacts=options.contacts.get(group[1], ()),
            )
        )
    parts.sort(key=lambda part: (-_severity(part.status), -(part.lag or 0), part.cluster, part.group))
    findings, left_out = findings_of(parts)
    marks, marks_left_out = marks_of(reduced.events, options.window)
    return LagReportData(
        title=options.title,
        from_ms=window.from_ms,
        to_ms=window.to_ms,
        made_ms=options.made_ms,
        sources=options.given.sources,
        samples=sum(row["samples"] for row in reduced.objectives),
        gaps=_gaps(options, reduced),
        groups=parts,
        summary=summary_of(parts, window, options.timezone),
        level=worst_open(parts),
        findings=findings,
        findings_left_out=left_out,
        marks=marks,
        marks_left_out=marks_left_out,
        timezone=options.timezone,
    )


def _severity(status: str) -> int:
    return statuses.SEVERITY.get(status, 0)


def _gaps(options: ReportOptions, reduced: Reduced) -> list[str]:
    window = options.window
    steps = clock_steps.steps_of(reduced.events)
    found = clock_steps.reported(steps, options.limits, window.from_ms, window.to_ms)
    found += [
        f"{node}: {count} samples have message times before the year 2000 or in the future, which are left out (time)"
        for node, count in sorted(reduced.refused.items())
    ]
    found += reduced.gaps
    return found if len(found) <= GAPS_MAX else [*found[:GAPS_MAX], f"and {len(found) - GAPS_MAX} more"]


def _by_group(rows: Iterable[Figures]) -> dict[Group, list[Figures]]:
    found: dict[Group, list[Figures]] = defaultdict(list)
    for row in rows:
        found[row["cluster"], row["group"]].append(row)
    return found


def _part(group: Group, window: ReportWindow, buckets: Sequence[Figures], last: Sequence[Figures]) -> GroupPart:
    """Put together what is of the group as a whole; the rest is empty."""
    queues = sorted(last, key=lambda row: row["place"])
    worst = queues[0]
    cause, evidence, advice = _why(worst)
    status = worst["status"]
    left = [row["left_ms"] for row in queues if row["left_ms"] is not None]
    left_ms = max(left) if status == LEFT else None
    lags = [row["lag"] for row in buckets if row["lag"] is not None]
    ages = [row["age_ms"] for row in buckets if row["age_ms"] is not None]
    return GroupPart(
        cluster=group[0],
        group=group[1],
        status=status,
        level="OK" if status == LEFT else statuses.BY_NAME[status].level.name,
        cause=cause,
        evidence=evidence,
        advice=advice,
        lag=worst["group_lag"],
        unfinished=worst["group_unfinished"],
        seconds=_seconds(worst["group_age_ms"]),
        peak_lag=max(lags, default=None),
        peak_seconds=_seconds(max(ages, default=None)),
        lost=0,
        catch_up_seconds=worst["group_catch_up_s"],
        objective=_NO_OBJECTIVE,
        spans=_spans(buckets, window, left_ms),
        line=_line(buckets, window),
        heat=HeatMap(times_ms=(), rows=()),
        ages=(),
        incidents=(),
        queues=[_figures(row) for row in queues[:QUEUES_MAX]],
        queues_left_out=worst["group_queues"] - min(len(queues), QUEUES_MAX),
        left_ms=left_ms,
    )


def _why(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the cause of a queue's state, the sentence that speaks for it, and what to do."""
    if row["status"] == LEFT:
        return "", "", ""
    if row["cause"] is None:
        status = statuses.BY_NAME[row["status"]]
        calm = row["status"] == "OK"
        return "", "" if calm else status.meaning, "" if calm else status.advice
    return _words(row["cause"]), causes.evidence(row["cause"], row), advice_of(row["status"], row["cause"])


def _objective(row: Figures, limits: LagLimits, window: ReportWindow, earlier: Figures | None) -> Objective:
    found = Objective(
        target_seconds=limits.target_ms / 1000,
        samples_share=_share(row["kept"], row["samples"]),
        messages_share=_share(row["ended_kept"], row["ended"]),
        over_seconds=row["over_ms"] / 1000,
        samples=row["samples"],
        coverage=_coverage(row, window),
    )
    if earlier is None:
        return found
    return replace(
        found,
        earlier_samples_share=_share(earlier["kept"], earlier["samples"]),
        earlier_samples=earlier["samples"],
        earlier_coverage=_coverage(earlier, window),
    )


def _share(part: int, total: int) -> float | None:
    return part / total if total else None


def _coverage(row: Figures, window: ReportWindow) -> float:
    """Return the share of a period as long as the window that is known."""
    return float(row["known_ms"] / (window.length_ms * row["queues"]))


def _line(buckets: Sequence[Figures], window: ReportWindow) -> LagSeries:
    """Return the buckets as a line; one without samples is a gap in it."""
    by_number = {row["bucket"]: row for row in buckets}
    width, count = window.width_ms(BUCKETS), window.count(BUCKETS)
    rows = [by_number.get(number, {}) for number in range(count)]
    return LagSeries(
        times_ms=[window.from_ms + number * width for number in range(count)],
        lag=[row.get("lag") for row in rows],
        seconds=[_seconds(row.get("age_ms")) for row in rows],
        produced=[_rate(row.get("produced")) for row in rows],
        consumed=[_rate(row.get("consumed")) for row in rows],
    )


def _spans(buckets: Sequence[Figures], window: ReportWindow, left_ms: int | None) -> list[StatusSpan]:
    """Return the stretches of one status; a bucket without samples is UNKNOWN, until the group left."""
    by_number = {row["bucket"]: status_of(row["severity"]) for row in buckets}
    width = window.width_ms(BUCKETS)
    spans: list[StatusSpan] = []
    for number in range(window.count(BUCKETS)):
        status = by_number.get(number, "UNKNOWN")
        begin = window.from_ms + number * width
        end = min(begin + width, window.to_ms)
        if number not in by_number and left_ms is not None and end > left_ms:
            break
        if spans and spans[-1].status == status:
            spans[-1] = replace(spans[-1], to_ms=end)
        else:
            spans.append(StatusSpan(from_ms=begin, to_ms=end, status=status))
    return spans


def _heat(rows: Sequence[Figures], window: ReportWindow) -> HeatMap:
    width, count = window.width_ms(HEAT_BUCKETS), window.count(HEAT_BUCKETS)
    by_place: dict[int, list[int | None]] = {}
    labels: dict[int, str] = {}
    nodes = len({row["node"] for row in rows if row["node"] is not None})
    for row in rows:
        place = row["place"]
        by_place.setdefault(place, [None] * count)[row["bucket"]] = row["lag"]
        node = f" ({row['node']})" if nodes > 1 else ""
        labels[place] = "all others" if row["topic"] is None else f"{row['topic']} / {row['queue']}{node}"
    return HeatMap(
        times_ms=[window.from_ms + number * width for number in range(count)],
        rows=[HeatRow(label=labels[place], lag=by_place[place]) for place in sorted(by_place)],
    )


def joined(rows: Sequence[Figures]) -> list[Figures]:
    """Join what was the same at the same time on several queues: one incident for people."""
    found: list[Figures] = []
    open_now: list[Figures] = []
    for row in sorted(rows, key=lambda row: (row["from_ms"], row["topic"], row["queue"])):
        open_now = [each for each in open_now if each["until_ms"] is None or row["from_ms"] <= each["until_ms"]]
        for other in open_now:
            if other["severity"] == row["severity"] and other["cause"] == row["cause"]:
                _join(other, row)
                break
        else:
            open_now.append(dict(row))
            found.append(open_now[-1])
    return found


def _incidents(rows: Sequence[Figures]) -> list[Incident]:
    """Return the incidents of a group; the evidence of each is that of the queue with the most lag.

    That too few samples are known is none of them: the bands show it, and the report's gaps say why.
    """
    return [
        Incident(
            topic=row["topic"] or "",
            queue=row["queue"],
            from_ms=row["from_ms"],
            to_ms=row["until_ms"],
            status=status_of(row["severity"]),
            cause=_words(row["cause"] or ""),
            evidence=_reported(row),
            peak_lag=row["lag"],
            peak_seconds=_seconds(row["age_ms"]),
            lost=row["lost"],
        )
        for row in joined(rows)
        if status_of(row["severity"]) != "INCOMPLETE"
    ]


def _reported(row: Mapping[str, Any]) -> str:
    """Return the sentence that speaks for an incident: of its cause, else what its status means."""
    if row["cause"] is None:
        return statuses.BY_NAME[status_of(row["severity"])].meaning
    return causes.evidence(row["cause"], row["facts"])


def _join(into: Figures, row: Mapping[str, Any]) -> None:
    if into["topic"] != row["topic"]:
        into["topic"] = into["queue"] = None
    elif into["queue"] != row["queue"]:
        into["queue"] = None
    if into["until_ms"] is not None:
        into["until_ms"] = None if row["until_ms"] is None else max(into["until_ms"], row["until_ms"])
    if (row["lag"] or 0) > (into["lag"] or 0):
        into["facts"] = row["facts"]
    into["lost"] += row["lost"]
    for name in ("last_ms", "lag", "age_ms"):
        if row[name] is not None:
            into[name] = row[name] if into[name] is None else max(into[name], row[name])


def _figures(row: Mapping[str, Any]) -> QueueFigures:
    age = row["time_lag_ms"] if row["time_lag_ms"] is not None else row["time_lag_high_ms"]
    return QueueFigures(
        node=row["node"],
        topic=row["topic"],
        queue=row["queue"],
        status=row["status"],
        cause=_words(row["cause"] or ""),
        committed=row["committed"],
        end=row["end"],
        lag=row["lag"],
        unfinished=row["unfinished"],
        seconds=_seconds(age),
        method=row["time_lag_method"] or "none",
        produced=row["produce_rate"],
        consumed=row["consume_rate"],
        catch_up_seconds=row["catch_up_s"],
        lost=row["lost"] or 0,
    )


def _words(cause: str) -> str:
    """Return a cause as people write it."""
    return cause.replace("_", " ")


def _rate(precise: int | None) -> float | None:
    return None if precise is None else precise / PRECISE


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
