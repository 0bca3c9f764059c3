"""What a connection writes when: replies of a turn leave with its end, on whatever way (D9, D18)."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Buffer
from proxy.port.accepting import ServerLimits
from proxy.port.connection import Connection
from proxy.port.server import CONNECTIONS_REFUSED, Commons, ThriftServer
from proxy.wire.call import Call
from proxy.wire.replies import encode_bool_reply
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.simulation.wire import consumer_codec, consumer_idl


class Peer(asyncio.Transport):
    """The far end: keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False
        self.aborted = False
        self.takes_all = True
        self.connection: Connection | None = None

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: Buffer) -> None:
        self.written.append(bytes(data))
        if not self.takes_all and self.connection is not None:
            self.connection.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 5000) if name == "peername" else default

    def pause_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Turns:
    """A server whose turns end by hand, with one connection."""

    def __init__(self) -> None:
        clock = self.clock = ManualClock()
        self.scheduler = ManualScheduler(clock)
        self.metrics = Metrics()
        self.server = ThriftServer(
            "consumer",
            {"submit": self._submit},
            limits=ServerLimits(),
            commons=Commons(
                runtime=runtime_of(SimDisk(), clock, metrics=self.metrics, scheduler=self.scheduler),
                request_turn=lambda: None,
            ),
        )
        self.peer = Peer()
        self.connection = self.peer.connection = Connection(self.server)
        self.connection.connection_made(self.peer)

    @staticmethod
    def _submit(connection: Connection, call: Call) -> None:
        connection.answer(encode_bool_reply(call, True))

    def receive(self, tail: bytes = b"") -> None:
        """One submit arrives, with more bytes behind it."""
        result = consumer_idl.ConsumeResult(successOffsets=[1], failOffsets=[])
        self.connection.data_received(consumer_codec().call("submit", 1, result=result) + tail)


def test_reply_waits_for_the_end_of_its_turn_although_the_peer_reads_again() -> None:
    """A peer that becomes readable in the middle of a turn gets the ack's answer only after the ack is written."""
    turns = Turns()
    turns.connection.pause_writing()
    turns.receive()
    turns.connection.resume_writing()
    assert turns.peer.written == []
    turns.server.flush()
    assert len(turns.peer.written) == 1
    turns.scheduler.run_until_idle()
    assert len(turns.peer.written) == 1


def test_replies_of_earlier_turns_leave_as_soon_as_the_peer_reads() -> None:
    """What was decided before waits for the peer alone."""
    turns = Turns()
    turns.connection.pause_writing()
    turns.receive()
    turns.server.flush()
    assert turns.peer.written == []
    turns.connection.resume_writing()
    assert len(turns.peer.written) == 1


def test_reply_before_garbage_waits_for_the_end_of_its_turn() -> None:
    """Bytes that are no frame close the connection, after the answers before them left with their turn."""
    turns = Turns()
    turns.receive(b"\xff\xff\xff\xff")
    assert turns.peer.written == []
    assert not turns.peer.closed
    turns.server.flush()
    assert len(turns.peer.written) == 1
    assert turns.peer.closed


def test_garbage_behind_a_call_that_waits_ends_its_connection_and_nothing_of_it_is_kept() -> None:
    """It is refused once, the call is answered at once, and what its peer sends on is neither read nor held."""
    turns = Turns()
    waiting = []

    def submit(holder: Connection, call: Call) -> None:
        slot = holder.later(call)
        slot.withdraw = lambda: slot.answer(encode_bool_reply(call, False))
        waiting.append(slot)

    turns.server.serve({"submit": submit})
    turns.receive(b"GET / HTTP/1.1\r\n")
    for _ in range(100):
        turns.connection.data_received(b"x" * 10_000)
    assert turns.connection.intake.splitter.buffered < 10_000
    turns.server.flush()
    turns.scheduler.run_until_idle()
    turns.server.flush()
    assert turns.peer.closed
    written = b"".join(turns.peer.written)
    assert written.count(b"HTTP/1.1 400") == 1
    assert written.endswith(b"This port speaks framed Thrift, not HTTP.\n"), "after the answer before it"
    assert turns.metrics.value(CONNECTIONS_REFUSED, "consumer", "http") == 1


