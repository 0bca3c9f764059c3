"""The load: messages and connections. Bodies are 1 KiB, keys 12 bytes, one tag, two properties.

A `Connection` speaks to one server; the node's and Redis' have the same few methods, so that every measurement runs
the same code against both. All of it runs in the clients' processes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Protocol

from bench.clients import resp
from bench.clients.compact import (
    Message,
    Pulled,
    check_publish_reply,
    check_submit_reply,
    publish_frame,
    pull_frame,
    scan_pull_reply,
    submit_frame,
)

KEYS = 1_000
BODY_BYTES = 1_024
TAG = b"created"
PROPERTIES = ((b"traceId", b"5f1c9a7be2d04c11"), (b"origin", b"checkout"))
_RECEIVE_BYTES = 1 << 20
_LENGTH = struct.Struct(">I")
_STAMP = struct.Struct(">QQ")


def key_of(number: int) -> bytes:
    """Return the 12-byte key of the message with this number."""
    return b"key-%08d" % (number % KEYS)


def body_of(stamp: int = 0, number: int = 0) -> bytes:
    """Return a body that begins with two 64-bit values; the rest is the same in all."""
    return _STAMP.pack(stamp, number) + b"x" * (BODY_BYTES - _STAMP.size)


def stamp_of(body: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return the two values that a body begins with."""
    stamp, number = _STAMP.unpack_from(body)
    return stamp, number


def _connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Connection(Protocol):
    """What a measurement needs of a server's client; one connection, one request outstanding unless said otherwise."""

    socket: socket.socket

    def prepare(self, batch: int) -> Sequence[bytes]:
        """Encode publishes of `batch` messages each, together going once round all keys, in turn."""
        ...

    def one(self, body: bytes, number: int) -> bytes:
        """Encode a publish of one message."""
        ...

    def publish(self, request: bytes) -> None:
        """Send a publish and wait until it is answered."""
        ...

    def published(self) -> int:
        """Receive what is there (at least something) and return how many publishes it answers."""
        ...

    def pull(self, batch: int, linger_ms: int) -> list[bytes]:
        """Acknowledge what the pull before returned, and pull: the bodies, none when nothing came in time."""
        ...

    def finish(self) -> None:
        """Acknowledge what the last pull returned, and close."""
        ...


class NodeConnection:
    """A connection to one of the node's Thrift ports.

    Args:
        address: The producer's or the consumer's port.
        topic: Topic to publish to.
        group: Group to pull for; acknowledgements ride on the next pull.
    """

    def __init__(self, address: tuple[str, int], topic: bytes, group: bytes) -> None:
        self.socket = _connect(address)
        self._topic = topic
        self._group = group
        self._buffer = bytearray()
        self._held: list[Pulled] = []

    def prepare(self, batch: int) -> Sequence[bytes]:
        return [
            publish_frame([self._message(body_of(), number) for number in range(start, start + batch)])
            for start in range(0, _round(batch), batch)
        ]

    def one(self, body: bytes, number: int) -> bytes:
        return publish_frame([self._message(body, number)])

    def _message(self, body: bytes, number: int) -> Message:
        return Message(self._topic, key_of(number), body, TAG, PROPERTIES)

    def publish(self, request: bytes) -> None:
        self.socket.sendall(request)
        check_publish_reply(self._frame())

    def published(self) -> int:
        self._receive()
        count = 0
        while (frame := self._take()) is not None:
            check_publish_reply(frame)
            count += 1
        return count

    def pull(self, batch: int, linger_ms: int) -> list[bytes]:
        self.socket.sendall(pull_frame(self._group, batch, linger_ms, self._held))
        pulled = scan_pull_reply(self._frame())
        self._held = [] if pulled is None else [pulled]
        return [] if pulled is None else [bytes(body[: _STAMP.size]) for body in pulled.bodies]

    def finish(self) -> None:
        if self._held:
            self.socket.sendall(submit_frame(self._group, self._held))
            check_submit_reply(self._frame())
        self.socket.close()

    def _frame(self) -> bytes:
        while True:
            frame = self._take()
            if frame is not None:
                return frame
            self._receive()

    def _take(self) -> bytes | None:
        if len(self._buffer) < 4:
            return None
        end = 4 + _LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[4:end])
        del self._buffer[:end]
        return frame

    def _receive(self) -> None:
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the node closed the connection")
        self._buffer += data


