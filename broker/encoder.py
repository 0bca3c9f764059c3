"""From messages to the bytes of their records, many at once: the hot path of publishing.

Two passes. `measure` checks the messages and makes what stands behind each body, so that sizes are known and nothing
is staged when one is refused. `encode`, once the log has said where each record goes, makes headers, sums and units.
The body is never copied here.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    HEADER,
    HEADER_BORN_V6,
    HEADER_BYTES,
    MAGIC_V1,
    SYS_BORN_HOST_V6,
    TEN_DIGITS,
    batch_property,
    crc32,
)
from broker.seams import Buffer
from broker.topics import Topic
from broker.unique_key import UniqueKeys

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
        store_ms = stamp.store_ms
        next_key = self._keys.next
        tails: list[bytes] = []
        sizes: list[int] = []
        keys: list[bytes] = []
        for topic, queue_id, body, properties, _, given_key, _, _ in puts:
            key = given_key or next_key(store_ms)
            if not given_key:
                block = b"".join((properties, b"UNIQ_KEY\x01", key, b"\x02"))
            else:
                block = properties if properties[-1:] == b"\x02" else properties + b"\x02"
            block_bytes = len(block) + own_bytes
            prefix = topic.prefix
            size = overhead + len(body) + len(prefix) + block_bytes
            if (
                len(body) > body_bytes_max
                or block_bytes > PROPERTIES_BYTES_MAX
                or size > record_bytes_max
                or not 0 <= queue_id < len(topic.queues)
            ):
                raise self._refusal(topic, queue_id, len(body), block_bytes, size)
            tails.append(b"".join((prefix, block_bytes.to_bytes(2, "big"), block)))
            sizes.append(size)
            keys.append(key)
        if atomic:
            if sum(sizes) > record_bytes_max or len(puts) > BATCH_MEMBERS_MAX:
                raise MessageRefused(
                    f"the batch of {len(puts)} takes {sum(sizes)} bytes in the log, {record_bytes_max} bytes and "
                    f"{BATCH_MEMBERS_MAX} messages are allowed; send it in smaller batches"
                )
            tails = [tail + batch_property(place, len(tails)) for place, tail in enumerate(tails)]
        return Measured(tails, sizes, keys)

    def _refusal(self, topic: Topic, queue_id: int, body_bytes: int, block_bytes: int, size: int) -> MessageRefused:
        if not 0 <= queue_id < len(topic.queues):
            return MessageRefused(f"topic {topic.name} has no queue {queue_id}, only 0 to {len(topic.queues) - 1}")
        if body_bytes > self._body_bytes_max:
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
    ) -> tuple[list[Buffer], list[Position]]:
        """Give records their offsets and complete them; their units are staged in their queues.

        Args:
            puts: The messages.
            measured: What `measure` made of them.
            physicals: Where each record goes.
            stamp: As given to `measure`.
            touched: Gets the queues that had nothing staged before.

        Returns:
            Four buffers per record (header, body, tail, sum), and the positions.
        """
        born_ms, born_host, store_ms = stamp
        store_host = self._store_host
        v6 = len(born_host) != 8
        pack = HEADER_BORN_V6.pack if v6 else HEADER.pack
        sys_flag = SYS_BORN_HOST_V6 if v6 else 0
        pack_unit = UNIT.pack
        buffers: list[Buffer] = []
        positions: list[Position] = []
        known_tags, code = b"", 0
        for put, tail, size, key, physical in zip(puts, *measured, physicals, strict=True):
            topic, queue_id, body, _, tags, _, prepared, reconsumed = put
            queue = topic.queues[queue_id]
            offset = queue.next_offset
            if offset == queue.max_offset:
                touched[queue] = topic
            header = pack(
                size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue_id, 0, offset, physical, sys_flag, born_ms, born_host,
                store_ms, store_host, reconsumed, prepared, len(body),
            )  # fmt: skip
            crc = crc32(tail, crc32(body, crc32(header))) & 0x7FFFFFFF
            if tags != known_tags:
                known_tags, code = tags, tags_code(tags)
            buffers += (header, body, tail, b"__CRC32#\x01%b\x02" % str(crc + TEN_DIGITS)[:0:-1].encode())
            queue.tail += pack_unit(physical, size, code)
            queue.next_offset = offset + 1
            positions.append(_new_position(Position, (queue_id, offset, physical, key)))
        return buffers, positions
