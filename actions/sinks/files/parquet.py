"""Parquet by pyarrow: topic, qid, offset, key, tag, stored and born (ms, UTC), properties, body."""

from __future__ import annotations

from typing import Any

import pyarrow
import pyarrow.parquet

SCHEMA = pyarrow.schema(
    [
        pyarrow.field("topic", pyarrow.string(), nullable=False),
        pyarrow.field("qid", pyarrow.string(), nullable=False),
        pyarrow.field("offset", pyarrow.int64(), nullable=False),
        pyarrow.field("key", pyarrow.string()),
        pyarrow.field("tag", pyarrow.string()),
        pyarrow.field("stored", pyarrow.timestamp("ms", tz="UTC"), nullable=False),
        pyarrow.field("born", pyarrow.timestamp("ms", tz="UTC"), nullable=False),
        pyarrow.field("properties", pyarrow.map_(pyarrow.string(), pyarrow.string())),
        pyarrow.field("body", pyarrow.binary()),
    ]
)


def check(row: tuple[Any, ...]) -> None:
    """Raise what keeps one row out of a file: pyarrow's errors, OverflowError, UnicodeEncodeError."""
    for field, value in zip(SCHEMA, row, strict=True):
        _array(field, (value,))


def parquet(rows: list[tuple[Any, ...]]) -> bytes:
    """Return a file with these rows, in the order of `SCHEMA`'s fields."""
    columns = zip(*rows, strict=True)
    arrays = [_array(field, column) for field, column in zip(SCHEMA, columns, strict=True)]
    sink = pyarrow.BufferOutputStream()
    write: Any = pyarrow.parquet.write_table
    write(pyarrow.Table.from_arrays(arrays, schema=SCHEMA), sink, compression="zstd")
    return bytes(sink.getvalue())


def _array(field: Any, column: tuple[Any, ...]) -> Any:
    values = [list(each.items()) for each in column] if field.name == "properties" else list(column)
    return pyarrow.array(values, type=field.type)
