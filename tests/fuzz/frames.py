"""Targets `consumer` and `producer`: a stream of bytes on a connection of a whole node, in pieces.

Whatever comes: nothing escapes the connection, no call ends as an internal error, every reply is a whole frame of a
known kind, and when the client is gone nothing of it is held any more.
"""

from __future__ import annotations

import asyncio
from typing import Any

from broker.runtime.seams import Buffer
from proxy.port.connection import Connection
from proxy.port.server import CALLS_FAILED, ThriftServer
from proxy.wire.errors import APPLICATION_INTERNAL_ERROR
from tests.hostile.sim import HostileWorld
from tests.insides import opened_of
from upstream.budget import JOB_BYTES

INPUTS_PER_NODE = 2_000
"""Then a new node takes over, so that an input does not depend on millions before it."""

YAML = """
node: {segmentBytes: 1048576, producerPort: 9613, consumerPort: 9713, maxMessageBytes: 100000,
       maxReadBufferBytes: 200000, autoCreateTopics: true, defaultQueues: 2}
topics:
  orders: {queues: 2}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], orderKey: KEY, maxPullBatchSize: 4, timeout: 600000}
  - group: audit
    topics:
      - {topic: orders, actions: [Json, Async, PullServer], orderKey: $.id, timeout: 600000, maxRetry: 1}
"""


class Peer(asyncio.Transport):
    """Takes everything at once, or (`slow`) nothing."""

    def __init__(self, *, slow: bool) -> None:
        super().__init__()
        self.written = bytearray()
        self.slow = slow
        self.ended = False
        self.protocol: Any = None

    def write(self, data: Buffer) -> None:
        self.written += data
        if self.slow:
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.written) if self.slow else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 5000) if name == "peername" else default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True


class _Nodes:
    """The node that inputs go to; a new one now and then."""

    def __init__(self) -> None:
        self.world: HostileWorld | None = None
        self.inputs = 0

    def next(self) -> HostileWorld:
        self.inputs += 1
        if self.world is None or self.inputs % INPUTS_PER_NODE == 0:
            self.world = HostileWorld(YAML)
            for number in range(4):
                opened_of(self.world.node).store.put("orders", b'{"id": %d}' % number, key=f"k{number}")
        return self.world

    def drop(self) -> None:
        self.world = None


_nodes = _Nodes()


def consumer(data: bytes) -> None:
    """The stream on the consumer port; the first byte says how it is cut, and whether the client reads."""
    _run("consumer", data)


def producer(data: bytes) -> None:
    """The stream on the producer port."""
    _run("producer", data)


def _run(service: str, data: bytes) -> None:
    world = _nodes.next()
    try:
        _stream(world, getattr(world.node, service), service, data)
    except BaseException:
        _nodes.drop()
        raise


def _stream(world: HostileWorld, server: ThriftServer, service: str, data: bytes) -> None:
    node = world.node
    flags = data[0] if data else 0
    stream = data[1:]
    piece = (1, 7, 64, len(stream) or 1)[flags & 3]
    peer = Peer(slow=bool(flags & 4))
    connection = Connection(server)
    peer.protocol = connection
    connection.connection_made(peer)
    for start in range(0, len(stream), piece):
        if peer.ended:
            break
        connection.data_received(stream[start : start + piece])
        if flags & 8:
            world.run(0.0)
    world.run(0.001)
    if flags & 16 and not peer.ended:
        connection.eof_received()
        world.run(0.001)
    _check_replies(bytes(peer.written))
    connection.connection_lost(None)
    world.run(0.001)
    node.parts.memory.budget.recount()
    assert (
        node.parts.memory.budget.used == sum(group.live_jobs for group in node.in_force.groups.values()) * JOB_BYTES
    ), "memory is still held"
    assert not server.connections
    assert not node.runtime.metrics.value(CALLS_FAILED, service, str(APPLICATION_INTERNAL_ERROR)), (
        "a call failed inside"
    )
    assert node.failure is None


def _check_replies(written: bytes) -> None:
    if written.startswith(b"HTTP/1.1 400"):
        return
    at = 0
    while at < len(written) and not written.startswith(b"HTTP/1.1 400", at):
        size = int.from_bytes(written[at : at + 4], "big")
        reply = written[at + 4 : at + 4 + size]
        assert 0 < size == len(reply), "a reply that is no whole frame"
        assert reply[:2] in (b"\x80\x01", b"\x82\x41", b"\x82\x61"), f"no reply of either protocol: {reply[:8]!r}"
        at += 4 + size
