"""Sums of the units that this process wrote to a queue's files, a block at a time (D2).

Units of an earlier process are compared with their records when they are read. Those of this process are not, since
that costs more than the rest of a read. But they may come back from the disk later, too, and a flipped bit in one could
name another message. So the sum of every whole block of `BLOCK_UNITS` is kept as it is written, 4 bytes per 20,000, and
compared when a reader comes to the block.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.sums import crc32

BLOCK_UNITS = 1000
_UNIT_BYTES = 20
_SUMS_MAX = 4096


class UnitSums:
    """The sums of one queue."""

    __slots__ = ("_next", "_right", "_running", "_sums")

    def __init__(self) -> None:
        self._sums: dict[int, int] = {}
        self._next = 0
        self._running: int | None = 0
        self._right = -1

    def start_at(self, offset: int) -> None:
        """Forget everything; the next units written are those from `offset` on."""
        self._sums.clear()
        self._next = offset
        self._running = None if offset % BLOCK_UNITS else 0
        self._right = -1

    def add(self, data: bytes, *, minimum: int) -> None:
        """Take the units that were just written, right behind the last ones; blocks below offset `minimum` may go."""
        at = 0
        while at < len(data):
            place = self._next % BLOCK_UNITS
            part = data[at : at + (BLOCK_UNITS - place) * _UNIT_BYTES]
            if not place:
                self._running = 0
            if self._running is not None:
                self._running = crc32(part, self._running)
            at += len(part)
            self._next += len(part) // _UNIT_BYTES
            if self._running is not None and not self._next % BLOCK_UNITS:
                self._sums[self._next // BLOCK_UNITS - 1] = self._running
        if len(self._sums) > _SUMS_MAX:
            first = minimum // BLOCK_UNITS
            self._sums = {block: total for block, total in self._sums.items() if block >= first}

    def right(self, offset: int, end: int, read: Callable[[int, int], bytes]) -> bool:
        """Whether the blocks that hold the units [offset, end) are as they were written.

        The block that is still being written is taken as it is: what was just written is in memory. A whole block
        without a sum, begun by an earlier process, is not right for certain.

        Args:
            offset: First unit.
            end: One past the last unit, written already.
            read: Returns the bytes of the units [first, end) from the files.
        """
        for block in range(offset // BLOCK_UNITS, (end - 1) // BLOCK_UNITS + 1):
            if block == self._right or (block + 1) * BLOCK_UNITS > self._next:
                continue
            wanted = self._sums.get(block)
            if wanted is None or crc32(read(block * BLOCK_UNITS, (block + 1) * BLOCK_UNITS)) != wanted:
                return False
            self._right = block
        return True
