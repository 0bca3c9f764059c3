"""`pyddmq/deduplication`: the producers as they were at a commit-log offset. Bytes only.

A head (magic, version, the offset, how many), each producer (name, first number, time, how many offsets, the offsets),
and the CRC-32 of all before; big-endian.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping

from broker.deduplication.numbers import MARK, NAME_BYTES, NUMBER_MAX, parse_key
from broker.deduplication.window import MISSING, ProducerWindow
from broker.runtime.sums import crc32

_MAGIC = b"PYDDMQDD"
_VERSION = 1
_HEAD = struct.Struct(">8sIQI")
_PRODUCER = struct.Struct(f">{NAME_BYTES}sQqI")
_SUM = struct.Struct(">I")


class CheckpointDamaged(ValueError):
    """The bytes are no checkpoint, or not whole."""


def encode(producers: Mapping[bytes, ProducerWindow], end: int) -> bytes:
    """Return the checkpoint of what is known below a commit-log offset."""
    parts: list[bytes] = []
    for name, producer in producers.items():
        places = producer.places
        if producer.last_place >= end:
            places = _below(places, end)
        if places:
            big = places if sys.byteorder == "big" else array("q", places)
            if big is not places:
                big.byteswap()
            parts += (_PRODUCER.pack(name, producer.low, producer.last_ms, len(places)), big.tobytes())
    content = b"".join((_HEAD.pack(_MAGIC, _VERSION, end, len(parts) // 2), *parts))
    return content + _SUM.pack(crc32(content) & 0xFFFFFFFF)


def _below(places: array[int], end: int) -> array[int]:
    kept = array("q", [place if place < end else MISSING for place in places])
    while kept and kept[-1] == MISSING:
        kept.pop()
    return kept


def decode(raw: bytes) -> tuple[int, Iterator[tuple[bytes, ProducerWindow]]]:
    """Return the offset and the producers, read as they are asked for.

    Raises:
        CheckpointDamaged: It is not whole; also while they are read.
    """
    if len(raw) < _HEAD.size + _SUM.size or _SUM.unpack_from(raw, len(raw) - _SUM.size)[0] != (
        crc32(raw[: -_SUM.size]) & 0xFFFFFFFF
    ):
        raise CheckpointDamaged("its checksum is wrong")
    magic, version, end, count = _HEAD.unpack_from(raw)
    if magic != _MAGIC or version != _VERSION:
        raise CheckpointDamaged(f"its beginning is {magic!r}, version {version}")
    return end, _producers(raw, count)


def _producers(raw: bytes, count: int) -> Iterator[tuple[bytes, ProducerWindow]]:
    at = _HEAD.size
    limit = len(raw) - _SUM.size
    for _ in range(count):
        if at + _PRODUCER.size > limit:
            raise CheckpointDamaged("it ends within a producer")
        name, low, last_ms, places_count = _PRODUCER.unpack_from(raw, at)
        at += _PRODUCER.size
        end = at + 8 * places_count
        key = name + b"%012X" % low if low <= NUMBER_MAX else b""
        if end > limit or not name.startswith(MARK) or parse_key(key) is None:
            raise CheckpointDamaged("it has an invalid producer")
        places = array("q", raw[at:end])
        if sys.byteorder != "big":
            places.byteswap()
        at = end
        yield name, ProducerWindow(low, places, last_ms)
    if at != limit:
        raise CheckpointDamaged("it has bytes behind its end")
