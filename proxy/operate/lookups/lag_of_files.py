"""Consumption lag by a journal's files alone: the last samples in them, judged as a node judges its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from broker.runtime.seams import Disk, SystemClock
from broker.runtime.steps import run_now
from conf import GroupConfig, LagConfig
from lag.blocks import BlockGap
from lag.journal.columns import queue_sample
from lag.journal.files import Tier
from lag.journal.reader import JournalQuery, JournalReader
from lag.journal.writer import FILE_MS
from lag.samples import EventKind, LagEvent
from lag.verdicts.windows import NodeWindows
from proxy.operate.attention.judgement import LagQueues, judgement
from proxy.operate.lookups.lag import queue_of
from proxy.operate.views.lag import LagAnswer
from proxy.recording.judging import QueueJudge
from proxy.recording.limits import limits_of_config


def lag_of_files(
    disk: Disk,
    folder: str,
    now_ms: int,
    *,
    limit: int,
    group: str | None = None,
    config_of: Callable[[str], GroupConfig | None] = lambda _: None,
) -> LagAnswer:
    """Judge the last samples of a journal.

    A group of which nothing was noted within the window of the rules is not known; so is every group then when its
    newest sample is stale.

    Args:
        disk: Where.
        folder: The journal's folder.
        now_ms: The moment that is judged.
        limit: Queues that are listed, at most.
        group: Only this one.
        config_of: Configuration of a group, for its thresholds.
    """
    reader = JournalReader(disk, folder)
    every_ms = reader.interval_ms()
    # The limits of a node that samples as often.
    lag = LagConfig(every=f"{min(max(every_ms, 1_000), FILE_MS)}ms")
    windows = NodeWindows(limits_of_config(None, "", lag).window_ms)
    since_ms = now_ms - windows.window_ms
    for block in reader.blocks(JournalQuery(since_ms=since_ms // FILE_MS * FILE_MS, until_ms=now_ms + 1)):
        if isinstance(block, BlockGap) or block.tier is not Tier.RAW:
            continue
        for event in block.events:
            windows.note(event)
            if event.kind is EventKind.LEFT:
                _forget(windows, event)
        for place, time_ms, row in block.queues:
            if time_ms >= since_ms:
                windows.add(place, queue_sample(time_ms, row))
    found = run_now(QueueJudge(windows, SystemClock(), config_of, lambda: lag).judging(now_ms))
    queues = LagQueues(
        now_ms=now_ms,
        every_ms=every_ms,
        groups=[] if group is None else [group],
        queues=[queue_of(each) for each in found.judged],
        empty=found.empty,
    )
    made = judgement(queues)
    # Without one group in the files nothing is known.
    return (made if made.groups else replace(made, level="UNKNOWN")).as_lag(limit=limit, group=group)


def _forget(windows: NodeWindows, left: LagEvent) -> None:
    """Forget a queue that left its group, or all queues of a group that left."""
    for (group, topic), queues in windows.topics(left.group).items():
        for queue in queues:
            if left.topic in ("", topic) and left.queue in (-1, queue):
                windows.forget((group, topic, queue))
