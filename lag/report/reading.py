"""What a report of plain Python reads: samples, events and gaps of journals, in one pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from broker.runtime.seams import Disk
from lag.blocks import BlockReader, Gap
from lag.journal.columns import QUEUE_COLUMNS, Row, queue_sample
from lag.journal.files import Tier, live_files, parse
from lag.journal.reader import SLACK_MS, JournalReader, Wanted
from lag.journal.summaries import queue_summary
from lag.report.clock_steps import LOOK_BACK_MS
from lag.report.options import AHEAD_MS, MESSAGE_TIMES, TIME_MIN_MS, ReportOptions
from lag.samples import EventKind, QueueSample

JOURNAL_BYTES: Final = 4
"""Bytes of a sample in a journal, at least (docs/performance.md)."""
_TIMES: Final = tuple(QUEUE_COLUMNS.index(name) for name in MESSAGE_TIMES)

Place = tuple[str, str, str, str, int]
"""Cluster, node, group, topic and number of a queue."""


@dataclass(slots=True)
class ReadSample:
    """One sample as it was read.

    Attributes:
        order: Start of the node and number of the snapshot: of two samples of one millisecond the later counts.
        tier: How fine it is.
        row: Its values, as the journal has them; equal ones that follow each other are one object.
        time_ms: Its moment.
    """

    order: tuple[int, int]
    tier: Tier
    row: Row
    time_ms: int


Labels = Mapping[str, Mapping[tuple[str, str], str]]
"""By folder, of each node (cluster and name) whose name another folder has too, what it is called here."""


def labels_of(disk: Disk, folders: Iterable[str]) -> Labels:
    """Return names for nodes that two folders have; by the heads of the folders' files."""
    nodes = {folder: _nodes(disk, folder) for folder in folders}
    shared: dict[tuple[str, str], int] = {}
    for found in nodes.values():
        for node in found:
            shared[node] = shared.get(node, 0) + 1
    labels = {
        folder: {node: f"{node[1]} ({folder})" for node in sorted(found) if shared[node] > 1}
        for folder, found in nodes.items()
    }
    return {folder: found for folder, found in labels.items() if found}


def _nodes(disk: Disk, folder: str) -> set[tuple[str, str]]:
    try:
        names = disk.list(folder)
    except OSError:
        return set()
    found = set()
    for file in live_files(each for name in names if (each := parse(name)) is not None):
        reader = BlockReader(disk, f"{folder}/{file.name}")
        reader.close()
        if reader.head is not None:
            found.add((reader.head.cluster, reader.head.node))
    return found


def file_spans(disk: Disk, folders: Iterable[str]) -> list[tuple[int, int, int]]:
    """Return, of each file of journals, its first and last moment, and how many samples it can have, by its size."""
    found = []
    for folder in folders:
        for file in live_files(each for name in disk.list(folder) if (each := parse(name)) is not None):
            reader = BlockReader(disk, f"{folder}/{file.name}")
            reader.close()
            if reader.head is not None:
                opened = disk.open(f"{folder}/{file.name}")
                samples = opened.size() // JOURNAL_BYTES
                found.append((reader.head.first_ms - SLACK_MS, reader.head.last_ms + SLACK_MS, samples))
                opened.close()
    return found


def samples_at_most(disk: Disk, folders: Iterable[str], since_ms: int, until_ms: int) -> int:
    """Return how many samples journals can have from one moment to before another, by the sizes of their files."""
    spans = file_spans(disk, folders)
    return sum(samples for first_ms, last_ms, samples in spans if last_ms >= since_ms and first_ms < until_ms)


