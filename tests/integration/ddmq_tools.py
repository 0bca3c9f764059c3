"""A plain client for the tests of DDMQ's faults: one socket, and nothing is sent that a test did not say."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from itertools import pairwise
from types import TracebackType
from typing import Any

from tests.patient import LINGER_MS, PATIENCE_SECONDS
from tests.simulation.wire import Frames, Reply, consumer_codec, consumer_idl, producer_codec, producer_idl

NODE = "node: {segmentBytes: 1048576, maxMessageBytes: 500000%s}\n"
"""The `node` section of a small store; `%` puts further settings in."""


class Peer:
    """A connection to one port of a node, closed at the end of its `with`."""

    def __init__(self, address: str, *, receive_bytes: int = 0, compact: bool = True) -> None:
        """Connect.

        Args:
            address: host:port.
            receive_bytes: Size of the socket's receive buffer; 0 leaves it to the system.
            compact: Whether the producer speaks the compact protocol.
        """
        host, port = address.split(":")
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.connect((host, int(port)))
        self.frame_bytes = 0
        """Length of the last reply's frame."""
        self._frames = Frames()
        self._replies: list[bytes] = []
        self._seqid = 0
        self._consumer = consumer_codec(compact=True)
        self._producer = producer_codec(compact=compact)

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def frame(self, method: str, **arguments: Any) -> bytes:
        """The frame of a call of either service."""
        self._seqid += 1
        codec = self._producer if method.startswith("send") else self._consumer
        return codec.call(method, self._seqid, **arguments)

    def pull_frame(self, group: str, *, linger_ms: int = 0, **more: Any) -> bytes:
        """The frame of a pull."""
        request = consumer_idl.PullRequest(groupId=group, maxLingerTime=linger_ms, **more)
        return self.frame("pull", request=request)

    def call(self, method: str, **arguments: Any) -> Reply:
        """Call and wait for the reply, whatever it is."""
        self.socket.sendall(self.frame(method, **arguments))
        return self.reply(method)

    def reply(self, method: str) -> Reply:
        """The next reply; an end of the stream fails the test."""
        while not self._replies:
            data = self.socket.recv(1 << 16)
            assert data, "the node closed the connection"
            self._replies += [payload for _, payload in self._frames.feed(data)]
        payload = self._replies.pop(0)
        self.frame_bytes = 4 + len(payload)
        return (self._producer if method.startswith("send") else self._consumer).reply(payload)

    def pull(self, group: str, *, linger_ms: int = LINGER_MS, **more: Any) -> Any:
        """Pull and return the response; a refusal fails the test."""
        self.socket.sendall(self.pull_frame(group, linger_ms=linger_ms, **more))
        reply = self.reply("pull")
        assert reply.error is None, reply.error
        return reply.value

    def refused_pull(self, group: str, **more: Any) -> Any:
        """Pull and return the exception that answered it."""
        self.socket.sendall(self.pull_frame(group, **more))
        reply = self.reply("pull")
        assert reply.error is not None, reply.value
        return reply.error

    def submit(self, *results: Any) -> bool:
        """Submit results as one chain and return the answer."""
        reply = self.call("submit", result=chain(*results))
        assert reply.error is None, reply.error
        return bool(reply.value)

    def stats(self, group: str, topic: str | None = None) -> list[Any]:
        """The rows of getConsumeStats."""
        reply = self.call("getConsumeStats", request=consumer_idl.ConsumeStatsRequest(group=group, topic=topic))
        assert reply.error is None, reply.error
        return list(reply.value)

    def send(self, topic: str, body: bytes = b"x", *, timeout_ms: int = 1000, **more: Any) -> Any:
        """Send one message and return the Result."""
        message = producer_idl.Message(topic=topic, body=body, **more)
        return self.call("sendSync", message=message, timeout=timeout_ms).value


def result(group: str, topic: str, qid: str, success: Iterable[int] = (), fail: Iterable[int] = ()) -> Any:
    """One element of a chain of results."""
    context = consumer_idl.Context(groupId=group, topic=topic, qid=qid)
    return consumer_idl.ConsumeResult(context=context, successOffsets=list(success), failOffsets=list(fail))


def chain(*results: Any) -> Any:
    """Link results by nextResult, the first one in front."""
    for each, following in pairwise(results):
        each.nextResult = following
    return results[0]
