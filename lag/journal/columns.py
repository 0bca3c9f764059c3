"""Which values a row of the journal has, in which order, and how each is written.

The order is that of the bits of a row's mask, so what changes most often comes first, where masks are short. It is
part of the format: a value that comes later is entered at the end, and files without it have its default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import Any, Final

from lag.samples import QueueSample, ScheduledSample

Row = tuple[Any, ...]
"""Values of one row, in the order of its columns."""
Key = tuple[Any, ...]
"""Whose row it is: two texts and a number."""


class ColumnKind(Enum):
    """How a value is written; docs/lag-journal.md has the bytes."""

    NUMBER = "number"
    NUMBER_OR_NULL = "number or null"
    MOMENT = "moment or null"
    TEXT = "text or null"
    SHARE = "share or null"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Column:
    """One value of a row.

    Attributes:
        name: Of the field, as an attribute of the object.
        kind: How it is written.
        default: What it is before the first row, and in files that do not have it.
    """

    name: str
    kind: ColumnKind
    default: Any


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind.

    Attributes:
        columns: The values, without the moment.
        values: Returns an object's values, in this order.
    """

    columns: tuple[Column, ...]
    values: Callable[[Any], Row]


_KINDS = {
    "int": ColumnKind.NUMBER,
    "int | None": ColumnKind.NUMBER_OR_NULL,
    "str | None": ColumnKind.TEXT,
    "float | None": ColumnKind.SHARE,
    "bool": ColumnKind.FLAG,
}


def columns_of(record: type, names: tuple[str, ...], *, under: str = "") -> tuple[Column, ...]:
    """Return columns for fields of a record; how they are written follows from their types.

    Args:
        record: A dataclass.
        names: Its fields; each has a default.
        under: The attribute, with its dot, under which the record is in the object that rows are made of.
    """
    by_name = {field.name: field for field in fields(record)}
    found = []
    for name in names:
        kind = _KINDS[str(by_name[name].type)]
        # Ages and lateness are durations: they do not advance with the clock.
        if kind is ColumnKind.NUMBER_OR_NULL and name.endswith("_ms") and not name.startswith(("age_", "late_")):
            kind = ColumnKind.MOMENT
        found.append(Column(under + name, kind, by_name[name].default))
    return tuple(found)


def table_of(columns: tuple[Column, ...]) -> Table:
    """Return the table of such rows."""
    return Table(columns, attrgetter(*(column.name for column in columns)))


QUEUE_COLUMNS: Final = (
    *("end", "committed", "end_ms", "committed_ms", "moved_ms"),
    *("started", "started_ms", "answered_ms", "asked_ms", "in_flight", "finished", "waiting"),
    *("holders", "start", "start_ms", "retrying", "limited", "held_offset", "held_since_ms"),
    *("held_key", "held_attempts", "held_reason", "expired", "dead_letters", "paused", "pushing", "matched"),
    *("skipped", "failing", "succeeded_ms", "out_offset", "out_client", "out_since_ms"),
    *("sink_server", "sink_reason", "sink_since_ms", "base"),
)
"""Values of a queue's row; where a consumer keeps up, what moves is among the first twelve: two bytes of mask."""
FIRST_COLUMNS: Final = QUEUE_COLUMNS[: QUEUE_COLUMNS.index("matched") + 1]
"""Those of the first version. In a summary the columns of the summary follow them, and columns added later are last."""
SCHEDULED_COLUMNS: Final = ("pending", "oldest_ms", "overdue", "oldest_due_ms")
"""Values of a row of what waits by its own time."""
assert {"time_ms", *QUEUE_COLUMNS} == {field.name for field in fields(QueueSample)}, "every field is written"
assert len({*QUEUE_COLUMNS}) == len(QUEUE_COLUMNS), "and once"

QUEUES: Final = table_of(columns_of(QueueSample, QUEUE_COLUMNS))
"""Rows of queues, by group, topic and queue."""
SCHEDULED: Final = table_of(columns_of(ScheduledSample, SCHEDULED_COLUMNS))
"""Rows of what waits in the node by its own time, by kind, topic and level."""


def queue_sample(time_ms: int, row: Row) -> QueueSample:
    """Make a sample again, of its moment and values."""
    return QueueSample(time_ms=time_ms, **dict(zip(QUEUE_COLUMNS, row, strict=True)))


def scheduled_sample(key: Key, time_ms: int, row: Row) -> ScheduledSample:
    """Make a sample of what waits again, of its name, moment and values."""
    kind, topic, level = key
    values = dict(zip(SCHEDULED_COLUMNS, row, strict=True))
    return ScheduledSample(time_ms=time_ms, kind=kind, topic=topic, level=level, **values)
