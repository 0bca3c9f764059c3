"""A network in memory with the shape of `proxy.port.network`: seeded delays, fragments, joined reads, resets.

Each direction of a connection is a pipe of pieces that arrive in order at seeded times. A pipe takes `window_bytes`
like a kernel's socket buffers; what is written beyond waits in the writing transport, which then pauses its
protocol, as asyncio's transports do. What happens to bytes on their way when a connection is reset or a process dies
is drawn from the seed: a prefix of them arrives.

For checkers there is one order of events as the processes saw it: every write and every arrival takes the next
`NetworkMark`. `SimTransport.mark_of` says when the peer wrote a byte of the stream, `when_arrived` when the peer took
what was written here.
"""

from __future__ import annotations

import asyncio
import bisect
import contextvars
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, cast

from broker.runtime.seams import Buffer
from proxy.port.network import ListenError, NoPeer, Peer
from pyddmq.testing.loop import Process, VirtualLoop, current_process


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """Rates of network faults; shares are probabilities from 0 to 1.

    Attributes:
        delay_ms_max: Longest delay of a piece, in ms; each delay is drawn uniformly from 0 to this value.
        fragment_share: Probability that a write is split into several pieces.
        join_share: Probability that pieces that have arrived are read as one.
        reset_share: Probability, per piece, that its connection is reset in the middle of the piece.
        window_bytes: Bytes in flight in one direction before the writer has to wait.
    """

    delay_ms_max: float = 2.0
    fragment_share: float = 0.2
    join_share: float = 0.5
    reset_share: float = 0.0
    window_bytes: int = 65_536


class Pipe:
    """One direction of a connection: pieces on their way, the last of them perhaps the end of file (None)."""

    __slots__ = ("arrived_at", "cut", "ended", "pieces", "size", "timer")

    def __init__(self) -> None:
        self.pieces: deque[tuple[float, bytes | None]] = deque()
        self.size = 0
        self.arrived_at = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.ended = False
        self.cut = False


class NetworkMark(NamedTuple):
    """A place in the one order of writes and arrivals.

    Attributes:
        sequence: Counts up over all writes and arrivals of the network.
        turn: The loop's turn in which it happened.
        time: Virtual seconds.
        late: Written only when the peer began to read again, so decided some time before.
    """

    sequence: int
    turn: int
    time: float
    late: bool


