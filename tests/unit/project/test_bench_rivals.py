"""The benchmark's clients of NATS and RocketMQ read what they are sent at any cut, and refuse what is no success."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from bench.clients import load
from bench.clients.nats import NatsConnection
from bench.clients.remoting import RocketConnection


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server's socket on the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


@contextmanager
def _nats(listener: socket.socket) -> Iterator[tuple[NatsConnection, socket.socket]]:
    accepted: list[socket.socket] = []

    def greet() -> None:
        peer, _ = listener.accept()
        peer.sendall(b"INFO {}\r\nPONG\r\n")
        accepted.append(peer)

    thread = Thread(target=greet)
    thread.start()
    connection = NatsConnection(listener.getsockname(), b"bench", b"group", batch=2)
    thread.join()
    assert accepted[0].recv(1_000).startswith(b"CONNECT {")
    with connection.socket, accepted[0]:
        yield connection, accepted[0]


def test_a_publish_of_nats_counts_when_all_its_replies_came(listener: socket.socket) -> None:
    """Two messages are one request of this connection; a reply without a sequence number ends the run."""
    with _nats(listener) as (connection, peer):
        request = connection.request(3)
        assert request.count(b"HPUB bench _INBOX.") == 2
        assert request.index(b"key: " + load.key_of(3)) < request.index(b"key: " + load.key_of(4))
        reply = b'MSG _INBOX.1.publish 1 9\r\n{"seq":1}\r\n'
        counts = []
        for part in (reply[:5], reply[5:], reply):
            peer.sendall(part)
            counts.append(connection.published())
        assert counts == [0, 0, 1]
        peer.sendall(b'MSG _INBOX.1.publish 1 12\r\n{"error":{}}\r\n')
        with pytest.raises(ConnectionError, match="NATS refused"):
            connection.published()


def test_a_pull_of_nats_acknowledges_the_message_before(listener: socket.socket) -> None:
    """The body comes out behind the headers, 408 is an empty pull, and the next pull carries +ACK."""
    with _nats(listener) as (connection, peer):
        head = b"NATS/1.0\r\nkey: k\r\n\r\n"
        body = load.body_of(7, 8)
        message = b"HMSG bench 1 $JS.ACK.x %d %d\r\n%b%b\r\n" % (len(head), len(head) + len(body), head, body)
        connection.ask(1, 500)
        assert b"+ACK" not in peer.recv(10_000)
        peer.sendall(message[:300])
        assert connection.pulled() is None
        peer.sendall(message[300:])
        bodies = connection.pulled()
        assert bodies is not None
        assert load.stamp_of(bodies[0]) == (7, 8)
        connection.ask(1, 500)
        assert peer.recv(10_000).startswith(b"PUB $JS.ACK.x 4\r\n+ACK\r\nPUB $JS.API.CONSUMER.MSG.NEXT.bench.group ")
        timeout = b"NATS/1.0 408 Request Timeout\r\n\r\n"
        peer.sendall(b"HMSG _INBOX.1.pull 1 %d %d\r\n%b\r\n" % (len(timeout), len(timeout), timeout))
        assert connection.pulled() == []


def _answer(code: int, body: bytes = b"", **fields: str) -> bytes:
    header = json.dumps({"code": code, "extFields": fields}).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def test_rocketmqs_pulls_commit_the_offset_that_the_one_before_ended_at(listener: socket.socket) -> None:
    """Bodies come out of the store's records; nothing new is an empty pull, and any other code ends the run."""
    connection = RocketConnection(listener.getsockname(), b"bench", b"group")
    peer, _ = listener.accept()
    with connection.socket, peer:
        body = load.body_of(7, 8)
        record = struct.pack(">I", 88 + len(body)) + bytes(80) + struct.pack(">I", len(body)) + body
        answer = _answer(0, record * 2, nextBeginOffset="12")
        peer.sendall(answer[:50])
        assert connection.pulled() is None
        peer.sendall(answer[50:])
        assert [load.stamp_of(each) for each in connection.pulled() or ()] == [(7, 8)] * 2
        connection.ask(1, 500)
        sent = json.loads(peer.recv(10_000)[8:])
        assert (sent["code"], sent["extFields"]["queueOffset"], sent["extFields"]["commitOffset"]) == (11, 12, 12)
        peer.sendall(_answer(19))
        assert connection.pulled() == []
        peer.sendall(_answer(0) + _answer(1))
        with pytest.raises(ConnectionError, match="RocketMQ refused"):
            connection.published()
