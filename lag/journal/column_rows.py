"""Rows of differences (`lag.journal.rows` has their bytes), decoded column by column: for who reads millions of them.

It is the memory of `RowDecoder` turned round: a list per value, with an element per queue. A row that is as it was
costs nothing but its part of a run, and one that changed as much as the values that did: no row is made. What comes out
are *pieces*: rows of queues in the order in which those were named, in which no queue is there twice. A snapshot of a
node whose queues come and go seldom is one piece.

Whoever changes one of the two decoders changes the other: a test holds them together over random rows and random bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from lag.journal.columns import ColumnKind, Key, Table
from lag.journal.rows import ALIKE, CHANGED, JUMP, NAME, OTHER, SAME, TEXTS_MAX, TIME, bits_of
from lag.varints import BYTES_MAX, Taker

_SHARE = struct.Struct("<d")
_NUMBER, _NULLABLE, _MOMENT, _FLAG, _SHARE_KIND, _TEXT = range(6)
_CODES: Final = {
    ColumnKind.NUMBER: _NUMBER,
    ColumnKind.NUMBER_OR_NULL: _NULLABLE,
    ColumnKind.MOMENT: _MOMENT,
    ColumnKind.FLAG: _FLAG,
    ColumnKind.SHARE: _SHARE_KIND,
    ColumnKind.TEXT: _TEXT,
}
_PLANS_MAX: Final = 4096
_SHIFT_END: Final = 7 * BYTES_MAX
_Plan = tuple[tuple[list[Any], int], ...]
"""Of a mask: the lists of its values, and how each is written."""


class Piece(NamedTuple):
    """Rows of queues that were named one behind the other.

    A list that is like that of the piece before is the same object.

    Attributes:
        keys: Whose row each is.
        moments: Of each.
        columns: A list of values for each of the table's columns, one per row.
    """

    keys: list[Key]
    moments: list[int]
    columns: list[list[Any]]


class PieceDecoder:
    """Decodes the rows of one table of one file, section by section."""

    def __init__(self, table: Table) -> None:
        self._defaults = [column.default for column in table.columns]
        self._codes = [_CODES[column.kind] for column in table.columns]
        self._columns: list[list[Any]] = [[] for _ in self._defaults]
        self._keys: list[Key] = []
        self._masks: list[int] = []
        self._times: list[int] = []
        self._texts: list[str] = []
        self._plans: dict[int, _Plan] = {0: ()}
        self._touched = 0
        """Bits of the columns that have changed since the last piece."""
        self._last: tuple[int, int] = (0, 0)
        self._given = Piece([], [], [])

    def pieces(self, data: bytes, base_ms: int) -> list[Piece]:
        """Return all rows of a section, in the order in which they were added.

        Raises:
            ValueError: The section is not what a writer makes. Nothing of it, and nothing behind it, can be believed.
        """
        steps = Taker(data)
        size = steps.varint()
        first = steps.at + size
        if first > len(data):
            raise ValueError("the steps run over the section's end")
        steps.end = first
        try:
            return self._taken(steps, data, first, base_ms)
        except IndexError as error:
            raise ValueError("values run over the section's end") from error

    def _taken(self, steps: Taker, data: bytes, at: int, time_ms: int) -> list[Piece]:
        """Take all steps; `at` is the byte of the next value."""
        found: list[Piece] = []
        first = place = 0
        times, masks = self._times, self._masks
        while True:
            step = steps.varint()
            kind, rest = step & 3, step >> 2
            if kind == OTHER:
                if rest == TIME:
                    time_ms += steps.signed()
                    continue
                if rest == JUMP:
                    to = steps.varint()
                elif rest == NAME:
                    to = len(times)
                    at = self._name(data, at)
                else:
                    raise ValueError(f"an unknown step {rest}")
                if to != place:
                    self._give(found, first, place)
                    first = place = to
                continue
            if kind == SAME and not rest:
                break
            count = 1 if kind == CHANGED else rest
            # Of CHANGED `rest` is the mask of columns, of the others how many rows are alike.
            end = place + count
            if end > len(times) or not rest:
                raise ValueError(f"{count} rows from queue {place} on, of {len(times)} that are named")
            if kind == CHANGED:
                masks[place] = rest
            if kind != SAME:
                for queue in range(place, end):
                    mask = masks[queue]
                    self._touched |= mask
                    plan = self._plans.get(mask)
                    if plan is None:
                        plan = self._plan(mask)
                    at = self._change(plan, queue, data, at, time_ms - times[queue])
            times[place:end] = [time_ms] * count
            place = end
        self._give(found, first, place)
        if steps.at != steps.end or at != len(data):
            raise ValueError("bytes behind the last row")
        return found

    def _give(self, found: list[Piece], first: int, end: int) -> None:
        """Add the rows of queues [first, end) as a piece; none, where there are none."""
        if first == end:
            return
        moments = self._times[first:end]
        if self._last == (first, end):
            given, touched = self._given, self._touched
            columns = [
                column[first:end] if touched >> place & 1 else given.columns[place]
                for place, column in enumerate(self._columns)
            ]
            self._given = Piece(given.keys, moments, columns)
        else:
            self._given = Piece(self._keys[first:end], moments, [column[first:end] for column in self._columns])
        self._last, self._touched = (first, end), 0
        found.append(self._given)

    def _name(self, data: bytes, at: int) -> int:
        """Take the name of a new queue; returns where the next value is."""
        parts: list[Any] = []
        for _ in range(2):
            coded, at = _varint(data, at)
            text, at = self._text(coded, data, at)
            parts.append(text)
        coded, at = _varint(data, at)
        self._keys.append((*parts, coded >> 1 if not coded & 1 else -(coded + 1 >> 1)))
        for column, default in zip(self._columns, self._defaults, strict=True):
            column.append(default)
        self._masks.append(0)
        self._times.append(0)
        return at

    def _plan(self, mask: int) -> _Plan:
        if mask.bit_length() > len(self._columns):
            raise ValueError(f"a mask with value {mask.bit_length() - 1} of {len(self._columns)}")
        if len(self._plans) >= _PLANS_MAX:
            self._plans.clear()
        plan = self._plans[mask] = tuple((self._columns[place], self._codes[place]) for place in bits_of(mask))
        return plan

    def _change(self, plan: _Plan, queue: int, data: bytes, at: int, passed: int) -> int:
        """Change the values of a row; returns where the next value is. Numbers are taken here, for speed."""
        for column, code in plan:
            value = data[at]
            at += 1
            if value > 0x7F:
                value, at = _longer(value, data, at)
            if code == _NUMBER:
                column[queue] += value >> 1 if not value & 1 else -(value + 1 >> 1)
            elif code <= _MOMENT:
                if not value:
                    column[queue] = None
                    continue
                difference = value - 1 >> 1 if value & 1 else -(value >> 1)
                if code == _MOMENT:
                    difference += passed
                column[queue] = (column[queue] or 0) + difference
            elif code == _FLAG:
                column[queue] = bool(column[queue] + (value >> 1 if not value & 1 else -(value + 1 >> 1)))
            elif code == _TEXT:
                column[queue], at = self._text(value, data, at)
            elif value:
                column[queue] = _SHARE.unpack(_raw(data, at, _SHARE.size))[0]
                at += _SHARE.size
            else:
                column[queue] = None
        return at

    def _text(self, coded: int, data: bytes, at: int) -> tuple[str | None, int]:
        """Return the text of a number, and where the next value is."""
        if coded == 0:
            return None, at
        if coded > 1:
            if coded - 2 >= len(self._texts):
                raise ValueError(f"text {coded - 2} of {len(self._texts)} that are known")
            return self._texts[coded - 2], at
        size, at = _varint(data, at)
        text = _raw(data, at, size).decode("utf-8")
        if len(self._texts) < TEXTS_MAX:
            self._texts.append(text)
        return text, at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    return (value, at + 1) if value < 0x80 else _longer(value, data, at + 1)


def _longer(value: int, data: bytes, at: int) -> tuple[int, int]:
    """Return the number whose first byte is `value`, the rest at `at`, and where the next one is."""
    value &= 0x7F
    for shift in range(7, _SHIFT_END, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number at byte {at - BYTES_MAX} that does not end")


def _raw(data: bytes, at: int, size: int) -> bytes:
    if size > len(data) - at:
        raise ValueError(f"{size} bytes at byte {at} run over the end")
    return data[at : at + size]


assert (SAME, ALIKE, CHANGED, OTHER) == (0, 1, 2, 3), "two bits of a step say what it is"
