"""Takes the producer id of an idempotent producer away from it, as a broker fences one: it can send nothing more.

An idempotent producer without a transactional id cannot be fenced by a call: Kafka gives every InitProducerId an id of
its own. Here a second producer sends a batch under the same id, in the next epoch, so that the broker refuses the old
epoch from then on.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_BATCH = struct.Struct(">qiibIhiqqqhii")
"""Head of a record batch: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, two moments,
producer id, producer epoch, base sequence, number of records."""
PRODUCE, VERSION = 0, 3


class Stored(NamedTuple):
    """A batch in the file of a partition: its moment, whose it is, and its bytes behind the head."""

    at_ms: int
    producer_id: int
    epoch: int
    records: bytes

    def has_key(self, begin: bytes) -> bool:
        """Whether the key of its first record begins so."""
        return re.match(rb".{1,3}\x00\x00\x00." + re.escape(begin), self.records, re.DOTALL) is not None


def batches(folder: Path, topic: str, partition: int) -> Iterator[Stored]:
    """Read the last file of a partition in the folder of a broker."""
    for path in sorted(folder.rglob(f"{topic}-{partition}/*.log"))[-1:]:
        content, at = path.read_bytes(), 0
        while at + _BATCH.size <= len(content):
            head = _BATCH.unpack_from(content, at)
            end = at + 12 + head[1]
            if head[1] <= 0 or end > len(content):
                return
            yield Stored(head[8], head[9], head[10], content[at + _BATCH.size : end])
            at = end


def last_of_each_producer(found: Iterable[Stored]) -> list[Stored]:
    """Return the last batch of each idempotent producer in a partition, which says the epoch that it has there.

    A batch before it has an epoch that is over: Kafka takes one that follows on that for a repetition, answers with the
    offset of what is there, and stores nothing.
    """
    return list({each.producer_id: each for each in found if each.producer_id >= 0}.values())


def take_over(address: str, topic: str, partition: int, of: Stored, *, key: bytes, values: Sequence[bytes]) -> int:
    """Send records of a key under the id of another producer, in its next epoch; return the offset of the first.

    With several, the numbers of the other producer's next epoch do not fit either: its client gives up.

    Raises:
        OSError: Kafka does not answer, or refuses it.
    """
    host, _, port = address.rpartition(":")
    topic_name = topic.encode()
    records = [_record(key, value, number) for number, value in enumerate(values)]
    batch = _batch(of.producer_id, of.epoch + 1, records)
    body = struct.pack(">hhih", PRODUCE, VERSION, 1, -1)
    body += struct.pack(">hhi", -1, -1, 10_000) + struct.pack(">ih", 1, len(topic_name)) + topic_name
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size)
    error, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(topic_name) + 4 + 4)
    if error:
        raise OSError(f"Kafka refused the batch: {error}")
    return int(offset)


def _batch(producer_id: int, epoch: int, records: Sequence[bytes]) -> bytes:
    now, count = int(time.time() * 1000), len(records)
    body = struct.pack(">hiqqqhii", 0, count - 1, now, now, producer_id, epoch, 0, count) + b"".join(records)
    head = struct.pack(">qiibI", 0, 9 + len(body), -1, 2, _crc32c(body))
    return head + body


def _record(key: bytes, value: bytes, number: int) -> bytes:
    body = b"\x00" + _varint(0) + _varint(number) + _varint(len(key)) + key + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    left, found = number << 1, b""
    while left >= 0x80:
        found += bytes([left & 0x7F | 0x80])
        left >>= 7
    return found + bytes([left])


def _crc32c(data: bytes) -> int:
    found = 0xFFFFFFFF
    for byte in data:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F63B78 if found & 1 else 0)
    return found ^ 0xFFFFFFFF
