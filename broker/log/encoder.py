"""From messages to the bytes of their records, many at once: the hot path of publishing.

A record is laid out so that what is known late comes early, and what is known early comes late:

    header   size, magic, sum of the body, queue, flag, queue offset, commit-log offset,
             sysFlag, born time and host, store time and host, reconsume times, prepared offset, length of the body
    body     as it came
    tail     topic, length of the properties, properties, UNIQ_KEY, place in an atomic batch
    sum      the property __CRC32#, over all before it

RocketMQ fixed that order; two passes follow from it. The size comes first and the sum last, so a record cannot be
written while it is made; but its size needs no more than the lengths of body and tail. So `measure` comes first: it
judges every message and makes the tails. What is refused is refused before anything has changed, and then the log can
say where each record goes, with a new segment begun where one does not fit. Only that gives the two offsets in the
header, and they give the sum. So `encode` comes second: headers, sums, and the units of the queues, each of which takes
the next offset. It cannot refuse any more; what it relies on is asserted.

A body is never copied here: header, body, tail and sum are buffers of one write. The accelerator joins small records,
which costs less than a buffer for each part. What all records of an append share (`Stamp`) is packed once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from broker.errors import MessageRefused
from broker.format.java import tags_code
from broker.format.properties import PROPERTIES_BYTES_MAX
from broker.format.record import (
    BATCH_BYTES,
    BATCH_MEMBERS_MAX,
    BLANK_BYTES,
    CRC_BYTES,
    HEADER_BYTES,
    MAGIC_V1,
    SYS_BORN_HOST_V6,
    TOPIC_BYTES_MAX,
    batch_property,
    crc_property,
)
from broker.format.unique_key import UniqueKeys
from broker.log.put import LogPosition, Put
from broker.options import StoreOptions
from broker.queues.consume_queue import UNIT, ConsumeQueue
from broker.queues.topics import Topic
from broker.runtime.accelerators import accelerated
from broker.runtime.seams import Buffer
from broker.runtime.sums import crc32

_Pack = Callable[..., bytes]
_ENDS_COUNT_MAX = 1024
_JOINED_BYTES_MAX = 4096
"""Records up to this size are put together in memory by the accelerator."""

# NamedTuple's own constructor is a Python function; this one is not, and there is one call per message.
_new = tuple.__new__


class Measured(NamedTuple):
    """Per message, in order: what follows the body up to the sum, the record's size, its unique key."""

    tails: list[bytes]
    sizes: list[int]
    keys: list[bytes]


class Stamp(NamedTuple):
    """What all records of one append share; times in ms since the epoch."""

    born_ms: int
    born_host: bytes
    store_ms: int


stamp_of: Callable[[tuple[int, bytes, int]], Stamp] = partial(_new, Stamp)


def _measure_none(  # noqa: PLR0917 - what compiled functions take by name costs more
    puts: Sequence[Put],
    take: Callable[[int, int], list[bytes]],
    store_ms: int,
    ends: Sequence[bytes] | None,
    own_bytes: int,
    overhead: int,
    body_bytes_max: int,
    block_bytes_max: int,
    record_bytes_max: int,
) -> tuple[list[bytes], list[int], list[bytes]] | None:
    """Leave all to the general way; `broker.log.encode_accelerator` does more.

    Args:
        puts: The messages.
        take: Makes so many unique keys of a moment.
        store_ms: The moment, ms since the epoch.
        ends: What follows the unique key of each; None: the separator alone.
        own_bytes: Bytes of the broker's own properties behind that.
        overhead: Bytes of a record besides its body and its tail.
        body_bytes_max: Largest body.
        block_bytes_max: Largest property block.
        record_bytes_max: Largest record.

    Returns:
        The fields of `Measured`; None, with nothing changed, when one of them is unusual, or to be refused.
    """
    return None


