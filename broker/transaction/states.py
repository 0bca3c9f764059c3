"""What is known of each half: two bits, in the order of the half queue. No I/O.

Below `position` everything is decided, or elsewhere. The bits of KEPT halves below it are kept, so that a late repeat
of a decision is answered without a search of the log.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from enum import IntEnum

KEPT = 1 << 18
_TRIM = 1 << 16
_OPEN = bytes(any(not byte >> shift & 3 for shift in (0, 2, 4, 6)) for byte in range(256))
"""By the bits of four halves: 1 where one of them is undecided."""
_NEAR = 64
"""Halves that are looked at one by one before whole bytes are: the next undecided one is near as a rule."""
_CHUNK_BYTES = 1 << 16


class HalfState(IntEnum):
    """Two bits: what became of a half. ELSEWHERE: put back, discarded or lost."""

    UNDECIDED = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    ELSEWHERE = 3


class HalfStates:
    """The states of the halves [start, end) of the half queue.

    Attributes:
        position: The lowest undecided half; `end` when there is none.
        end: One past the last half known.
        undecided: How many are.
    """

    def __init__(self, start: int = 0) -> None:
        self.position = self.end = start
        self.undecided = 0
        self._base = start // 4 * 4
        self._bits = bytearray()

    def grow(self, end: int) -> None:
        """Add the halves up to `end`, undecided."""
        if end > self.end:
            self.undecided += end - self.end
            self.end = end
            # Two bits for each half, four halves to a byte; the last byte may be used in part.
            self._bits.extend(bytes(-(-(end - self._base) // 4) - len(self._bits)))

    def get(self, offset: int) -> HalfState | None:
        """Return what is known of a half; None below what is kept, and above the end."""
        at = offset - self._base
        if at < 0 or offset >= self.end or at >> 2 >= len(self._bits):
            return None
        known = HalfState(self._bits[at >> 2] >> (at & 3) * 2 & 3)
        # The first bits may be of halves below the first one that is known.
        return None if known is HalfState.UNDECIDED and offset < self.position else known

    def is_undecided(self, offset: int) -> bool:
        """Whether nothing has become of a half."""
        at = offset - self._base
        return self.position <= offset < self.end and not self._bits[at >> 2] >> (at & 3) * 2 & 3

    def resolve(self, offset: int, known: HalfState) -> bool:
        """Note what became of a half; False when it is not undecided, and nothing is changed then."""
        if not self.is_undecided(offset):
            return False
        at = offset - self._base
        self._bits[at >> 2] |= known << (at & 3) * 2
        self.undecided -= 1
        if offset == self.position:
            self._advance()
        return True

    def correct(self, offset: int, known: HalfState) -> None:
        """Replace what is known of a decided half; ignored for others."""
        if self.get(offset) not in (None, HalfState.UNDECIDED):
            at = offset - self._base
            self._bits[at >> 2] = self._bits[at >> 2] & ~(3 << (at & 3) * 2) | known << (at & 3) * 2

    def begin_at(self, offset: int) -> None:
        """Count everything below an offset, at most `end`, as elsewhere."""
        for each in range(self.position, min(offset, self.end)):
            self.resolve(each, HalfState.ELSEWHERE)

    def _advance(self) -> None:
        bits, base = self._bits, self._base
        self.position = self._undecided_from(self.position, self.end)
        surplus = self.position - KEPT - base
        if surplus >= _TRIM:
            # Whole bytes only, so that `_base` stays a multiple of 4.
            surplus = surplus // 4 * 4
            del bits[: surplus >> 2]
            self._base += surplus
            assert not self._base % 4, "a half keeps its place within its byte"

    def _undecided_from(self, offset: int, end: int) -> int:
        """Return the first undecided half of [offset, end), `end` where there is none."""
        bits = self._bits
        at, last = offset - self._base, end - self._base
        near = min(last, at + _NEAR)
        while at < near and bits[at >> 2] >> (at & 3) * 2 & 3:
            at += 1
        if at == near < last:
            # There are millions of decided ones in a row while one producer does not decide: by bytes, up to 3 twice.
            byte, found = at >> 2, -1
            while found < 0 and byte < last >> 2:
                chunk = bits[byte : min(byte + _CHUNK_BYTES, last >> 2)].translate(_OPEN)
                found = chunk.find(1)
                byte += len(chunk) if found < 0 else found
            at = max(at, 4 * byte)
            while at < last and bits[at >> 2] >> (at & 3) * 2 & 3:
                at += 1
        return self._base + at

    def waiting(self, offset: int, end: int | None = None) -> Iterator[int]:
        """Yield the undecided halves from an offset on."""
        while True:
            behind = self.end if end is None else min(end, self.end)
            offset = self._undecided_from(max(offset, self.position), behind)
            if offset >= behind:
                return
            yield offset
            offset += 1

    # On disk

    def saved(self) -> dict[str, object]:
        """Everything from `position` on, for a checkpoint."""
        start = self.position // 4 * 4
        bits = bytes(self._bits[(start - self._base) >> 2 :])
        return {"position": self.position, "end": self.end, "bits": b64encode(zlib.compress(bits, 1)).decode("ascii")}

    @classmethod
    def restored(cls, saved: dict[str, object], end: int) -> HalfStates:
        """Restore the states that `saved` returned of the halves below `end`.

        Raises:
            ValueError, KeyError, TypeError, zlib.error: It is something else.
        """
        position, saved_end = saved["position"], saved["end"]
        if not isinstance(position, int) or not isinstance(saved_end, int) or not 0 <= position <= saved_end:
            raise ValueError("offsets are not ascending numbers")
        bits = zlib.decompress(b64decode(str(saved["bits"])))
        states = cls(min(position, end))
        # `saved` begins with the byte of the position, so up to three halves before it come with it.
        start = position // 4 * 4
        if saved_end > position and len(bits) != -(-(saved_end - start) // 4):
            raise ValueError("the number of bits differs from the number of half messages")
        states.grow(min(saved_end, end))
        if states.end > position:
            states._take(bits)
        return states

    def _take(self, bits: bytes) -> None:
        """Take the bits of all halves that there are, from the byte of the position on."""
        count = self.end - self._base
        kept = self._bits = bytearray(bits[: len(self._bits)])
        kept[0] &= 0xFF << (self.position & 3) * 2
        if count & 3:
            kept[-1] &= (1 << (count & 3) * 2) - 1
        # One large number, since there may be millions: a decided half has one of its two bits, or both.
        number, low_bits = int.from_bytes(kept, "little"), int.from_bytes(b"\x55" * len(kept), "little")
        self.undecided = self.end - self.position - ((number | number >> 1) & low_bits).bit_count()
        self._advance()
