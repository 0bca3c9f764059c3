"""Files of one size in one folder, each named by the position of its first byte: the log, or one queue."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from typing import Final

_DIGITS: Final = 20


class NumberedFiles:
    """The files that a folder has now; none where it is not there. They are mapped as they are asked for."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        names = os.listdir(folder) if os.path.isdir(folder) else []
        self._starts = sorted(int(name) for name in names if name.isdigit() and len(name) == _DIGITS)
        self._maps: dict[int, mmap.mmap] = {}
        self._last = 0, 0, memoryview(b"")

    @property
    def start(self) -> int:
        """Position of the first byte that is there; 0 where there is none."""
        return self._starts[0] if self._starts else 0

    @property
    def end(self) -> int:
        """Position behind the last file, which may be filled in part only."""
        if not self._starts:
            return 0
        return self._starts[-1] + os.stat(self._path(self._starts[-1])).st_size

    def view(self, position: int, size: int) -> memoryview | None:
        """Return bytes that lie in one file; None: they are not there, or not in one."""
        # Nearly always the file of the call before.
        start, end, whole = self._last
        if start <= position and 0 < size <= end - position:
            return whole[position - start : position - start + size]
        place = bisect_right(self._starts, position) - 1
        if place < 0 or size <= 0:
            return None
        start = self._starts[place]
        mapped = self._maps.get(start)
        if mapped is None or position - start + size > len(mapped):
            mapped = self._map(start)
        if mapped is None or position - start + size > len(mapped):
            return None
        whole = memoryview(mapped)
        self._last = start, start + len(mapped), whole
        return whole[position - start : position - start + size]

    def file_from(self, position: int) -> tuple[int, memoryview] | None:
        """Return the first file that ends behind a position: its start, and all of it; None: there is no such file."""
        for start in self._starts[max(0, bisect_right(self._starts, position) - 1) :]:
            mapped = self._maps.get(start) or self._map(start)
            if mapped is not None and start + len(mapped) > position:
                return start, memoryview(mapped)
        return None

    def _map(self, start: int) -> mmap.mmap | None:
        """Map a file as long as it is now; None: it is empty, or retention took it meanwhile."""
        try:
            descriptor = os.open(self._path(start), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if not os.fstat(descriptor).st_size:
                return None
            mapped = self._maps[start] = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        return mapped

    def _path(self, start: int) -> str:
        return f"{self._folder}/{start:0{_DIGITS}d}"
