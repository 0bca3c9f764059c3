"""Samples of many queues as columns: from the pieces of journals, in the order of queue and moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np

from lag.journal.column_rows import Piece
from lag.journal.columns import QUEUES, ColumnKind
from lag.journal.files import WIDTH_MS, Tier
from lag.journal.summaries import QUEUE_SUMMARIES
from lag.report.engine.column_rules import NOTHING, ColumnValues

Place = tuple[str, str, str, str, int]
"""Cluster, node, group, topic and number of a queue."""
CHUNK_ROWS: Final = 100_000
"""Rows that are gathered as lists before they become arrays."""
TIERS: Final = tuple(WIDTH_MS)
TEXTS: Final = tuple(column.name for column in QUEUES.columns if column.kind is ColumnKind.TEXT)
NUMBERS: Final = tuple(column.name for column in QUEUES.columns if column.kind is not ColumnKind.TEXT)
EXTRA: Final = ("row_lag_max", "row_age_max_ms")
"""Of a row that sums samples up, the most of them."""
TYPES: Final[Mapping[str, Any]] = {
    **{column.name: {ColumnKind.SHARE: np.float64, ColumnKind.FLAG: np.bool_}.get(column.kind, np.int64)
       for column in QUEUES.columns},
    **dict.fromkeys(EXTRA, np.int64),
}  # fmt: skip
_ORIGIN: Final = ("epoch", "sequence", "tier")
_RAW: Final = {column.name: place for place, column in enumerate(QUEUES.columns)}
_SUMMED: Final = {column.name: place for place, column in enumerate(QUEUE_SUMMARIES.columns)}
_SUMMARY: Final = {name: _SUMMED[f"last.{name}"] for name in _RAW} | {
    f"row_{name}": _SUMMED[name] for name in ("lag_max", "age_max_ms")
}


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples in the order of queue and moment.

    Attributes:
        queues: The number of each one's queue.
        times: Its moment.
        columns: Its other values by name; texts are numbers of `texts`. `epoch`, `sequence` and `tier` say where it is
            from.
        texts: Texts by their numbers.
    """

    queues: Any
    times: Any
    columns: Mapping[str, ColumnValues]
    texts: Sequence[str]

    def at(self, places: Any) -> Samples:
        """Return some of them, in their order."""
        columns = {name: column.at(places) for name, column in self.columns.items()}
        return Samples(self.queues[places], self.times[places], columns, self.texts)


class SampleColumns:
    """Gathers rows of journals by columns."""

    def __init__(self) -> None:
        self._places: dict[Place, int] = {}
        self._texts: dict[str, int] = {}
        self._pieces: list[tuple[Any, Piece, tuple[int, int, Tier]]] = []
        self._rows = 0
        self._chunks: list[dict[str, ColumnValues]] = []
        self._named: dict[int, tuple[object, Any]] = {}

    @property
    def places(self) -> list[Place]:
        """The queues, by the numbers that `chunks` has for them."""
        return list(self._places)

    def add(self, cluster: str, node: str, origin: tuple[int, int, Tier], piece: Piece) -> None:
        """Add rows of one node: of which start, snapshot and fineness they are is `origin`."""
        named = self._named.get(id(piece.keys))
        if named is None:
            numbers = [self._number((cluster, node, *key)) for key in piece.keys]
            if len(self._named) > 64:
                self._named.clear()
            # The keys are kept, so that no other list has their id.
            named = self._named[id(piece.keys)] = piece.keys, numbers
        self._pieces.append((named[1], piece, origin))
        self._rows += len(piece.keys)
        if self._rows >= CHUNK_ROWS:
            self._end_chunk()

    def _number(self, place: Any) -> int:
        return self._places.setdefault(place, len(self._places))

    def samples(self) -> tuple[list[Place], dict[str, ColumnValues], list[str]]:
        """Return the queues, all rows' columns with `queue` and `time_ms` among them, and the texts."""
        self._end_chunk()
        return self.places, joined(self._chunks), list(self._texts)

    def _end_chunk(self) -> None:
        pieces, self._pieces, self._rows = self._pieces, [], 0
        if not pieces:
            return
        sizes = [len(piece.keys) for _, piece, _ in pieces]
        found = {
            "queue": ColumnValues(np.array(list(chain.from_iterable(numbers for numbers, _, _ in pieces)), np.int64)),
            "time_ms": ColumnValues(
                np.array(list(chain.from_iterable(each.moments for _, each, _ in pieces)), np.int64)
            ),
            "epoch": ColumnValues(np.repeat(np.array([each[0] for _, _, each in pieces], np.uint64), sizes)),
            "sequence": ColumnValues(np.repeat(np.array([each[1] for _, _, each in pieces], np.int64), sizes)),
            "tier": ColumnValues(np.repeat(np.array([TIERS.index(each[2]) for _, _, each in pieces], np.int64), sizes)),
        }
        for name in (*_RAW, *EXTRA):
            lists = [self._list(name, piece, origin[2]) for _, piece, origin in pieces]
            found[name] = self._column(name, lists)
        self._chunks.append(found)

    @staticmethod
    def _list(name: str, piece: Piece, tier: Tier) -> list[Any]:
        place = (_RAW if tier is Tier.RAW else _SUMMARY).get(name)
        return [None] * len(piece.keys) if place is None else piece.columns[place]

    def _column(self, name: str, lists: Sequence[list[Any]]) -> ColumnValues:
        if all(each is lists[0] for each in lists):
            # Nothing has changed: what is not used has one value, and else what one piece has is repeated.
            if all(value == lists[0][0] for value in lists[0]):
                one = self._made(name, lists[0][:1])
                return one if one is NOTHING else ColumnValues(one.values[0].item())
            found = self._made(name, lists[0])
            return ColumnValues(*(np.tile(each, len(lists)) if np.ndim(each) else each for each in found))
        return self._made(name, list(chain.from_iterable(lists)))

    def _made(self, name: str, values: list[Any]) -> ColumnValues:
        known: Any = True
        if None in values:
            known = np.array([value is not None for value in values])
            if not known.any():
                return NOTHING
        if name in TEXTS:
            texts = self._texts
            values = [0 if value is None else texts.setdefault(value, len(texts)) for value in values]
        elif known is not True:
            values = [0 if value is None else value for value in values]
        return ColumnValues(np.array(values, np.int64 if name in TEXTS else TYPES[name]), known)


