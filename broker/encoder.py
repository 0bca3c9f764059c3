"""From messages to the bytes of their records, many at once: the hot path of publishing.

Two passes. `measure` checks the messages and makes what stands behind each body, so that sizes are known and nothing
is staged when one is refused. `encode`, once the log has said where each record goes, makes headers, sums and units.
The body is never copied here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from broker.consume_queue import UNIT, ConsumeQueue
from broker.errors import MessageRefused
from broker.java import tags_code
from broker.options import StoreOptions
from broker.properties import PROPERTIES_BYTES_MAX
from broker.put import Position, Put
from broker.record import (
    BATCH_BYTES,
    BATCH_MEMBERS_MAX,
    BLANK_BYTES,
    CRC_BYTES,
    HEADER_BYTES,
    MAGIC_V1,
    SYS_BORN_HOST_V6,
    batch_property,
    crc32,
    crc_properties,
)
from broker.seams import Buffer
from broker.topics import Topic
from broker.unique_key import KEY_BYTES, UniqueKeys

KEY_PROPERTY_BYTES = len(b"UNIQ_KEY\x01") + KEY_BYTES + 1
_Pack = Callable[..., bytes]
_ENDS_COUNT_MAX = 1024

# NamedTuple's own constructor is a Python function; this one is not, and there is one call per message.
_new_position = tuple.__new__


class Measured(NamedTuple):
    """Per message, in order: what stands behind the body up to the sum, the record's size, its unique key."""

    tails: list[bytes]
    sizes: list[int]
    keys: list[bytes]


class Stamp(NamedTuple):
    """What all records of one append share; times in ms since the epoch."""

    born_ms: int
    born_host: bytes
    store_ms: int


