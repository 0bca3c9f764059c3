"""Sectors that the disk does not give out: reading around them, and not dying of them.

A mapped page that cannot be read ends the process by SIGBUS, and would do so again after each restart. So a reader that
looks at mapped bytes that may have to come from the disk has them read by `pread` first, in windows: that fails with an
error instead, and leaves in the page cache what it could read. One bad page then costs what is on it, and nothing else.

What remains: a page that was read, left the page cache, went bad, and is looked at again within about a minute.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from broker.runtime.seams import Buffer, DiskFile

PAGE_BYTES = 4096
WINDOW_BYTES = 1 << 18
UNREADABLE = frozenset({errno.EIO, errno.ENODATA, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ, errno.EREMOTEIO})
"""What disks, and file systems with sums of their own, say of bytes that they cannot give out."""
_UNKNOWN, _GOOD, _PARTLY = range(3)

BadStretch = tuple[int, int]
"""Start and end, in bytes, of a part of a file that cannot be read."""


Unreadable = Callable[[str, str, int], object]
"""Told of stretches that the disk does not give out: in what kind of file, where, and how many."""


def ignored(kind: str, where: str, count: int) -> None:
    """Nobody wants to know."""


def read_around(file: DiskFile, start: int, size: int) -> tuple[bytes, list[BadStretch]]:
    """Read up to `size` bytes; where pages cannot be read there are zeros.

    Returns:
        The bytes, shorter only at the end of the file, and the stretches of pages that were not read.

    Raises:
        OSError: Another failure.
    """
    try:
        return file.read(start, size), []
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
    size = max(min(size, file.size() - start), 0)
    parts: list[bytes] = []
    bad: list[BadStretch] = []
    at = start
    while at < start + size:
        # Up to the next border of a page: the kernel fails a read by whole pages.
        count = min(PAGE_BYTES - at % PAGE_BYTES, start + size - at)
        try:
            part = file.read(at, count)
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            part = bytes(count)
            if bad and bad[-1][1] == at:
                bad[-1] = (bad[-1][0], at + count)
            else:
                bad.append((at, at + count))
        parts.append(part)
        at += count
    return b"".join(parts), bad


def write_around(file: DiskFile, offset: int, data: Buffer) -> bool:
    """Write bytes of a file that can be made again; a page that cannot be read, and so not in part, is written whole.

    Returns:
        Whether there was such a page. Its other bytes are zeros now.

    Raises:
        OSError: It cannot be written either.
    """
    try:
        file.write(offset, [data])
        return False
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
    begin = offset - offset % PAGE_BYTES
    end = min(-(-(offset + len(data)) // PAGE_BYTES) * PAGE_BYTES, file.size())
    # Bytes beside `data` that cannot be read are zeros from now on; the caller makes them again.
    whole = bytearray(read_around(file, begin, end - begin)[0])
    whole[offset - begin : offset - begin + len(data)] = data
    file.write(begin, [whole])
    return True


def good_parts(start: int, data: bytes, bad: list[BadStretch]) -> Iterator[tuple[int, bytes]]:
    """Yield place and bytes of what `read_around` did read."""
    at = start
    for begin, end in [*bad, (start + len(data), start + len(data))]:
        if at < begin:
            yield at, data[at - start : begin - start]
        at = end


def is_readable(file: DiskFile, size: int) -> bool:
    """Whether the first `size` bytes of a file can be read; they are in the page cache then. Raises OSError."""
    for at in range(0, size, 1 << 20):
        try:
            file.read(at, min(1 << 20, size - at))
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            return False
    return True


class MappedWindows:
    """Which bytes of a mapped file may be looked at; each window is read once, when it is first asked for."""

    __slots__ = ("_bad", "_file", "_reported", "_states")

    def __init__(self, file: DiskFile, size: int, reported: Callable[[BadStretch], object]) -> None:
        """Set up; `told` is called with each stretch that is found to be unreadable."""
        self._file = file
        self._states = bytearray(-(-size // WINDOW_BYTES))
        self._bad: list[BadStretch] = []
        self._reported = reported

    def can_be_read(self, start: int, end: int) -> bool:
        """Whether the bytes [start, end), which lie in the file, can be looked at. Raises OSError."""
        states = self._states
        partly = False
        for number in range(start // WINDOW_BYTES, -(-end // WINDOW_BYTES)):
            state = states[number] or self._read(number)
            partly = partly or state == _PARTLY
        return not partly or not any(begin < end and start < behind for begin, behind in self._bad)

    def _read(self, number: int) -> int:
        _, bad = read_around(self._file, number * WINDOW_BYTES, WINDOW_BYTES)
        self._bad += bad
        for each in bad:
            self._reported(each)
        state = self._states[number] = _PARTLY if bad else _GOOD
        return state