def joined(chunks: Sequence[dict[str, ColumnValues]]) -> dict[str, ColumnValues]:
    """Return chunks one behind the other, which are empty then; a column of one value stays one."""
    if not chunks:
        none = ColumnValues(np.zeros(0, np.int64))
        return {**dict.fromkeys((*_ORIGIN, *_RAW, *EXTRA), NOTHING), "queue": none, "time_ms": none}
    found = {}
    sizes = [len(chunk["queue"].values) for chunk in chunks]
    for name in list(chunks[0]):
        # Each column is given back as soon as it is joined: twice all of them is much.
        parts = [chunk.pop(name) for chunk in chunks]
        if all(not np.ndim(each.values) and not np.ndim(each.known) for each in parts) and len({*parts}) == 1:
            found[name] = parts[0]
            continue
        whole = [part.within(size) for part, size in zip(parts, sizes, strict=True)]
        known: Any = np.concatenate([each.known for each in whole])
        values = np.concatenate([each.values for each in whole])
        found[name] = ColumnValues(values, True if known.all() else known)
    return found


def ordered(
    places: Sequence[Place], columns: Mapping[str, ColumnValues], texts: Sequence[str]
) -> tuple[list[Place], Samples]:
    """Return the queues in the order of cluster, group, topic, queue and node, and their samples.

    Of two samples of a queue in one millisecond the later one is kept.
    """
    numbers = sorted(range(len(places)), key=lambda each: _in_order(places[each]))
    ranks = np.empty(len(places), np.int64)
    ranks[numbers] = np.arange(len(places))
    queues, times = ranks[columns["queue"].values], columns["time_ms"].values
    first_ms, last_ms = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    keys = queues * (last_ms - first_ms + 1) + (times - first_ms)
    order = np.argsort(keys, kind="stable")
    alike = keys[order][1:] == keys[order][:-1]
    if alike.any():
        epoch, sequence = (columns[name].within(len(times)).values for name in ("epoch", "sequence"))
        order = np.lexsort((sequence, epoch, keys))
        alike = keys[order][1:] == keys[order][:-1]
        order = order[np.append(~alike, True)]
    rest = {name: column for name, column in columns.items() if name not in ("queue", "time_ms", "epoch", "sequence")}
    sorted_places = [places[each] for each in numbers]
    topics = [(cluster, group, topic) for cluster, _, group, topic, _ in sorted_places]
    of_queue = np.cumsum([one != other for one, other in zip(topics, [*topics[:1], *topics], strict=False)])
    rest |= {"time_ms": ColumnValues(times), "topic": ColumnValues(of_queue[queues])}
    return sorted_places, Samples(queues, times, rest, texts).at(order)


def _in_order(place: Place) -> tuple[Any, ...]:
    cluster, node, group, topic, queue = place
    return cluster, group, topic, queue, node
