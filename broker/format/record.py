"""The commit-log record in RocketMQ's layout: encode, split, scan. Bytes in, bytes out; no I/O.

Layout (big-endian; IPv4 hosts of 8 bytes, an IPv6 host has 20):

====== ==== ==========================================
offset size field
====== ==== ==========================================
0      4    total size of the record
4      4    magic: V1 DAA320A7 (topic length 1 byte), V2 DAA320AB (2 bytes)
8      4    CRC-32 of the body, top bit cleared
12     4    queue id
16     4    flag
20     8    queue offset
28     8    physical offset: the record's own position in the commit log
36     4    sysFlag
40     8    born timestamp, ms
48     8    born host: address and i32 port
56     8    store timestamp, ms
64     8    store host
72     4    reconsume times
76     8    prepared transaction offset
84     4    body length n
88     n    body
88+n   1    topic length t (2 bytes in V2)
...    t    topic, UTF-8
...    2    length of the property block
...         property block, see `broker.format.properties`
====== ==== ==========================================

Two properties of our own close the block. A member of an atomic batch has `__PYDDMQ_BATCH` with `iiiii/nnnnn`, its
place from 0 and the count of members (D8). Every record ends in RocketMQ's `__CRC32#` with the CRC-32, top bit
cleared, of all bytes before it, as ten decimal digits, least significant first (D2).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from broker.errors import DamagedRecord
from broker.runtime.names import is_stored_topic
from broker.runtime.seams import Buffer
from broker.runtime.sums import crc32

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
MAGIC_V2 = 0xDAA320AB - (1 << 32)
MAGIC_BLANK = 0xCBD43194 - (1 << 32)
MAGICS = (MAGIC_V1, MAGIC_V2)
MAGIC_V1_BYTES = b"\xda\xa3\x20\xa7"
MAGIC_COMMON_BYTES = b"\xda\xa3\x20"

SYS_BORN_HOST_V6 = 0x10
SYS_STORE_HOST_V6 = 0x20
SYS_UNUSUAL = 0xF1
"""IPv6 hosts, or a packed body (`broker.format.body`)."""
SYS_TRANSACTION_MASK = 0xC
SYS_PREPARED = 0x4
SYS_ROLLBACK = 0xC

HEADER = struct.Struct(">iiiiiqqiq8sq8siqi")
HEADER_BORN_V6 = struct.Struct(">iiiiiqqiq20sq8siqi")
HEADER_BYTES = HEADER.size
_unpack_header = HEADER.unpack_from
assert HEADER_BYTES == 88
assert HEADER_BORN_V6.size == 100

RECORD_OVERHEAD_BYTES = HEADER_BYTES + 1 + 2
TOPIC_BYTES_MAX = 127
BLANK = struct.Struct(">ii")
BLANK_BYTES = BLANK.size

CRC_PREFIX = b"__CRC32#\x01"
CRC_BYTES = len(CRC_PREFIX) + 10 + 1
assert CRC_BYTES == 20, "name and separator, ten digits of a u32, terminator"
_CRC_BACKWARDS = "\x02%010d" + CRC_PREFIX.decode()[::-1]
_CRC_TAIL_BYTES = CRC_BYTES - len(CRC_PREFIX)
BATCH_PREFIX = b"__PYDDMQ_BATCH\x01"
QUEUE_ID_END = 1 << 12
"""No topic has this many queues, RocketMQ's included: a record that names a higher one is damaged."""
BATCH_BYTES = len(BATCH_PREFIX) + 11 + 1
BATCH_MEMBERS_MAX = 99_999
_SLASH = 0x2F

_SPLIT = struct.Struct(">ii28xi44xi")  # total, magic, sysFlag, body length (when both hosts are IPv4)
_unpack_split = _SPLIT.unpack_from
CLAIM = struct.Struct(">ii20xq")
"""Total size, magic and own physical offset: what a record claims to be, cheaply read before anything is trusted."""
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_IDENTITY = struct.Struct(">iiii4xqqi")  # total, magic, body CRC, queue id, queue offset, physical offset, sysFlag

