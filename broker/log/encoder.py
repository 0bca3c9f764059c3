"""From messages to the bytes of their records, many at once: the hot path of publishing.

Two passes. `measure` checks the messages and makes what stands behind each body, so that sizes are known and nothing
is staged when one is refused. `encode`, once the log has said where each record goes, makes headers, sums and units.
A large body is never copied. Both work by columns: what is done for every message is done by `map` and comprehensions,
which costs half of a loop's statements.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial, reduce
from itertools import repeat
from operator import ge, or_
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
    batch_property,
    crc32,
    crc_properties,
    crc_property,
    library_crc32,
)
from broker.format.unique_key import KEY_BYTES, UniqueKeys
from broker.log.put import Position, Put
from broker.options import StoreOptions
from broker.queues.consume_queue import UNIT, ConsumeQueue
from broker.queues.topics import Topic
from broker.runtime.leaves import leaf
from broker.runtime.seams import Buffer

KEY_PROPERTY_BYTES = len(b"UNIQ_KEY\x01") + KEY_BYTES + 1
_Pack = Callable[..., bytes]
_ENDS_COUNT_MAX = 1024
_JOINED_BYTES_MAX = 4096
"""Records up to this size are put together in memory: that costs less than a sum and a buffer for each part."""

# NamedTuple's own constructor is a Python function; this one is not, and there is one call per message.
_new = tuple.__new__


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
    """Leave all to the general way, which is the quickest in Python; the leaf `broker.log.encode_leaf` does more.

    Args:
        puts: The messages.
        take: Makes so many unique keys of a moment.
        store_ms: The moment, ms since the epoch.
        ends: What stands behind the unique key of each; None: the separator alone.
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
) -> tuple[list[Buffer], list[Position], int] | None:
    """Leave all to the general way; see `_measure_none`.

    Args:
        puts: The messages.
        tails: What stands behind each body up to the sum.
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


_measure = leaf("broker.log.encode_leaf", "measure", _measure_none)
_encode = leaf("broker.log.encode_leaf", "encode", _encode_none)


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
        usual = _measure(
            puts,
            self._keys.take,
            stamp.store_ms,
            _batch_ends(count) if atomic else None,
            CRC_BYTES + BATCH_BYTES if atomic else CRC_BYTES,
            self._overhead(stamp),
            self._body_bytes_max,
            PROPERTIES_BYTES_MAX,
            self._record_bytes_max,
        )
        if usual is not None:
            if atomic and sum(usual[1]) > self._record_bytes_max:
                raise self._batch_refusal(count, sum(usual[1]))
            return _new(Measured, usual)
        if count == 1 and not atomic:
            return self._measure_one(puts[0], stamp)
        topics, queue_ids, bodies, blocks, _, given, *_ = zip(*puts, strict=True)
        # A record that takes the place of another one keeps its key: none is made then.
        keys = list(given) if all(given) else self._keys.take(count, stamp.store_ms)
        own_bytes = CRC_BYTES + (BATCH_BYTES if atomic else 0)
        ends = _batch_ends(count) if atomic else repeat(b"\x02", count)
        parts: tuple[Iterable[bytes], ...]
        if any(given):
            completed = [
                block.removesuffix(b"\x02") if mine else b"%bUNIQ_KEY\x01%b" % (block, key)
                for block, mine, key in zip(blocks, given, keys, strict=True)
            ]
            keys = [mine or key for mine, key in zip(given, keys, strict=True)]
            block_sizes = [len(block) + 1 + own_bytes for block in completed]
            parts = (completed, ends)
        else:
            block_sizes = [len(block) + KEY_PROPERTY_BYTES + own_bytes for block in blocks]
            parts = (blocks, repeat(b"UNIQ_KEY\x01"), keys, ends)
        if max(block_sizes) > PROPERTIES_BYTES_MAX and (refusal := self._refusal(puts, block_sizes, stamp)):
            raise refusal
        lengths = [size.to_bytes(2, "big") for size in block_sizes]
        tails = list(map(b"".join, zip([topic.prefix for topic in topics], lengths, *parts, strict=False)))
        overhead = self._overhead(stamp)
        body_sizes = list(map(len, bodies))
        sizes = [overhead + size + len(tail) for size, tail in zip(body_sizes, tails, strict=True)]
        if (
            max(body_sizes) > self._body_bytes_max
            or max(sizes) > self._record_bytes_max
            or min(queue_ids) < 0
            or any(map(ge, queue_ids, [len(topic.queues) for topic in topics]))
        ) and (refusal := self._refusal(puts, block_sizes, stamp)):
            raise refusal
        if atomic and sum(sizes) > self._record_bytes_max:
            raise self._batch_refusal(count, sum(sizes))
        return Measured(tails, sizes, keys)

    def _measure_one(self, put: Put, stamp: Stamp) -> Measured:
        """Do `measure` for one message, where columns cost more than they save."""
        topic, queue_id, body, block, _, key, _, _, _, _ = put
        if key:
            tail = b"%b\x02" % block.removesuffix(b"\x02")
        else:
            [key] = self._keys.take(1, stamp.store_ms)
            tail = b"%bUNIQ_KEY\x01%b\x02" % (block, key)
        block_bytes = len(tail) + CRC_BYTES
        size = self._overhead(stamp) + len(body) + len(topic.prefix) + 2 + len(tail)
        if (
            len(body) > self._body_bytes_max
            or block_bytes > PROPERTIES_BYTES_MAX
            or size > self._record_bytes_max
            or not 0 <= queue_id < len(topic.queues)
        ) and (refusal := self._refusal((put,), (block_bytes,), stamp)):
            raise refusal
        return Measured([b"%b%b%b" % (topic.prefix, block_bytes.to_bytes(2, "big"), tail)], [size], [key])

    def _overhead(self, stamp: Stamp) -> int:
        """Bytes of a record besides its body and its tail."""
        return HEADER_BYTES + len(stamp.born_host) - 8 + CRC_BYTES

    def _batch_refusal(self, count: int, size: int) -> MessageRefused:
        return MessageRefused(
            f"the batch of {count} takes {size} bytes in the log, {self._record_bytes_max} bytes and "
            f"{BATCH_MEMBERS_MAX} messages are allowed; send it in smaller batches"
            if size
            else f"a batch of {count}: {BATCH_MEMBERS_MAX} messages are allowed; send smaller batches"
        )

    def _refusal(self, puts: Sequence[Put], block_sizes: Sequence[int], stamp: Stamp) -> MessageRefused | None:
        """Return why the first message that can never be stored is refused; None when all can."""
        for (topic, queue_id, body, *_), block_bytes in zip(puts, block_sizes, strict=True):
            size = self._overhead(stamp) + len(body) + len(topic.prefix) + 2 + block_bytes - CRC_BYTES
            if not 0 <= queue_id < len(topic.queues):
                return MessageRefused(f"topic {topic.name} has no queue {queue_id}, only 0 to {len(topic.queues) - 1}")
            if len(body) > self._body_bytes_max and not topic.system:
                return MessageRefused(f"the body has {len(body)} bytes, {self._body_bytes_max} are allowed")
            if block_bytes > PROPERTIES_BYTES_MAX:
                return MessageRefused(
                    f"key, tags and properties take {block_bytes} bytes, {PROPERTIES_BYTES_MAX} are allowed"
                )
            if size > self._record_bytes_max:
                text = f"the record takes {size} bytes and does not fit into one log file; send a smaller body"
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
    ) -> tuple[list[Buffer], list[Position], int]:
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
        if len(stamp.born_host) == 8:
            usual = _encode(
                puts,
                tails,
                sizes,
                keys,
                physicals,
                _pack_usual_middle(0, stamp[0], stamp[1], stamp[2], self._store_host, 0, 0),
                touched,
                library_crc32,
                _JOINED_BYTES_MAX,
                origins,
                stamp[2],
            )
            if usual is not None:
                return usual
        if len(puts) == 1 and origins is None:
            return self._encode_one(puts[0], measured, physicals[0], stamp, touched)
        topics, queue_ids, bodies, _, tags, _, prepared, reconsumed, sys_flags, user_flags = zip(*puts, strict=True)
        queues = [topic.queues[queue_id] for topic, queue_id in zip(topics, queue_ids, strict=True)]
        codes: Iterable[int]
        if tags.count(tags[0]) == len(tags):
            codes = repeat(_code_of(tags[0], stamp))
        else:
            codes = [_code_of(each, stamp) for each in tags]
        offsets: list[int] = []
        staged: dict[ConsumeQueue, list[bytes]] = {}
        for queue, unit in zip(queues, map(UNIT.pack, physicals, sizes, codes), strict=False):
            offset = queue.next_offset
            offsets.append(offset)
            queue.next_offset = offset + 1
            if queue in staged:
                staged[queue].append(unit)
            else:
                staged[queue] = [unit]
        for queue, units in staged.items():
            queue.tail += b"".join(units)
        touched.update(zip(queues, topics, strict=True))
        flags = 0
        if origins is not None or any(sys_flags) or any(prepared) or any(reconsumed):
            flags = reduce(or_, sys_flags)
            middles: Iterable[bytes] = self._middles(stamp, origins, prepared, reconsumed, sys_flags)
        else:
            middles = repeat(self._middle(stamp, 0, 0, 0))
        headers = list(
            map(
                _header_packers(len(stamp.born_host))[0],
                sizes,
                repeat(MAGIC_V1),
                [value & 0x7FFFFFFF for value in map(crc32, bodies)],
                queue_ids,
                user_flags,
                offsets,
                physicals,
                middles,
                map(len, bodies),
            )
        )
        if max(sizes) <= _JOINED_BYTES_MAX:
            parts = 2
            records: list[Buffer] = list(map(b"".join, zip(headers, bodies, tails, strict=True)))
            sums = map(crc32, records)
        else:
            parts = 4
            sums = map(crc32, tails, map(crc32, bodies, map(crc32, headers)))
        buffers: list[Buffer] = [b""] * (parts * len(headers))
        if parts == 2:
            buffers[0::2] = records
        else:
            buffers[0::4], buffers[1::4], buffers[2::4] = headers, bodies, tails
        buffers[parts - 1 :: parts] = crc_properties([value & 0x7FFFFFFF for value in sums])
        positions = list(map(_new, repeat(Position), zip(queue_ids, offsets, physicals, keys, strict=True)))
        return buffers, positions, flags

    def _encode_one(
        self, put: Put, measured: Measured, physical: int, stamp: Stamp, touched: dict[ConsumeQueue, Topic]
    ) -> tuple[list[Buffer], list[Position], int]:
        """Do `encode` for one message, where columns cost more than they save."""
        topic, queue_id, body, _, tags, _, prepared, reconsumed, sys_flag, user_flag = put
        [tail], [size], [key] = measured
        queue = topic.queues[queue_id]
        offset = queue.next_offset
        touched[queue] = topic
        queue.tail += UNIT.pack(physical, size, _code_of(tags, stamp))
        queue.next_offset = offset + 1
        shared = self._middle(stamp, prepared, reconsumed, sys_flag)
        body_crc = crc32(body) & 0x7FFFFFFF
        pack, _ = _header_packers(len(stamp.born_host))
        header = pack(size, MAGIC_V1, body_crc, queue_id, user_flag, offset, physical, shared, len(body))
        end = crc_property(crc32(tail, crc32(body, crc32(header))) & 0x7FFFFFFF)
        return [header, body, tail, end], [_new(Position, (queue_id, offset, physical, key))], sys_flag

    def _middles(
        self,
        stamp: Stamp,
        origins: Sequence[tuple[int, bytes]] | None,
        prepared: Sequence[int],
        reconsumed: Sequence[int],
        flags: Sequence[int],
    ) -> Iterable[bytes]:
        """`_middle` by columns."""
        born_ms, born_host, store_ms = stamp
        borns: Iterable[int] = repeat(born_ms)
        hosts: Iterable[bytes] = repeat(born_host)
        if origins is not None:
            borns, hosts = zip(*origins, strict=True)
        if len(born_host) != 8:
            flags = [each | SYS_BORN_HOST_V6 for each in flags]
        pack = _header_packers(len(born_host))[1]
        return map(pack, flags, borns, hosts, repeat(store_ms), repeat(self._store_host), reconsumed, prepared)

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
    """Return what stands behind the unique keys of an atomic batch; producers use few sizes, so they are remembered."""
    return _remembered_ends(count) if count <= _ENDS_COUNT_MAX else _ends(count)


def _ends(count: int) -> Sequence[bytes]:
    return [b"\x02" + batch_property(place, count) for place in range(count)]


_remembered_ends = lru_cache(maxsize=16)(_ends)