class Reading:
    """All that journals say of the window, and before it as far as it matters."""

    def __init__(self, disk: Disk, options: ReportOptions) -> None:
        window, limits = options.window, options.limits
        self.queues: dict[Place, list[ReadSample]] = {}
        self.events: list[tuple[str, str, Any]] = []
        self.gaps: list[str] = []
        self.refused: dict[str, int] = defaultdict(int)
        self._window = window
        self._since_ms = window.from_ms - limits.window_ms - (window.length_ms if options.compared else 0)
        groups = options.given.groups
        wanted = Wanted(since_ms=max(0, self._since_ms), until_ms=window.to_ms, groups=groups)
        labels = labels_of(disk, options.given.journals)
        gaps: list[tuple[int, str, str]] = []
        for folder in options.given.journals:
            reader, names = JournalReader(disk, folder), labels.get(folder, {})
            earlier = replace(wanted, since_ms=max(0, self._since_ms - LOOK_BACK_MS))
            for block in reader.blocks(earlier, by_columns=None):
                if not isinstance(block, Gap):
                    node = names.get((block.head.cluster, block.head.node), block.head.node)
                    self.events += [
                        (block.head.cluster, node, event)
                        for event in block.events
                        if earlier.takes_moment(event.time_ms) and earlier.takes_name(event.group, event.topic)
                    ]
            for block in reader.blocks(wanted):
                if isinstance(block, Gap):
                    if self._is_inside(block):
                        gaps.append((block.from_ms or -1, block.path, f"{folder}: {block.reason} ({block.kind.value})"))
                    continue
                node = names.get((block.head.cluster, block.head.node), block.head.node)
                order = block.epoch, block.sequence
                for key, time_ms, row in block.queues:
                    if self._since_ms <= time_ms < window.to_ms and wanted.takes_name(key[0], key[1]):
                        self._take((block.head.cluster, node, *key), order, block.tier, time_ms, row)
        self.gaps = [text for _, _, text in sorted(gaps)]

    def _is_inside(self, gap: Gap) -> bool:
        window = self._window
        return (gap.to_ms is None or gap.to_ms >= window.from_ms) and (
            gap.from_ms is None or gap.from_ms < window.to_ms
        )

    def _take(self, place: Any, order: tuple[int, int], tier: Tier, time_ms: int, row: Row) -> None:
        absurd = [
            at for at in _TIMES if (told := row[at]) is not None and (told < TIME_MIN_MS or told > time_ms + AHEAD_MS)
        ]
        if absurd:
            row = tuple(None if at in absurd else value for at, value in enumerate(row))
            self.refused[place[1]] += time_ms >= self._window.from_ms
        rows = self.queues.get(place)
        if rows is None:
            rows = self.queues[place] = []
        rows.append(ReadSample(order, tier, row, time_ms))


class Moments:
    """When operators reset offsets and when queues left, looked up by a queue's name.

    An event is of all groups, topics or queues where its name says none. A reset is of a group, through whichever node.
    """

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        self._resets: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        self._lefts: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for event in events:
            names = event["group"], event["topic"], event["queue"]
            if event["kind"] == EventKind.RESET.value:
                self._resets[event["cluster"], "", *names].append(event["time_ms"])
            elif event["kind"] == EventKind.LEFT.value:
                self._lefts[event["cluster"], event["node"], *names].append(event["time_ms"])

    def resets(self, place: Place) -> list[int]:
        """Return all resets of a queue, in order."""
        return sorted(self._of(self._resets, place, ""))

    def left(self, place: Place, last_ms: int) -> int | None:
        """Return when a queue left, at its last sample or after it; null: it has not."""
        left_ms = max(self._of(self._lefts, place, place[1]), default=None)
        return left_ms if left_ms is not None and left_ms >= last_ms else None

    @staticmethod
    def _of(found: Mapping[tuple[Any, ...], list[int]], place: Place, node: str) -> Iterator[int]:
        cluster, _, group, topic, queue = place
        if found:
            for each in dict.fromkeys((group, "")):
                for other in dict.fromkeys((topic, "")):
                    for number in dict.fromkeys((queue, -1)):
                        yield from found.get((cluster, node, each, other, number), ())


def by_topic(queues: Mapping[Place, list[ReadSample]]) -> Iterator[list[tuple[Place, list[ReadSample]]]]:
    """Yield the queues of one group and topic after the other, each sorted, and without two samples of one moment."""
    found: dict[tuple[str, str, str], list[Place]] = defaultdict(list)
    for place in sorted(queues):
        found[place[0], place[2], place[3]].append(place)
    for places in found.values():
        topic = []
        for place in places:
            rows = sorted(queues[place], key=lambda each: (each.time_ms, each.order))
            following: list[ReadSample | None] = [*rows[1:], None]
            topic.append((place, [
                each for each, after in zip(rows, following, strict=True)
                if after is None or after.time_ms > each.time_ms
            ]))  # fmt: skip
        yield topic


def samples_of(
    place: Place, rows: Iterable[ReadSample], cleaned: Callable[[str, str, QueueSample], QueueSample | None]
) -> Iterator[tuple[QueueSample, ReadSample]]:
    """Yield the samples of a queue as the rules look at them, each with what was read of it."""
    for each in rows:
        if each.tier is Tier.RAW:
            sample = queue_sample(each.time_ms, each.row)
        else:
            sample = queue_summary(each.time_ms, each.row).last
        kept = cleaned(place[0], place[1], sample)
        if kept is not None:
            yield kept, each
