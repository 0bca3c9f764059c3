"""D10 on a real process: many messages are acked above one that is not, SIGKILL, and only that one comes again."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.crash.process import NodeProcess
from tests.patient import LINGER_MS, PATIENCE_SECONDS
from tests.simulation.wire import Codec, Frames, Reply, consumer_codec, consumer_idl, producer_codec, producer_idl

MESSAGES, MESSAGES_LONG = 100_000, 1_000_000
PER_BATCH = 2_000
PER_PULL = 10_000
IN_FLIGHT = 4

SETTINGS: dict[str, Any] = {
    "node": {},
    "topics": {"many": {"queues": 1}},
    "groups": [
        {
            "group": "many",
            "topics": [
                {"topic": "many", "maxPullBatchSize": PER_PULL, "concurrency": 4 * PER_PULL, "timeout": 86_400_000}
            ],
        }
    ],
}


class Line:
    """A blocking connection that sends frames and reads replies."""

    def __init__(self, address: tuple[str, int] | None, codec: Codec) -> None:
        assert address is not None
        self._socket = socket.create_connection(address, timeout=PATIENCE_SECONDS)
        self._codec = codec
        self._frames = Frames()
        self._ready: list[bytes] = []

    def send(self, frame: bytes) -> None:
        """Send a whole frame."""
        self._socket.sendall(frame)

    def receive(self) -> Reply:
        """Wait for the next reply."""
        while not self._ready:
            data = self._socket.recv(1 << 20)
            assert data, "the node has closed the connection"
            self._ready += [payload for _, payload in self._frames.feed(data)]
        return self._codec.reply(self._ready.pop(0))

    def call(self, method: str, **arguments: Any) -> Any:
        """Call and return the value."""
        self.send(self._codec.call(method, 1, **arguments))
        reply = self.receive()
        assert reply.error is None, reply.error
        return reply.value

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _publish(node: NodeProcess, messages: int) -> None:
    """Send small messages, a few batches ahead of the replies."""
    codec = producer_codec()
    line = Line(node.producer, codec)
    frame = codec.call("sendBatchSync", 1, messages=[producer_idl.Message(topic="many", body=b"x")] * PER_BATCH)
    count = messages // PER_BATCH
    for number in range(count + IN_FLIGHT):
        if number < count:
            line.send(frame)
        if number >= IN_FLIGHT:
            assert line.receive().value.code == 0
    line.close()


def _consume(node: NodeProcess, messages: int) -> None:
    """Pull everything and ack all but offset 0; every ack is answered."""
    line = Line(node.consumer, consumer_codec())
    acks: list[int] = []
    seen = 0
    while seen < messages:
        response = line.call("pull", request=_pull(acks, count=PER_PULL, linger_ms=LINGER_MS))
        offsets = [message.offset for message in response.messages]
        assert offsets == list(range(seen, seen + len(offsets)))
        seen += len(offsets)
        acks = offsets[1:] if offsets[0] == 0 else offsets
    assert line.call("submit", result=_result(acks))
    line.close()


def _pull(acks: list[int], *, count: int, linger_ms: int) -> Any:
    return consumer_idl.PullRequest(
        groupId="many", maxBatchSize=count, maxLingerTime=linger_ms, result=_result(acks) if acks else None
    )


def _result(acks: list[int]) -> Any:
    context = consumer_idl.Context(groupId="many", topic="many", qid="pyddmq_broker-0_0")
    return consumer_idl.ConsumeResult(context=context, successOffsets=acks, failOffsets=[])


def _journal_bytes(data: Path) -> int:
    return sum(file.stat().st_size for file in (data / "pyddmq" / "acks").iterdir())


@pytest.mark.parametrize("messages", [MESSAGES, pytest.param(MESSAGES_LONG, marks=pytest.mark.long)])
def test_acks_above_one_unacked_survive_kill(messages: int, tmp_path: Path) -> None:
    """After SIGKILL offset 0 comes, and none of the others; the journal is small. `make crash` has a million."""
    node = NodeProcess(tmp_path, SETTINGS)
    try:
        node.start()
        _publish(node, messages)
        _consume(node, messages)
        node.kill()
        node.start()
        line = Line(node.consumer, consumer_codec())
        first = line.call("pull", request=_pull([], count=PER_PULL, linger_ms=LINGER_MS))
        assert [message.offset for message in first.messages] == [0]
        again = line.call("pull", request=_pull([], count=PER_PULL, linger_ms=200))
        assert list(again.messages or ()) == []
        stats = line.call("getConsumeStats", request=consumer_idl.ConsumeStatsRequest(group="many"))
        assert stats[0].consumeOffsets == {"pyddmq_broker-0_0": 0}
        assert stats[0].produceOffsets == {"pyddmq_broker-0_0": messages}
        line.close()
        assert _journal_bytes(node.data) < 8 << 20
    finally:
        node.close()
