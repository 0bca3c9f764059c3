"""The ack journal's bytes: blocks that carry a sum, entries inside blocks, sets of offsets inside snapshots.

No I/O. docs/progress.md describes the same layout for people. All integers are little endian.

A segment is a row of blocks: magic, payload length, CRC-32, payload. The sum is salted with the segment's number and
the block's position, so that bytes that a recycled file still holds from an earlier life are never taken for blocks of
this one. A payload is a row of entries, each beginning with its kind.

An ack is written once per message and read once per start, so entries are small, and what a turn finished is one entry:
ranges, since acks come in order or nearly so. Finished offsets above the watermark are packed (`finished_marks`).
Trackers are named by numbers that are good for one segment: each segment begins with a snapshot that says what they
stand for, so that no segment needs the one before.

Two kinds of what is wrong stand apart. A wrong sum is a disk's doing: the block is passed over, and its acks come
again. A right sum over what no writer makes is a defect: it is refused, before memory is taken for it.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.runtime.names import is_stored
from broker.runtime.seams import Buffer
from broker.runtime.sums import crc32
from upstream.progress.finished_marks import FinishedMarks
from upstream.progress.tracker import AttemptFailures, FailureKind

FORMAT_VERSION = 1
MAGIC = b"\xa5AJ1"
BLOCK_HEADER = struct.Struct("<4sII")  # magic, payload bytes, CRC-32
END_OF_BLOCKS = bytes(BLOCK_HEADER.size)
"""Written behind the last block, so that a clean end is distinguished from a torn one; the next block goes over it."""

_SALT = struct.Struct("<QQI")  # segment number, position, payload bytes

HEADER, TRACKER, SNAPSHOT_END, ACKED, FAILED, DEAD, RESET, TRUNCATED, WRITING, WRITTEN = range(1, 11)
SCANNED, COUNTED, RESET_END, COPY = range(11, 15)

_TRACKER = struct.Struct("<BIHHIqqqBBII")
_ACKED = struct.Struct("<BIqqIH")
_SCANNED = struct.Struct("<BHIq")
_COUNTED = struct.Struct("<BIqqq")

OFFSET_MAX = 1 << 51
"""No queue gets this far: at a million messages a second it would take seventy years."""
_U32_MAX = (1 << 32) - 1
_RANGES_MAX = 1000


class SegmentHeader(NamedTuple):
    """First entry of a segment."""

    version: int
    number: int


class TrackerEntry(NamedTuple):
    """A tracker as it is: in a snapshot, and when it is first declared. Its id is good for this segment."""

    tracker_id: int
    group: str
    topic: str
    queue_id: int
    watermark: int
    fence: int
    """Physical offset of the record below the watermark; -1 unknown."""
    high_fence: int
    """Physical offset of the highest finished record above the watermark; -1 none or unknown."""
    file_values: tuple[int, ...]
    """What consumerOffset.json may hold for it by our own hand; empty before the first write."""
    marks: FinishedMarks
    """What is finished from the watermark on."""


class SnapshotEnd(NamedTuple):
    """Closes a segment's snapshot: how many trackers it holds."""

    trackers: int


class SnapshotCopy(NamedTuple):
    """Stands before and behind the second copy of a snapshot, which has everything of the first but its end."""

    trackers: int
    is_end: bool


class Acked(NamedTuple):
    """Finished offsets of one tracker: flat pairs start, end (exclusive)."""

    tracker_id: int
    fence: int
    """Physical offset of the highest of them; -1 unknown."""
    ranges: list[int]


class FailedAttempt(NamedTuple):
    """A failed attempt: the count of this kind is now `count`."""

    tracker_id: int
    offset: int
    kind: FailureKind
    count: int  # type: ignore[assignment]  # a count like any other; tuple.count is not used
    due_wall_ms: int


class Dead(NamedTuple):
    """The offset's dead-letter record is durable; it counts as finished, and as a dead letter of its tracker."""

    tracker_id: int
    offset: int


class Reset(NamedTuple):
    """The tracker was set to `offset`; nothing above it is finished."""

    tracker_id: int
    offset: int


class ResetEnd(NamedTuple):
    """The queue ended at `end` when its tracker was reset last; kept until the tracker has passed it."""

    tracker_id: int
    end: int


class Truncated(NamedTuple):
    """Recovery cut the log at `physical`; the tracker's queue ends at `end`."""

    tracker_id: int
    end: int
    physical: int


class Writing(NamedTuple):
    """`value` is about to be written to consumerOffset.json; synced before that file is touched."""

    tracker_id: int
    value: int


class Written(NamedTuple):
    """All values announced by `Writing` are durable in consumerOffset.json."""


class Scanned(NamedTuple):
    """Dead letters of (topic, queue) below `offset` have their origins finished in this journal."""

    topic: str
    queue_id: int
    offset: int


