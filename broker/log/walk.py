"""A walk over the visible records of the log for parts that need their keys: bounded pieces, damage passed over."""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import (
    BLANK,
    BLANK_BYTES,
    HEADER_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    RECORD_OVERHEAD_BYTES,
    SYS_BORN_HOST_V6,
    SYS_ROLLBACK,
    SYS_STORE_HOST_V6,
    SYS_TRANSACTION_MASK,
    RecordSummary,
    check,
)
from broker.log.commit_log import CommitLog
from broker.log.scan import scan

_HOSTS_V6 = SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6
# NamedTuple's own constructor is a Python function; this one is not, and there is one call per record.
_new = tuple.__new__
_unpack = struct.Struct(">ii20xqi16xq20xi").unpack_from
"""Total size, magic, own offset, sysFlag, store timestamp, body length, when both hosts are IPv4."""
_unpack_i16 = struct.Struct(">h").unpack_from


class Walked(NamedTuple):
    """A record: commit-log offset, size, store timestamp in ms, whether it is a rollback, topic, property block.

    The block may still end in the broker's own properties.
    """

    physical: int
    size: int
    store_ms: int
    rollback: bool
    topic: bytes
    properties: bytes


def walk(
    log: CommitLog, start: int, end: int, *, records_max: int, bytes_max: int = 1 << 62
) -> tuple[list[Walked], int]:
    """Read records from a commit-log offset on.

    Records that an earlier process wrote count when their sum is right, those of this process when their header fits
    and their lengths add up. At a bad place the walk continues with the next valid record.

    Args:
        log: The log.
        start: Where a record begins, or where one that is gone or damaged began.
        end: Where to end, at most the log's `visible_end`.
        records_max: End after so many records.
        bytes_max: End after so many bytes of log.

    Returns:
        The records, and where the next walk continues; that is `end` when everything was read.

    Raises:
        OSError: The log cannot be read.
    """
    end = min(end, log.visible_end)
    position = max(start, log.min_offset)
    stop = min(end, position + bytes_max)
    segment_bytes, cold_end, unsure_end = log.segment_bytes, log.cold_end, log.pages.unsure_end
    # A record never reaches into the last 8 bytes of a segment: a blank has to fit there.
    limit = segment_bytes - BLANK_BYTES
    found: list[Walked] = []
    view = memoryview(b"")
    at = 0
    while position < stop and len(found) < records_max:
        if not view or at >= limit:
            number, at = divmod(position, segment_bytes)
            view = view_of(log, number)
        sure = position >= unsure_end or log.pages.is_record_sure(position)
        if view and sure and at + RECORD_OVERHEAD_BYTES <= limit and position >= cold_end:
            size, magic, own, flags, store_ms, body_bytes = _unpack(view, at)
            topic_at = at + HEADER_BYTES + body_bytes
            if (
                own == position
                and magic == MAGIC_V1
                and not flags & _HOSTS_V6
                # Both before a byte behind the header is read: a damaged length must not lead out of the view.
                and 0 <= body_bytes <= size - RECORD_OVERHEAD_BYTES
                and size <= limit - at
            ):
                topic_end = topic_at + 1 + view[topic_at]
                if topic_end <= at + size - 2 and topic_end + 2 + _unpack_i16(view, topic_end)[0] == at + size:
                    rollback = flags & SYS_TRANSACTION_MASK == SYS_ROLLBACK
                    topic = bytes(view[topic_at + 1 : topic_end])
                    block = bytes(view[topic_end + 2 : at + size])
                    found.append(_new(Walked, (position, size, store_ms, rollback, topic, block)))
                    position += size
                    at += size
                    continue
        entry = check(view, at, limit, position) if view and sure else None
        if entry is None and view and sure and segment_bytes - at >= BLANK_BYTES:
            left, magic = BLANK.unpack_from(view, at)
            if magic == MAGIC_BLANK and left == segment_bytes - at:
                # The blank fills its segment, so the next record is the first of the next one.
                position += left
                view = memoryview(b"")
                continue
        if entry is None:
            # The next valid record, wherever it is.
            entry = next(scan(log, position), None)
            if entry is None or entry.physical >= end:
                return found, end
            number = entry.physical // segment_bytes
            view = view_of(log, number)
        found.append(_walked(view, entry, segment_bytes))
        position = entry.physical + entry.size
        # Of the segment that the record is in: behind its last record this is `limit` or more, and the next is mapped.
        at = position - entry.physical // segment_bytes * segment_bytes
    assert position >= start, "a walk goes forward; otherwise the caller that resumes it would loop"
    # The last record may reach behind `end`; the next walk begins at `end` and finds its way.
    return found, min(position, end)


def _walked(view: memoryview, entry: RecordSummary, segment_bytes: int) -> Walked:
    flags = view[entry.physical % segment_bytes + 39]
    rollback = flags & SYS_TRANSACTION_MASK == SYS_ROLLBACK
    return Walked(entry.physical, entry.size, entry.store_ms, rollback, entry.topic, entry.properties)


def view_of(log: CommitLog, number: int) -> memoryview:
    """Return the mapped segment of that number, an empty view where it is gone or missing."""
    try:
        return log.view(number)
    except (RecordGone, DamagedRecord):
        return memoryview(b"")