def _encode_none(  # noqa: PLR0917 - what compiled functions take by name costs more
    puts: Sequence[Put],
    tails: list[bytes],
    sizes: list[int],
    keys: list[bytes],
    physicals: list[int],
    middle: bytes,
    touched: dict[ConsumeQueue, Topic],
    crc32: Callable[..., int],
    joined_bytes_max: int,
    origins: Sequence[tuple[int, bytes]] | None,
    store_ms: int,
) -> tuple[list[Buffer], list[LogPosition], int] | None:
    """Leave all to the general way; see `_measure_none`.

    Args:
        puts: The messages.
        tails: What follows each body up to the sum.
        sizes: Sizes of the records.
        keys: Their unique keys.
        physicals: Where they go.
        middle: The header from sysFlag to the prepared offset, for messages with none of their own.
        touched: Gets the queues.
        crc32: CRC-32 of bytes.
        joined_bytes_max: Largest record that is put together in memory.
        origins: Born time and host of each message, where they differ.
        store_ms: Their store timestamp.

    Returns:
        What `Encoder.encode` does; None, with nothing changed, when one of them is unusual.
    """
    return None


measure_usual = accelerated("broker.log.encode_accelerator", "measure", _measure_none)
encode_usual = accelerated("broker.log.encode_accelerator", "encode", _encode_none)


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
        count = len(puts)
        if atomic and count > BATCH_MEMBERS_MAX:
            raise self._batch_refusal(count, 0)
        ends = _batch_ends(count) if atomic else None
        own_bytes = CRC_BYTES + BATCH_BYTES if atomic else CRC_BYTES
        usual = measure_usual(
            puts,
            self._keys.take,
            stamp.store_ms,
            ends,
            own_bytes,
            self._overhead(stamp),
            self._body_bytes_max,
            PROPERTIES_BYTES_MAX,
            self._record_bytes_max,
        )
        measured = self._measure_each(puts, stamp, ends, own_bytes) if usual is None else _new(Measured, usual)
        if atomic and sum(measured.sizes) > self._record_bytes_max:
            raise self._batch_refusal(count, sum(measured.sizes))
        return measured

    def _measure_each(
        self, puts: Sequence[Put], stamp: Stamp, ends: Sequence[bytes] | None, own_bytes: int
    ) -> Measured:
        """Do `measure` for messages of any kind, one by one."""
        tails: list[bytes] = []
        sizes: list[int] = []
        # A record that takes the place of another one keeps its key: none is made then.
        keys = [put.unique_key for put in puts]
        if not all(keys):
            made = self._keys.take(len(puts), stamp.store_ms)
            keys = [given or new for given, new in zip(keys, made, strict=True)]
        for place, (put, key) in enumerate(zip(puts, keys, strict=True)):
            block = put.properties
            completed = block.removesuffix(b"\x02") if put.unique_key else b"%bUNIQ_KEY\x01%b" % (block, key)
            end = b"\x02" if ends is None else ends[place]
            # `end` has the separator, and in a batch the message's place, which `own_bytes` counts too.
            block_bytes = len(completed) + 1 + own_bytes
            size = self._overhead(stamp) + len(put.body) + len(put.topic.prefix) + 2 + block_bytes - CRC_BYTES
            if refusal := self._refusal(put, block_bytes, size):
                raise refusal
            tails.append(b"%b%b%b%b" % (put.topic.prefix, block_bytes.to_bytes(2, "big"), completed, end))
            sizes.append(size)
        return Measured(tails, sizes, keys)

    def _overhead(self, stamp: Stamp) -> int:
        """Bytes of a record besides its body and its tail."""
        return HEADER_BYTES + len(stamp.born_host) - 8 + CRC_BYTES

    def _batch_refusal(self, count: int, size: int) -> MessageRefused:
        return MessageRefused(
            (
                f"the batch of {count} needs {size} bytes in the log; the limits are {self._record_bytes_max} "
                f"bytes and {BATCH_MEMBERS_MAX} messages; send smaller batches"
            )
            if size
            else f"a batch of {count}; the limit is {BATCH_MEMBERS_MAX} messages; send smaller batches"
        )

    def _refusal(self, put: Put, block_bytes: int, size: int) -> MessageRefused | None:
        """Return why a message can never be stored; None when it can."""
        topic, queue_id, body_bytes = put.topic, put.queue_id, len(put.body)
        if not topic.prefix:
            text = f"topic {topic.name[:140]!r} has more than {TOPIC_BYTES_MAX} bytes; it can only be read"
            return MessageRefused(text)
        if not 0 <= queue_id < len(topic.queues):
            return MessageRefused(
                f"topic {topic.name} has no queue {queue_id}; its queues are 0 to {len(topic.queues) - 1}"
            )
        if body_bytes > self._body_bytes_max and not topic.system:
            return MessageRefused(f"the body has {body_bytes} bytes; the limit is {self._body_bytes_max}")
        if block_bytes > PROPERTIES_BYTES_MAX:
            return MessageRefused(
                f"key, tags and properties have {block_bytes} bytes; the limit is {PROPERTIES_BYTES_MAX}"
            )
        if size > self._record_bytes_max:
            text = f"the record needs {size} bytes and does not fit into one log file; send a smaller body"
            return MessageRefused(text)
        return None

    def encode(
        self,
        puts: Sequence[Put],
        measured: Measured,
        physicals: list[int],
        stamp: Stamp,
        touched: dict[ConsumeQueue, Topic],
        *,
        origins: Sequence[tuple[int, bytes]] | None = None,
    ) -> tuple[list[Buffer], list[LogPosition], int]:
        """Give records their offsets and complete them; their units are staged in their queues.

        Args:
            puts: The messages.
            measured: What `measure` made of them.
            physicals: Where each record goes.
            stamp: As given to `measure`.
            touched: Gets the queues that had nothing staged before.
            origins: Born time and host of each message, where they were not made together; as long as the stamp's.

        Returns:
            Buffers, the same number for each record, or one for all that stand one behind the other; the positions; and
            the bits of sysFlag that any has.
        """
        tails, sizes, keys = measured
        assert len(puts) == len(physicals), "a place for each message"
        encoded = None
        if len(stamp.born_host) == 8:
            encoded = encode_usual(
                puts,
                tails,
                sizes,
                keys,
                physicals,
                _pack_usual_middle(0, stamp[0], stamp[1], stamp[2], self._store_host, 0, 0),
                touched,
                crc32,
                _JOINED_BYTES_MAX,
                origins,
                stamp[2],
            )
        if encoded is None:
            encoded = self._encode_each(puts, measured, physicals, stamp, touched, origins)
        assert sum(map(len, encoded[0])) == sum(sizes), "records take what was reserved for them"
        return encoded

    def _encode_each(  # noqa: PLR0917 - as `encode`
        self,
        puts: Sequence[Put],
        measured: Measured,
        physicals: list[int],
        stamp: Stamp,
        touched: dict[ConsumeQueue, Topic],
        origins: Sequence[tuple[int, bytes]] | None,
    ) -> tuple[list[Buffer], list[LogPosition], int]:
        """Do `encode` for messages of any kind, one by one."""
        buffers: list[Buffer] = []
        positions: list[LogPosition] = []
        flags = 0
        pack_header, _ = _header_packers(len(stamp.born_host))
        for place, (put, tail, size, key, physical) in enumerate(zip(puts, *measured, physicals, strict=True)):
            queue = put.topic.queues[put.queue_id]
            offset = queue.next_offset
            touched[queue] = put.topic
            queue.tail += UNIT.pack(physical, size, _code_of(put.tags, stamp))
            queue.next_offset = offset + 1
            made = stamp if origins is None else Stamp(*origins[place], stamp.store_ms)
            body, body_crc = put.body, crc32(put.body) & 0x7FFFFFFF
            middle = self._middle(made, put.prepared_offset, put.reconsume_times, put.sys_flag)
            header = pack_header(size, MAGIC_V1, body_crc, put.queue_id, put.flag, offset, physical, middle, len(body))
            end = crc_property(crc32(tail, crc32(body, crc32(header))) & 0x7FFFFFFF)
            assert len(header) + len(body) + len(tail) + len(end) == size, "the size in the header is the record's"
            buffers += (header, body, tail, end)
            positions.append(LogPosition(put.queue_id, offset, physical, key))
            flags |= put.sys_flag
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


_pack_usual_middle = _header_packers(8)[1]


def _code_of(tags: bytes | int, stamp: Stamp) -> int:
    """Return what the unit of a message gets for its tags (`Put.tags`)."""
    return stamp.store_ms + tags if isinstance(tags, int) else tags_code(tags)


def _batch_ends(count: int) -> Sequence[bytes]:
    """Return what follows the unique keys of an atomic batch; producers use few sizes, so they are remembered."""
    return _remembered_ends(count) if count <= _ENDS_COUNT_MAX else _ends(count)


def _ends(count: int) -> Sequence[bytes]:
    return [b"\x02" + batch_property(place, count) for place in range(count)]


_remembered_ends = lru_cache(maxsize=16)(_ends)