class Counted(NamedTuple):
    """What a tracker has counted so far, in all; in the block that finishes what was counted."""

    tracker_id: int
    expired: int
    """Messages that retention took unfinished."""
    expired_ms: int
    """When it last did, wall clock; 0: never."""
    dead_letters: int
    """Messages that became dead letters."""


Plain = (
    SegmentHeader | SnapshotEnd | SnapshotCopy | FailedAttempt | Dead | Reset | ResetEnd | Truncated | Writing | Written
)
"""Entries that are their kind and their fields, in this order, and nothing else."""
Entry = Plain | TrackerEntry | Acked | Scanned | Counted

_PLAIN: dict[type[Plain], tuple[int, struct.Struct]] = {
    SegmentHeader: (HEADER, struct.Struct("<BHQ")),
    SnapshotEnd: (SNAPSHOT_END, struct.Struct("<BI")),
    SnapshotCopy: (COPY, struct.Struct("<BI?")),
    FailedAttempt: (FAILED, struct.Struct("<BIqBIq")),
    Dead: (DEAD, struct.Struct("<BIq")),
    Reset: (RESET, struct.Struct("<BIq")),
    ResetEnd: (RESET_END, struct.Struct("<BIq")),
    Truncated: (TRUNCATED, struct.Struct("<BIqq")),
    Writing: (WRITING, struct.Struct("<BIq")),
    Written: (WRITTEN, struct.Struct("<B")),
}


class JournalDamaged(Exception):
    """A block whose sum is right holds an entry that cannot be read: a defect of the writer, or a newer format."""


def encode_block(number: int, position: int, payload: Buffer) -> bytes:
    """Return the block's header for `payload` at `position` of segment `number`."""
    size = len(payload)
    return BLOCK_HEADER.pack(MAGIC, size, crc32(payload, crc32(_SALT.pack(number, position, size))))


def read_block(number: int, data: memoryview, position: int) -> memoryview | None:
    """Return the payload of the block at `position`, or None when there is no valid block."""
    start = position + BLOCK_HEADER.size
    if start > len(data):
        return None
    magic, size, crc = BLOCK_HEADER.unpack_from(data, position)
    if magic != MAGIC or size == 0 or start + size > len(data):
        return None
    payload = data[start : start + size]
    # Its own place is in the sum: a block of an older life of the file does not pass.
    if crc32(payload, crc32(_SALT.pack(number, position, size))) != crc:
        return None
    return payload


def encode(entry: Plain) -> bytes:
    """Encode an entry that is its kind and its fields."""
    kind, form = _PLAIN[type(entry)]
    return form.pack(kind, *entry)


def encode_tracker(entry: TrackerEntry) -> bytes:
    """Encode a tracker's state."""
    assert entry.watermark >= 0, "no queue has offsets below 0"
    group, topic = entry.group.encode(), entry.topic.encode()
    form, span, finished = entry.marks
    head = _TRACKER.pack(
        TRACKER,
        entry.tracker_id,
        len(group),
        len(topic),
        entry.queue_id,
        entry.watermark,
        entry.fence,
        entry.high_fence,
        len(entry.file_values),
        form,
        span,
        len(finished),
    )
    values = struct.pack(f"<{len(entry.file_values)}q", *entry.file_values)
    return b"".join((head, group, topic, values, finished))


def encode_acked(tracker_id: int, fence: int, ranges: list[int]) -> bytes:
    """Encode finished ranges: flat pairs start, end; ascending, disjoint, at least one pair.

    The first range is an i64 start and a u32 length, every further one a u32 gap and a u32 length: 8 bytes. Ranges
    that this cannot express, or too many of them, make several entries.
    """
    start, end = ranges[0], ranges[1]
    assert 0 <= start < end <= ranges[-1], "what is finished is some offset of a queue"
    if len(ranges) == 2 and end - start <= _U32_MAX:
        return _ACKED.pack(ACKED, tracker_id, fence, start, end - start, 0)
    steps = list(map(operator.sub, ranges[1:], ranges))  # length, gap, length, gap, ..., length
    assert min(steps) >= 0, "ranges ascend"
    if len(ranges) <= 2 * _RANGES_MAX and max(steps) <= _U32_MAX:
        more = len(ranges) // 2 - 1
        return _ACKED.pack(ACKED, tracker_id, fence, start, steps[0], more) + struct.pack(f"<{2 * more}I", *steps[1:])
    if len(ranges) == 2:
        pieces = []
        while end - start > _U32_MAX:
            pieces.append(_ACKED.pack(ACKED, tracker_id, -1, start, _U32_MAX, 0))
            start += _U32_MAX
        pieces.append(_ACKED.pack(ACKED, tracker_id, fence, start, end - start, 0))
        return b"".join(pieces)
    # An even place, so that no pair is torn; the fence belongs to the last piece alone.
    middle = len(ranges) // 4 * 2
    return encode_acked(tracker_id, -1, ranges[:middle]) + encode_acked(tracker_id, fence, ranges[middle:])


