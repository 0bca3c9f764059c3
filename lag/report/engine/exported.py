"""Exported samples and events (docs/lag-journal.md), read without Spark: the files that count, of the window's days."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lag.export.missing import first_and_last_day, holes, mixed, was_exported
from lag.export.names import LiveFile, live_files
from lag.export.place import ExportFailed, ExportPlace
from lag.journal.columns import QUEUES
from lag.journal.files import Tier
from lag.journal.reader import JournalQuery
from lag.journal.scan import SILENT_INTERVALS
from lag.report.engine.column_rules import NOTHING, ColumnValues
from lag.report.engine.column_samples import EXTRA, TEXTS, TIERS, Place, joined
from lag.report.engine.reading import ReadSamples, reading_of, wanted_of
from lag.report.options import Figures, ReportOptions, ReportWindow

HOUR_MS: Final = 3_600_000
"""How long before a window a node's last snapshot is looked for."""
_NAMES: Final = ("cluster", "node", "group", "topic")
_EVENT: Final = ("cluster", "node", "time_ms", "kind", "group", "topic", "queue", "detail")


def read_exported(options: ReportOptions) -> ReadSamples:
    """Read all places. What cannot be read is a gap.

    Raises:
        ExportUnavailable: pyarrow is not installed.
        ExportFailed: Nothing was exported to a place, or it cannot be listed.
    """
    wanted, earlier = wanted_of(options)
    window = options.window
    read, events = _ExportedColumns(), []
    gaps: list[tuple[int, str]] = []
    for given in options.given.exported:
        place = ExportPlace(given)
        url = place.url
        since_ms = min(wanted.since_ms or 0, window.from_ms - HOUR_MS)
        live, bad = [], []
        begin = len(read.chunks)
        for each in _live(place, "queues", since_ms, window.to_ms):
            try:
                read.add(place.read(each, (*_NAMES, "epoch", *TEXTS)), since_ms, window.to_ms)
                live.append(each)
            except ExportFailed:
                bad.append((window.from_ms, f"{url}: {each.file.name} cannot be read (damaged)"))
        gaps += bad
        found = [(window.from_ms, f"{url}: {each.file.node}: {missing} snapshots are missing (dropped)")
                 for each, missing in holes(live)]  # fmt: skip
        found += _silences(url, read.chunks[begin:], read.places, live, window)
        gaps += sorted(found)
        events += list(_events(place, earlier))
    return reading_of(options, (read.places, joined(read.chunks), list(read.texts)), events, [text for _, text in gaps])


def exported_at_most(urls: Iterable[str], since_ms: int, until_ms: int) -> int:
    """Return how many samples the files of a window have. Raises ExportUnavailable, ExportFailed."""
    found = 0
    for url in urls:
        place = ExportPlace(url)
        for each in _live(place, "queues", since_ms, until_ms):
            try:
                found += place.rows(each.file)
            except ExportFailed:
                continue
    return found


def _live(place: ExportPlace, table: str, since_ms: int, until_ms: int) -> list[LiveFile]:
    """Return the files that count of the days asked for."""
    names = place.names(table)
    if not names and table == "queues":
        raise ExportFailed(
            f"{place.url} has no exported samples; `pyddmq lag export --to {place.url}` writes its folder `queues`"
        )
    first, last = (day.isoformat() for day in first_and_last_day(table, since_ms, until_ms))
    return [each for each in live_files(names) if first <= each.file.date <= last]


def _events(place: ExportPlace, wanted: JournalQuery) -> Iterator[Figures]:
    for each in _live(place, "events", wanted.since_ms or 0, wanted.until_ms or 0):
        try:
            rows = place.read(each).select(_EVENT).to_pylist()
        except ExportFailed:
            continue
        for row in rows:
            if wanted.takes_moment(row["time_ms"]) and wanted.takes_name(row["group"], row["topic"]):
                yield row


class _ExportedColumns:
    """Gathers the rows of files as columns."""

    def __init__(self) -> None:
        self.chunks: list[dict[str, ColumnValues]] = []
        self.texts: dict[str, int] = {}
        self._numbers: dict[Place, int] = {}

    @property
    def places(self) -> list[Place]:
        """The queues by their numbers."""
        return list(self._numbers)

    def add(self, table: Any, since_ms: int, until_ms: int) -> None:
        """Add the rows of a window in a file. A column that it does not have, since it is older, has its default."""
        if not table.num_rows:
            return
        table = table.unify_dictionaries().combine_chunks()
        names = {*table.column_names}
        epochs = _coded(table, "epoch")
        found = {
            "queue": ColumnValues(self._queues(table)),
            "epoch": ColumnValues(np.array([int(each, 16) for each in epochs[1]], np.uint64)[epochs[0]]),
            "tier": ColumnValues(TIERS.index(Tier.RAW)),
            **dict.fromkeys(EXTRA, NOTHING),
        }
        for name in ("time_ms", "sequence"):
            found[name] = ColumnValues(_numbers(table, name))
        for column in QUEUES.columns:
            if column.name in names:
                found[column.name] = self._column(table, column.name)
            else:
                found[column.name] = NOTHING if column.default is None else ColumnValues(column.default)
        times = found["time_ms"].values
        kept = (times >= since_ms) & (times < until_ms)
        if kept.any():
            self.chunks.append(found if kept.all() else {name: each.at(kept) for name, each in found.items()})

    def _queues(self, table: Any) -> Any:
        """Return the number of each row's queue."""
        coded = [_coded(table, name) for name in _NAMES]
        queues = _numbers(table, "queue").astype(np.int64)
        size = int(queues.max()) + 1
        keys = queues.copy()
        for codes, texts in coded:
            keys += codes * size
            size *= len(texts)
        found, rows, places = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.empty(len(found), np.int64)
        for number, row in enumerate(rows.tolist()):
            cluster, node, group, topic = (texts[codes[row]] for codes, texts in coded)
            place = cluster, node, group, topic, int(queues[row])
            numbers[number] = self._numbers.setdefault(place, len(self._numbers))
        return numbers[places]

    def _column(self, table: Any, name: str) -> ColumnValues:
        array = table.column(name).chunk(0)
        known = _known(array)
        if known is False:
            return NOTHING
        if name in TEXTS:
            codes, texts = _coded(table, name)
            numbers = np.array([self.texts.setdefault(text, len(self.texts)) for text in texts], np.int64)
            return ColumnValues(numbers[codes], known)
        values = _values(array)
        if known is True and values.min() == values.max():
            return ColumnValues(values[0].item())
        return ColumnValues(values, known)


