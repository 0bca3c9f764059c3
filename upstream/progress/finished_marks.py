"""Finished offsets of a tracker as a snapshot of the ack journal holds them: runs, or a bit each. No I/O.

A tracker has a byte per offset above its watermark. Of two forms the shorter is written: pairs of (unfinished,
finished), for some gaps in much that is finished, and a bit each, for scattered acks, which as runs would be 64 times
as large. Both are made by C loops over the row, so that a snapshot of a million scattered acks takes milliseconds.

A few bytes may say a row of a gigabyte. So what is read stays as it was written until a caller says how many offsets
the queue can hold: no more memory is taken than for those.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from upstream.progress.tracker import AHEAD_MAX

_RUN = struct.Struct("<II")
_RUNS, _BITMAP = 1, 2
_TO_DIGITS = bytes([0x30]) + bytes([0x31]) * 255
_TO_MARKS = bytes(1 if each == 0x31 else 0 for each in range(256))


class FinishedMarks(NamedTuple):
    """A packed row of bytes 0 and 1, the first of the watermark's own offset.

    Attributes:
        form: 1 runs, 2 a bit per offset.
        span: How long the row is.
        data: Of form 1, u32 pairs (zeros, ones); zeros at the row's end may be missing.
    """

    form: int = _RUNS
    span: int = 0
    data: bytes = b""

    def check(self) -> None:
        """Raise ValueError for an unknown form, and for more offsets than `span`; takes no memory for them."""
        if self.span > AHEAD_MAX + 1:
            raise ValueError(f"a span of {self.span} offsets")
        if not self.span:
            return
        if self.form == _BITMAP:
            if int.from_bytes(self.data, "big") >> self.span:
                raise ValueError("a bitmap is longer than its span")
        elif self.form != _RUNS:
            raise ValueError(f"unknown form {self.form} of finished offsets")
        elif sum(zeros + ones for zeros, ones in _RUN.iter_unpack(self.data)) > self.span:
            raise ValueError("runs are longer than their span")

    def row(self, length: int) -> tuple[bytes, int]:
        """Unpack the first offsets of a checked row.

        Args:
            length: How many at the most.

        Returns:
            Their bytes, 1 for a finished one, where zeros at the end may be missing; and how many finished ones there
            are behind them.
        """
        if not self.span:
            return b"", 0
        if self.form == _BITMAP:
            bits, behind = int.from_bytes(self.data, "big"), max(0, self.span - length)
            shown = self.span - behind
            row = f"{bits >> behind:0{shown}b}".encode().translate(_TO_MARKS) if shown else b""
            return row, (bits & ((1 << min(behind, bits.bit_length())) - 1)).bit_count()
        pieces: list[bytes] = []
        left, lost = length, 0
        for zeros, ones in _RUN.iter_unpack(self.data):
            gap = min(zeros, left)
            held = min(ones, left - gap)
            pieces += (bytes(gap), b"\x01" * held)
            left -= gap + held
            lost += ones - held
        return b"".join(pieces), lost


def pack(row: bytes | bytearray) -> FinishedMarks:
    """Pack a row of bytes 0 and 1."""
    runs = row.count(b"\x00\x01") + (row[:1] == b"\x01")
    if runs * _RUN.size > len(row) // 8:
        digits = row.translate(_TO_DIGITS)
        return FinishedMarks(_BITMAP, len(row), int(digits, 2).to_bytes((len(row) + 7) // 8, "big"))
    pairs = bytearray()
    edge = 0
    start = row.find(1)
    while start >= 0:
        end = row.find(0, start)
        if end < 0:
            end = len(row)
        pairs += _RUN.pack(start - edge, end - start)
        edge = end
        start = row.find(1, end)
    return FinishedMarks(_RUNS, len(row), bytes(pairs))