def encode_failure(tracker_id: int, offset: int, failure: AttemptFailures) -> bytes:
    """Encode all failed attempts of one offset: an entry per kind that there was."""
    return b"".join(
        encode(FailedAttempt(tracker_id, offset, kind, failure.count(kind), failure.due_wall_ms))
        for kind in FailureKind
        if failure.count(kind)
    )


def encode_scanned(topic: str, queue_id: int, offset: int) -> bytes:
    """Encode below which dead letter of a queue all origins are finished."""
    name = topic.encode()
    return _SCANNED.pack(SCANNED, len(name), queue_id, offset) + name


def encode_counted(tracker_id: int, expired: int, expired_ms: int, dead_letters: int) -> bytes:
    """Encode what a tracker has counted so far."""
    assert min(expired, expired_ms, dead_letters) >= 0, "counts only grow"
    return _COUNTED.pack(COUNTED, tracker_id, expired, expired_ms, dead_letters)


def decode(payload: memoryview) -> Iterator[Entry]:
    """Yield a payload's entries in the order in which they were written.

    Raises:
        JournalDamaged: An unknown kind, or an entry that runs over the end.
    """
    position, end = 0, len(payload)
    try:
        while position < end:
            entry, position = _DECODERS[payload[position]](payload, position)
            yield entry
    except (struct.error, KeyError, ValueError) as error:
        raise JournalDamaged(f"unreadable entry at byte {position} of a block: {error}") from error


def _check_offsets(*offsets: int) -> None:
    """Refuse what no queue reaches: a right sum over nonsense must not make ranges of 2**63 offsets."""
    if not 0 <= min(offsets) <= max(offsets) <= OFFSET_MAX:
        raise ValueError(f"offsets {offsets} are outside of any queue")


def _plain(form: struct.Struct, make: Callable[..., Entry]) -> Callable[[memoryview, int], tuple[Entry, int]]:
    """Return the decoder of an entry that is its kind and its fields, in their order, and nothing else."""

    def decode_plain(data: memoryview, at: int) -> tuple[Entry, int]:
        return make(*form.unpack_from(data, at)[1:]), at + form.size

    return decode_plain


def _decode_tracker(data: memoryview, at: int) -> tuple[Entry, int]:
    (_, tracker_id, group_size, topic_size, queue_id, watermark, fence, high_fence, values, form, span, size) = (
        _TRACKER.unpack_from(data, at)
    )
    at += _TRACKER.size
    group = str(data[at : at + group_size], "utf-8")
    at += group_size
    topic = str(data[at : at + topic_size], "utf-8")
    at += topic_size
    # A count that leads out of the block raises here, which the caller takes for damage.
    file_values = struct.unpack_from(f"<{values}q", data, at)
    at += 8 * values
    marks = FinishedMarks(form, span, bytes(data[at : at + size]))
    marks.check()
    if watermark < 0:
        raise ValueError(f"a watermark of {watermark}")
    if not (is_stored(group) and is_stored(topic)):
        raise ValueError(f"{group[:40]!r} or {topic[:40]!r} is not a valid group name or topic")
    entry = TrackerEntry(tracker_id, group, topic, queue_id, watermark, fence, high_fence, file_values, marks)
    return entry, at + size


def _decode_acked(data: memoryview, at: int) -> tuple[Entry, int]:
    _, tracker_id, fence, start, length, more = _ACKED.unpack_from(data, at)
    at += _ACKED.size
    ranges = [start, start + length]
    if more:
        edge = start + length
        for step in struct.unpack_from(f"<{2 * more}I", data, at):
            edge += step
            ranges.append(edge)
    _check_offsets(ranges[0], ranges[-1])
    return Acked(tracker_id, fence, ranges), at + 8 * more


def _decode_failed(data: memoryview, at: int) -> tuple[Entry, int]:
    form = _PLAIN[FailedAttempt][1]
    _, tracker_id, offset, kind, count, due = form.unpack_from(data, at)
    return FailedAttempt(tracker_id, offset, FailureKind(kind), count, due), at + form.size


def _decode_scanned(data: memoryview, at: int) -> tuple[Entry, int]:
    _, size, queue_id, offset = _SCANNED.unpack_from(data, at)
    at += _SCANNED.size
    topic = str(data[at : at + size], "utf-8")
    if not is_stored(topic):
        raise ValueError(f"{topic[:40]!r} is not a valid topic name")
    return Scanned(topic, queue_id, offset), at + size


def _decode_counted(data: memoryview, at: int) -> tuple[Entry, int]:
    entry = Counted(*_COUNTED.unpack_from(data, at)[1:])
    if min(entry) < 0:
        raise ValueError(f"counts of {tuple(entry)}")
    return entry, at + _COUNTED.size


_DECODERS = {kind: _plain(form, make) for make, (kind, form) in _PLAIN.items()}
_DECODERS |= {
    TRACKER: _decode_tracker,
    ACKED: _decode_acked,
    FAILED: _decode_failed,
    SCANNED: _decode_scanned,
    COUNTED: _decode_counted,
}
