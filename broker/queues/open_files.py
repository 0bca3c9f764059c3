"""The open files of all consume queues, bounded."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from broker.runtime.seams import DiskFile

OPEN_FILES_MAX: Final = 512
OPEN_FILES_MIN: Final = 4
_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
_CLOSED_AT_ONCE: Final = 64


class OpenFiles:
    """The open files of all queues, by queue and number, the most recently used last.

    A node has queues by the thousand and descriptors by the hundred. A file is opened when it is read or written; the
    least recently used ones are closed above the bound, and where the process has no descriptor left. One that is not
    synced stays open: the system reports a failed write to those who had the file open then (fsyncgate).

    Attributes:
        most: The bound; files in use count, and may be open beyond it.
    """

    def __init__(self, most: int = OPEN_FILES_MAX) -> None:
        self.most = max(most, OPEN_FILES_MIN)
        self._files: dict[tuple[object, int], tuple[DiskFile, Callable[[], bool]]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def find(self, queue: object, number: int) -> DiskFile | None:
        """Return a file if it is open, and count it as used just now."""
        found = self._files.pop((queue, number), None)
        if found is None:
            return None
        self._files[queue, number] = found
        return found[0]

    def opened(
        self, queue: object, number: int, open_it: Callable[[], DiskFile], is_in_use: Callable[[], bool]
    ) -> DiskFile:
        """Open a file and keep it; others are closed when there are too many, or no descriptor is left.

        Args:
            queue, number: Name it.
            open_it: Opens it.
            is_in_use: Whether it has to stay open for now.

        Raises:
            OSError: It cannot be opened, also after others were closed.
        """
        self.trim(self.most - 1)
        try:
            file = open_it()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self._close_idle(_CLOSED_AT_ONCE):
                raise
            file = open_it()
        self._files[queue, number] = file, is_in_use
        return file

    def trim(self, most: int = 0) -> None:
        """Close what is open above the bound, or above `most`."""
        surplus = len(self._files) - (most or self.most)
        if surplus > 0:
            self._close_idle(surplus)

    def close(self, queue: object, number: int) -> None:
        """Close one file, if it is open."""
        found = self._files.pop((queue, number), None)
        if found is not None:
            found[0].close()

    def close_all_of(self, queue: object) -> None:
        """Close the files of a queue."""
        for each, number in [key for key in self._files if key[0] is queue]:
            self.close(each, number)

    def _close_idle(self, count: int) -> int:
        """Close the least recently used files that are not in use; returns how many."""
        idle: list[tuple[object, int]] = []
        for key, (_, is_in_use) in self._files.items():
            if len(idle) == count:
                break
            if not is_in_use():
                idle.append(key)
        for key in idle:
            self.close(*key)
        return len(idle)
