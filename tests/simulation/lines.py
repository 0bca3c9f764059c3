"""What simulated and real clients of the tests share: how they reach the node, and a connection that comes back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple, Protocol

from pyddmq.testing import SimNetwork, SimTransport
from pyddmq.testing.network import NetworkMark
from tests.simulation.deeds import Deeds
from tests.simulation.ledger import Ledger, Stamp
from tests.simulation.waits import Walls
from tests.simulation.wire import Codec, Frames, Reply


class Edge(Protocol):
    """How clients reach the node, simulated or real, and how they learn when things happened."""

    def connect(self, link: Link, address: tuple[str, int], host: str) -> None:
        """Connect; `link.connection_made` or `link.refused` follows, now or later."""
        ...

    def now(self) -> NetworkMark:
        """Take the next place in the order of events."""
        ...

    def written(self, transport: Any, position: int) -> NetworkMark:
        """When the node wrote the byte before this position of the stream."""
        ...

    def when_arrived(self, transport: Any, callback: Callable[[NetworkMark], None]) -> None:
        """Call back when the node has taken what was written so far."""
        ...


class SimEdge:
    """The simulated network as clients see it: exact times."""

    def __init__(self, network: SimNetwork) -> None:
        self._network = network

    def connect(self, link: Link, address: tuple[str, int], host: str) -> None:
        """Connect at once; the node may still refuse."""
        if self._network.connect(link, address, host=host) is None:
            link.refused()

    def now(self) -> NetworkMark:
        """Return a new mark of the network."""
        return self._network.mark()

    def written(self, transport: SimTransport, position: int) -> NetworkMark:
        """Return the mark of the node's write."""
        return transport.mark_of(position)

    def when_arrived(self, transport: SimTransport, callback: Callable[[NetworkMark], None]) -> None:
        """Register with the transport."""
        transport.when_arrived(callback)


class Surroundings(NamedTuple):
    """What every client is given. The addresses are asked for at each connect, None while there is no node.

    `walls`: the history of a wall clock that is stepped; None: it is not. `deeds`: of all clients of a run.
    """

    loop: asyncio.AbstractEventLoop
    edge: Edge
    ledger: Ledger
    random: Random
    counts: Counter[str]
    consumer_address: Callable[[], tuple[str, int] | None]
    producer_address: Callable[[], tuple[str, int] | None]
    failed: Callable[[Exception], None]
    noticed: Callable[[], None] = lambda: None
    exact: bool = True
    wall_ms: Callable[[], int] = lambda: 0
    walls: Walls | None = None
    deeds: Deeds | None = None


class Link(asyncio.Protocol):
    """One connection of a client; belongs to one life of the node."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.edge = client.around.edge
        self.frames = Frames()
        self.life = client.around.ledger.life
        self.pending: dict[int, tuple[Any, NetworkMark]] = {}
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.client.on_made(self)

    def refused(self) -> None:
        """Nobody listens."""
        self.client.on_lost(self)

    def data_received(self, data: bytes) -> None:
        for position, payload in self.frames.feed(data):
            try:
                reply = self.client.codec.reply(payload)
                about, asked = self.pending.pop(reply.seqid)
                written = self.edge.written(self.transport, position)
                self.client.on_reply(self, about, reply, self.stamp(written, asked))
            except Exception as error:
                self.client.around.failed(error)
                raise
        self.client.around.noticed()

    def connection_lost(self, exc: Exception | None) -> None:
        self.client.on_lost(self)

    def stamp(self, mark: NetworkMark, asked: NetworkMark | None = None) -> Stamp:
        """Turn a mark of this connection into a stamp of the ledger."""
        if asked is None or self.client.around.exact:
            return Stamp(mark.sequence, mark.turn, mark.time, self.life, mark.late, mark.turn)
        return Stamp(mark.sequence, mark.turn, mark.time, self.life, mark.late, asked.turn, asked.time)


class Client:
    """What producers and pull clients share: a connection that comes back, and calls in flight on it."""

    def __init__(self, name: str, host: str, codec: Codec, around: Surroundings, address: Callable[[], Any]) -> None:
        self.name = name
        self.host = host
        self.codec = codec
        self.around = around
        self.link: Link | None = None
        self._connecting: Link | None = None
        self.stopped = False
        self._address = address
        self._seqid = 0

    def connect(self) -> None:
        """Connect, now or as soon as somebody listens."""
        if self.stopped or self.link is not None or self._connecting is not None:
            return
        address = self._address()
        if address is None:
            self.later(0.05, self.connect)
            return
        self._connecting = Link(self)
        self.around.edge.connect(self._connecting, address, self.host)

    def call(self, method: str, about: Any, arrived: Callable[[Stamp], None] | None = None, **arguments: Any) -> None:
        """Send a call; `about` comes back with its reply, `arrived` runs when the node has taken it."""
        link = self.link
        assert link is not None
        self._seqid += 1
        link.pending[self._seqid] = (about, self.around.edge.now())
        link.transport.write(self.codec.call(method, self._seqid, **arguments))
        if arrived is not None:
            self.around.edge.when_arrived(link.transport, lambda mark: arrived(link.stamp(mark)))

    def later(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        """Call back after `seconds`, varied by the seed."""
        self.around.loop.call_later(seconds * (0.5 + self.around.random.random()), callback, *args)

    def chance(self, share: float) -> bool:
        """Draw."""
        return self.around.random.random() < share

    def on_made(self, link: Link) -> None:
        """Take a connection that is there."""
        self._connecting = None
        self.link = link
        self.on_connected()

    def on_connected(self) -> None:
        """Go to work."""

    def on_reply(self, link: Link, about: Any, reply: Reply, stamp: Stamp) -> None:
        """Handle a reply."""

    def on_lost(self, link: Link) -> None:
        """Deal with calls that will not be answered, and come back."""
        if link is self.link or link is self._connecting:
            self.link = self._connecting = None
            self.later(0.03, self.connect)
