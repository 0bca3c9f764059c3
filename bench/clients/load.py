"""The load: messages and connections. Bodies are 1 KiB, keys 12 bytes, one tag, two properties.

A `Connection` speaks to one server; the node's and Redis' have the same few methods, so that every measurement runs
the same code against both. All of it runs in the clients' processes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from functools import cache
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


class Connection(Protocol):
    """What a measurement needs of a server's client; one connection, one request outstanding unless said otherwise."""

    socket: socket.socket

    def request(self, number: int) -> bytes:
        """Encode the publish of a batch, its first message by number; the same messages come back after all keys."""
        ...

    def one(self, body: bytes, number: int) -> bytes:
        """Encode a publish of one message."""
        ...

    def published(self) -> int:
        """Receive what is there (at least something) and return how many publishes it answers."""
        ...

    def ask(self, batch: int, linger_ms: int) -> None:
        """Acknowledge what the pull before returned, and send a pull."""
        ...

    def pulled(self) -> list[bytes] | None:
        """Receive what is there, and return the bodies that the pull got, none when nothing came in time.

        None while the answer is not complete.
        """
        ...

    def finish(self) -> None:
        """Acknowledge what the last pull returned, and close."""
        ...


def pull(connection: Connection, batch: int, linger_ms: int) -> list[bytes]:
    """Acknowledge, pull, and wait for the answer."""
    connection.ask(batch, linger_ms)
    while (bodies := connection.pulled()) is None:
        pass
    return bodies


class Receiving:
    """A connection and what it has received."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def _receive(self) -> None:
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data

    def _take(self) -> bytes | None:
        """Take a frame that follows its length in 4 bytes; None if it is not complete."""
        if len(self._buffer) < 4:
            return None
        end = 4 + _LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[4:end])
        del self._buffer[:end]
        return frame

    def _frame(self) -> bytes:
        while (frame := self._take()) is None:
            self._receive()
        return frame


class NodeConnection(Receiving):
    """A connection to one of the node's Thrift ports.

    Args:
        address: The producer's or the consumer's port.
        topic: Topic to publish to.
        group: Group to pull for; acknowledgements ride on the next pull.
        batch: Messages of a request.
    """

    def __init__(self, address: tuple[str, int], topic: bytes, group: bytes, batch: int = 1) -> None:
        super().__init__(address)
        self._topic = topic
        self._group = group
        self._batch = batch
        self._held: list[Pulled] = []

    def request(self, number: int) -> bytes:
        return _node_request(self._topic, self._batch, number % rounded(self._batch))

    def one(self, body: bytes, number: int) -> bytes:
        return publish_frame([Message(self._topic, key_of(number), body, TAG, PROPERTIES)])

    def published(self) -> int:
        self._receive()
        count = 0
        while (frame := self._take()) is not None:
            check_publish_reply(frame)
            count += 1
        return count

    def ask(self, batch: int, linger_ms: int) -> None:
        self.socket.sendall(pull_frame(self._group, batch, linger_ms, self._held))

    def pulled(self) -> list[bytes] | None:
        self._receive()
        frame = self._take()
        if frame is None:
            return None
        pulled = scan_pull_reply(frame)
        self._held = [] if pulled is None else [pulled]
        return [] if pulled is None else [bytes(body[: _STAMP.size]) for body in pulled.bodies]

    def finish(self) -> None:
        if self._held:
            self.socket.sendall(submit_frame(self._group, self._held))
            check_submit_reply(self._frame())
        self.socket.close()


@cache
def _node_request(topic: bytes, batch: int, start: int) -> bytes:
    numbers = range(start, start + batch)
    return publish_frame([Message(topic, key_of(number), body_of(), TAG, PROPERTIES) for number in numbers])


class RedisConnection(Receiving):
    """A connection to Redis: XADD in pipelines, XREADGROUP with the XACK of the batch before in the same write."""

    def __init__(self, address: tuple[str, int], stream: bytes, group: bytes, batch: int = 1) -> None:
        super().__init__(address)
        self._stream = stream
        self._group = group
        self._batch = batch
        self._answered = 0
        self._held: Sequence[bytes] = ()

    def make_group(self) -> None:
        """Create stream and group, the group at the stream's start."""
        self.socket.sendall(resp.command(b"XGROUP", b"CREATE", self._stream, self._group, b"0", b"MKSTREAM"))
        self._reply()

    def request(self, number: int) -> bytes:
        return _redis_request(self._stream, self._batch, number % rounded(self._batch))

    def one(self, body: bytes, number: int) -> bytes:
        return _xadd(self._stream, body, number)

    def published(self) -> int:
        self._receive()
        while self._next_reply() is not None:
            self._answered += 1
        whole, self._answered = divmod(self._answered, self._batch)
        return whole

    def ask(self, batch: int, linger_ms: int) -> None:
        block = [b"BLOCK", b"%d" % linger_ms] if linger_ms else []
        read = resp.command(
            *(b"XREADGROUP", b"GROUP", self._group, b"bench", b"COUNT", b"%d" % batch),
            *block,
            *(b"STREAMS", self._stream, b">"),
        )
        self.socket.sendall(self._acknowledgement() + read)

    def pulled(self) -> list[bytes] | None:
        self._receive()
        if self._held and not self._acknowledged():
            return None
        reply = self._next_reply()
        if reply is None:
            return None
        self._held = resp.entry_ids(reply)
        return _bodies(reply)

    def finish(self) -> None:
        if self._held:
            self.socket.sendall(self._acknowledgement())
            self._reply()
        self.socket.close()

    def _acknowledgement(self) -> bytes:
        return resp.command(b"XACK", self._stream, self._group, *self._held) if self._held else b""

    def _acknowledged(self) -> bool:
        reply = self._next_reply()
        if reply is None:
            return False
        if reply != b":%d\r\n" % len(self._held):
            raise ConnectionError(f"Redis took other acknowledgements than sent: {bytes(reply[:60])!r}")
        self._held = ()
        return True

    def _reply(self) -> bytearray:
        while (reply := self._next_reply()) is None:
            self._receive()
        return reply

    def _next_reply(self) -> bytearray | None:
        """Take a reply; None if it is not complete."""
        if not self._buffer or (end := resp.reply_end(self._buffer, 0)) is None:
            return None
        if self._buffer[0] == ord("-"):
            raise ConnectionError(f"Redis refused: {bytes(self._buffer[:120])!r}")
        reply = self._buffer[:end]
        del self._buffer[:end]
        return reply


def _xadd(stream: bytes, body: bytes, number: int) -> bytes:
    fields = [b"key", key_of(number), b"tag", TAG, *(word for pair in PROPERTIES for word in pair), b"body", body]
    return resp.command(b"XADD", stream, b"*", *fields)


@cache
def _redis_request(stream: bytes, batch: int, start: int) -> bytes:
    return b"".join(_xadd(stream, body_of(), number) for number in range(start, start + batch))


_BODY_MARK = b"\r\n$4\r\nbody\r\n$%d\r\n" % BODY_BYTES


def _bodies(reply: bytearray) -> list[bytes]:
    found = []
    pos = reply.find(_BODY_MARK)
    while pos >= 0:
        pos += len(_BODY_MARK)
        found.append(bytes(reply[pos : pos + _STAMP.size]))
        pos = reply.find(_BODY_MARK, pos + BODY_BYTES)
    return found


def rounded(batch: int) -> int:
    """Return how many messages a whole number of batches needs to go over every key equally often."""
    total = batch
    while total % KEYS:
        total += batch
    return total
