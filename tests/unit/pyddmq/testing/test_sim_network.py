"""Simulated network: bytes arrive whole and in order, back-pressure works, and faults follow the seed."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.port.network import ListenError
from pyddmq.testing import NetworkFaults, Process, SimNetwork, SimTransport, VirtualLoop

ADDRESS = ("127.0.0.1", 9713)


class End(asyncio.Protocol):
    """Keeps what happens to one end of a connection."""

    def __init__(self, *, echo: bool = False, half_open: bool = False) -> None:
        self.echo = echo
        self.half_open = half_open
        self.data = bytearray()
        self.reads = 0
        self.events: list[str] = []
        self.lost: list[Exception | None] = []
        self.transport: SimTransport | None = None

    @property
    def end(self) -> SimTransport:
        """The transport, which is there."""
        assert self.transport is not None
        return self.transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("SimTransport", transport)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        self.data += data
        if self.echo:
            self.end.write(data)

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.half_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class World:
    """One network with a server that makes `End`s."""

    def __init__(self, seed: int = 1, *, echo: bool = False, half_open: bool = False, **faults: float) -> None:
        self.loop = VirtualLoop()
        self.network = SimNetwork(self.loop, Random(seed), NetworkFaults(**faults))  # type: ignore[arg-type]
        self.served: list[End] = []
        self.process = Process("server")

        def accept() -> End:
            self.served.append(End(echo=echo, half_open=half_open))
            return self.served[-1]

        task = self.process.run(self.loop.create_task, self.network.listen(accept, *ADDRESS, backlog=5))
        self.loop.run(task.done)

    def connect(self) -> End:
        """Connect a client and wait until the server has it."""
        client = End()
        assert self.network.connect(client, ADDRESS, host="10.0.0.7") is not None
        self.loop.run(seconds=0.1)
        return client


@given(
    seed=st.integers(0, 2**32),
    parts=st.lists(st.binary(min_size=1, max_size=300), max_size=20),
    window=st.integers(1, 400),
    fragments=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_bytes_arrive_whole_and_in_order(seed: int, parts: list[bytes], window: int, fragments: float) -> None:
    """However they are cut, joined, delayed and held back, the bytes that arrive are the bytes that were sent."""
    world = World(seed, echo=True, fragment_share=fragments, window_bytes=window)
    client = world.connect()
    for part in parts:
        client.end.write(part)
        world.loop.run(seconds=0.001)
    world.loop.run(seconds=30)
    assert bytes(world.served[0].data) == b"".join(parts)
    assert bytes(client.data) == b"".join(parts)
    assert client.lost == []


def test_same_seed_gives_the_same_run() -> None:
    """Two runs of one seed make the same reads at the same times."""

    def run(seed: int) -> tuple[int, float, int]:
        world = World(seed, echo=True, fragment_share=0.9)
        client = world.connect()
        client.end.write(bytes(range(256)) * 20)
        world.loop.run(lambda: len(client.data) == 5_120)
        return client.reads, world.loop.time(), world.loop.turns

    assert run(11) == run(11)
    assert run(11) != run(12)


def test_reader_that_pauses_makes_the_writer_wait() -> None:
    """A full window pauses the writing protocol until the peer reads again."""
    world = World(window_bytes=1_000)
    client = world.connect()
    client.end.pause_reading()
    server = world.served[0]
    server.end.set_write_buffer_limits(high=0)
    server.end.write(b"x" * 5_000)
    world.loop.run(seconds=5)
    assert (server.events, len(client.data), server.end.get_write_buffer_size()) == (["pause"], 0, 4_000)
    client.end.resume_reading()
    world.loop.run(seconds=5)
    assert (server.events, len(client.data)) == (["pause", "resume"], 5_000)


def test_close_delivers_everything_before_the_end() -> None:
    """Closing loses nothing that was written; the peer sees it all and then the end of file."""
    world = World(window_bytes=10)
    client = world.connect()
    client.end.write(b"y" * 95)
    client.end.close()
    world.loop.run(seconds=5)
    server = world.served[0]
    assert (bytes(server.data), server.events, server.lost, client.lost) == (b"y" * 95, ["eof"], [None], [None])


def test_half_closed_connection_still_carries_replies() -> None:
    """After write_eof the other direction goes on."""
    world = World(half_open=True)
    client = world.connect()
    client.end.write_eof()
    world.loop.run(seconds=1)
    world.served[0].end.write(b"reply")
    world.served[0].end.close()
    world.loop.run(seconds=1)
    assert (bytes(client.data), client.events, client.lost) == (b"reply", ["eof"], [None])


def test_killed_process_resets_its_connections_and_frees_its_port() -> None:
    """Peers of a killed process see a reset; its own protocols see nothing; the port can be listened on again."""
    world = World()
    client = world.connect()
    server = world.served[0]
    world.process.kill()
    world.loop.run(seconds=1)
    assert [type(error) for error in client.lost] == [ConnectionResetError]
    assert (server.lost, server.events) == ([], [])
    assert world.network.connect(End(), ADDRESS) is None
    world.loop.run_task(world.network.listen(End, *ADDRESS, backlog=5))
    with pytest.raises(ListenError):
        world.loop.run_task(world.network.listen(End, *ADDRESS, backlog=5))


def test_resets_reach_both_ends_once() -> None:
    """A reset in the middle of a piece ends both sides, each exactly once."""
    world = World(reset_share=1.0)
    client = world.connect()
    client.end.write(b"z" * 1_000)
    world.loop.run(seconds=5)
    assert (len(client.lost), len(world.served[0].lost), world.network.counts["reset"]) == (1, 1, 1)
    assert len(world.served[0].data) <= 1_000


@given(seed=st.integers(0, 2**32), window=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_reset_loses_the_end_of_a_stream_and_never_its_middle(seed: int, window: int) -> None:
    """Whatever a reset takes, what has arrived is a prefix of what was sent, in both directions."""
    world = World(seed, fragment_share=0.9, window_bytes=window, reset_share=0.05)
    client = world.connect()
    sent = bytes(range(256)) * 8
    for end in (client, world.served[0]):
        for place in range(0, len(sent), 100):
            end.end.write(sent[place : place + 100])
    world.loop.run(seconds=5)
    assert sent.startswith(bytes(client.data))
    assert sent.startswith(bytes(world.served[0].data))
    assert bool(client.lost) == bool(world.network.counts["reset"])


def test_marks_order_writes_before_their_arrival() -> None:
    """The mark of a reply lies after the arrival of the request that caused it."""
    world = World(echo=True)
    client = world.connect()
    arrived: list[int] = []
    client.end.write(b"question")
    client.end.when_arrived(lambda mark: arrived.append(mark.sequence))
    world.loop.run(seconds=1)
    assert arrived
    assert client.end.mark_of(8).sequence > arrived[0]
    assert client.end.get_extra_info("peername") == ADDRESS
    assert world.served[0].end.get_extra_info("peername")[0] == "10.0.0.7"


def test_process_that_stands_still_takes_what_arrived_when_it_goes_on() -> None:
    """The kernel has it meanwhile, connections among it; the client hears nothing."""
    world = World(echo=True)
    client = world.connect()
    world.process.stand_still()
    client.end.write(b"meanwhile")
    late = End()
    assert world.network.connect(late, ADDRESS, host="10.0.0.8") is not None
    world.loop.run(seconds=5)
    assert (bytes(client.data), len(world.served)) == (b"", 1)
    world.process.go_on(world.loop)
    late.end.write(b"late")
    world.loop.run(seconds=1)
    assert (bytes(client.data), bytes(late.data)) == (b"meanwhile", b"late")