Located = tuple[memoryview, int, int, int, int]
"""A view that holds a record, and positions in it: of the body and its end, of the property block and its end, which
is the record's."""
Locator = Callable[[memoryview], Located]
"""Finds body and property block in a whole record."""
Splitter = Callable[[memoryview], tuple[memoryview, bytes]]
"""Splits a whole record into body and property block."""


def crc_property(crc: int) -> bytes:
    """Return the closing `__CRC32#` property, 20 bytes, for a CRC-32 whose top bit is cleared already."""
    return (_CRC_BACKWARDS % crc)[::-1].encode()


def batch_property(place: int, count: int) -> bytes:
    """Return the `__PYDDMQ_BATCH` property, 27 bytes, of member `place` (from 0) of `count`."""
    return b"%b%05d/%05d\x02" % (BATCH_PREFIX, place, count)


def _split_any(record: memoryview) -> tuple[memoryview, bytes]:
    _, body_at, body_end, block_at, end = locate(record)
    return record[body_at:body_end], strip_own(record[block_at:end].tobytes())


def split(record: memoryview, unusual: Splitter = _split_any) -> tuple[memoryview, bytes]:
    """Return the body and the property block of a whole record, the block without our own closing properties.

    Args:
        record: The record.
        unusual: What splits a record of another layout than this broker's, or with a packed body; by default the body
            is returned as it is stored.

    Raises:
        DamagedRecord: The bytes are not one whole record.
    """
    total, magic, flags, body_bytes = _unpack_split(record)
    if magic == MAGIC_V1 and not flags & SYS_UNUSUAL:
        # Nearly every record: V1, IPv4 hosts, our sum, a plain body, no batch.
        end = HEADER_BYTES + body_bytes
        # Behind the body are one byte of topic length, the topic, and two bytes of property length.
        if total == len(record) and HEADER_BYTES <= end < total - 2:
            head, found, tail = bytes(record[end + 3 + record[end] :]).rpartition(CRC_PREFIX)
            if found and len(tail) == _CRC_TAIL_BYTES and (len(head) < BATCH_BYTES or head[-7] != _SLASH):
                return record[HEADER_BYTES:end], head
    return unusual(record)


def locate(record: memoryview) -> Located:
    """Find body and property block in a whole record of any layout; the block's own closing properties included.

    Raises:
        DamagedRecord: The bytes are not one whole record.
    """
    total, magic, flags, body_bytes = _unpack_split(record)
    body_at = HEADER_BYTES
    if flags & 0x30:
        body_at = _body_at(flags)
        body_bytes = _I32.unpack_from(record, body_at - 4)[0]
    end = body_at + body_bytes
    # 3 bytes at least follow a body: lengths of an empty topic and of no properties.
    if total != len(record) or body_bytes < 0 or end + 3 > total:
        raise DamagedRecord(-1, "its lengths are inconsistent")
    if magic == MAGIC_V1:
        block_at = end + 3 + record[end]
    elif magic == MAGIC_V2:
        # V2 has two bytes of topic length.
        block_at = end + 4 + (record[end] << 8 | record[end + 1])
    else:
        raise DamagedRecord(-1, "it does not start like a record")
    # A topic length that leads out of the record leaves an empty block; `_entry` refuses such a record.
    return record, body_at, end, min(block_at, total), total


def strip_own(block: bytes) -> bytes:
    """Return a property block without our own closing properties."""
    head, found, end = block.rpartition(CRC_PREFIX)
    if not found or len(end) != _CRC_TAIL_BYTES:
        return block
    # The slash between place and count is looked for first: hardly any other block has one there.
    if len(head) >= BATCH_BYTES and head[-7] == _SLASH and head.startswith(BATCH_PREFIX, len(head) - BATCH_BYTES):
        return head[:-BATCH_BYTES]
    return head


