"""Rows of journals as Parquet: shapes, and bytes of one file. Needs pyarrow, which is imported where it is used."""

from __future__ import annotations

from typing import Any, Final

from lag.journal.columns import QUEUE_COLUMNS, QUEUES, SCHEDULED, SCHEDULED_COLUMNS, Column, ColumnKind
from lag.journal.scan import Block
from lag.samples import SAMPLE_FIELDS

GROUP_ROWS: Final = 100_000
"""Rows that are gathered before they are encoded, and rows of a row group."""
ORIGIN: Final = ("cluster", "node", "epoch", "sequence")
"""First columns of each table: whose row it is. The epoch is text of 16 hex digits: no reader has unsigned 64 bits."""
_QUEUE_KEY = ("group", "topic", "queue")
_EVENT_COLUMNS = ("time_ms", "kind", "group", "topic", "queue", "detail")


class ExportUnavailable(Exception):
    """Something that an export needs is not installed."""


def arrow() -> Any:
    """Return pyarrow, with its Parquet and file systems. Raises ExportUnavailable."""
    try:
        import pyarrow as pa
        import pyarrow.fs
        import pyarrow.parquet
    except ImportError:
        raise ExportUnavailable(
            "exported files are Parquet, which needs pyarrow; it is not installed: pip install 'pyarrow>=18,<25'"
        ) from None
    return pa


def schema_of(table: str) -> Any:
    """Return the columns of a table, with their types. Raises ExportUnavailable."""
    pa = arrow()
    types = {
        ColumnKind.NUMBER: pa.int64(),
        ColumnKind.NUMBER_OR_NULL: pa.int64(),
        ColumnKind.MOMENT: pa.int64(),
        ColumnKind.TEXT: pa.string(),
        ColumnKind.SHARE: pa.float64(),
        ColumnKind.FLAG: pa.bool_(),
    }

    def typed(columns: tuple[Column, ...]) -> dict[str, Any]:
        return {column.name: types[column.kind] for column in columns}

    origin = {"cluster": pa.string(), "node": pa.string(), "epoch": pa.string(), "sequence": pa.int64()}
    texts = {"group": pa.string(), "topic": pa.string(), "queue": pa.int32(), "kind": pa.string(), "level": pa.int32()}
    if table == "queues":
        by_name = {"time_ms": pa.int64(), **typed(QUEUES.columns)}
        values = {**{name: texts[name] for name in _QUEUE_KEY}, **{name: by_name[name] for name in SAMPLE_FIELDS}}
    elif table == "scheduled":
        values = {name: texts[name] for name in ("kind", "topic", "level")}
        values |= {"time_ms": pa.int64(), **typed(SCHEDULED.columns)}
    else:
        values = {"time_ms": pa.int64(), "detail": pa.string(), **texts}
        values = {name: values[name] for name in _EVENT_COLUMNS}
    return pa.schema([*origin.items(), *values.items()])


def conformed(rows: Any, table: str) -> Any:
    """Return rows of a file with the columns of this version; null: a later one wrote it, and it has more.

    Columns that an earlier version did not have get their defaults.
    """
    pa, schema = arrow(), schema_of(table)
    names = {*rows.column_names}
    if not names <= {*schema.names}:
        return None
    defaults = {column.name: column.default for column in (*QUEUES.columns, *SCHEDULED.columns)}
    columns = []
    for each in schema:
        if each.name in names:
            columns.append(rows.column(each.name))
        else:
            columns.append(pa.repeat(pa.scalar(defaults.get(each.name), each.type), rows.num_rows))
    return pa.table(columns, schema=schema)


class TableBytes:
    """The bytes of one Parquet file, made as blocks come.

    Attributes:
        rows: Rows that it has.

    Args:
        table: Which rows of the blocks are taken.
    """

    def __init__(self, table: str) -> None:
        self.rows = 0
        self._table = table
        self._pa = arrow()
        self._schema = schema_of(table)
        self._stream = self._pa.BufferOutputStream()
        self._writer = self._pa.parquet.ParquetWriter(self._stream, self._schema, compression="zstd")
        self._waiting: list[tuple[Any, ...]] = []
        names: dict[str, tuple[str, ...]] = {"queues": (*_QUEUE_KEY, "time_ms", *QUEUE_COLUMNS)}
        names["scheduled"] = ("kind", "topic", "level", "time_ms", *SCHEDULED_COLUMNS)
        names["events"] = _EVENT_COLUMNS
        self._names = (*ORIGIN, *names[table])

    def add(self, block: Block) -> None:
        """Add a block's rows of this table."""
        origin = (block.head.cluster, block.head.node, f"{block.epoch:016x}", block.sequence)
        if self._table == "events":
            rows = [
                (*origin, each.time_ms, each.kind.value, each.group, each.topic, each.queue, each.detail)
                for each in block.events
            ]
        else:
            source = block.queues if self._table == "queues" else block.scheduled
            rows = [(*origin, *key, time_ms, *row) for key, time_ms, row in source]
        self._waiting += rows
        self.rows += len(rows)
        if len(self._waiting) >= GROUP_ROWS:
            self._encode()

    def end(self) -> Any:
        """Return the file's bytes, as a pyarrow buffer."""
        self._encode()
        self._writer.close()
        return self._stream.getvalue()

    def _encode(self) -> None:
        if self._waiting:
            columns = dict(zip(self._names, zip(*self._waiting, strict=True), strict=True))
            self._waiting = []
            self._writer.write_table(
                self._pa.table([self._pa.array(columns[each.name], each.type) for each in self._schema], self._schema),
                row_group_size=GROUP_ROWS,
            )
