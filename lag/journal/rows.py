"""Rows of differences, and back. No I/O.

A node's queues hardly differ from one snapshot to the next: most of them not at all, and those that move do so in the
same few values, by little. So a row is the difference from the row of the same queue before it, and a queue without a
difference is one of a counted run. Writer and reader keep the same memory of each queue (its values, where it changed
last time, when it was read) and of texts; it begins empty with each file.

A section is two streams, since runs are counted when their values are written already: what to do (steps), then values.

| low 2 bits of a step | rest | means |
| --- | --- | --- |
| SAME | n | the next n queues are as they were; n = 0: the section ends |
| ALIKE | n | each of the next n has changed in those values in which it changed last time |
| CHANGED | mask | the next one has changed in these |
| OTHER | TIME | rows were read so many ms later (signed) than the one before; the first than the base |
| OTHER | JUMP | the next queue is this one |
| OTHER | NAME | the next queue is new, and the last of all |

Both ends hold to: a queue is remembered under its place in the order of naming; `next` is one behind the queue of the
last row. A step of the reader that does not fit (a queue that was never named, a value that runs over the end) is a
ValueError: its caller names the block damaged and believes nothing behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from lag.journal.columns import ColumnKind, Key, Row, Table
from lag.varints import VALUE_MAX, Taker, put_signed, put_text, put_varint

SAME, ALIKE, CHANGED, OTHER = range(4)
TIME, JUMP, NAME = range(3)
TEXTS_MAX: Final = 4096
"""Texts that are remembered per file; later ones are written out each time."""
_SHARE = struct.Struct("<d")
_NULL, _NEW = 0, 1
_KNOWN = 2
_Put = Callable[[bytearray, Any, Any, int], None]
"""Appends a value, of the value before, this one, and the milliseconds between the two rows."""


class _QueueRowState:
    """What both ends remember of one queue."""

    __slots__ = ("mask", "row", "time_ms")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.mask = 0
        self.time_ms = 0


class RowEncoder:
    """Encodes the rows of one table for one file.

    A section that was begun must be written, or the file ended: the memory has its rows.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._defaults: Row = tuple(column.default for column in table.columns)
        self._places: dict[Key, int] = {}
        self._queues: list[_QueueRowState] = []
        self._texts: dict[str, int] = {}
        self._puts: list[_Put] = [self._put_of(each.kind) for each in table.columns]
        self._plans: dict[int, list[int]] = {}
        self._next = 0
        self._time_ms = 0
        self._steps = bytearray()
        self._values = bytearray()
        self._run = self._run_kind = 0

    def begin(self, base_ms: int) -> None:
        """Begin a section; rows' moments are counted from `base_ms`."""
        self._steps, self._values = bytearray(), bytearray()
        self._next, self._time_ms = 0, base_ms
        self._run = 0

    def add(self, key: Key, time_ms: int, record: Any) -> None:
        """Add the row of one object.

        Args:
            key: Two texts and a number.
            time_ms: Its moment, Unix ms.
            record: What has the table's values as attributes.
        """
        place = self._places.get(key)
        if time_ms != self._time_ms:
            self._step(OTHER, TIME)
            put_signed(self._steps, time_ms - self._time_ms)
            self._time_ms = time_ms
        if place is None:
            place = self._name(key)
        elif place != self._next:
            self._step(OTHER, JUMP)
            put_varint(self._steps, place)
        # Rows in the order of their first ones need no step of their own: that is nearly every row.
        self._next = place + 1
        queue, row = self._queues[place], self._table.values(record)
        before = queue.row
        if row == before:
            self._count(SAME)
        else:
            mask = 0
            for index, value in enumerate(row):
                if value != before[index]:
                    mask |= 1 << index
            if mask == queue.mask:
                self._count(ALIKE)
            else:
                self._step(CHANGED, mask)
                queue.mask = mask
            values, puts, passed = self._values, self._puts, time_ms - queue.time_ms
            for index in self._plan(mask):
                puts[index](values, before[index], row[index], passed)
            queue.row = row
        queue.time_ms = time_ms

    def end(self) -> bytes:
        """Return the section."""
        self._step(SAME, 0)
        head = bytearray()
        put_varint(head, len(self._steps))
        return b"".join((head, self._steps, self._values))

    def _count(self, kind: int) -> None:
        if self._run_kind != kind:
            self._end_run()
            self._run_kind = kind
        self._run += 1

    def _end_run(self) -> None:
        if self._run:
            put_varint(self._steps, self._run << 2 | self._run_kind)
            self._run = 0

    def _step(self, kind: int, rest: int) -> None:
        self._end_run()
        put_varint(self._steps, rest << 2 | kind)

    def _name(self, key: Key) -> int:
        place = len(self._queues)
        self._step(OTHER, NAME)
        first, second, number = key
        self._put_text(self._values, None, first, 0)
        self._put_text(self._values, None, second, 0)
        put_signed(self._values, number)
        self._places[key] = place
        self._queues.append(_QueueRowState(self._defaults))
        return place

    def _plan(self, mask: int) -> list[int]:
        """Return the places of a mask's bits."""
        plan = self._plans.get(mask)
        if plan is None:
            if len(self._plans) >= TEXTS_MAX:
                self._plans.clear()
            plan = self._plans[mask] = bits_of(mask)
        return plan

    def _put_of(self, kind: ColumnKind) -> _Put:
        puts: dict[ColumnKind, _Put] = {
            ColumnKind.NUMBER: _put_number,
            ColumnKind.FLAG: _put_number,
            ColumnKind.NUMBER_OR_NULL: _put_number_or_null,
            ColumnKind.MOMENT: _put_moment,
            ColumnKind.SHARE: _put_share,
            ColumnKind.TEXT: self._put_text,
        }
        return puts[kind]

    def _put_text(self, out: bytearray, _before: Any, value: str | None, _passed: int) -> None:
        if value is None:
            out.append(_NULL)
            return
        known = self._texts.get(value)
        if known is not None:
            put_varint(out, known + _KNOWN)
            return
        out.append(_NEW)
        put_text(out, value)
        if len(self._texts) < TEXTS_MAX:
            self._texts[value] = len(self._texts)