def _body_at(flags: int) -> int:
    """Where the body begins: each IPv6 host adds 12 bytes."""
    return HEADER_BYTES + (12 if flags & SYS_BORN_HOST_V6 else 0) + (12 if flags & SYS_STORE_HOST_V6 else 0)


def sys_flag(record: Buffer) -> int:
    """RocketMQ's sysFlag field."""
    return int(_I32.unpack_from(record, 36)[0])


def user_flag(record: Buffer) -> int:
    """RocketMQ's flag field, the producer's own."""
    return int(_I32.unpack_from(record, 16)[0])


def queue_id(record: Buffer) -> int:
    """Queue id field."""
    return int(_I32.unpack_from(record, 12)[0])


def queue_offset(record: Buffer) -> int:
    """Queue offset field."""
    return int(_I64.unpack_from(record, 20)[0])


def physical_offset(record: Buffer) -> int:
    """Return the record's own position."""
    return int(_I64.unpack_from(record, 28)[0])


def born_timestamp(record: Buffer) -> int:
    """When the producer says it was made, ms since the epoch; its clock may be wrong."""
    return int(_I64.unpack_from(record, 40)[0])


def born_host(record: memoryview) -> bytes:
    """Address (4 or 16 bytes) and i32 port of the producer."""
    return bytes(record[48:68] if record[39] & SYS_BORN_HOST_V6 else record[48:56])


def store_timestamp(record: memoryview) -> int:
    """When the broker stored it, ms since the epoch; never goes back within one store."""
    return int(_I64.unpack_from(record, 68 if record[39] & SYS_BORN_HOST_V6 else 56)[0])


def reconsume_times(record: memoryview) -> int:
    """How often the message was redelivered before this record."""
    return int(_I32.unpack_from(record, _body_at(record[39]) - 16)[0])


def prepared_offset(record: memoryview) -> int:
    """Commit-log offset of the record that this one replaces; 0 when it replaces none."""
    return int(_I64.unpack_from(record, _body_at(record[39]) - 12)[0])


def topic_of(record: memoryview) -> bytes:
    """Topic of a whole record, in UTF-8."""
    flags = record[39]
    at = _body_at(flags)
    at += int(_I32.unpack_from(record, at - 4)[0])
    if _I32.unpack_from(record, 4)[0] == MAGIC_V1:
        return bytes(record[at + 1 : at + 1 + record[at]])
    return bytes(record[at + 2 : at + 2 + int.from_bytes(record[at : at + 2], "big")])


class RecordSummary(NamedTuple):
    """What recovery needs of a valid record.

    `batch` is (place, count) of a member of an atomic batch and None otherwise; `indexed` says whether it has a unit
    in its consume queue (prepared and rollback records have none).
    """

    physical: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    store_ms: int
    properties: bytes
    batch: tuple[int, int] | None
    indexed: bool


def sum_matches(record: memoryview) -> bool:
    """Whether a whole record's checksum is right.

    That is the closing `__CRC32#` property, which all records of this broker have. RocketMQ writes none unless
    configured to: without one the body's CRC must be right and the end must not look like the rest of a sum, so that
    one of our own records whose end was torn off is not taken for one of RocketMQ's.
    """
    end = len(record) - CRC_BYTES
    if end >= RECORD_OVERHEAD_BYTES and record[end : end + 9] == CRC_PREFIX:
        digits = bytes(record[end + 9 :])
        # Read, not formatted and compared: a third of the cost. Only digits, so that nothing else reads as the number.
        return (
            digits[10] == 2 and (number := digits[9::-1]).isdigit() and int(number) == crc32(record[:end]) & 0x7FFFFFFF
        )
    try:
        body, block = split(record)
    except (DamagedRecord, struct.error):
        return False
    if len(body) and crc32(body) & 0x7FFFFFFF != _I32.unpack_from(record, 8)[0]:
        return False
    return (
        _is_foreign_block(block)
        and 0 not in record[_body_at(record[39]) + len(body) + 1 : len(record) - len(block) - 2]
    )