class SimTransport(asyncio.Transport):
    """One end of a simulated connection."""

    def __init__(
        self,
        network: SimNetwork,
        local: tuple[str, int],
        remote: tuple[str, int],
        context: contextvars.Context,
        process: Process | None,
    ) -> None:
        super().__init__({"peername": remote, "sockname": local})
        self._network = network
        self._loop = network.loop
        self._context = context
        self.process = process
        self._protocol: asyncio.Protocol | None = None
        self._peer: SimTransport = self
        self._pipe = Pipe()  # towards the peer
        self._unsent = bytearray()
        self._high = 65_536
        self._low = 16_384
        self._paused_writing = False
        self._resuming = False
        self._reading = True
        self._closing = False
        self._eof_wanted = False
        self._gone = False
        self._written = 0
        self._taken = 0
        self._mark_ends: list[int] = []
        self._marks: list[NetworkMark] = []
        self._arrivals: deque[tuple[int, Callable[[NetworkMark], None]]] = deque()

    # What asyncio's transports offer.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol that receives the callbacks."""
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that receives the callbacks."""
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        """Whether this end is closed, or is about to be."""
        return self._closing or self._gone

    def is_reading(self) -> bool:
        """Whether received bytes are delivered to the protocol."""
        return self._reading

    def pause_reading(self) -> None:
        """Deliver nothing until `resume_reading`; bytes wait in the window, as in a socket buffer."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver received bytes again."""
        if not self._reading:
            self._reading = True
            self._peer._arm()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the buffered bytes at which writing pauses and resumes; by default 65,536 and a quarter of `high`."""
        self._high = 65_536 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return the bytes that wait for room in the window."""
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the limits as (low, high), in bytes."""
        return self._low, self._high

    def can_write_eof(self) -> bool:
        """Return True: the two directions end separately."""
        return True

    def write(self, data: Buffer) -> None:
        """Queue bytes; they are copied at once."""
        if self.is_closing() or self._eof_wanted or not data:
            return
        data = bytes(data)
        self._written += len(data)
        self._mark_ends.append(self._written)
        self._marks.append(self._network.mark(late=self._resuming))
        self._unsent += data
        self.pump()
        if len(self._unsent) > self._high and not self._paused_writing:
            self._paused_writing = True
            self._network.counts["writer_paused"] += 1
            self._call("pause_writing")

    def write_eof(self) -> None:
        """Send no more; what comes from the peer is still read."""
        self._eof_wanted = True
        self.pump()

    def close(self) -> None:
        """Send what is buffered and then the end of file; nothing more is read."""
        if self._closing or self._gone:
            return
        self._closing = True
        self._eof_wanted = True
        self._reading = False
        self.pump()
        if not self._unsent:
            self.end(None)

    def abort(self) -> None:
        """Drop what is buffered and reset the connection."""
        if self._gone:
            return
        self._unsent.clear()
        self._cut_pipe()
        self._peer._lose_later(ConnectionResetError("reset by the peer"))
        self.end(None)

    # What checkers ask.

    @property
    def gone(self) -> bool:
        """Whether this end has seen `connection_lost`, or its process is dead."""
        return self._gone

    def mark_of(self, position: int) -> NetworkMark:
        """When the peer wrote the byte before stream position `position` (1: the first byte)."""
        return self._peer._marks[bisect.bisect_left(self._peer._mark_ends, position)]

    def when_arrived(self, callback: Callable[[NetworkMark], None]) -> None:
        """Call back just before the peer's protocol is given the last byte written here so far; perhaps never."""
        self._arrivals.append((self._written, callback))

    # What a kernel would know.

    @property
    def end_arrived(self) -> bool:
        """Whether the peer's end of file has arrived here."""
        pieces = self._peer._pipe.pieces
        return bool(pieces) and pieces[-1][1] is None and pieces[-1][0] <= self._loop.time()

    @property
    def arrived(self) -> int:
        """Bytes that have arrived at the peer, taken by its protocol or not."""
        now = self._loop.time()
        return self._taken + sum(len(piece) for at, piece in self._pipe.pieces if piece is not None and at <= now)

    # The pipe towards the peer.

    def pump(self) -> None:
        """Move bytes from the buffer into the pipe as far as its window goes."""
        pipe, faults, random = self._pipe, self._network.faults, self._network.random
        if pipe.cut:
            return
        room = faults.window_bytes - pipe.size
        if self._unsent and room > 0:
            data = bytes(self._unsent[:room])
            del self._unsent[:room]
            pipe.size += len(data)
            while data:
                cut = len(data)
                if cut > 1 and random.random() < faults.fragment_share:
                    self._network.counts["fragment"] += 1
                    cut = random.randrange(1, min(cut, 64) if random.random() < 0.5 else cut)
                self._send(data[:cut])
                data = data[cut:]
        if self._eof_wanted and not self._unsent and not pipe.ended:
            pipe.ended = True
            self._send(None)
        self._arm()

    def _send(self, piece: bytes | None) -> None:
        pipe = self._pipe
        delay = self._network.random.random() * self._network.faults.delay_ms_max / 1000
        pipe.arrived_at = max(pipe.arrived_at, self._loop.time() + delay)
        pipe.pieces.append((pipe.arrived_at, piece))

    def _arm(self) -> None:
        """Have the next piece delivered when it is due, if the peer reads."""
        pipe, peer = self._pipe, self._peer
        if pipe.pieces and pipe.timer is None and peer._takes and peer._protocol is not None and not peer._gone:
            pipe.timer = self._loop.call_at(pipe.pieces[0][0], self._deliver, context=self._network.context)

    def _deliver(self) -> None:
        """Hand the pieces that have arrived to the peer; runs outside of any process."""
        pipe, peer, network = self._pipe, self._peer, self._network
        pipe.timer = None
        if not pipe.pieces or not peer._takes or peer._gone:
            return
        _, piece = pipe.pieces.popleft()
        if piece is None:
            peer._receive_eof()
            return
        if network.random.random() < network.faults.join_share:
            while pipe.pieces and pipe.pieces[0][1] is not None and pipe.pieces[0][0] <= self._loop.time():
                network.counts["join"] += 1
                piece += cast("bytes", pipe.pieces.popleft()[1])
        if network.random.random() < network.faults.reset_share:
            network.counts["reset"] += 1
            # Nothing that follows the half piece may arrive: a reset loses the end of a stream, never its middle.
            pipe.pieces = deque([(0.0, piece[: network.random.randrange(len(piece) + 1)])])
            network.reset(self)
            return
        self._hand_over(piece)
        self._arm()

    def _hand_over(self, piece: bytes) -> None:
        """Give one piece to the peer's protocol and let the freed window fill again."""
        self._pipe.size -= len(piece)
        self._taken += len(piece)
        if self._arrivals and self._arrivals[0][0] <= self._taken:
            mark = self._network.mark()
            while self._arrivals and self._arrivals[0][0] <= self._taken:
                self._arrivals.popleft()[1](mark)
        self._peer._call("data_received", piece)
        if self._unsent or self._eof_wanted:
            self.pump()
            if self._closing and not self._unsent:
                self.end(None)
        if self._paused_writing and len(self._unsent) <= self._low:
            self._paused_writing = False
            self._resuming = True
            self._call("resume_writing")
            self._resuming = False

    def _cut_pipe(self) -> None:
        """Let a seeded prefix of what is on its way arrive now; the rest is lost."""
        pipe, random = self._pipe, self._network.random
        pipe.cut = True
        if pipe.timer is not None:
            pipe.timer.cancel()
            pipe.timer = None
        pieces, pipe.pieces = pipe.pieces, deque()
        if not self._peer._takes or self._peer._protocol is None:
            return
        for _, piece in list(pieces)[: random.randrange(len(pieces) + 1)]:
            if piece is None or self._peer._gone:
                break
            self._network.counts["half_delivered"] += 1
            self._hand_over(piece)

    @property
    def _takes(self) -> bool:
        """Whether it reads, and its process does not stand still."""
        return self._reading and (self.process is None or not self.process.still)

    # Callbacks of this end's protocol, always in the context of its process.

    def _call(self, method: str, *args: Any) -> Any:
        if self._protocol is None or (self.process is not None and not self.process.alive):
            return None
        if self.process is not None and self.process.still:
            self.process.wait(lambda: self._call(method, *args))
            return None
        return self._context.copy().run(getattr(self._protocol, method), *args)

    def _receive_eof(self) -> None:
        if not self._call("eof_received"):
            self.close()
        elif self._peer._gone and self._unsent:
            self._lose_later(ConnectionResetError("the peer has closed"))

    def end(self, error: Exception | None) -> None:
        """Close this end: notify its protocol in the next turn, and the peer if it still writes."""
        if self._gone:
            return
        self._gone = True
        self._network.forget(self)
        self._loop.call_soon(self._call, "connection_lost", error, context=self._network.context)
        if not self._peer._gone and self._peer._pipe.ended is False:
            # Whatever the peer writes from now on meets a closed socket.
            self._loop.call_later(0.05, self._peer._lose_if_open, context=self._network.context)

    def _lose_if_open(self) -> None:
        if not self._gone and not self._pipe.ended:
            self.end(ConnectionResetError("the peer has closed"))

    def _lose_later(self, error: Exception) -> None:
        delay = self._network.random.random() * self._network.faults.delay_ms_max / 1000
        self._loop.call_later(delay, self.end, error, context=self._network.context)