class RowDecoder:
    """Decodes the rows of one table of one file, section by section."""

    def __init__(self, table: Table) -> None:
        self._defaults: Row = tuple(column.default for column in table.columns)
        self._kinds = [column.kind for column in table.columns]
        self._keys: list[Key] = []
        self._queues: list[_QueueRowState] = []
        self._texts: list[str] = []

    def rows(self, data: bytes, base_ms: int) -> Iterator[tuple[Key, int, Row]]:
        """Yield whose row it is, its moment and its values, in the order in which they were added.

        A row that is like the one before of its queue is the same object.

        Raises:
            ValueError: The section is not what a writer makes. What was yielded of it must not be believed either.
        """
        steps = Taker(data)
        size = steps.varint()
        # Two sections: all steps, then all values.
        values = Taker(data, steps.at + size)
        steps.end = values.at
        if values.at > len(data):
            raise ValueError("the steps run over the section's end")
        place, time_ms = 0, base_ms
        keys, queues = self._keys, self._queues
        while True:
            step = steps.varint()
            kind, rest = step & 3, step >> 2
            if kind == OTHER:
                if rest == TIME:
                    time_ms += steps.signed()
                elif rest == JUMP:
                    place = steps.varint()
                elif rest == NAME:
                    place = len(queues)
                    keys.append((self._text(values), self._text(values), values.signed()))
                    queues.append(_QueueRowState(self._defaults))
                else:
                    raise ValueError(f"an unknown step {rest}")
                continue
            if kind == SAME and not rest:
                break
            count = 1 if kind == CHANGED else rest
            # 0 rows would loop forever, and the count comes from a file.
            if place + count > len(queues) or not rest:
                raise ValueError(f"{count} rows from queue {place} on, of {len(queues)} that are named")
            for at in range(place, place + count):
                queue = queues[at]
                if kind != SAME:
                    if kind == CHANGED:
                        queue.mask = rest
                    self._change(queue, values, time_ms - queue.time_ms)
                queue.time_ms = time_ms
                yield keys[at], time_ms, queue.row
            place += count
        if steps.at != steps.end or values.at != values.end:
            raise ValueError("bytes behind the last row")

    def _change(self, queue: _QueueRowState, values: Taker, passed: int) -> None:
        row = list(queue.row)
        for index in bits_of(queue.mask):
            if index >= len(row):
                raise ValueError(f"a mask with value {index} of {len(row)}")
            row[index] = self._value(self._kinds[index], values, row[index], passed)
        queue.row = tuple(row)

    def _value(self, kind: ColumnKind, values: Taker, before: Any, passed: int) -> Any:
        if kind is ColumnKind.NUMBER:
            return before + values.signed()
        if kind is ColumnKind.FLAG:
            return bool(before + values.signed())
        if kind is ColumnKind.TEXT:
            return self._text(values)
        if kind is ColumnKind.SHARE:
            return _SHARE.unpack(values.raw(_SHARE.size))[0] if values.varint() else None
        coded = values.varint()
        if not coded:
            return None
        coded -= 1
        difference = coded >> 1 if not coded & 1 else -(coded + 1 >> 1)
        if kind is ColumnKind.MOMENT:
            difference += passed
        return (before or 0) + difference

    def _text(self, values: Taker) -> str | None:
        coded = values.varint()
        if coded == _NULL:
            return None
        if coded == _NEW:
            text = values.text()
            if len(self._texts) < TEXTS_MAX:
                self._texts.append(text)
            return text
        if coded - _KNOWN >= len(self._texts):
            raise ValueError(f"text {coded - _KNOWN} of {len(self._texts)} that are known")
        return self._texts[coded - _KNOWN]


