"""Made-up reports for tests: a few groups in trouble, or as many as asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lag.report.data import (
    AgeBin,
    EventMark,
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
from lag.report.engine.findings import findings_of, worst_open
from lag.report.engine.parts import summary_of
from lag.report.options import ReportWindow

FROM_MS = 1_714_950_000_000
HOUR_MS = 3_600_000
TO_MS = FROM_MS + 24 * HOUR_MS
BUCKETS = 144


def group_part(name: str, status: str = "OK", *, queues: int = 8, height: int = 0, gap: bool = False) -> GroupPart:
    """Make a group whose lag rises to `height` in the middle of the day; with `gap` nothing is known for two hours."""
    times = [FROM_MS + number * (TO_MS - FROM_MS) // BUCKETS for number in range(BUCKETS)]
    hidden = range(100, 112) if gap else range(0)
    lag: list[int | None] = [
        None if number in hidden else round(height * max(0.0, math.sin(number / BUCKETS * math.pi)) ** 3)
        for number in range(BUCKETS)
    ]
    seconds = [None if each is None else each / 40 for each in lag]
    bad = status not in ("OK", "PAUSED", "CATCHING_UP")
    spans = [StatusSpan(from_ms=FROM_MS, to_ms=FROM_MS + 8 * HOUR_MS, status="OK")]
    spans.append(StatusSpan(from_ms=FROM_MS + 8 * HOUR_MS, to_ms=FROM_MS + 16 * HOUR_MS, status=status))
    spans.append(StatusSpan(from_ms=FROM_MS + 16 * HOUR_MS, to_ms=TO_MS, status="CATCHING_UP" if height else "OK"))
    return GroupPart(
        cluster="main",
        group=name,
        status=status,
        level="ERR" if bad else "OK",
        cause="poison message" if bad else "",
        evidence="Key 'permit-77' fails since 08:00, 41 attempts, 1 204 messages wait behind it." if bad else "",
        advice=f"`pyddmq groups stuck {name}` shows it; skip or dead-letter it." if bad else "",
        lag=lag[-1],
        unfinished=lag[-1],
        seconds=seconds[-1],
        peak_lag=height,
        peak_seconds=height / 40,
        lost=12 if status == "DATA_LOSS" else 0,
        catch_up_seconds=240.0 if height else None,
        objective=Objective(
            target_seconds=60.0,
            samples_share=0.9312 if height else 1.0,
            messages_share=0.97 if height else 1.0,
            over_seconds=5_900.0 if height else 0.0,
            samples=8_640,
            coverage=0.998,
            earlier_samples_share=0.99,
            earlier_samples=8_000,
            earlier_coverage=0.92,
        ),
        spans=spans,
        line=LagSeries(times_ms=times, lag=lag, seconds=seconds, produced=[20.0] * BUCKETS, consumed=[19.0] * BUCKETS),
        heat=HeatMap(
            times_ms=times,
            rows=[
                HeatRow(label=f"permits / {queue}", lag=[None if each is None else each // (queue + 1) for each in lag])
                for queue in range(queues)
            ],
        ),
        ages=AGES if height else (),
        incidents=_incidents(status, height) if bad else (),
        queues=[_queue(queue, status if queue == 0 else "OK", height) for queue in range(queues)],
    )


AGES: Sequence[AgeBin] = [
    AgeBin(from_seconds=0, to_seconds=1, messages=12),
    AgeBin(from_seconds=1, to_seconds=10, messages=140),
    AgeBin(from_seconds=10, to_seconds=60, messages=1_400),
    AgeBin(from_seconds=60, to_seconds=600, messages=380),
    AgeBin(from_seconds=600, to_seconds=None, messages=3),
]


def _incidents(status: str, height: int) -> list[Incident]:
    return [
        Incident(
            topic="permits",
            queue=3,
            from_ms=FROM_MS + start * HOUR_MS,
            to_ms=None if end is None else FROM_MS + end * HOUR_MS,
            status=status,
            cause="poison message",
            evidence="One key failed 41 times.",
            peak_lag=height,
            peak_seconds=height / 40,
            lost=12 if status == "DATA_LOSS" else 0,
        )
        for start, end in ((8, 11), (20, None))
    ]


def _queue(queue: int, status: str, height: int) -> QueueFigures:
    return QueueFigures(
        node="node-1",
        topic="permits",
        queue=queue,
        status=status,
        cause="" if status == "OK" else "poison message",
        committed=1_000_000 + queue,
        end=1_000_000 + queue + height,
        lag=height,
        unfinished=height,
        seconds=height / 40,
        method="message" if queue else "bounded",
        produced=20.0,
        consumed=19.5,
        catch_up_seconds=None,
        lost=0,
    )


def report(groups: Sequence[GroupPart], *, gaps: Sequence[str] = (), marks: Sequence[EventMark] = ()) -> LagReportData:
    """Make a report of groups, with the findings that the engines' reports have."""
    findings, left_out = findings_of(groups)
    return LagReportData(
        title="Consumption lag of main",
        from_ms=FROM_MS,
        to_ms=TO_MS,
        made_ms=TO_MS + 60_000,
        sources=["/var/lib/pyddmq/pyddmq/lag (node-1)"],
        samples=8_640 * len(groups),
        gaps=gaps,
        groups=groups,
        summary=summary_of(groups, ReportWindow(from_ms=FROM_MS, to_ms=TO_MS), "UTC"),
        level=worst_open(groups),
        findings=findings,
        findings_left_out=left_out,
        marks=marks,
    )


def mark(kind: str, hour: int, group: str = "", *, count: int = 1, detail: str = "") -> EventMark:
    """Make an event at an hour of the window."""
    return EventMark(
        time_ms=FROM_MS + hour * HOUR_MS, kind=kind, node="node-1", group=group, topic="", count=count, detail=detail
    )


def troubled() -> LagReportData:
    """Make a report with one of each kind of trouble."""
    return report(
        [
            group_part("billing <script>alert(1)</script>", "DATA_LOSS", height=52_000),
            group_part("permits-index", "BLOCKED", height=9_000, gap=True),
            group_part("mailer", "STOP", height=700, queues=60),
            group_part("archive", "WARN", height=90),
            group_part("nightly", "PAUSED", height=14_000),
            group_part("search", "CATCHING_UP", height=400),
            group_part("audit", "OK"),
        ],
        gaps=["node-2: no samples from 10:00 to 12:00 UTC: the node was stopped"],
        marks=[
            mark("reset", 9, "mailer", count=1_024, detail="to the end"),
            mark("stop", 10),
            mark("start", 12),
        ],
    )