def _values(array: Any) -> Any:
    """Return an array of pyarrow as one of numpy; what is null has any value.

    The methods of pyarrow that do this bring pandas, which takes longer than a million samples.
    """
    buffer, end = array.buffers()[1], array.offset + len(array)
    if str(array.type) == "bool":
        return _bits(buffer, end)[array.offset :]
    return np.frombuffer(buffer, np.dtype(str(array.type)))[array.offset : end]


def _known(array: Any) -> Any:
    """Return which values are not null: an array, or one answer for all."""
    if not array.null_count or array.null_count == len(array):
        return not array.null_count
    return _bits(array.buffers()[0], array.offset + len(array))[array.offset :]


def _bits(buffer: Any, count: int) -> Any:
    return np.unpackbits(np.frombuffer(buffer, np.uint8), count=count, bitorder="little").view(np.bool_)


def _numbers(table: Any, name: str) -> Any:
    return _values(table.column(name).chunk(0))


def _coded(table: Any, name: str) -> tuple[Any, list[str]]:
    """Return a column of texts as numbers, 0 of nulls, and the texts."""
    array = table.column(name).chunk(0)
    codes = np.where(_known(array), _values(array.indices), 0)
    return codes.astype(np.int64), array.dictionary.to_pylist()


def _silences(
    url: str,
    chunks: Sequence[Mapping[str, ColumnValues]],
    places: Sequence[Place],
    live: Sequence[LiveFile],
    window: ReportWindow,
) -> Iterator[tuple[int, str]]:
    """Yield times without samples that no file explains, of each node, and names that two nodes have."""
    if not chunks:
        return
    nodes: dict[tuple[str, str], int] = {}
    of_queue = np.array([nodes.setdefault(place[:2], len(nodes)) for place in places], np.int64)
    snapshots = np.concatenate([_snapshots(chunk, of_queue, window) for chunk in chunks])
    starts = []
    for (cluster, node), number in nodes.items():
        found = np.sort(snapshots[snapshots["node"] == number], order="time_ms")
        if len(found) < 2:
            continue
        for start in np.unique(found["epoch"]):
            times = found["time_ms"][found["epoch"] == start]
            starts.append((cluster, node, int(times[0]), int(times[-1])))
        passed = np.diff(found["time_ms"])
        usual = np.sort(passed)[(len(passed) - 1) // 2]
        for place in np.flatnonzero(passed > SILENT_INTERVALS * usual).tolist():
            before, after = found[place], found[place + 1]
            if after["time_ms"] < window.from_ms:
                continue
            epoch, sequence = int(after["epoch"]), int(after["sequence"])
            is_one = before["epoch"] == after["epoch"] and before["sequence"] + 1 < sequence
            if is_one and not was_exported(live, node, epoch, sequence - 1):
                continue
            seconds = int(passed[place]) // 1000
            yield int(before["time_ms"]), f"{url}: {node}: nothing was recorded for {seconds} s (silent)"
    for from_ms, text in mixed(starts, window.from_ms):
        yield from_ms, f"{url}: {text}"


def _snapshots(chunk: Mapping[str, ColumnValues], of_queue: Any, window: ReportWindow) -> Any:
    """Return a row per node and snapshot: its first moment."""
    inside = (chunk["time_ms"].values >= window.from_ms - HOUR_MS) & (chunk["time_ms"].values < window.to_ms)
    count = int(inside.sum())
    rows = np.empty(count, [("node", np.int64), ("epoch", np.uint64), ("sequence", np.int64), ("time_ms", np.int64)])
    rows["node"] = of_queue[chunk["queue"].values[inside]]
    for name in ("epoch", "sequence", "time_ms"):
        rows[name] = chunk[name].values[inside]
    order = np.lexsort((rows["time_ms"], rows["sequence"], rows["epoch"], rows["node"]))
    rows = rows[order]
    first = np.ones(count, bool)
    for name in ("node", "epoch", "sequence"):
        first[1:] &= rows[name][1:] == rows[name][:-1]
    first[1:] = ~first[1:]
    return rows[first]
