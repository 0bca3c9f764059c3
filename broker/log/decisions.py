"""Which records have been replaced, found in the log itself (D27).

Every record that takes the place of another (a delivery after a delay, a commit, a put-back, a retry, a dead letter)
carries the other's commit-log offset in its prepared offset. That it is durable is the decision; what is remembered
elsewhere is a checkpoint of this, and made again by this walk. A part that needs decisions keeps such a checkpoint,
with the commit-log offset up to which it holds, and has the log walked from there.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import NamedTuple

from broker.format.record import (
    BLANK_BYTES,
    HEADER_BYTES,
    MAGIC_V1,
    RECORD_OVERHEAD_BYTES,
    SYS_BORN_HOST_V6,
    SYS_STORE_HOST_V6,
    can_be,
    sum_matches,
)
from broker.log.commit_log import CommitLog
from broker.log.scan import record_at
from broker.log.walk import view_of, walk

STEP_RECORDS = 2048
STEP_BYTES = 1 << 20
_HOSTS_V6 = SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6
_HOST_V6_BYTES = 12
_unpack = struct.Struct(">ii4xi12xqi36xqi").unpack_from
"""Total size, magic, queue, own offset, sysFlag, prepared offset, body length, when both hosts are IPv4."""
_unpack_i16 = struct.Struct(">h").unpack_from
_unpack_i64 = struct.Struct(">q").unpack_from
_PREPARED_AT = 76


FIRST_RECORD = -1
"""Prepared offset that names the record at commit-log offset 0, since 0 means none."""


def prepared_offset_of(physical: int) -> int:
    """Return what a record has for its prepared offset when it replaces the one at a commit-log offset."""
    return physical or FIRST_RECORD


class DecisionRecord(NamedTuple):
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

    decisions: list[DecisionRecord]
    position: int


def decisions(log: CommitLog, start: int, end: int) -> Generator[Decided, None, None]:
    """Walk the records [start, end) in steps of bounded work, passing over damage; a step may find nothing.

    Of a record that replaces none only the lengths are compared: they add up, or it is damaged.

    Args:
        log: The log, recovered.
        start: Where a record begins or began.
        end: At most the log's `visible_end`.

    Raises:
        OSError: The log cannot be read.
    """
    position = max(start, log.min_offset)
    while position < end:
        found: list[DecisionRecord] = []
        position = _step(log, position, end, found)
        yield Decided(found, position)


def _step(log: CommitLog, position: int, end: int, found: list[DecisionRecord]) -> int:
    """Add the decisions of a bounded piece of the log to `found`; return where the next piece begins."""
    segment_bytes = log.segment_bytes
    limit = segment_bytes - BLANK_BYTES
    begin = position
    stop = min(end, position + STEP_BYTES)
    view, at = memoryview(b""), limit
    # `at` is where `position` is within `view`; `limit` means that no segment is mapped for it yet.
    for _ in range(STEP_RECORDS):
        if position >= stop:
            break
        if at >= limit:
            number, at = divmod(position, segment_bytes)
            view = view_of(log, number)
        sure = position >= log.pages.unsure_end or log.pages.is_record_sure(position)
        if view and sure and at + RECORD_OVERHEAD_BYTES <= limit:
            size, magic, queue_id, own, flags, replaced, body_bytes = _unpack(view, at)
            if (
                own == position
                and magic == MAGIC_V1
                and not flags & _HOSTS_V6
                and 0 <= body_bytes <= size - RECORD_OVERHEAD_BYTES
                and size <= limit - at
            ):
                topic_at = at + HEADER_BYTES + body_bytes
                topic_end = topic_at + 1 + view[topic_at]
                if topic_end <= at + size - 2 and topic_end + 2 + _unpack_i16(view, topic_end)[0] == at + size:
                    # Nothing is decided by a record that is not valid: what `record.check` asks besides, asked here.
                    if replaced:
                        topic = bytes(view[topic_at + 1 : topic_end])
                        if can_be(topic, queue_id) and sum_matches(view[at : at + size]):
                            found.append(DecisionRecord(max(replaced, 0), position, topic))
                    position += size
                    at += size
                    continue
        # A record of another layout, the end of a file, or damage.
        records, position = walk(log, position, end, records_max=1)
        # The walk may have passed into another segment.
        at = limit
        for each in records:
            replaced = prepared_at(log, each.physical)
            if replaced and record_at(log, each.physical) is not None:
                found.append(DecisionRecord(max(replaced, 0), each.physical, each.topic))
    assert position > begin or position >= end, "each piece ends behind where it began"
    return min(position, end)


def prepared_at(log: CommitLog, physical: int) -> int:
    """Return the prepared offset of the valid record at a commit-log offset, 0 for one that replaces none."""
    number, at = divmod(physical, log.segment_bytes)
    view = view_of(log, number)
    if not view:
        return 0
    flags = view[at + 39]
    at += _PREPARED_AT
    at += _HOST_V6_BYTES * (bool(flags & SYS_BORN_HOST_V6) + bool(flags & SYS_STORE_HOST_V6))
    return int(_unpack_i64(view, at)[0])
