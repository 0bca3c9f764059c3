"""What one message changes in HBase, as it is sent.

Puts and deletes next to each other become one change per row. All of it carries the message's store time, so a repeat
is the same again, and hides nothing that is newer. Within one message a delete goes before the puts that follow it: a
tombstone would hide cells of its own millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from actions.sinks.commands import HBaseAppend, HBaseDelete, HBaseIncrement, HBasePut
from actions.sinks.hbase.link import RowChange
from actions.sinks.hbase.options import check_column
from pyddmq.actions import Unprocessable

ORDER_BITS = 20
_WORD = 1 << 64
_TIMESTAMP_MAX = (1 << 63) - 1


class RowMutations(NamedTuple):
    """Rows of one table to change."""

    table: str
    rows: Sequence[RowChange]


class Append(NamedTuple):
    """Bytes to put behind cells of a row."""

    table: str
    row: bytes
    cells: Mapping[bytes, bytes]


class Increment(NamedTuple):
    """Amounts to add to counters of a row."""

    table: str
    row: bytes
    amounts: Mapping[bytes, int]


Step = RowMutations | Append | Increment


def timestamp_of(stored_ms: int, offset: int, *, by_order: bool) -> int:
    """Return the timestamp of a message's cells; by order those of one queue are all different, and grow.

    Raises:
        Unprocessable: HBase has no such timestamp; in Kafka producers set store times as they like.
    """
    at = (stored_ms << ORDER_BITS) | (offset & ((1 << ORDER_BITS) - 1)) if by_order else stored_ms
    # One below it is that of the deletes before puts, and the largest is HBase's own word for "now".
    if not 0 < at < _TIMESTAMP_MAX:
        raise Unprocessable(f"store time {stored_ms} ms is not a valid timestamp of HBase")
    return at


def added(value: bytes | None, amount: int) -> bytes:
    """Return a counter with an amount added, as HBase does: 8 bytes, signed, wrapping.

    Raises:
        Unprocessable: The cell is not a counter.
    """
    if value is not None and len(value) != 8:
        raise Unprocessable(f"a cell of {len(value)} bytes is not a counter")
    total = (int.from_bytes(value or b"", "big") + amount) % _WORD
    return total.to_bytes(8, "big")


def steps_of(commands: Sequence[object]) -> list[Step]:
    """Put a message's commands together.

    Raises:
        Unprocessable: One is none of HBase, or names no column.
    """
    steps: list[Step] = []
    rows: dict[tuple[str, bytes], RowChange] = {}
    for command in commands:
        if isinstance(command, HBasePut | HBaseDelete):
            place = (command.table, _row(command.row))
            before = rows.pop(place, RowChange(place[1], {}, None))
            if isinstance(command, HBasePut):
                if not command.columns:
                    raise Unprocessable("a put has no columns")
                rows[place] = before._replace(puts={**before.puts, **_cells(command.columns)})
            else:
                rows[place] = _with_delete(before, [_deleted(each) for each in command.columns])
            continue
        if not isinstance(command, HBaseAppend | HBaseIncrement):
            text = f"{type(command).__name__} is not a command of HBase, and no other action executes it"
            raise Unprocessable(text)
        steps += _changes(rows)
        rows = {}
        if isinstance(command, HBaseAppend):
            steps.append(Append(command.table, _row(command.row), _cells(command.columns)))
        else:
            steps.append(Increment(command.table, _row(command.row), _amounts(command.columns)))
    return steps + _changes(rows)


def _changes(rows: Mapping[tuple[str, bytes], RowChange]) -> list[Step]:
    tables: dict[str, list[RowChange]] = {}
    for (table, _), change in rows.items():
        tables.setdefault(table, []).append(change)
    return [RowMutations(table, changes) for table, changes in tables.items()]


def _with_delete(before: RowChange, columns: list[bytes]) -> RowChange:
    if not columns:
        return RowChange(before.row, {}, ())
    families = tuple(each if each.endswith(b":") else each + b":" for each in columns if each.count(b":") == 0)
    puts = {name: cell for name, cell in before.puts.items() if name not in columns and not name.startswith(families)}
    if before.deletes is not None and not before.deletes:
        return before._replace(puts=puts)
    return RowChange(before.row, puts, [*(before.deletes or ()), *columns])


def _row(row: object) -> bytes:
    raw = row.encode("utf-8", "surrogatepass") if isinstance(row, str) else row
    if not isinstance(raw, bytes) or not raw:
        raise Unprocessable("a row key must be text or bytes, and not empty")
    return raw


def _column(name: object) -> bytes:
    if not isinstance(name, str):
        raise Unprocessable(f"a column must be text, not {type(name).__name__}")
    try:
        return check_column(name).encode("utf-8", "surrogatepass")
    except ValueError as error:
        raise Unprocessable(str(error)) from error


def _deleted(name: object) -> bytes:
    if isinstance(name, str) and name and ":" not in name:
        return name.encode("utf-8", "surrogatepass")
    return _column(name)


def _cells(columns: Mapping[str, bytes]) -> dict[bytes, bytes]:
    cells = {}
    for name, value in columns.items():
        given: object = value
        raw = given.encode("utf-8", "surrogatepass") if isinstance(given, str) else given
        if not isinstance(raw, bytes):
            raise Unprocessable(f"column {name} has a value of type {type(value).__name__}; use bytes")
        cells[_column(name)] = raw
    return cells


def _amounts(columns: Mapping[str, int]) -> dict[bytes, int]:
    amounts = {}
    for name, value in columns.items():
        if type(value) is not int or not -(_WORD // 2) <= value < _WORD // 2:
            raise Unprocessable(f"column {name} cannot be incremented by {value!r}; use an integer of 64 bits")
        amounts[_column(name)] = value
    return amounts