class Encoder:
    """Encodes for one store."""

    def __init__(self, options: StoreOptions, keys: UniqueKeys) -> None:
        self._keys = keys
        self._body_bytes_max = options.message_bytes_max
        self._record_bytes_max = options.segment_bytes - BLANK_BYTES
        self._store_host = options.store_host

    def measure(self, puts: Sequence[Put], stamp: Stamp, *, atomic: bool) -> Measured:
        """Check messages and complete their properties.

        Raises:
            MessageRefused: One of them can never be stored.
        """
        body_bytes_max = self._body_bytes_max
        record_bytes_max = self._record_bytes_max
        own_bytes = CRC_BYTES + (BATCH_BYTES if atomic else 0)
        overhead = HEADER_BYTES + 2 + len(stamp.born_host) - 8
        count = len(puts)
        if atomic and count > BATCH_MEMBERS_MAX:
            raise self._batch_refusal(count, 0)
        ends = _batch_ends(count) if atomic else repeat(b"\x02", count)
        tails: list[bytes] = []
        sizes: list[int] = []
        keys: list[bytes] = []
        known_bytes, length = 0, b"\x00\x00"
        for (topic, queue_id, body, properties, _, given_key, _, _, _, _), new_key, end in zip(
            puts, self._keys.take(count, stamp.store_ms), ends, strict=True
        ):
            if given_key:
                parts: tuple[bytes, ...] = (properties.removesuffix(b"\x02"), end)
                block_bytes = len(parts[0]) + 1 + own_bytes
            else:
                parts = (properties, b"UNIQ_KEY\x01", new_key, end)
                block_bytes = len(properties) + KEY_PROPERTY_BYTES + own_bytes
            body_bytes = len(body)
            size = overhead + body_bytes + len(topic.prefix) + block_bytes
            if (
                (body_bytes > body_bytes_max and not topic.system)
                or block_bytes > PROPERTIES_BYTES_MAX
                or size > record_bytes_max
                or not 0 <= queue_id < len(topic.queues)
            ):
                raise self._refusal(topic, queue_id, body_bytes, block_bytes, size)
            if block_bytes != known_bytes:
                known_bytes, length = block_bytes, block_bytes.to_bytes(2, "big")
            tails.append(b"".join((topic.prefix, length, *parts)))
            sizes.append(size)
            keys.append(given_key or new_key)
        if atomic and sum(sizes) > record_bytes_max:
            raise self._batch_refusal(count, sum(sizes))
        return Measured(tails, sizes, keys)

    def _batch_refusal(self, count: int, size: int) -> MessageRefused:
        return MessageRefused(
            f"the batch of {count} takes {size} bytes in the log, {self._record_bytes_max} bytes and "
            f"{BATCH_MEMBERS_MAX} messages are allowed; send it in smaller batches"
            if size
            else f"a batch of {count}: {BATCH_MEMBERS_MAX} messages are allowed; send smaller batches"
        )

    def _refusal(self, topic: Topic, queue_id: int, body_bytes: int, block_bytes: int, size: int) -> MessageRefused:
        if not 0 <= queue_id < len(topic.queues):
            return MessageRefused(f"topic {topic.name} has no queue {queue_id}, only 0 to {len(topic.queues) - 1}")
        if body_bytes > self._body_bytes_max and not topic.system:
            return MessageRefused(f"the body has {body_bytes} bytes, {self._body_bytes_max} are allowed")
        if block_bytes > PROPERTIES_BYTES_MAX:
            return MessageRefused(
                f"key, tags and properties take {block_bytes} bytes, {PROPERTIES_BYTES_MAX} are allowed"
            )
        return MessageRefused(f"the record takes {size} bytes and does not fit into one log file; send a smaller body")

    def encode(
        self,
        puts: Sequence[Put],
        measured: Measured,
        physicals: list[int],
        stamp: Stamp,
        touched: dict[ConsumeQueue, Topic],
        *,
        stamps: Iterator[Stamp] | None = None,
    ) -> tuple[list[Buffer], list[Position], int]:
        """Give records their offsets and complete them; their units are staged in their queues.

        Args:
            puts: The messages.
            measured: What `measure` made of them.
            physicals: Where each record goes.
            stamp: As given to `measure`.
            touched: Gets the queues that had nothing staged before.
            stamps: One for each message, where they were not made together; as long as `stamp`.

        Returns:
            Four buffers per record (header, body, tail, sum), the positions, and the bits of sysFlag that any has.
        """
        pack, _ = _header_packers(len(stamp.born_host))
        middle = self._middle(stamp, 0, 0, 0)
        pack_unit = UNIT.pack
        buffers: list[Buffer] = []
        positions: list[Position] = []
        crcs: list[int] = []
        known_tags: bytes | int = b""
        code = flags = 0
        for put, tail, size, key, physical in zip(puts, *measured, physicals, strict=True):
            topic, queue_id, body, _, tags, _, prepared, reconsumed, sys_flag, flag = put
            queue = topic.queues[queue_id]
            offset = queue.next_offset
            if offset == queue.max_offset:
                touched[queue] = topic
            if stamps or prepared or reconsumed or sys_flag:
                flags |= sys_flag
                own = stamp if stamps is None else next(stamps)
                shared = self._middle(own, prepared, reconsumed, sys_flag)
            else:
                shared = middle
            body_crc = crc32(body) & 0x7FFFFFFF
            header = pack(size, MAGIC_V1, body_crc, queue_id, flag, offset, physical, shared, len(body))
            crcs.append(crc32(tail, crc32(body, crc32(header))) & 0x7FFFFFFF)
            if tags != known_tags:
                known_tags = tags
                code = stamp.store_ms + tags if isinstance(tags, int) else tags_code(tags)
            buffers += (header, body, tail, b"")
            queue.tail += pack_unit(physical, size, code)
            queue.next_offset = offset + 1
            positions.append(_new_position(Position, (queue_id, offset, physical, key)))
        buffers[3::4] = crc_properties(crcs)
        return buffers, positions, flags

    def _middle(self, stamp: Stamp, prepared: int, reconsumed: int, flags: int) -> bytes:
        """The header from sysFlag to the prepared offset: the same for nearly all records of an append."""
        born_ms, born_host, store_ms = stamp
        sys_flag = flags if len(born_host) == 8 else flags | SYS_BORN_HOST_V6
        pack = _header_packers(len(born_host))[1]
        return pack(sys_flag, born_ms, born_host, store_ms, self._store_host, reconsumed, prepared)


@lru_cache(maxsize=4)
def _header_packers(host_bytes: int) -> tuple[_Pack, _Pack]:
    """Make a header of its parts before the sysFlag, its middle (`_middle`) and the body's length; make the middle."""
    middle = struct.Struct(f">iq{host_bytes}sq8siq")
    return struct.Struct(f">iiiiiqq{middle.size}si").pack, middle.pack


def _batch_ends(count: int) -> Sequence[bytes]:
    """Return what stands behind the unique keys of an atomic batch; producers use few sizes, so they are remembered."""
    return _remembered_ends(count) if count <= _ENDS_COUNT_MAX else _ends(count)


def _ends(count: int) -> Sequence[bytes]:
    return [b"\x02" + batch_property(place, count) for place in range(count)]


_remembered_ends = lru_cache(maxsize=16)(_ends)