class RedisConnection:
    """A connection to Redis: XADD in pipelines, XREADGROUP with the XACK of the batch before in the same write."""

    def __init__(self, address: tuple[str, int], stream: bytes, group: bytes) -> None:
        self.socket = _connect(address)
        self._stream = stream
        self._group = group
        self._buffer = bytearray()
        self._held: Sequence[bytes] = ()
        self._expected = 1

    def make_group(self) -> None:
        """Create stream and group, the group at the stream's start."""
        self.socket.sendall(resp.command(b"XGROUP", b"CREATE", self._stream, self._group, b"0", b"MKSTREAM"))
        self._replies(1)

    def prepare(self, batch: int) -> Sequence[bytes]:
        self._expected = batch
        return [
            b"".join(self.one(body_of(), number) for number in range(start, start + batch))
            for start in range(0, _round(batch), batch)
        ]

    def one(self, body: bytes, number: int) -> bytes:
        fields = [b"key", key_of(number), b"tag", TAG, *(word for pair in PROPERTIES for word in pair), b"body", body]
        return resp.command(b"XADD", self._stream, b"*", *fields)

    def publish(self, request: bytes) -> None:
        self.socket.sendall(request)
        self._replies(self._expected)

    def published(self) -> int:
        self._receive()
        count = 0
        while (end := resp.reply_end(self._buffer, 0)) is not None:
            self._check(0)
            del self._buffer[:end]
            count += 1
        return count

    def pull(self, batch: int, linger_ms: int) -> list[bytes]:
        block = [b"BLOCK", b"%d" % linger_ms] if linger_ms else []
        read = resp.command(
            *(b"XREADGROUP", b"GROUP", self._group, b"bench", b"COUNT", b"%d" % batch),
            *block,
            *(b"STREAMS", self._stream, b">"),
        )
        held = len(self._held)
        ack = resp.command(b"XACK", self._stream, self._group, *self._held) if held else b""
        self.socket.sendall(ack + read)
        reply = self._replies(2 if held else 1)
        if held and not reply.startswith(b":%d\r\n" % held):
            raise ConnectionError(f"Redis took other acknowledgements than sent: {bytes(reply[:60])!r}")
        self._held = resp.entry_ids(reply)
        return _bodies(reply)

    def finish(self) -> None:
        if self._held:
            self.socket.sendall(resp.command(b"XACK", self._stream, self._group, *self._held))
            self._replies(1)
        self.socket.close()

    def _replies(self, count: int) -> bytearray:
        """Receive `count` replies and return their bytes."""
        pos = 0
        for _ in range(count):
            while (end := resp.reply_end(self._buffer, pos)) is None:
                self._receive()
            self._check(pos)
            pos = end
        replies = self._buffer[:pos]
        del self._buffer[:pos]
        return replies

    def _check(self, pos: int) -> None:
        if self._buffer[pos] == ord("-"):
            raise ConnectionError(f"Redis refused: {bytes(self._buffer[pos : pos + 120])!r}")

    def _receive(self) -> None:
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("Redis closed the connection")
        self._buffer += data


_BODY_MARK = b"\r\n$4\r\nbody\r\n$%d\r\n" % BODY_BYTES


def _bodies(reply: bytearray) -> list[bytes]:
    found = []
    pos = reply.find(_BODY_MARK)
    while pos >= 0:
        pos += len(_BODY_MARK)
        found.append(bytes(reply[pos : pos + _STAMP.size]))
        pos = reply.find(_BODY_MARK, pos + BODY_BYTES)
    return found


def _round(batch: int) -> int:
    """Return how many messages a whole number of batches needs to go over every key equally often."""
    total = batch
    while total % KEYS:
        total += batch
    return total
