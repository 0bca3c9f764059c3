"""Rows of `pyddmq_lag`: their columns, and Arrow batches made column by column from decoded blocks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from lag.blocks import BlockGap, FileHead
from lag.journal.column_rows import Piece
from lag.journal.columns import QUEUE_COLUMNS, Key
from lag.journal.files import Tier
from lag.journal.reader import JournalQuery
from lag.journal.scan import Block
from lag.journal.summaries import QUEUE_SUMMARIES
from lag.samples import QueueSample
from lag.spark.sources import options as read

BATCH_ROWS: Final = 50_000
_KEY_PLACES: Final = {"group": 0, "topic": 1, "queue": 2}
Placed = tuple[int, int, Block]
"""Number of a raw file (0: not known), byte at which a block begins (likewise), and the block."""
_ARROW: Final = {
    "int": pa.int64(),
    "int | None": pa.int64(),
    "str | None": pa.string(),
    "float | None": pa.float64(),
    "bool": pa.bool_(),
}
_KEY_FIELDS: Final = {
    "cluster": pa.string(),
    "node": pa.string(),
    "group": pa.string(),
    "topic": pa.string(),
    "queue": pa.int64(),
    "epoch": pa.string(),
    "sequence": pa.int64(),
}
SPARK_TYPES: Final = {pa.int64(): "bigint", pa.string(): "string", pa.float64(): "double", pa.bool_(): "boolean"}
_SUMMARY_FIELDS: Final = {
    "tier": pa.string(),
    "row_samples": pa.int64(),
    "row_lag_max": pa.int64(),
    "row_age_max_ms": pa.int64(),
}
FIELDS: Final = {
    **_KEY_FIELDS,
    **{field.name: _ARROW[str(field.type)] for field in fields(QueueSample)},
    **_SUMMARY_FIELDS,
}
"""Columns and their Arrow types: of which snapshot a row is, the names of `lag.samples`, and what a row sums up.

`tier` is raw, minute or hour; `row_samples` how many a row covers, whose last one it has; `row_lag_max` and
`row_age_max_ms` are the extremes of all of them, null of a raw one.
"""
GAP_FIELDS: Final = {
    "folder": pa.string(),
    "kind": pa.string(),
    "path": pa.string(),
    "position": pa.int64(),
    "reason": pa.string(),
}
"""Columns of a gap in any file of blocks."""
_GAP_FIELDS: Final = {**GAP_FIELDS, "from_ms": pa.int64(), "to_ms": pa.int64()}
_EVENT_FIELDS: Final = {
    "cluster": pa.string(),
    "node": pa.string(),
    "time_ms": pa.int64(),
    "kind": pa.string(),
    "group": pa.string(),
    "topic": pa.string(),
    "queue": pa.int64(),
    "detail": pa.string(),
}
_ROUND_FIELDS: Final = {
    "cluster": pa.string(),
    "node": pa.string(),
    "epoch": pa.string(),
    "sequence": pa.int64(),
    "file": pa.int64(),
    "position": pa.int64(),
    "time_ms": pa.int64(),
    "samples": pa.string(),
    "events": pa.string(),
    "silent": pa.bool_(),
}
"""A whole round: number of its raw file and byte in it, which order the rounds of a node; its content as JSON.

`silent` marks a row without a round: the node recorded nothing from the round before up to `time_ms`.
"""
ROWS: Final = {"samples": FIELDS, "events": _EVENT_FIELDS, "gaps": _GAP_FIELDS, "rounds": _ROUND_FIELDS}
"""What may be asked for, and the columns of each."""


def columns_of(schema: StructType, rows: str) -> pa.Schema:
    """Return the columns of a schema that a caller gives. Raises OptionRefused: it has others."""
    return arrow_columns(schema, ROWS[rows])


def arrow_columns(schema: StructType, known: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the columns of a schema out of those that are known, with their Arrow types. Raises OptionRefused."""
    names = read.check_columns(schema, {name: SPARK_TYPES[kind] for name, kind in known.items()})
    return pa.schema([(name, known[name]) for name in names])


def spark_columns(known: Mapping[str, pa.DataType]) -> str:
    """Return columns as Spark's text of a schema."""
    return ", ".join(f"`{name}` {SPARK_TYPES[kind]}" for name, kind in known.items())


