"""Between which offsets a group's backlog is in each queue of a store, and what of it is finished already."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from lag.spark.sources.options import OptionRefused
from lag.spark.sources.store_files import NothingCommitted, StoreFiles, committed_offsets

RANGES_MAX: Final = 1_000_000
"""Ranges of finished offsets that are looked at, over all queues."""


class UnfinishedQueue(NamedTuple):
    """One queue of one group: from `first` on, below `end`, without the finished ranges (begin, end)."""

    group: str
    topic: str
    queue: int
    first: int
    end: int
    finished: Sequence[tuple[int, int]] = ()

    @property
    def finished_count(self) -> int:
        """How many offsets of it are finished."""
        return sum(end - first for first, end in self.finished)


def positions(
    data: str,
    groups: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    progress: str | None = None,
    *,
    known_only: bool = True,
) -> list[UnfinishedQueue]:
    """Look the positions up; queues where nothing waits are left out.

    Of a topic in which a group has an offset, queues without one count from their first message.

    Args:
        data: A store's folder; a node's data directory is one.
        groups: Names; null: all that have an offset in the store.
        topics: Names; null: all.
        progress: A file of what groups finished, newer and finer than the store's: a JSON list of
            `[group, topic, queue, committed, [[first, end], ...]]`; null: none.

        known_only: Refuse a group that has no offset; else it has no backlog.

    Raises:
        OptionRefused: A group has no offset there, or the file is none.
        StoreUnreadable: There is no store, or it has no offsets.
    """
    files = StoreFiles(data)
    known = _known(progress)
    for group, topic, queue, offset in _offsets(data, optional=bool(known)):
        known.setdefault((group, topic, queue), (offset, ()))
    wanted = {group for group, _, _ in known} if groups is None else set(groups)
    for group in sorted(wanted - {group for group, _, _ in known}) if known_only else ():
        names = ", ".join(sorted({group for group, _, _ in known})[:8]) or "none"
        raise OptionRefused(f"group {group!r} has no offset in {data}; groups with offsets: {names}")
    found = []
    for group, topic in sorted({(group, topic) for group, topic, _ in known if group in wanted}):
        if topics is not None and topic not in topics:
            continue
        for queue in files.queues(topic):
            start, end = files.range(topic, queue)
            committed, finished = known.get((group, topic, queue), (start, ()))
            first = max(start, committed)
            inside = tuple((max(a, first), min(b, end)) for a, b in finished if max(a, first) < min(b, end))
            if first < end:
                found.append(UnfinishedQueue(group, topic, queue, first, end, inside))
    return found


def topics_of(data: str, groups: Collection[str], progress: str | None = None) -> set[str]:
    """Return the topics in which groups have an offset. Raises as `positions`."""
    known = _known(progress)
    named = {(group, topic) for group, topic, _ in known}
    named |= {(group, topic) for group, topic, _, _ in _offsets(data, optional=bool(known))}
    return {topic for group, topic in named if group in groups}


def _offsets(data: str, *, optional: bool) -> list[tuple[str, str, int, int]]:
    """Return what groups committed: group, topic, queue, offset."""
    try:
        return [(*key, offset) for key, offset in committed_offsets(data).items()]
    except NothingCommitted:
        if optional:
            return []
        raise


def _known(progress: str | None) -> dict[tuple[str, str, int], tuple[int, Sequence[tuple[int, int]]]]:
    if progress is None:
        return {}
    try:
        with open(progress, encoding="utf-8") as file:
            rows = json.load(file)
        known: dict[tuple[str, str, int], tuple[int, Sequence[tuple[int, int]]]] = {
            (str(group), str(topic), int(queue)): (int(committed), tuple((int(a), int(b)) for a, b in ranges))
            for group, topic, queue, committed, ranges in rows
        }
    except (OSError, ValueError, TypeError) as error:
        raise OptionRefused(
            f"{progress} is not a list of [group, topic, queue, committed, [[first, end], ...]]: {error}"
        ) from error
    if sum(len(ranges) for _, ranges in known.values()) > RANGES_MAX:
        raise OptionRefused(f"{progress} has more than {RANGES_MAX} ranges")
    return known
