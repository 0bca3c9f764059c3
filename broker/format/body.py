"""Bodies that RocketMQ's producers packed: compressed ones are unpacked, inner batches are refused.

RocketMQ's clients compress bodies (by default from 4 KiB on) before they send them; the broker stores what came and
says so in the record's sysFlag:

==== ======================================================================================
0x1  compressed
0x700 by what: 0x100 LZ4 (its frame format), 0x200 ZSTD, 0x300 and 0 ZLIB; others are unknown
0x80 an inner batch: the body is a list of messages (topics of the type BatchCQ)
0x40 the client must unwrap it; set beside 0x80
==== ======================================================================================

This broker never writes a compressed body of its own making. A packed body is unpacked when it is handed out, in
bounded memory: what exceeds the limit is given up one byte above it, whatever its header says. `lz4` and `zstandard`
are the extra `rocketmq` and are imported at the first body that needs them. What cannot be unpacked is `BodyUnusable`
and ends as a dead letter with the reason (D17); it is never handed out packed.

Where no packed body is expected, `locate_unpacked` costs what `broker.format.record.locate` does.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from broker.errors import BodyUnusable
from broker.format.record import Located, locate, strip_own, sys_flag
from broker.runtime.seams import Buffer

SYS_COMPRESSED = 0x1
SYS_COMPRESSION_MASK = 0x700
SYS_UNWRAP = 0x40
SYS_INNER_BATCH = 0x80
SYS_PACKED = SYS_COMPRESSED | SYS_UNWRAP | SYS_INNER_BATCH
SYS_PACKING = SYS_PACKED | SYS_COMPRESSION_MASK
"""All flags of how a body is packed: a copy of the packed body must carry them on (`Put.sys_flag`)."""

BODY_BYTES_MAX = 4 << 20
"""RocketMQ's own limit of an unpacked body; a store with larger messages takes its `message_bytes_max` instead."""

ZSTD_WINDOW_BYTES_MAX = 8 << 20
"""Largest window that a ZSTD body may ask memory for; RocketMQ's levels ask for less, and RFC 8878 asks for no more."""

TOO_LARGE = "too_large"
DAMAGED = "damaged"
UNKNOWN = "unknown_compression"
NO_LIBRARY = "no_library"
INNER_BATCH = "inner_batch"


class BodyPacked(Exception):
    """The body of this record is packed: the caller takes the general way, `unpack`. Steers control flow only."""


def body_limit(message_bytes_max: int) -> int:
    """Largest unpacked body in bytes that a store with this limit of messages hands out."""
    return max(message_bytes_max, BODY_BYTES_MAX)


def is_packed(record: Buffer) -> bool:
    """Whether a whole record's body is packed."""
    return bool(sys_flag(record) & SYS_PACKED)


def locate_unpacked(record: memoryview) -> Located:
    """Find body and property block of a whole record as `record.locate` does, if its body is as it was sent.

    Raises:
        BodyPacked: It is not.
        DamagedRecord: The bytes are not one whole record.
    """
    if is_packed(record):
        raise BodyPacked
    return locate(record)


def locate_body(record: memoryview, limit: int) -> Located:
    """Find body and property block of a whole record; a packed body is unpacked into a copy of its own.

    Args:
        record: The record.
        limit: Largest unpacked body in bytes.

    Raises:
        BodyUnusable: The body cannot be unpacked.
        DamagedRecord: The bytes are not one whole record.
    """
    located = locate(record)
    flags = sys_flag(record)
    if not flags & SYS_PACKED:
        return located
    view, body_at, body_end, block_at, end = located
    body = unpack(view[body_at:body_end], flags, limit)
    copy = memoryview(b"".join((body, view[block_at:end])))
    return copy, 0, len(body), len(body), len(copy)


def split_body(record: memoryview, limit: int) -> tuple[memoryview, bytes]:
    """Split a whole record as `broker.format.record.split` does, the body unpacked.

    Raises:
        BodyUnusable, DamagedRecord: As `locate_body`.
    """
    view, body_at, body_end, block_at, end = locate_body(record, limit)
    return view[body_at:body_end], strip_own(view[block_at:end].tobytes())


def unpack(body: Buffer, flags: int, limit: int) -> bytes:
    """Unpack a body.

    Args:
        body: As it is stored.
        flags: The record's sysFlag, with a bit of SYS_PACKED in it.
        limit: Largest result in bytes; memory is taken for no more than that.

    Raises:
        BodyUnusable: It is an inner batch, too large, damaged, or of a compression that is unknown or has no library.
    """
    if flags & (SYS_INNER_BATCH | SYS_UNWRAP):
        raise BodyUnusable(
            INNER_BATCH,
            "it is an inner batch of RocketMQ, which this version does not split; use topics of the ordinary type",
        )
    found = _UNPACKERS.get(flags & SYS_COMPRESSION_MASK)
    if found is None:
        kind = (flags & SYS_COMPRESSION_MASK) >> 8
        raise BodyUnusable(UNKNOWN, f"it is compressed by an unknown method, number {kind}")
    name, unpacker = found
    try:
        plain = unpacker(body, limit)
    except ImportError as error:
        raise BodyUnusable(
            NO_LIBRARY,
            f"it is compressed by {name}, and the Python package {error.name} is missing; "
            "install the extra: pip install 'pyddmq[rocketmq]'",
        ) from error
    if plain is None:
        raise BodyUnusable(DAMAGED, f"it is marked as compressed by {name}, and cannot be decompressed")
    if len(plain) > limit:
        raise BodyUnusable(TOO_LARGE, f"it is compressed by {name} and has more than {limit} bytes when decompressed")
    return plain


# Each returns at most one byte more than `limit`, and None for what is not a whole stream of its kind.


def _zlib(body: Buffer, limit: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error:
        return None
    return plain if stream.eof or len(plain) > limit else None


def _lz4(body: Buffer, limit: int) -> bytes | None:
    import lz4.frame

    parts: list[bytes] = []
    room, rest = limit + 1, bytes(body)
    while rest and room > 0:
        # RocketMQ's reader takes frame after frame, too.
        stream: Any = lz4.frame.LZ4FrameDecompressor()
        try:
            parts.append(stream.decompress(rest, room))
        except (RuntimeError, EOFError):
            return None
        room -= len(parts[-1])
        if not stream.eof and room > 0:
            return None
        rest = stream.unused_data or b""
    return b"".join(parts) if parts else None


def _zstd(body: Buffer, limit: int) -> bytes | None:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    try:
        # The reader is bounded and does not report a missing end; the other one does, and has no bound.
        plain = decompressor.stream_reader(body, read_across_frames=True).read(limit + 1)
        rest = b"" if len(plain) > limit else bytes(body)
        whole = len(plain) > limit
        while rest:
            stream = decompressor.decompressobj()
            stream.decompress(rest)
            whole = stream.eof
            rest = stream.unused_data
    except zstandard.ZstdError:
        return None
    return bytes(plain) if whole else None


_UNPACKERS: dict[int, tuple[str, Callable[[Buffer, int], bytes | None]]] = {
    0x000: ("ZLIB", _zlib),
    0x100: ("LZ4", _lz4),
    0x200: ("ZSTD", _zstd),
    0x300: ("ZLIB", _zlib),
}
