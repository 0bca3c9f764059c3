"""Which exported files a window needs, what is missing among them by their names, and what is mixed in them. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Final

from lag.export.names import LiveFile
from lag.journal.reader import SLACK_MS

DAY_MS: Final = 86_400_000


def first_and_last_day(table: str, since_ms: int, until_ms: int) -> tuple[date, date]:
    """Return the days whose files may have rows of a window.

    A file is of the day of its snapshots; samples are taken about then, events noted before.
    """
    return _day(since_ms - SLACK_MS), _day(until_ms + (SLACK_MS if table == "queues" else DAY_MS))


def _day(time_ms: int) -> date:
    return (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=max(0, time_ms))).date()


def holes(live: Iterable[LiveFile]) -> Iterator[tuple[LiveFile, int]]:
    """Yield files of one start that do not follow the one before, whatever their days, and how much is missing."""
    ordered = sorted(live, key=lambda each: (each.file.node, each.file.epoch, each.first))
    for before, each in pairwise(ordered):
        if before.file[2:4] == each.file[2:4] and each.first > before.last + 1:
            yield each, each.first - before.last - 1


def was_exported(live: Iterable[LiveFile], node: str, epoch: int, sequence: int) -> bool:
    """Whether a file says that it has a snapshot."""
    return any(
        (each.file.node, each.file.epoch) == (node, epoch) and each.first <= sequence <= each.last for each in live
    )


def mixed(starts: Iterable[tuple[str, str, int, int]], since_ms: int) -> Iterator[tuple[int, str]]:
    """Yield a moment and a sentence for each name of which two starts recorded at the same time from that moment on.

    Args:
        starts: Cluster, node, and the first and last moment of each start.
        since_ms: What was over before this moment is passed over.
    """
    ends: dict[tuple[str, str], int] = {}
    named: set[tuple[str, str]] = set()
    for cluster, node, first_ms, last_ms in sorted(starts):
        name = cluster, node
        end = ends.get(name, first_ms)
        if first_ms < end and min(end, last_ms) >= since_ms and name not in named:
            named.add(name)
            yield (
                first_ms,
                f"{node}: two starts recorded at the same time: two nodes have this name and their figures are mixed "
                "(give each its own brokerName), or its clock was set back (mixed)",
            )
        ends[name] = max(end, last_ms)