def count_rows(data: bytes) -> int:
    """Return how many rows a section has, by its steps alone. Raises ValueError as `RowDecoder.rows`."""
    steps = Taker(data)
    size = steps.varint()
    steps.end = steps.at + size
    count = 0
    while True:
        step = steps.varint()
        kind, rest = step & 3, step >> 2
        if kind == SAME and not rest:
            return count
        if kind != OTHER:
            count += 1 if kind == CHANGED else rest
        elif rest != NAME:
            steps.varint()


def bits_of(mask: int) -> list[int]:
    """Return the places of a mask's bits, the lowest first."""
    return [index for index in range(mask.bit_length()) if mask >> index & 1]


def _put_number(out: bytearray, before: int, value: int, _passed: int) -> None:
    assert -VALUE_MAX < value < VALUE_MAX, "a number of 63 bits"
    put_signed(out, value - before)


def _put_number_or_null(out: bytearray, before: int | None, value: int | None, _passed: int) -> None:
    if value is None:
        out.append(_NULL)
        return
    assert -VALUE_MAX < value < VALUE_MAX, "a number of 63 bits"
    difference = value - (before or 0)
    put_varint(out, (difference << 1 if difference >= 0 else (-difference << 1) - 1) + 1)


def _put_moment(out: bytearray, before: int | None, value: int | None, passed: int) -> None:
    if value is None:
        out.append(_NULL)
    else:
        _put_number_or_null(out, (before or 0) + passed, value, 0)


def _put_share(out: bytearray, _before: float | None, value: float | None, _passed: int) -> None:
    if value is None:
        out.append(_NULL)
    else:
        assert 0.0 <= value <= 1.0, "a share of all"
        out.append(1)
        out += _SHARE.pack(value)
