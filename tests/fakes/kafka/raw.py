"""A broker inside librdkafka, and records as no client library would write them: bytes of Kafka's protocol."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

_SECONDS = 20.0


class MockKafka:
    """One broker of librdkafka's own, in this process, on loopback; it ends with this object."""

    def __init__(self, package: Any) -> None:
        self._owner = package.Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
        [broker] = self._owner.list_topics(timeout=_SECONDS).brokers.values()
        self._where = (broker.host, broker.port)
        self.address = f"{broker.host}:{broker.port}"

    def make_topic(self, topic: str) -> None:
        """Make a topic with the number of partitions that the broker has for all, and one record in its first one."""
        self._owner.produce(topic, b"first", partition=0)
        assert self._owner.flush(_SECONDS) == 0

    def append(self, topic: str, value: bytes, headers: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append a record to partition 0, with header names of any bytes."""
        batch = _batch(value, headers)
        request = struct.pack(">hhi", 0, 3, 1) + _text(b"raw") + struct.pack(">hhi", -1, -1, 5_000)
        request += struct.pack(">i", 1) + _text(topic.encode()) + struct.pack(">iii", 1, 0, len(batch)) + batch
        with socket.create_connection(self._where, timeout=_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(1_000)
        # Size, correlation, one topic with its name, one partition, its number; then the code.
        [code] = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
        assert code == 0, code


def _batch(value: bytes, headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    body = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _sized(value) + _varint(len(headers))
    body += b"".join(_sized(name) + _sized(each) for name, each in headers)
    records = _sized(body)
    tail = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + records
    rest = struct.pack(">iBI", -1, 2, _crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(rest)) + rest


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF
