"""A walk over the log's valid records from a place on, passing over damage (D3).

A record counts when magic, own physical offset, lengths and sum are right.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from broker.format.record import BLANK_BYTES, MAGIC_COMMON_BYTES, RecordSummary, check
from broker.log.commit_log import CommitLog
from broker.log.log_reader import Loaded, LogReader
from broker.log.nested import goes_on_at

SEARCH_BYTES = 1 << 20
"""Bytes of one step of the search for a record behind a bad place."""
_PROBE_BYTES = 4096
_ZEROS = bytes(SEARCH_BYTES)


def record_at(log: CommitLog, physical: int) -> RecordSummary | None:
    """Return the valid record that begins at a commit-log offset, or None; from the mapped segment."""
    number, start = divmod(physical, log.segment_bytes)
    if number not in log.segments:
        return None
    if not log.pages.is_record_sure(physical):
        return None
    return check(log.view(number), start, log.segment_bytes - BLANK_BYTES, physical)


def scan(log: CommitLog, start: int) -> Iterator[RecordSummary]:
    """Walk the valid records from a record's offset on, passing over damage."""
    return LogScan(log, start).entries()


class LogScan:
    """Walks the valid records from an offset on.

    Attributes:
        end: End of the last valid record or blank so far.
        looked_at: Commit-log offset up to which bytes were looked at.
        holes: Damaged stretches [start, end) passed.
        tail_dirty: After the walk: something else than zeros follows `end`.
    """

    def __init__(
        self, log: CommitLog, start: int, *, closed_at: int | None = None, loaded: Loaded | None = None
    ) -> None:
        """Set up.

        Args:
            log: Its segments are open.
            start: Where a record begins, or the log ends.
            closed_at: Where a clean stop left the end: empty bytes there need no search for records behind them.
            loaded: Called with everything that is read, each byte in order of the log, before it is judged.
        """
        self._log = log
        self._loaded = loaded
        self._reader = LogReader(log, loaded=loaded)
        self._closed_at = closed_at
        self.end = start
        self.looked_at = start
        self.holes: list[tuple[int, int]] = []
        self.tail_dirty = False

    def entries(self) -> Iterator[RecordSummary]:
        """Yield the records in log order. Raises OSError."""
        return (entry for entry in self.steps() if entry is not None)

    def steps(self) -> Iterator[RecordSummary | None]:
        """Yield the records in log order, and None after a bounded stretch without one. Raises OSError."""
        log, reader = self._log, self._reader
        if self.end == self._closed_at and self._is_empty(self.end):
            return
        while True:
            position = self.end
            entry = reader.record(position)
            if entry is not None:
                self.end = self.looked_at = position + entry.size
                yield entry
            elif reader.is_blank(position):
                self.end = (position // log.segment_bytes + 1) * log.segment_bytes
            else:
                found = yield from self._resynchronise(position)
                if found is None:
                    return
                beyond = yield from goes_on_at(log, reader, position, found)
                if beyond != found and reader.record(beyond) is None and not reader.is_blank(beyond):
                    # What was found is in the body of the last record.
                    found = yield from self._resynchronise(beyond)
                    if found is None:
                        return
                else:
                    found = beyond
                reader.forget()
                if reader.record(position) is not None or reader.is_blank(position):
                    # The store's owner wrote it while this reader was searching.
                    continue
                self.holes.append((position, found))
                self.end = found

    def _is_empty(self, position: int) -> bool:
        """Whether the log looks untouched from here on: the next bytes are zero, or there is no segment."""
        number, start = divmod(position, self._log.segment_bytes)
        segment = self._log.segments.get(number)
        if segment is None:
            return not any(other > number for other in self._log.segments)
        data, bad = self._log.pages.read_around(number, start, _PROBE_BYTES)
        return not bad and not data.strip(b"\x00")

    def _resynchronise(self, position: int) -> Generator[None, None, int | None]:
        """Offset of the next valid record after a bad place, None when there is none."""
        self.tail_dirty = False
        for number in sorted(self._log.segments):
            base = number * self._log.segment_bytes
            if base + self._log.segment_bytes <= position:
                continue
            found = yield from self._search(number, max(position, base))
            if found is not None:
                return found
        return None

    def _search(self, number: int, start: int) -> Generator[None, None, int | None]:
        """Offset of the first valid record of a segment from `start` (a commit-log offset) on."""
        segment = self._log.segments.get(number)
        if segment is None:
            return None
        at = start - segment.base
        while at < self._log.segment_bytes:
            # Chunks overlap, so that a magic on a border is seen.
            chunk, bad = self._log.pages.read_around(number, at, SEARCH_BYTES + len(MAGIC_COMMON_BYTES))
            if bad or chunk[:SEARCH_BYTES] != _ZEROS[: len(chunk)]:
                if self._loaded is not None:
                    self._loaded(number, at, chunk, bad)
                # What cannot be read is not empty: it is written over before anything is appended there.
                self.tail_dirty = self.tail_dirty or bool(bad) or bool(chunk.strip(b"\x00"))
                hit = chunk.find(MAGIC_COMMON_BYTES)
                while hit >= 0:
                    candidate = segment.base + at + hit - 4
                    if candidate >= start and self._reader.record(candidate) is not None:
                        return candidate
                    hit = chunk.find(MAGIC_COMMON_BYTES, hit + 1)
            at += SEARCH_BYTES
            self.looked_at = min(segment.base + at, segment.base + self._log.segment_bytes)
            yield
        return None
