"""Records of this broker's own layout, found in a mapped segment: where body and property block stand, message keys.

Both functions have an accelerator (`broker.runtime.accelerators`): they run compiled where that is built.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from broker.format.record import HEADER_BYTES, MAGIC_V1, RECORD_OVERHEAD_BYTES, SYS_UNUSUAL, Located, own_sum_matches
from broker.runtime.accelerators import accelerated

Place = tuple[Any, ...]
"""Commit-log offset and size of a record, as ints; what follows them does not matter."""

_unpack_usual = struct.Struct(">ii20xqi44xi").unpack_from  # size, magic, own offset, sysFlag, body length (IPv4 hosts)
_KEYS_FIRST = b"KEYS\x01"
_KEYS_LATER = b"\x02KEYS\x01"
_END = b"\x02"


def _locate_usual(  # noqa: PLR0917 - what compiled functions take by name costs more
    places: Sequence[Place], at: int, view: memoryview, base: int, visible_end: int, cold_end: int, found: list[Located]
) -> int:
    """Locate records of this broker's own layout in one segment.

    Args:
        places: Where; those from `at` on are looked at.
        view: The mapped segment.
        base: Commit-log offset of its first byte.
        visible_end: Commit-log offset up to which there are records.
        cold_end: That below which a record's sum is compared.
        found: Gets what is found.

    Returns:
        Index of the first place that is not in this segment or holds no such record.
    """
    start_max = len(view) - RECORD_OVERHEAD_BYTES
    for index in range(at, len(places)):
        place = places[index]
        physical, size = place[0], place[1]
        start = physical - base
        if not 0 <= start <= start_max:
            return index
        total, magic, own, flags, body_bytes = _unpack_usual(view, start)
        if (
            total != size
            or own != physical
            or magic != MAGIC_V1
            or flags & SYS_UNUSUAL
            or not 0 <= body_bytes <= size - RECORD_OVERHEAD_BYTES
            or physical > visible_end - size
        ):
            return index
        body_at = start + HEADER_BYTES
        body_end = body_at + body_bytes
        end = start + size
        if end > len(view):
            return index
        block_at = body_end + 3 + view[body_end]
        if block_at > end or (physical < cold_end and not own_sum_matches(view, start, end)):
            return index
        found.append((view, body_at, body_end, block_at, end))
    return len(places)


def _message_keys(located: Sequence[Located], foreign: bytes) -> list[bytes | None] | None:
    """Return the KEYS property of records, None for one without or with an empty one.

    Args:
        located: Where they stand.
        foreign: When the block of any record has these bytes in it, or a key without an end, None is returned: more
            than the keys must be looked at.
    """
    keys: list[bytes | None] = []
    for view, _, _, block_at, end in located:
        block = view[block_at:end].tobytes()
        if foreign in block:
            return None
        if block[:5] == _KEYS_FIRST:
            begin = 5
        else:
            begin = block.find(_KEYS_LATER) + 6
            if begin == 5:
                keys.append(None)
                continue
        stop = block.find(_END, begin)
        if stop < 0:
            return None
        keys.append(block[begin:stop] or None)
    return keys


locate_usual = accelerated("broker.format.locate_accelerator", "locate", _locate_usual)
message_keys = accelerated("broker.format.locate_accelerator", "keys", _message_keys)