def gap_batch(folder: str, gaps: Sequence[BlockGap], schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns that are asked for of a folder's gaps."""
    columns = []
    for name in schema.names:
        if name == "folder":
            values = [folder] * len(gaps)
        else:
            values = [gap.kind.value if name == "kind" else getattr(gap, name) for gap in gaps]
        columns.append(pa.array(values, schema.field(name).type))
    return pa.record_batch(columns, schema=schema)


def batches(blocks: Iterable[Placed], rows: str, columns: pa.Schema, wanted: JournalQuery) -> Iterator[pa.RecordBatch]:
    """Yield what is wanted of blocks.

    Args:
        blocks: The blocks, in order; samples are taken of their `pieces`, rounds of their `queues`.
        rows: `samples`, `events` or `rounds`.
        columns: Columns of the batches.
        wanted: Which rows.
    """
    if rows == "samples":
        table = _BlockRows(columns, wanted)
        for _, _, block in blocks:
            table.add(block)
            if table.count >= BATCH_ROWS:
                yield table.take()
        if table.count:
            yield table.take()
        return
    make = _events_of if rows == "events" else _rounds_of
    found: list[dict[str, Any]] = []
    for placed in blocks:
        found += make(placed, wanted)
        if len(found) >= BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(found, schema=columns)
            found = []
    yield pa.RecordBatch.from_pylist(found, schema=columns)


def _events_of(placed: Placed, wanted: JournalQuery) -> list[dict[str, Any]]:
    block = placed[2]
    return [
        {"cluster": block.head.cluster, "node": block.head.node, **asdict(event), "kind": event.kind.value}
        for event in block.events
        if wanted.takes_moment(event.time_ms) and wanted.takes_name(event.group, event.topic)
    ]


def _rounds_of(placed: Placed, wanted: JournalQuery) -> list[dict[str, Any]]:
    number, position, block = placed
    if block.tier is not Tier.RAW or not wanted.takes_moment(block.time_ms):
        return []
    samples = [(*key, time_ms, *row) for key, time_ms, row in block.queues if wanted.takes_name(key[0], key[1])]
    events = [asdict(event) | {"kind": event.kind.value} for event in block.events]
    return [
        {
            "cluster": block.head.cluster,
            "node": block.head.node,
            "epoch": f"{block.epoch:016x}",
            "sequence": block.sequence,
            "file": number,
            "position": position,
            "time_ms": block.time_ms,
            "samples": json.dumps(samples),
            "events": json.dumps(events),
            "silent": False,
        }
    ]


def silent_batch(head: FileHead, file: int, position: int, time_ms: int, columns: pa.Schema) -> pa.RecordBatch:
    """Return the row that says that a node is silent, as behind the last round in its file."""
    row = {
        "cluster": head.cluster,
        "node": head.node,
        "epoch": "",
        "sequence": -1,
        "file": file,
        "position": position,
        "time_ms": time_ms,
        "samples": "[]",
        "events": "[]",
        "silent": True,
    }
    return pa.RecordBatch.from_pylist([row], schema=columns)


class _BlockRows:
    """Rows under way to a batch: one for each piece of a block, in which columns without a change are those of before.

    Most values of most queues are the same for hours, so most arrays are made once a file, and copied from then on.
    """

    def __init__(self, columns: pa.Schema, wanted: JournalQuery) -> None:
        self._columns = columns
        self._wanted = wanted
        self._places = {name: place for place, name in enumerate(QUEUE_COLUMNS)}
        extra = {column.name: place for place, column in enumerate(QUEUE_SUMMARIES.columns)}
        self._summary_places = {name: extra[f"last.{name}"] for name in QUEUE_COLUMNS} | {
            f"row_{name}": extra[name] for name in ("samples", "lag_max", "age_max_ms")
        }
        self._made: dict[str, tuple[object, pa.Array]] = {}
        """By name what an array was made of, and it."""
        self._found: list[pa.RecordBatch] = []
        self.count = 0

    def add(self, block: Block) -> None:
        """Add the rows of a block that are asked for."""
        is_raw = block.tier is Tier.RAW
        places = self._places if is_raw else self._summary_places
        by_block = {
            "cluster": block.head.cluster,
            "node": block.head.node,
            "epoch": f"{block.epoch:016x}",
            "sequence": block.sequence,
            "tier": block.tier.name.lower(),
            "row_samples": 1,
            "row_lag_max": None,
            "row_age_max_ms": None,
        }
        for piece in block.pieces:
            kept = self._kept(piece)
            if kept is not None and not any(kept):
                continue
            arrays = []
            for field in self._columns:
                place = places.get(field.name)
                if place is not None:
                    arrays.append(self._array(field, piece.columns[place]))
                elif field.name == "time_ms":
                    arrays.append(pa.array(piece.moments, field.type))
                elif field.name in _KEY_PLACES:
                    arrays.append(self._names(field, piece.keys))
                else:
                    arrays.append(self._repeated(field, by_block[field.name], len(piece.keys)))
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._columns)
            if kept is not None:
                rows = rows.filter(pa.array(kept, pa.bool_()))
            self._found.append(rows)
            self.count += rows.num_rows

    def take(self) -> pa.RecordBatch:
        """Return the batch, and begin another."""
        found, self._found, self.count = self._found, [], 0
        if len(found) == 1:
            return found[0]
        return pa.Table.from_batches(found, self._columns).combine_chunks().to_batches()[0]

    def _kept(self, piece: Piece) -> list[bool] | None:
        """Return which rows are asked for; None: all."""
        wanted, moments = self._wanted, piece.moments
        kept = None
        if not (wanted.takes_moment(min(moments)) and wanted.takes_moment(max(moments))):
            kept = [wanted.takes_moment(each) for each in moments]
        if wanted.groups is not None or wanted.topics is not None:
            named = [wanted.takes_name(group, topic) for group, topic, _ in piece.keys]
            kept = named if kept is None else [one and other for one, other in zip(kept, named, strict=True)]
        return kept

    def _array(self, field: pa.Field, values: list[Any]) -> pa.Array:
        made = self._made.get(field.name)
        if made is None or made[0] is not values:
            made = self._made[field.name] = (values, pa.array(values, field.type))
        return made[1]

    def _names(self, field: pa.Field, keys: list[Key]) -> pa.Array:
        made = self._made.get(field.name)
        if made is None or made[0] is not keys:
            place = _KEY_PLACES[field.name]
            made = self._made[field.name] = (keys, pa.array([key[place] for key in keys], field.type))
        return made[1]

    def _repeated(self, field: pa.Field, value: Any, count: int) -> pa.Array:
        made = self._made.get(field.name)
        if made is None or made[0] != (value, count):
            array = pa.nulls(count, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), count)
            made = self._made[field.name] = ((value, count), array)
        return made[1]
