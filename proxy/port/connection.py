"""One client connection: frames in, replies out in request order.

The rules of a connection (D18): frames take effect in arrival order and are answered in request order. A pull that
waits delays only the replies after it, not the acks that came with them. At most `outstanding_max` requests are
unanswered, then reading stops; it also stops while the peer does not read its replies. End of file ends the waiting
of parked pulls. A reply that never left our buffer hands its messages back; so does one whose peer has closed, as the
system knows before the loop hears of it, and one of which a reset connection's peer acknowledged nothing.

A connection knows nothing of services: it hands each frame to its server's `handle` and gets replies through
`answer` (at once) or a `ReplySlot` (later; `proxy.port.reply_slot`).
Here stands what its transport tells; `proxy.port.reading` is its way in, `proxy.port.replying` its way out.

How many frames are handled before others have their turn is `proxy.port.shares`. A frame that asks for much is worked
off in steps (`work`), one in each turn of its connection; no later frame of the connection is handled before the last
step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Self, cast

from proxy.access.rights import Rights
from proxy.port.accepting import Accepting
from proxy.port.network import address_text, host_of
from proxy.port.reading import READ_BYTES, Reading
from proxy.port.shares import TURN_SECONDS
from proxy.tls.channel import TLS_BYTES, TlsTransport
from proxy.tls.peer_certificate import PeerCertificate
from proxy.wire.errors import FrameError
from proxy.wire.texts import client_name
from upstream.budget import Pressure

_SLOWED = Pressure.SLOWED

CONNECTION_BYTES = 8 * 1024
"""What an idle connection takes: its objects here and the loop's; 6 KB were measured with uvloop, 7 KB with asyncio."""


