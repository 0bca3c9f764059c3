"""Which records have been replaced, told by the log itself (D27).

Every record that takes the place of another (a delivery after a delay, a commit, a put-back, a retry, a dead letter)
carries the other's commit-log offset in its prepared offset. That it is durable is the decision; what is remembered
elsewhere is a checkpoint of this, and made anew by this walk. Whoever needs decisions keeps such a checkpoint, with the
commit-log offset up to which it holds, and has the log walked from there.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import NamedTuple

from broker.commit_log import CommitLog
from broker.errors import DamagedRecord, RecordGone
from broker.log_walk import walk
from broker.record import SYS_BORN_HOST_V6, SYS_STORE_HOST_V6

STEP_RECORDS = 512
STEP_BYTES = 1 << 20
_I64 = struct.Struct(">q")
_PREPARED_AT = 76
_HOST_V6_BYTES = 12


FIRST_RECORD = -1
"""Prepared offset that names the record at commit-log offset 0, since 0 stands for none."""


def prepared_offset_of(physical: int) -> int:
    """Return what a record has for its prepared offset when it replaces the one at a commit-log offset."""
    return physical or FIRST_RECORD


class Decision(NamedTuple):
    """The record at commit-log offset `physical`, of a topic (UTF-8), replaces the one at `replaced`."""

    replaced: int
    physical: int
    topic: bytes


class Decided(NamedTuple):
    """What one step of the walk found.

    Attributes:
        decisions: In the order of the log.
        position: Commit-log offset up to which the log was read.
    """

    decisions: list[Decision]
    position: int


def decisions(log: CommitLog, start: int, end: int) -> Generator[Decided, None, None]:
    """Walk the records [start, end) in steps of bounded work, passing over damage; a step may find nothing.

    Args:
        log: The log, recovered.
        start: Where a record begins or began.
        end: At most the log's `visible_end`.

    Raises:
        OSError: The log cannot be read.
    """
    position = max(start, log.min_offset)
    while position < end:
        records, position = walk(log, position, end, records_max=STEP_RECORDS, bytes_max=STEP_BYTES)
        found = []
        for physical, _, _, _, topic, _ in records:
            replaced = _prepared(log, physical)
            if replaced:
                found.append(Decision(max(replaced, 0), physical, topic))
        yield Decided(found, position)


def _prepared(log: CommitLog, physical: int) -> int:
    number, at = divmod(physical, log.segment_bytes)
    try:
        view = log.view(number)
    except (RecordGone, DamagedRecord):
        return 0
    flags = view[at + 39]
    at += _PREPARED_AT
    at += _HOST_V6_BYTES * (bool(flags & SYS_BORN_HOST_V6) + bool(flags & SYS_STORE_HOST_V6))
    return int(_I64.unpack_from(view, at)[0])
