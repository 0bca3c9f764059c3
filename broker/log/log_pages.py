"""Which bytes of the log's mapped segments can be looked at without the risk of a page that the disk does not give out.

See `broker.runtime.disks.unreadable`. What this process wrote, or scanned at its start, is in the page cache for
some time and is looked at as it is; all else is read first, a window of 256 KiB at a time, and read again after a
minute or two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker.errors import DamagedRecord
from broker.format.locating import Place
from broker.format.record import CLAIM, RECORD_OVERHEAD_BYTES
from broker.runtime.disks.unreadable import BadStretch, MappedWindows, read_around
from broker.runtime.seams import Buffer, DiskFile


class Segment:
    """One segment file and what is staged for it."""

    __slots__ = ("base", "file", "staged", "staged_at", "staged_bytes", "unsynced")

    def __init__(self, base: int, file: DiskFile) -> None:
        self.base = base
        self.file = file
        self.staged: list[Buffer] = []
        self.staged_at = 0
        self.staged_bytes = 0
        self.unsynced = False


NOT_GIVEN = "the disk cannot read it"
_SPAN_BYTES_MAX = 4 << 20
_unpack_claim = CLAIM.unpack_from


class LogPages:
    """The pages of one log.

    Attributes:
        unsure_end: Bytes below may have to come from the disk when they are looked at.

    Args:
        segments: By number.
        segment_bytes: Size of each.
        view: Maps one.
        unreadable: Called with the commit-log offsets [start, end) that the disk cannot read.
    """

    def __init__(
        self,
        segments: Mapping[int, Segment],
        segment_bytes: int,
        view: Callable[[int], memoryview],
        unreadable: Callable[[int, int], object],
    ) -> None:
        self.unsure_end = 0
        self._unreadable = unreadable
        self._segments = segments
        self._segment_bytes = segment_bytes
        self._view = view
        self._windows: dict[int, MappedWindows] = {}
        self._aging_end = 0  # what was visible at the last call of `age`

    def is_sure(self, physical: int, size: int) -> bool:
        """Whether the bytes from a commit-log offset on, up to their segment's end, can be looked at in its view.

        At least the size of a record's fixed part is asked for.

        Raises:
            OSError: The segment cannot be read, for another reason than bad places.
        """
        if physical >= self.unsure_end:
            return True
        number, start = divmod(physical, self._segment_bytes)
        windows = self._windows.get(number)
        if windows is None:
            segment = self._segments.get(number)
            if segment is None:
                return True
            base, reported = segment.base, self._unreadable
            windows = self._windows[number] = MappedWindows(
                segment.file, self._segment_bytes, lambda bad: reported(base + bad[0], base + bad[1])
            )
        return windows.can_be_read(start, min(start + max(size, RECORD_OVERHEAD_BYTES), self._segment_bytes))

    def is_record_sure(self, physical: int) -> bool:
        """Whether what claims to be a record there can be looked at, as long as it claims to be. As `is_sure`."""
        if physical >= self.unsure_end:
            return True
        if not self.is_sure(physical, RECORD_OVERHEAD_BYTES):
            return False
        number, start = divmod(physical, self._segment_bytes)
        if number not in self._segments or start + RECORD_OVERHEAD_BYTES > self._segment_bytes:
            return True
        view = self._view(number)
        return not view or self.is_sure(physical, int(_unpack_claim(view, start)[0]))

    def be_sure(self, places: Sequence[Place], at: int, base: int) -> None:
        """Look at the places from `at` on that lie in the segment that begins at `base`.

        Raises:
            DamagedRecord: The first of them that cannot be looked at.
            OSError: As `is_sure`.
        """
        end = base + self._segment_bytes
        mine = places[at:] if at else places
        first = min([place[0] for place in mine])
        if first >= self.unsure_end:
            return
        if first < base or max([place[0] for place in mine]) >= end:
            mine = [place for place in mine if base <= place[0] < end]
            first = min([place[0] for place in mine], default=base)
        # Usually all of them lie side by side, and one look at the whole of them will do.
        span = max([place[0] + place[1] for place in mine], default=first) - first
        if span <= _SPAN_BYTES_MAX and self.is_sure(first, span):
            return
        for place in mine:
            if not self.is_sure(place[0], place[1]):
                raise DamagedRecord(place[0], NOT_GIVEN)

    def read_around(self, number: int, start: int, size: int) -> tuple[bytes, list[BadStretch]]:
        """Read bytes of a segment; zeros, and where, for what the disk does not return, which is reported.

        Raises:
            OSError: Another failure.
        """
        segment = self._segments[number]
        data, bad = read_around(segment.file, start, size)
        for begin, end in bad:
            # Readers of the view must be warned, however young the log is.
            self.unsure_end = max(self.unsure_end, segment.base + end)
            self._unreadable(segment.base + begin, segment.base + end)
        return data, bad

    def age(self, visible_end: int) -> None:
        """Note, about once a minute, that what was written or read before the last call may be cold now."""
        self.unsure_end = max(self.unsure_end, self._aging_end)
        self._aging_end = visible_end
        self._windows.clear()

    def forget(self, number: int) -> None:
        """Forget a segment that goes."""
        self._windows.pop(number, None)