class Connection(Reading, asyncio.Protocol):
    """The protocol of one accepted socket; also the `Holder` of what is delivered over it.

    Attributes:
        address: `ip:port` of the client, for people; an IPv4 address that came mapped into IPv6 as IPv4's.
        host: The same without its port.
        is_encrypted: Whether it came by TLS.
        certificate: The client's, checked against the client CA; None where it has shown none.
        since_ms: When it was accepted, wall clock.
        client: What the client first said of itself (library and version), fit to be shown; "" until it does. Nothing
            is decided by it.
        rights: What it may do; None where everybody may do everything.
    """

    __slots__ = ("address", "certificate", "client", "host", "is_encrypted", "rights", "since_ms")

    def __init__(self, server: Accepting[Self]) -> None:
        super().__init__(server)
        self.address = "?"
        self.host = ""
        self.is_encrypted = False
        self.certificate: PeerCertificate | None = None
        self.since_ms = 0
        self.client = ""
        self.rights: Rights | None = None

    def note_client(self, said: str | bytes | None) -> None:
        """Keep what the client says of itself, the first time that it does."""
        if said and not self.client:
            self.client = client_name(said)

    # What the transport tells.

    def connection_made(self: Self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; a connection above the server's limit is closed at once."""
        self._transport = cast("asyncio.Transport", transport)
        # With a high-water mark of 0 the transport says at once when the kernel took less than all: what is queued
        # here and not there is known never to have left.
        self._transport.set_write_buffer_limits(high=0)
        peer: Any = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.host = host_of(str(peer[0]))
            self.address = address_text(self.host, peer[1])
        if isinstance(transport, TlsTransport):
            self._tls = transport
            self.is_encrypted = True
        socket = transport.get_extra_info("socket")
        if not self._server.admit(self, -1 if socket is None else socket.fileno()):
            self.closed = True
            self._transport.abort()
            return
        self._peer = self._server.peer_of(transport)
        self.hold(self._idle_bytes)

    def secured(self, certificate: PeerCertificate | None) -> None:
        """The handshake is over; see `proxy.tls.channel.Above`."""
        self.certificate = certificate

    def data_received(self: Self, data: bytes) -> None:
        """Handle every frame that is complete."""
        if self.closed:
            return
        # Nothing is unanswered, unread or unwritten at nearly every call of a client that waits for its replies.
        frame = None if self.slots or self._out_bytes or not self._reading else self._splitter.whole(data)
        self._carried.clear()
        server = self._server
        shares = server.shares
        at_once = not self.deferred and (shares.spent < TURN_SECONDS or shares.admits(self))
        if frame is not None and at_once:
            self.heard = self.requests - self._stuck_replies
            self.requests += 1
            began = self.received_at = shares.now()
            if server.handle(self, frame):
                # The pass charges what it takes.
                self.share.last = began
            else:
                shares.charge(self, began)
            limits = server.limits
            if (
                len(self.slots) >= limits.outstanding_max
                or self._out_bytes + self._slot_bytes > limits.output_bytes_max
                or self._steps is not None
            ):
                self._read_frames()
        else:
            began = shares.now()
            try:
                self._splitter.feed(data)
            except FrameError as error:
                self._refuse(error)
                return
            self.received_at = shares.charge(self, began)
            self._note_left(len(data))
            if at_once and len(data) < READ_BYTES:
                self._read_frames()
            else:
                shares.defer(self)
                self._note_input(self.requests)
        if server.budget.level >= _SLOWED:
            server.relieve()

    def eof_received(self) -> bool:
        """The client sends no more: parked pulls are answered empty, the rest is answered, then the socket closes."""
        self.ended = True
        self.withdraw_waiting()
        self._close_when_done()
        return True

    def pause_writing(self) -> None:
        """The kernel takes no more: later replies stay in our own queue."""
        self._writable = False
        if self.stuck_since is None:
            self.stuck_since = self._taken_at = self._server.now()
            self._taken_bytes = self._taken()

    def resume_writing(self) -> None:
        """The peer has read what the transport held for it; `stuck_since` ends once nothing else waits."""
        self._writable = True
        self.hold(-self._stuck_bytes)
        self._stuck_bytes = self._stuck_replies = 0
        self.go_on()

    def connection_lost(self: Self, exc: Exception | None) -> None:
        """Hand back what never left, and take parked pulls out of their queues."""
        carried, self._carried = self._carried, deque()
        if carried and isinstance(exc, ConnectionResetError | BrokenPipeError):
            acknowledged = self._peer.acknowledged()
            for begin, unread in carried:
                if acknowledged is not None and acknowledged <= begin + 1:
                    unread()
        self.closed = True
        self._transport = None
        slots, self.slots = self.slots, deque()
        for slot in slots:
            if slot.withdraw is not None:
                withdraw, slot.withdraw = slot.withdraw, None
                withdraw()
            if slot.data is not None and slot.lost is not None:
                slot.lost()
        out, self._out = self._out, deque()
        self._out_bytes = self._stuck_bytes = self._slot_bytes = self.unread_bytes = 0
        self._splitter.drop()
        self._server.budget.add(-self._counted)
        self._counted = 0
        for _, lost in out:
            if lost is not None:
                lost()
        self._server.forget(self)

    # What its server asks and tells.

    @property
    def held_bytes(self) -> int:
        """Bytes that the connection makes the node hold, above those of an idle one."""
        return self._counted - self._idle_bytes

    @property
    def taken_bytes(self) -> int:
        """Bytes that closing the connection frees."""
        return self._counted

    @property
    def _idle_bytes(self) -> int:
        return CONNECTION_BYTES + TLS_BYTES if self.is_encrypted else CONNECTION_BYTES

    def part(self) -> None:
        """Read no more, let what was asked be answered, and close."""
        if self._reading and self._transport is not None:
            self._transport.pause_reading()
        self.eof_received()

    def withdraw_waiting(self) -> None:
        """Answer what waits for messages: empty."""
        for slot in list(self.slots):
            if slot.withdraw is not None:
                slot.withdraw()

    def look_for_end(self: Self) -> None:
        """Notice that the peer has closed while nothing is read from it. Called every second or so.

        What it sent before counts: frames that are complete are handled, for which reading goes on.
        """
        if self._reading or self.ended or self.closed or not self._peer.gone():
            return
        unread = self._peer.unread()
        if self.partial_since is not None and unread is not None and unread < self._splitter.missing:
            self.drop()
            return
        self.withdraw_waiting()
        if not self.closed:
            self.leaving = True
            self._server.resume_soon(self)

    def is_idle(self, since: float) -> bool:
        """Whether nothing was asked since that moment, and nothing waits, is unread or unanswered."""
        return self.share.last < since and not (self.slots or self._out or self.unread_bytes or self._stuck_bytes)

    def drop(self) -> None:
        """Close at once and let go of all that is held, replies that never left included: they are handed back."""
        transport = self._transport
        self.connection_lost(None)
        if transport is not None:
            transport.abort()
