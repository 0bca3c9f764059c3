"""When a record was stored: asked for every batch that is handed out, so that one look at the header has to do."""

from __future__ import annotations

import struct

from broker.format.record import MAGICS, RECORD_OVERHEAD_BYTES, SYS_BORN_HOST_V6
from broker.log.commit_log import CommitLog

_unpack_times = struct.Struct(">ii20xqi16xq").unpack_from
"""Total size, magic, own physical offset, sysFlag and store timestamp, where the born host is IPv4."""


def usual_stored_ms(log: CommitLog, physical: int, size: int) -> int | None:
    """Return a record's store timestamp, ms since the epoch, after comparing its size, magic and position.

    Args:
        log: Where it is.
        physical: Its offset.
        size: Its size in bytes.

    Returns:
        None, where `CommitLog.read` has to look at all of it: it is cold, of another layout, or not what it is to be.

    Raises:
        DamagedRecord, RecordGone: There is no such segment.
    """
    segment_bytes = log.segment_bytes
    start = physical % segment_bytes
    view = log.view(physical // segment_bytes)
    if (
        physical < log.cold_end
        or physical < log.pages.unsure_end
        or physical + size > log.visible_end
        or not RECORD_OVERHEAD_BYTES <= size <= segment_bytes - start
    ):
        return None
    stored_ms: int
    total, magic, own, flags, stored_ms = _unpack_times(view, start)
    if total != size or own != physical or magic not in MAGICS or flags & SYS_BORN_HOST_V6:
        return None
    return stored_ms
