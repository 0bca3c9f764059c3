"""What a lag journal says of a span: trends and objectives, as views; of a running node or of files."""

from __future__ import annotations

from collections.abc import Generator

from broker.runtime.seams import Disk
from lag.history.objective import Kept, Objectives
from lag.history.reading import Span, gather
from lag.history.trend import Line, Trend
from lag.journal.reader import JournalReader
from proxy.operate.views.lag_history import LagLine, LagTrend, ObjectiveKept, ObjectivesAnswer


def trend_steps(disk: Disk, folder: str, span: Span, *, group: str | None = None) -> Generator[None, None, LagTrend]:
    """Read how lag went, in steps: a line per group or, of one group, per queue.

    Args:
        disk: Where.
        folder: The journal's folder.
        span: What is looked at.
        group: Only this one.
    """
    trend = Trend(span.since_ms, span.until_ms, group)
    yield from gather(JournalReader(disk, folder), span, trend)
    if group is None:
        lines = [_line(name, None, None, line) for name, line in trend.groups().items()]
    else:
        lines = [_line(*place, line) for place, line in trend.queues().items()]
    return LagTrend(
        since_ms=span.since_ms,
        until_ms=span.until_ms,
        width_ms=trend.width_ms,
        shortened=span.shortened,
        lines=lines,
    )


def objectives_steps(
    disk: Disk, folder: str, span: Span, target_ms: int, *, group: str | None = None
) -> Generator[None, None, ObjectivesAnswer]:
    """Read how an objective was kept, in steps: by group or, of one group, by queue; arguments as of `trend_steps`."""
    found = Objectives(target_ms, span.since_ms, span.until_ms, group)
    yield from gather(JournalReader(disk, folder), span, found)
    if group is None:
        kept = [_kept(name, None, None, each, span.asked_ms) for name, each in found.groups().items()]
    else:
        kept = [_kept(*place, each, span.asked_ms) for place, each in found.queues().items()]
    return ObjectivesAnswer(
        objective_ms=target_ms,
        since_ms=span.since_ms,
        until_ms=span.until_ms,
        asked_ms=span.asked_ms,
        shortened=span.shortened,
        kept=kept,
    )


def _line(group: str, topic: str | None, queue: int | None, line: Line) -> LagLine:
    slope = None if line.slope is None else round(line.slope, 3)
    return LagLine(
        group=group, topic=topic, queue=queue, first=line.first, last=line.last, slope=slope, parts=line.parts
    )


def _kept(group: str, topic: str | None, queue: int | None, each: Kept, span_ms: int) -> ObjectiveKept:
    return ObjectiveKept(
        group=group,
        topic=topic,
        queue=queue,
        share=each.share,
        messages_share=each.messages_share,
        coverage=each.coverage(span_ms),
        messages=each.messages,
        lost=each.lost,
        queues=each.queues,
        kept_ms=each.kept_ms,
        over_ms=each.over_ms,
        unknown_ms=each.unknown_ms(span_ms),
    )