class SimPeer:
    """The other end of a simulated connection: an end of file may have arrived before it is read; see `Peer`."""

    def __init__(self, transport: SimTransport) -> None:
        self._transport = transport

    def gone(self) -> bool:
        """Whether the peer's end of file has arrived, read or not."""
        return self._transport.end_arrived

    def unread(self) -> int | None:
        """How many bytes have arrived from the peer and were not read."""
        now = self._transport._loop.time()
        pieces = self._transport._peer._pipe.pieces
        return sum(len(piece) for at, piece in pieces if piece is not None and at <= now)

    def acknowledged(self) -> int | None:
        """How many bytes have arrived, read or not."""
        return self._transport.arrived


class SimListener:
    """A simulated listening socket."""

    def __init__(self, network: SimNetwork, factory: Callable[[], asyncio.Protocol], address: tuple[str, int]) -> None:
        self._network = network
        self._address = address
        self.factory = factory
        self.process = current_process()
        self.context = contextvars.copy_context()
        if self.process is not None:
            self.process.when_killed(self._process_killed)
            self.process.when_woken(lambda: network.woken(self.process))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port listened on."""
        return self._address

    def close(self) -> None:
        """Accept no more."""
        if self._network.listeners.get(self._address) is self:
            del self._network.listeners[self._address]

    def _process_killed(self) -> None:
        self.close()
        if self.process is not None:
            self._network.drop(self.process)


class SimNetwork:
    """A network in memory between simulated processes; satisfies `proxy.port.network.Network`.

    Args:
        loop: The virtual loop on which everything runs.
        random: Source of delays, fragments and resets: one seed gives one run.
        faults: Rates of faults; may be replaced during the run.

    Attributes:
        counts: Number of faults so far: `fragment`, `join`, `reset`, `half_delivered`, `writer_paused`, `refused`.
        listeners: Open listeners by (host, port).
    """

    def __init__(self, loop: VirtualLoop, random: Random, faults: NetworkFaults | None = None) -> None:
        self.loop = loop
        self.random = random
        self.faults = faults or NetworkFaults()
        self.counts: Counter[str] = Counter()
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.context = contextvars.copy_context()
        self._transports: dict[SimTransport, None] = {}
        self._sequence = 0
        self._port = 40_000

    async def listen(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, *, backlog: int
    ) -> SimListener:
        """Listen on `host:port`; port 0 takes a free one.

        The listener and its connections belong to the process that calls this; they end with `Process.kill`.

        Raises:
            ListenError: Another listener has this address.
        """
        address = (host, port or self._free_port())
        if address in self.listeners:
            raise ListenError(host, port, OSError(98, "Address already in use"))
        listener = self.listeners[address] = SimListener(self, factory, address)
        return listener

    def connect(
        self, protocol: asyncio.Protocol, address: tuple[str, int], *, host: str = "10.0.0.1"
    ) -> SimTransport | None:
        """Open a connection from a client at `host`; the protocol's `connection_made` runs before this returns.

        Returns:
            The client's end, or None when no listener has this address.
        """
        listener = self.listeners.get(address)
        if listener is None:
            self.counts["refused"] += 1
            return None
        local = (host, self._free_port())
        client = SimTransport(self, local, address, contextvars.copy_context(), current_process())
        server = SimTransport(self, address, local, listener.context, listener.process)
        client._peer, server._peer = server, client
        self._transports[client] = self._transports[server] = None
        self.loop.call_later(self._delay(), self._accept, listener, server, context=self.context)
        client.set_protocol(protocol)
        protocol.connection_made(client)
        return client

    def reset(self, transport: SimTransport) -> None:
        """Cut a connection: both ends receive a reset after some of the bytes in flight."""
        for end in (transport, transport._peer):
            end._cut_pipe()
        for end in (transport, transport._peer):
            end._unsent.clear()
            end._lose_later(ConnectionResetError("reset"))

    def reset_some(self, share: float) -> int:
        """Cut each open connection with a chance of `share`; return how many."""
        ends = [end for end in self._transports if end._protocol is not None and end.process is None]
        cut = [end for end in ends if self.random.random() < share]
        for end in cut:
            self.counts["reset"] += 1
            self.reset(end)
        return len(cut)

    def drop(self, process: Process) -> None:
        """Close what a killed process had open: part of what it wrote still arrives, then its peers see a reset."""
        for end in [end for end in self._transports if end.process is process]:
            self.forget(end)
            end._gone = True
            end._unsent.clear()
            end._cut_pipe()
            end._peer._lose_later(ConnectionResetError("the process ended"))

    def woken(self, process: Process | None) -> None:
        """Let a paused process read the data that has arrived."""
        for end in self._transports:
            if end.process is process:
                end._peer._arm()

    def mark(self, *, late: bool = False) -> NetworkMark:
        """Take the next place in the order of events."""
        self._sequence += 1
        return NetworkMark(self._sequence, self.loop.turns, self.loop.time(), late)

    def peer(self, transport: asyncio.BaseTransport) -> Peer:
        """Return the other end of a connection, as `Network` does; nothing is known of a foreign one."""
        return SimPeer(transport) if isinstance(transport, SimTransport) else NoPeer()

    def forget(self, transport: SimTransport) -> None:
        """Leave out an end that is closed."""
        self._transports.pop(transport, None)

    def _accept(self, listener: SimListener, server: SimTransport) -> None:
        client = server._peer
        if self.listeners.get(listener.address) is not listener or client.gone:
            server._gone = True
            self.forget(server)
            client.end(ConnectionResetError("refused"))
            return
        if listener.process is not None and listener.process.still:
            listener.process.wait(lambda: self.context.copy().run(self._accept, listener, server))
            return
        protocol = server._context.copy().run(listener.factory)
        server.set_protocol(protocol)
        server._call("connection_made", server)
        client._arm()

    def _delay(self) -> float:
        return self.random.random() * self.faults.delay_ms_max / 1000

    def _free_port(self) -> int:
        self._port += 1
        return self._port
