"""Frames above the limit: read to their end without being kept, and answered where the protocol has an answer."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.port.connection import CONNECTION_BYTES
from proxy.port.server import CALLS_FAILED, CONNECTIONS_REFUSED
from proxy.wire.call import COMPACT
from proxy.wire.errors import FrameError
from proxy.wire.frames import CUT_BYTES_MAX, CutFrame, FrameSplitter
from pyddmq.codes import ResultCode
from tests.fakes.codec import encode_call
from tests.hostile.sim import HostileWorld, Raw
from tests.simulation.wire import consumer_idl, producer_idl

LIMIT = 1_000
BODY = 6_000_000


def send(client: Raw, body: bytes) -> bytes:
    """Return a sendSync with this body."""
    message = producer_idl.Message(topic="orders", body=body, key="k", hashId=0, partitionId=-1)
    return client.codec.call("sendSync", 1, message=message, timeout=1000)


@given(st.lists(st.integers(1, 3_000), max_size=20), st.integers(LIMIT + 1, 5_000))
def test_splitter_hands_out_the_head_of_a_long_frame_however_it_arrives(cuts: list[int], size: int) -> None:
    """Frames before and behind it are whole, and no more than its head is held once the rest came."""
    call = encode_call(COMPACT, "sendSync", 1, {"message": {"topic": "t", "body": b"x"}})[4:]
    long = (call + bytes(size))[:size]
    stream = b"".join(struct.pack(">i", len(each)) + each for each in (call, long, call))
    splitter, found = FrameSplitter(LIMIT), []
    for cut in [*cuts, len(stream)]:
        splitter.feed(stream[:cut])
        stream = stream[cut:]
        while (frame := splitter.next()) is not None:
            found.append(frame)
        assert splitter.buffered <= LIMIT + 4
    before, cut_frame, behind = found
    assert before == behind == call
    assert isinstance(cut_frame, CutFrame)
    assert (cut_frame.size, cut_frame.limit) == (size, LIMIT)
    assert long.startswith(cut_frame)
    assert len(cut_frame) <= 256
    assert not splitter.partial


def test_splitter_refuses_what_is_far_too_long_at_once() -> None:
    """Nobody is waited for who announces gigabytes, nor for what begins like no call."""
    for head in (struct.pack(">i", CUT_BYTES_MAX + 1) + b"\x82\x21", struct.pack(">i", LIMIT + 1) + b"GE"):
        splitter = FrameSplitter(LIMIT)
        splitter.feed(head)
        with pytest.raises(FrameError) as caught:
            splitter.next()
        assert caught.value.reason == "too_long"


def test_send_above_the_limit_gets_its_result_and_its_connection_lives() -> None:
    """Code 11 names the limit, nothing of the frame stays in memory, and the next call is served."""
    world = HostileWorld()
    client = world.connect("producer")
    client.transport.write(send(client, bytes(BODY))[: BODY // 2])
    world.run(1.0)
    (connection,) = world.node.producer.connections
    assert connection.held_bytes < 1_000_000
    client.transport.write(send(client, bytes(BODY))[BODY // 2 :])
    world.run(1.0)
    (reply,) = client.replies
    assert reply.value.code == ResultCode.FAIL_ILLEGAL_MSG
    assert "maxReadBufferBytes" in reply.value.msg
    assert world.node.runtime.metrics.value(CALLS_FAILED, "producer", "too_long") == 1
    assert world.publish(client, b"small") == ResultCode.OK
    assert world.node.parts.memory.budget.used - world.node.parts.memory.budget.job_bytes == CONNECTION_BYTES


def test_results_above_the_limit_end_their_connection_unanswered() -> None:
    """Client libraries throw results away with an exception, and send them again where a connection ends."""
    world = HostileWorld()
    client = world.connect("consumer")
    result = consumer_idl.ConsumeResult(successOffsets=list(range(10**9, 10**9 + 1_200_000)), failOffsets=[])
    client.transport.write(client.codec.call("submit", 1, result=result))
    world.run(2.0)
    assert client.lost
    assert client.replies == []
    assert world.node.runtime.metrics.value(CONNECTIONS_REFUSED, "consumer", "too_long") == 1


def test_long_frame_that_never_ends_has_the_time_of_any_frame() -> None:
    """What is counted to its end must arrive, too."""
    world = HostileWorld()
    client = world.connect("producer")
    client.transport.write(send(client, bytes(BODY))[:1000])
    world.run(40.0)
    assert client.lost
    assert world.node.runtime.metrics.value(CONNECTIONS_REFUSED, "producer", "slow_frame") == 1
