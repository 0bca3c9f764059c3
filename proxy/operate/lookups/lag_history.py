"""What a lag journal says of a span: trends and objectives, as views; of a running node or of files."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from broker.runtime.seams import Disk
from lag.history.objective import BURN_MS, Kept, Objectives
from lag.history.reading import HistorySpan, gather
from lag.history.trend import Trend, TrendLine
from lag.journal.reader import JournalReader
from proxy.operate.views.lag_history import BurnRate, LagLine, LagTrend, ObjectiveKept, ObjectivesAnswer


def trend_steps(
    disk: Disk, folder: str, span: HistorySpan, *, group: str | None = None
) -> Generator[None, None, LagTrend]:
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
    disk: Disk,
    folder: str,
    span: HistorySpan,
    target_ms: int,
    *,
    group: str | None = None,
    at_least: float | None = None,
) -> Generator[None, None, ObjectivesAnswer]:
    """Read how an objective was kept, in steps: by group or, of one group, by queue; arguments as of `trend_steps`.

    With `at_least`, a share of the messages, also how fast the rest, the error budget, was used up.
    """
    lengths = [] if at_least is None else [each for each in BURN_MS if each < span.asked_ms]
    found = {span.asked_ms: Objectives(target_ms, span.since_ms, span.until_ms, group)}
    found |= {each: Objectives(target_ms, span.until_ms - each, span.until_ms, group) for each in lengths}
    yield from gather(JournalReader(disk, folder), span, *found.values())
    kept = []
    if group is None:
        groups = {length: each.groups() for length, each in found.items()}
        for name in groups[span.asked_ms]:
            of_group = {length: each.get(name, Kept()) for length, each in groups.items()}
            kept.append(_kept(name, None, None, of_group, at_least))
    else:
        queues = {length: each.queues() for length, each in found.items()}
        for place in queues[span.asked_ms]:
            of_queue = {length: each.get(place, Kept()) for length, each in queues.items()}
            kept.append(_kept(*place, of_queue, at_least))
    return ObjectivesAnswer(
        objective_ms=target_ms,
        since_ms=span.since_ms,
        until_ms=span.until_ms,
        asked_ms=span.asked_ms,
        shortened=span.shortened,
        kept=kept,
        at_least=at_least,
    )


def _line(group: str, topic: str | None, queue: int | None, line: TrendLine) -> LagLine:
    slope = None if line.slope is None else round(line.slope, 3)
    return LagLine(
        group=group, topic=topic, queue=queue, first=line.first, last=line.last, slope=slope, parts=line.parts
    )


def _kept(
    group: str, topic: str | None, queue: int | None, windows: Mapping[int, Kept], at_least: float | None
) -> ObjectiveKept:
    """Return the view of the first of the windows, by length, with the burn rates of all."""
    span_ms, each = next(iter(windows.items()))
    burn = None if at_least is None else each.burn_rate(at_least)
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
        burn_rates=[] if at_least is None else [_burn_rate(*window, at_least) for window in windows.items()],
        budget_left=None if burn is None else round(1 - burn, 3),
    )


def _burn_rate(window_ms: int, each: Kept, at_least: float) -> BurnRate:
    return BurnRate(
        window_ms=window_ms,
        burn_rate=each.burn_rate(at_least),
        messages=each.messages,
        missed=each.messages - each.messages_kept,
        coverage=each.coverage(window_ms),
    )
