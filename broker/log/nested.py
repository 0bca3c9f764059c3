"""Where a log continues behind a damaged record, when its body may hold what reads as a record at its own place.

A producer may guess where a message will be, and put into its body records with right offsets and sums. As
long as the message is whole it is not searched. When it is damaged, the search for the next record finds them first.
They are distinguished from the records behind the message in two ways:

- The damaged record's header still says where it ends, and a record, a blank or the end of a sum is there. Records that
  begin inside and do not lead to that end exactly are nested: the last of them would have to end in the host's sum, and
  that cannot be right for both.
- Magic, size or own offset are what was damaged. Put right, the record's sum is right up to a later record: all
  between was its body.

What remains: a host of which a piece with the header was lost as a whole (a sector), or whose end was torn off. Then
what is nested cannot be distinguished from what was written later, and is kept, as everything behind damage is (D3).
"""

from __future__ import annotations

import struct
from collections.abc import Generator

from broker.format.record import (
    BLANK_BYTES,
    CLAIM,
    CRC_BYTES,
    CRC_PREFIX,
    MAGIC_COMMON_BYTES,
    MAGICS,
    RECORD_OVERHEAD_BYTES,
    sum_matches,
)
from broker.log.commit_log import CommitLog
from broker.log.log_reader import LogReader

_HOST_BYTES_MAX = 4 << 20
"""Largest host whose header need not be right; others need one that is."""
_STEP_RECORDS = 256
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


def goes_on_at(log: CommitLog, reader: LogReader, position: int, found: int) -> Generator[None, None, int]:
    """Return where to continue behind a damaged record, in steps of bounded work.

    Args:
        log: The log.
        reader: Reads its records.
        position: Where the damaged record begins.
        found: The first valid record behind that.

    Raises:
        OSError: The log cannot be read.
    """
    segment_end = (position // log.segment_bytes + 1) * log.segment_bytes
    if found >= segment_end:
        return found
    end = _believed_end(log, reader, position)
    bound = min(position + _HOST_BYTES_MAX, segment_end) if end is None else end
    assert bound <= segment_end, "no record crosses the end of a segment"
    at, seen = found, 0
    while at < bound and (entry := reader.record(at)) is not None:
        at += entry.size
        seen += 1
        if seen % _STEP_RECORDS == 0:
            yield
    if end is not None:
        # What leads past the end shows that the size is what was damaged.
        return end if at < end else found
    if at >= bound:
        return found
    return _end_of_mended(log, reader, position, at) or found


def _believed_end(log: CommitLog, reader: LogReader, position: int) -> int | None:
    """Where a damaged record ends by its own header, if that can be believed."""
    number, start = divmod(position, log.segment_bytes)
    head, _ = log.pages.read_around(number, start, CLAIM.size)
    if len(head) < CLAIM.size:
        return None
    total, magic, own = CLAIM.unpack(head)
    # The size is believed only beside a right position and magic, and where a record or a sum is at its end.
    if own != position or magic not in MAGICS or not RECORD_OVERHEAD_BYTES <= total <= log.segment_bytes - start:
        return None
    end: int = position + total
    if reader.record(end) is not None or reader.is_blank(end):
        return end
    sum_at, _ = log.pages.read_around(number, start + total - CRC_BYTES, len(CRC_PREFIX))
    return end if sum_at == CRC_PREFIX else None


def _end_of_mended(log: CommitLog, reader: LogReader, position: int, at: int) -> int | None:
    """Where the damaged record ends if only magic, size or own offset are wrong; looked for from `at` on."""
    number, start = divmod(position, log.segment_bytes)
    data, _ = log.pages.read_around(number, start, min(_HOST_BYTES_MAX, log.segment_bytes - start))
    for end in _ends(reader, position, at - position, data):
        record = bytearray(data[: end - position])
        _I32.pack_into(record, 0, len(record))
        _I64.pack_into(record, 28, position)
        for magic in MAGICS:
            _I32.pack_into(record, 4, magic)
            if bytes(record[-CRC_BYTES:]).startswith(CRC_PREFIX) and sum_matches(memoryview(record)):
                return end
    return None


def _ends(reader: LogReader, position: int, at: int, data: bytes) -> list[int]:
    """Places where the damaged record may end: the next valid record, or behind something that reads as a sum."""
    ends: list[int] = []
    hit = data.find(CRC_PREFIX, at)
    while hit >= 0 and len(ends) < 64:
        end = hit + CRC_BYTES
        if RECORD_OVERHEAD_BYTES <= end <= len(data) - BLANK_BYTES:
            ends.append(position + end)
            if data[end + 4 : end + 4 + len(MAGIC_COMMON_BYTES)] == MAGIC_COMMON_BYTES and reader.record(
                position + end
            ):
                break
        hit = data.find(CRC_PREFIX, hit + 1)
    return ends