def _is_foreign_block(block: bytes) -> bool:
    """Whether a property block without sum is not one of ours whose sum was torn off or damaged.

    Everything else that RocketMQ's clients let through is taken: zeros in a value, and values with 0x02 in them.
    """
    end = block[-CRC_BYTES:]
    if CRC_PREFIX in block or (len(end) == CRC_BYTES and (_likeness(end) > len(CRC_PREFIX) // 2 or _is_torn_sum(end))):
        return False
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _likeness(end: bytes) -> int:
    """How many of the first bytes are those of the sum's name."""
    return sum(map(int.__eq__, end, CRC_PREFIX))


def _is_torn_sum(end: bytes) -> bool:
    """Whether the last bytes of a block are a sum of which a torn write left zeros in some places."""
    return (
        0 in end
        and all(found in (0, wanted) for found, wanted in zip(end, CRC_PREFIX, strict=False))
        and not end[len(CRC_PREFIX) : -1].strip(b"\x000123456789")
        and end[-1] in (0, 2)
    )


def check(view: memoryview, start: int, limit: int, physical: int) -> RecordSummary | None:
    """Return the record at `start` of a segment's view when it is valid, else None.

    Valid: a magic, a size that stays below `limit`, its own physical offset, the sum, and parts that add up.

    Args:
        view: The segment.
        start: Position within it.
        limit: End of the usable part of the segment.
        physical: Commit-log offset that belongs to `start`.
    """
    if start + RECORD_OVERHEAD_BYTES > limit:
        return None
    total, magic, _, _, _, own, _ = _IDENTITY.unpack_from(view, start)
    if own != physical or magic not in (MAGIC_V1, MAGIC_V2):
        return None
    # Before the slice: a short slice would pass for a whole record.
    if not RECORD_OVERHEAD_BYTES <= total <= limit - start:
        return None
    record = view[start : start + total]
    if not sum_matches(record):
        return None
    return _entry(record)


def can_be(topic: bytes, queue_id: int) -> bool:
    """Whether there can be such a queue, and a folder of the topic's name; what clients may give is far less."""
    return 0 <= queue_id < QUEUE_ID_END and is_stored_topic(topic)


def _entry(record: memoryview) -> RecordSummary | None:
    """Take a record apart whose sum is right; None when its lengths do not add up, or its queue cannot be."""
    total, magic, _, queue, _, offset, physical, sys_flag, _, _, store_ms, _, _, _, body_bytes = _unpack_header(record)
    topic_at = HEADER_BYTES + body_bytes
    if sys_flag & 0x30:
        body_at = _body_at(sys_flag)
        topic_at = body_at + _I32.unpack_from(record, body_at - 4)[0]
        store_ms = store_timestamp(record)
        if topic_at < body_at:
            return None
    elif body_bytes < 0:
        return None
    # Each length is compared with the record before the bytes that it leads to are read.
    width = 1 if magic == MAGIC_V1 else 2
    if topic_at + width > total:
        return None
    topic_end = topic_at + width + (record[topic_at] if width == 1 else record[topic_at] << 8 | record[topic_at + 1])
    if topic_end + 2 > total or topic_end + 2 + _I16.unpack_from(record, topic_end)[0] != total:
        return None
    topic = bytes(record[topic_at + width : topic_end])
    if not can_be(topic, queue):
        return None
    block = bytes(record[topic_end + 2 :])
    batch = None
    # The broker writes its own two properties last, in this order, each of a fixed size.
    at = len(block) - CRC_BYTES - BATCH_BYTES
    if at >= 0 and block.startswith(BATCH_PREFIX, at):
        place, count = block[at + 15 : at + 20], block[at + 21 : at + 26]
        # Anything else is a user's property of this name.
        if place.isdigit() and count.isdigit():
            batch = (int(place), int(count))
    indexed = sys_flag & SYS_TRANSACTION_MASK not in (SYS_PREPARED, SYS_ROLLBACK)
    return RecordSummary(physical, total, topic, queue, offset, store_ms, strip_own(block), batch, indexed)
