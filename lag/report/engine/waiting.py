"""What waited in nodes for its own time over a window: timers, delay levels and undecided transactions."""

from __future__ import annotations

from broker.runtime.seams import Disk
from lag.blocks import BlockGap
from lag.journal.columns import Key, Row, scheduled_sample
from lag.journal.files import Tier
from lag.journal.reader import JournalQuery, JournalReader
from lag.journal.summaries import scheduled_summary
from lag.report.data import WaitingCount
from lag.report.engine.reading import labels_of
from lag.report.options import ReportOptions
from lag.rules.waiting_rules import WAITING_STATUSES, judge_waiting
from lag.samples import ScheduledSample

WAITING_MAX = 100
_SEVERITY = {each.name: len(WAITING_STATUSES) - place for place, each in enumerate(WAITING_STATUSES)}


def waiting_of(disk: Disk, options: ReportOptions) -> list[WaitingCount]:
    """Return a row per node, kind, topic and level that something waited under, the worst first."""
    window, limits = options.window, options.limits
    wanted = JournalQuery(since_ms=window.from_ms, until_ms=window.to_ms)
    labels = labels_of(disk, options.given.journals)
    last: dict[tuple[str, str, str, str, int], tuple[ScheduledSample, int, int]] = {}
    for folder in options.given.journals:
        names = labels.get(folder, {})
        for block in JournalReader(disk, folder).blocks(wanted, by_columns=None):
            if isinstance(block, BlockGap):
                continue
            cluster = block.head.cluster
            node = names.get((cluster, block.head.node), block.head.node)
            for key, time_ms, row in block.scheduled:
                if not wanted.takes_moment(time_ms):
                    continue
                sample, most, longest_ms = _of_row(block.tier, key, time_ms, row)
                _, overdue, late_ms = last.get((cluster, node, *key), (None, 0, 0))
                last[cluster, node, *key] = sample, max(overdue, most), max(late_ms, longest_ms)
    clusters: dict[str, set[str]] = {}
    for cluster, node, *_ in last:
        clusters.setdefault(node, set()).add(cluster)
    found = []
    for (cluster, name, kind, topic, level), (sample, overdue, late_ms) in last.items():
        if not sample.pending and not overdue:
            continue
        node = name if len(clusters[name]) == 1 else f"{name} ({cluster})"
        verdict = judge_waiting(sample, sample.time_ms, limits)
        late = verdict.figures["lateness_ms"]
        found.append(
            WaitingCount(
                node=node,
                kind=kind,
                topic=topic,
                delay_level=level,
                status=verdict.status,
                level=verdict.level,
                scheduled=verdict.figures["scheduled"],
                overdue=sample.overdue,
                late_seconds=None if late is None else late / 1000,
                undecided_since_ms=verdict.figures["undecided_since_ms"],
                peak_overdue=overdue,
                peak_late_seconds=None if kind == "half" else late_ms / 1000,
                advice=verdict.advice,
            )
        )
    found.sort(key=lambda each: (-_SEVERITY.get(each.status, 0), -each.overdue, each.node, each.kind, each.delay_level))
    return found[:WAITING_MAX]


def _of_row(tier: Tier, key: Key, time_ms: int, row: Row) -> tuple[ScheduledSample, int, int]:
    """Return the last sample of a row, the most that were overdue in it, and for how long one was."""
    if tier is not Tier.RAW:
        summary = scheduled_summary(key, time_ms, row)
        return summary.last, summary.overdue_max, summary.late_max_ms or 0
    sample = scheduled_sample(key, time_ms, row)
    is_late = sample.oldest_due_ms is not None and sample.overdue
    return sample, sample.overdue, max(0, time_ms - (sample.oldest_due_ms or 0)) if is_late else 0
