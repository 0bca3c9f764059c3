"""What a report of plain Python reads: samples, events and gaps of journals, in one pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from broker.runtime.seams import Disk
from lag.blocks import BlockGap, BlockReader
from lag.journal.files import live_files, parse
from lag.journal.reader import SLACK_MS, JournalQuery, JournalReader
from lag.journal.scan import Block, rows_of_file
from lag.report.engine.clock_steps import LOOK_BACK_MS, NodeClockStep, steps_of
from lag.report.engine.column_rules import ColumnValues, both
from lag.report.engine.column_samples import Place, SampleColumns, Samples, ordered
from lag.report.options import AHEAD_MS, MESSAGE_TIMES, TIME_MIN_MS, Figures, ReportOptions, ReportWindow
from lag.rules.limits import LagLimits
from lag.samples import EventKind

Columns = Mapping[str, ColumnValues]
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


def file_spans(disk: Disk, folders: Iterable[str], since_ms: int, until_ms: int) -> list[tuple[int, int, int]]:
    """Return, of each file of journals that may have samples of a window, its first and last moment, and how many."""
    found = []
    for folder in folders:
        for file in live_files(each for name in disk.list(folder) if (each := parse(name)) is not None):
            reader = BlockReader(disk, f"{folder}/{file.name}")
            try:
                if (head := reader.head) is not None:
                    first_ms, last_ms = head.first_ms - SLACK_MS, head.last_ms + SLACK_MS
                    if last_ms >= since_ms and first_ms < until_ms:
                        # Not by its size: rows in which nothing changes have no bytes.
                        found.append((first_ms, last_ms, rows_of_file(reader)))
            finally:
                reader.close()
    return found


def samples_at_most(disk: Disk, folders: Iterable[str], since_ms: int, until_ms: int) -> int:
    """Return about how many samples journals have from one moment to before another, in whole files."""
    return sum(samples for _, _, samples in file_spans(disk, folders, since_ms, until_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSamples:
    """All that is known of the window, and before it as far as it matters.

    Attributes:
        places: The queues.
        samples: Their samples, by the places' numbers.
        events: What happened, from a day before the first sample on.
        gaps: What is missing, a line each.
        refused: Samples of the window with message times that cannot be, by node.
    """

    places: Sequence[Place]
    samples: Samples
    events: Sequence[Figures]
    gaps: Sequence[str]
    refused: Mapping[str, int]


def wanted_of(options: ReportOptions) -> tuple[JournalQuery, JournalQuery]:
    """Return which samples and which events a report needs."""
    window = options.window
    since_ms = window.from_ms - options.limits.window_ms - (window.length_ms if options.compared else 0)
    wanted = JournalQuery(since_ms=max(0, since_ms), until_ms=window.to_ms, groups=options.given.groups)
    return wanted, replace(wanted, since_ms=max(0, since_ms - LOOK_BACK_MS))


def read_journals(disk: Disk, options: ReportOptions) -> ReadSamples:
    """Read journals, each file once."""
    wanted, earlier = wanted_of(options)
    labels = labels_of(disk, options.given.journals)
    gatherer = SampleColumns()
    events: list[Figures] = []
    gaps: list[tuple[int, str, str]] = []
    for folder in options.given.journals:
        reader, names = JournalReader(disk, folder), labels.get(folder, {})
        for block in reader.blocks(earlier, by_columns=None):
            if not isinstance(block, BlockGap):
                events += _events(block, _node(block, names), earlier)
        for block in reader.blocks(wanted, by_columns=True):
            if not isinstance(block, BlockGap):
                for piece in block.pieces:
                    origin = block.epoch, block.sequence, block.tier
                    gatherer.add(block.head.cluster, _node(block, names), origin, piece)
            elif _is_inside(block, options.window):
                gaps.append((block.from_ms or -1, block.path, f"{folder}: {block.reason} ({block.kind.value})"))
    return reading_of(options, gatherer.samples(), events, [text for _, _, text in sorted(gaps)])


def _node(block: Block, names: Mapping[tuple[str, str], str]) -> str:
    return names.get((block.head.cluster, block.head.node), block.head.node)


def _events(block: Block, node: str, wanted: JournalQuery) -> Iterator[Figures]:
    for event in block.events:
        if wanted.takes_moment(event.time_ms) and wanted.takes_name(event.group, event.topic):
            yield {**asdict(event), "kind": event.kind.value, "cluster": block.head.cluster, "node": node}


def _is_inside(gap: BlockGap, window: ReportWindow) -> bool:
    return (gap.to_ms is None or gap.to_ms >= window.from_ms) and (gap.from_ms is None or gap.from_ms < window.to_ms)


def reading_of(
    options: ReportOptions, read: tuple[Sequence[Place], Columns, Sequence[str]], events: Sequence[Figures],
    gaps: Sequence[str],
) -> ReadSamples:  # fmt: skip
    """Return what was read, in order, without what is not asked for or cannot be."""
    places, columns, texts = read
    columns = _wanted_rows(places, columns, wanted_of(options)[0])
    columns, absurd = _without_absurd_times(columns)
    columns, kept = _without_lies(places, columns, steps_of(events), options.limits)
    times, queues = columns["time_ms"].values, columns["queue"].values
    counts = np.bincount(queues[absurd[kept] & (times >= options.window.from_ms)], minlength=len(places))
    refused: dict[str, int] = {}
    for queue in np.flatnonzero(counts).tolist():
        refused[places[queue][1]] = refused.get(places[queue][1], 0) + int(counts[queue])
    sorted_places, samples = ordered(places, columns, texts)
    return ReadSamples(places=sorted_places, samples=samples, events=events, gaps=gaps, refused=refused)


def _without_absurd_times(columns: Columns) -> tuple[Columns, Any]:
    """Leave out message times that cannot be; returns which rows had one."""
    times = columns["time_ms"].values
    absurd = np.zeros(len(times), bool)
    for name in MESSAGE_TIMES:
        values, known = columns[name]
        wrong = both(known, (values < TIME_MIN_MS) | (values > times + AHEAD_MS))
        if np.any(wrong):
            columns = {**columns, name: ColumnValues(values, both(known, ~wrong))}
            absurd |= wrong
    return columns, absurd


def _without_lies(
    places: Sequence[Place], columns: Columns, steps: Sequence[NodeClockStep], limits: LagLimits
) -> tuple[Columns, Any]:
    """Leave out what steps of a clock made worthless; returns which rows are kept."""
    times, queues = columns["time_ms"].values, columns["queue"].values
    kept = np.ones(len(times), bool)
    for step in steps:
        of_node = np.array([place[:2] == (step.cluster, step.node) for place in places], bool)[queues]
        begin, end = step.unknown(limits)
        kept &= ~(of_node & (times >= begin) & (times < end))
        for name in MESSAGE_TIMES:
            values, known = columns[name]
            wrong = of_node & (times >= end) & (values <= step.stored_before_ms)
            columns = {**columns, name: ColumnValues(values, both(known, ~wrong))}
    return _at(columns, kept), kept


def _at(columns: Columns, kept: Any) -> Columns:
    return columns if kept.all() else {name: column.at(kept) for name, column in columns.items()}


def _wanted_rows(places: Sequence[Place], columns: Columns, wanted: JournalQuery) -> Columns:
    """Return the rows whose moments and names are asked for."""
    times = columns["time_ms"].values
    named = np.array([wanted.takes_name(group, topic) for _, _, group, topic, _ in places], bool)
    kept = (times >= (wanted.since_ms or 0)) & (times < wanted.until_ms) & named[columns["queue"].values]
    return _at(columns, kept)


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
