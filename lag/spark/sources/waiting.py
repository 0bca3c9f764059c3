"""`pyddmq_waiting`: what stores keep of messages that wait for their time: records of delay levels and of timers.

A row is a record as it is stored. Whether it still waits is another question, which records behind it answer, or how
far delivery is: `lag.spark.jobs.scheduled` asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.format.record import physical_offset
from broker.format.wait_properties import REAL_TOPIC_NAME
from broker.scheduled.timer.names import CANCEL_NAME, OUT_NAME, ROLLS_NAME
from lag.spark.sources.due import waits_until_ms
from lag.spark.sources.messages import Messages, QueuePart, Rows
from lag.spark.sources.options import OptionRefused
from lag.spark.sources.store_files import LocatedRecord

NAME: Final = "pyddmq_waiting"


def _text(block: bytes, name: bytes) -> str | None:
    value = find_property(block, name)
    return None if value is None else value.decode("utf-8", "replace")


_Value = int | str | None
COLUMNS: Final[dict[str, tuple[str, pa.DataType, Callable[[QueuePart, LocatedRecord, bytes], _Value]]]] = {
    "room": ("string", pa.string(), lambda part, found, block: part.topic),
    "queue": ("bigint", pa.int64(), lambda part, found, block: part.queue),
    "offset": ("bigint", pa.int64(), lambda part, found, block: found.offset),
    "position": ("bigint", pa.int64(), lambda part, found, block: physical_offset(found.record)),
    "replaces": ("bigint", pa.int64(), lambda part, found, block: max(0, found.replaced) if found.replaced else None),
    "topic": ("string", pa.string(), lambda part, found, block: _text(block, REAL_TOPIC_NAME)),
    "id": ("string", pa.string(), lambda part, found, block: _text(block, b"UNIQ_KEY")),
    "cancels": ("string", pa.string(), lambda part, found, block: _text(block, CANCEL_NAME)),
    "slot_ms": ("bigint", pa.int64(), lambda part, found, block: whole_number(find_property(block, OUT_NAME))),
    "rolls": ("bigint", pa.int64(), lambda part, found, block: whole_number(find_property(block, ROLLS_NAME)) or 0),
    "due_ms": ("bigint", pa.int64(), lambda part, found, block: waits_until_ms(part.topic, block, found.stored_ms)),
    "size": ("bigint", pa.int64(), lambda part, found, block: len(found.record)),
}
"""Of each column its types, and how it is made of a record and its properties.

`room` is the topic in which it waits, `topic` the one that it goes to; `position` is its place in the log, `replaces`
that of the record whose place it takes; `cancels` what RocketMQ's cancel names; `slot_ms` a timer's slot.
"""


class WaitingSource(DataSource):
    """`spark.read.format("pyddmq_waiting").option("path", STORE).option("spans", JSON).load()`, as `pyddmq_messages`.

    `spans` names delay levels and timers by their topics, `{"SCHEDULE_TOPIC_XXXX": {"2": [first, end]}}`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> str:
        """Return all columns."""
        return ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in COLUMNS.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader. Raises OptionRefused."""
        wrong = [name for name in schema.fieldNames() if name not in COLUMNS]
        if wrong:
            raise OptionRefused(f"column {wrong[0]!r} does not exist; use one of {', '.join(COLUMNS)}")
        return WaitingMessages(self.options, schema.fieldNames())


class WaitingMessages(Messages):
    """Reads records of the given offsets."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        if self._spans is None:
            raise OptionRefused("option 'spans' is missing: offsets of delay levels and timers, by topic and queue")

    def _batch(self, part: QueuePart, rows: Rows) -> pa.RecordBatch:
        blocks = [bytes(each.record[each.block_at :]) for each in rows]
        pairs = list(zip(rows, blocks, strict=True))
        arrays = [
            pa.array([value(part, each, block) for each, block in pairs], kind)
            for _, kind, value in (COLUMNS[name] for name in self._columns)
        ]
        return pa.record_batch(arrays, names=list(self._columns))
