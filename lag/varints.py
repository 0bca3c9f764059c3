"""Whole numbers in as few bytes as they need: 7 bits a byte, the lowest first, the high bit set on all but the last.

Signed numbers are zigzag: 0, -1, 1, -2, 2 ... become 0, 1, 2, 3, 4 ..., so that small differences are short.
"""

from __future__ import annotations

from typing import Final

from broker.runtime.seams import Buffer

BYTES_MAX: Final = 10
"""A number of 70 bits; no writer makes a longer one, and a reader refuses it before it takes memory."""
VALUE_MAX: Final = 1 << 62
"""No signed number that is written is further from 0: a difference of two still fits."""


def put_varint(out: bytearray, value: int) -> None:
    """Append a number of 0 or more."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_signed(out: bytearray, value: int) -> None:
    """Append a number of either sign."""
    put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def put_text(out: bytearray, text: str) -> None:
    """Append a text: its length in bytes, then UTF-8. What is not Unicode (half a surrogate pair) becomes `?`."""
    data = text.encode("utf-8", "replace")
    put_varint(out, len(data))
    out += data


class Taker:
    """Takes one value after the other from bytes.

    Attributes:
        at: Position of the next one.
    """

    __slots__ = ("_data", "at", "end")

    def __init__(self, data: Buffer, at: int = 0) -> None:
        self._data = data
        self.at = at
        self.end = len(data)

    def varint(self) -> int:
        """Take a number of 0 or more. Raises ValueError: it runs over the end, or is too long."""
        at, end, data = self.at, self.end, self._data
        if at < end and (value := data[at]) < 0x80:
            self.at = at + 1
            return value
        value = shift = 0
        for position in range(at, min(end, at + BYTES_MAX)):
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = position + 1
                return value
            shift += 7
        raise ValueError(f"a number at byte {at} that does not end")

    def signed(self) -> int:
        """Take a number of either sign. Raises as `varint`."""
        value = self.varint()
        return value >> 1 if not value & 1 else -(value + 1 >> 1)

    def raw(self, size: int) -> bytes:
        """Take so many bytes. Raises ValueError: there are fewer."""
        at = self.at
        if size > self.end - at:
            raise ValueError(f"{size} bytes at byte {at} run over the end")
        self.at = at + size
        return bytes(self._data[at : at + size])

    def text(self) -> str:
        """Take a text. Raises ValueError: it runs over the end, or is not UTF-8."""
        return self.raw(self.varint()).decode("utf-8")