def test_frame_that_drips_in_ends_its_connection_although_every_byte_is_recent() -> None:
    """A frame has its time from its first byte on; one byte a second does not extend it, a whole frame does."""
    turns = Turns()
    frame = consumer_codec().call("submit", 1, result=consumer_idl.ConsumeResult(successOffsets=[1], failOffsets=[]))
    seconds = int(turns.server.limits.frame_seconds_max)
    for at in range(seconds):
        turns.connection.data_received(frame[at : at + 1])
        turns.clock.advance(1.0)
    turns.connection.data_received(frame[seconds:] + frame[:1])
    turns.clock.advance(seconds - 1)
    turns.server.sweep()
    assert not turns.peer.aborted
    turns.connection.data_received(frame[1:2])
    turns.clock.advance(1.5)
    turns.server.sweep()
    assert turns.peer.aborted


def test_request_says_which_replies_its_client_can_have_had() -> None:
    """Those that had left for the kernel when the request was read: not what is queued, stuck or unmade (D40)."""
    turns = Turns()
    connection = turns.connection
    heard = []

    def submit(holder: Connection, call: Call) -> None:
        heard.append(holder.heard)
        holder.answer(encode_bool_reply(call, True))

    turns.server.serve({"submit": submit})
    turns.receive()
    turns.receive()
    turns.server.flush()
    turns.receive()
    assert heard == [0, 0, 2], "two of one turn, and one after their replies left"

    turns.peer.takes_all = False
    turns.server.flush()
    turns.receive()
    turns.server.flush()
    turns.peer.takes_all = True
    connection.resume_writing()
    turns.receive()
    assert heard[3:] == [2, 4], "while the third reply is stuck on its way, and once the peer has read on"


def test_request_read_before_a_reply_left_did_not_hear_it() -> None:
    """What waits to be handled while too much is unanswered was sent before the replies that are made meanwhile."""
    turns = Turns()
    heard = []
    slots = []

    def submit(holder: Connection, call: Call) -> None:
        heard.append(holder.heard)
        slots.append((holder.later(), call))

    turns.server.serve({"submit": submit})
    turns.server.limits = ServerLimits(outstanding_max=1)
    turns.receive()
    turns.receive()
    assert heard == [0]
    slot, call = slots[0]
    slot.answer(encode_bool_reply(call, True))
    turns.server.flush()
    turns.scheduler.run_until_idle()
    assert len(turns.peer.written) == 1
    assert heard == [0, 0]


def test_connection_that_comes_after_the_close_is_closed() -> None:
    """One that was accepted while the node stopped would stay open for as long as the process lives."""
    turns = Turns()
    turns.server.close_connections()
    late = Peer()
    Connection(turns.server).connection_made(late)
    assert late.aborted
    assert list(turns.server.connections) == [turns.connection]


def test_close_gives_out_no_reply_whose_turn_has_not_ended() -> None:
    """After the last turn nothing is journaled, so what stands for an ack may not leave; others close in order."""
    turns = Turns()
    turns.server.close_connections()
    assert (turns.peer.closed, turns.peer.aborted) == (True, False)
    turns = Turns()
    turns.receive()
    turns.server.close_connections()
    assert turns.peer.aborted
    assert turns.peer.written == []


def test_connection_keeps_the_first_name_that_its_client_says() -> None:
    """It is cleaned once: a client that says another with each call costs nothing, and is not believed the more."""
    connection = Turns().connection
    assert connection.client == ""
    connection.note_client(None)
    connection.note_client("")
    assert connection.client == ""
    connection.note_client("carrera\n" + "x" * 10_000)
    assert connection.client == "carrera?" + "x" * 56
    connection.note_client(b"another")
    assert connection.client == "carrera?" + "x" * 56
