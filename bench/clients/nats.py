"""A connection to NATS JetStream: publishes with a reply, pulls by MSG.NEXT with the +ACK of the message before."""

from __future__ import annotations

import json
from functools import cache

from bench.clients.load import BODY_BYTES, PROPERTIES, TAG, Receiving, body_of, key_of

_PULL, _PUBLISH, _OTHER = b"pull", b"publish", b"other"


class NatsConnection(Receiving):
    """A connection that has a stream's messages, and those of a pull consumer on it.

    Args:
        address: The server's port.
        stream: The stream, and its subject.
        group: The consumer.
        batch: Messages of a publish.
    """

    def __init__(self, address: tuple[str, int], stream: bytes, group: bytes, batch: int = 1) -> None:
        super().__init__(address)
        self._stream = stream
        self._group = group
        self._batch = batch
        self._answered = 0
        self._held: list[bytes] = []
        self._inbox = b"_INBOX.%d" % self.socket.getsockname()[1]
        hello = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
        self.socket.sendall(hello + b"SUB " + self._inbox + b".* 1\r\nPING\r\n")
        while b"PONG\r\n" not in self._buffer:
            self._receive()
        self._buffer.clear()

    def make_group(self) -> None:
        """Create the stream, in files, and its consumer."""
        stream = self._stream.decode()
        self._call(b"STREAM.CREATE.%b" % self._stream, {"name": stream, "subjects": [stream], "storage": "file"})
        consumer = {"durable_name": self._group.decode(), "ack_policy": "explicit", "max_ack_pending": -1}
        subject = b"CONSUMER.DURABLE.CREATE.%b.%b" % (self._stream, self._group)
        self._call(subject, {"stream_name": stream, "config": consumer})

    def request(self, number: int) -> bytes:
        return b"".join(self.one(_body(), number + each) for each in range(self._batch))

    def one(self, body: bytes, number: int) -> bytes:
        head = _headers(key_of(number))
        sizes = b"%d %d\r\n" % (len(head), len(head) + len(body))
        return b"HPUB %b %b.%b %b%b%b\r\n" % (self._stream, self._inbox, _PUBLISH, sizes, head, body)

    def published(self) -> int:
        self._receive()
        while (found := self._next()) is not None:
            if b'"seq"' not in found[2]:
                raise ConnectionError(f"NATS refused: {found[2][:120]!r}")
            self._answered += 1
        whole, self._answered = divmod(self._answered, self._batch)
        return whole

    def ask(self, batch: int, linger_ms: int) -> None:
        wanted = b'{"batch":%d,"expires":%d}' % (batch, linger_ms * 1_000_000)
        if batch > 1:
            raise NotImplementedError("a pull of NATS is of one message here")
        head = b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.%b %b.%b " % (self._stream, self._group, self._inbox, _PULL)
        self.socket.sendall(self._acknowledgements() + head + b"%d\r\n%b\r\n" % (len(wanted), wanted))

    def pulled(self) -> list[bytes] | None:
        self._receive()
        found = self._next()
        if found is None:
            return None
        acknowledge_to, head, body = found
        if len(body) < BODY_BYTES:
            # 408: nothing came in time.
            if not head.startswith(b"NATS/1.0 408"):
                raise ConnectionError(f"NATS refused: {head!r}")
            return []
        self._held = [acknowledge_to]
        return [body[:16]]

    def finish(self) -> None:
        self.socket.sendall(self._acknowledgements() + b"PING\r\n")
        while b"PONG\r\n" not in self._buffer:
            self._receive()
        self.socket.close()

    def _acknowledgements(self) -> bytes:
        held, self._held = self._held, []
        return b"".join(b"PUB %b 4\r\n+ACK\r\n" % each for each in held)

    def _call(self, subject: bytes, document: object) -> None:
        data = json.dumps(document).encode()
        self.socket.sendall(b"PUB $JS.API.%b %b.%b %d\r\n%b\r\n" % (subject, self._inbox, _OTHER, len(data), data))
        while (found := self._next()) is None:
            self._receive()
        if b'"error"' in found[2]:
            raise ConnectionError(f"NATS refused: {found[2]!r}")

    def _next(self) -> tuple[bytes, bytes, bytes] | None:
        """Take a message: where it is acknowledged, headers and body; None if it is not complete."""
        while (end := self._buffer.find(b"\r\n")) >= 0:
            words = bytes(self._buffer[:end]).split(b" ")
            if words[0] not in (b"MSG", b"HMSG"):
                if words[0] == b"-ERR":
                    raise ConnectionError(f"NATS refused: {bytes(self._buffer[:end])!r}")
                if words[0] == b"PING":
                    self.socket.sendall(b"PONG\r\n")
                del self._buffer[: end + 2]
                continue
            total, head = int(words[-1]), int(words[-2]) if words[0] == b"HMSG" else 0
            begin = end + 2
            if len(self._buffer) < begin + total + 2:
                return None
            data = bytes(self._buffer[begin : begin + total])
            del self._buffer[: begin + total + 2]
            acknowledge_to = words[3] if len(words) == (6 if head else 5) else b""
            return acknowledge_to, data[:head], data[head:]
        return None


@cache
def _body() -> bytes:
    return body_of()


@cache
def _headers(key: bytes) -> bytes:
    pairs = [(b"key", key), (b"tag", TAG), *PROPERTIES]
    return b"NATS/1.0\r\n" + b"".join(b"%b: %b\r\n" % pair for pair in pairs) + b"\r\n"
