"""One client connection: frames in, replies out in request order.

The rules of a connection (D18): frames take effect in arrival order and are answered in request order. A pull that
waits delays only the replies after it, not the acks that came with them. At most `outstanding_max` requests are
unanswered, then reading stops; it also stops while the peer does not read its replies. End of file ends the waiting
of parked pulls. A reply that never left our buffer hands its messages back; so does one whose peer has closed, as the
system knows before the loop hears of it, and one of which a reset connection's peer acknowledged nothing.

A connection knows nothing of services: it hands each frame to its server's `handle` and gets replies through
`answer` (at once) or a `Slot` (later; `proxy.reply_slot`).

How many frames are handled before others have their turn is `proxy.shares`. A frame that asks for much is worked off in
steps (`work`), one in each turn of its connection; no later frame of the connection is handled before the last step.

What a connection holds in memory (unfinished frames, requests without an answer, replies not yet taken by the peer)
is in the node's account all the time (`upstream.budget`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from proxy.network import NoPeer, Peer, address_text
from proxy.reading import Reading
from proxy.reply_slot import SLOT_BYTES, Lost, Slot
from proxy.shares import Share
from proxy.wire.errors import FrameError
from proxy.wire.frames import FrameSplitter
from upstream.budget import Pressure

if TYPE_CHECKING:
    from proxy.server import ThriftServer

CARRIED_MAX = 4
"""Replies with messages, of those the peer may not have got, that go back at once after a reset."""
CONNECTION_BYTES = 8 * 1024
"""What an idle connection takes: its objects here and the loop's; 6 KB were measured with uvloop, 7 KB with asyncio."""


_NO_PEER = NoPeer()


class Connection(Reading, asyncio.Protocol):
    """The protocol of one accepted socket; also the `Holder` of what is delivered over it."""

    __slots__ = (
        "_carried",
        "_counted",
        "_ended",
        "_out",
        "_out_bytes",
        "_peer",
        "_promised",
        "_sent",
        "_server",
        "_settling",
        "_slot_bytes",
        "_slots",
        "_splitter",
        "_stuck_bytes",
        "_stuck_replies",
        "_transport",
        "_writable",
        "address",
        "carried",
        "closed",
        "deferred",
        "dirty",
        "favoured",
        "share",
        "since_ms",
        "stuck_since",
    )

    def __init__(self, server: ThriftServer) -> None:
        self._server = server
        self._splitter = FrameSplitter(server.limits.frame_bytes_max, admin_hint=server.admin_hint)
        self._transport: asyncio.Transport | None = None
        self._slots: deque[Slot] = deque()
        self._steps: Iterator[None] | None = None
        self._fed = 0
        self._marks: deque[tuple[int, int]] = deque()
        self._out: deque[tuple[bytes, Lost | None]] = deque()
        self._out_bytes = 0
        self._stuck_bytes = 0
        self._stuck_replies = 0
        self._slot_bytes = 0
        self._unread = 0
        self._counted = 0
        self._peer: Peer = _NO_PEER
        self._sent = 0
        self._carried: deque[tuple[int, Lost]] = deque(maxlen=CARRIED_MAX)
        """Replies with messages since the peer was last heard of: where each begins in all that was sent."""
        self._promised = 0
        self._writable = True
        self._reading = True
        self._settling = False
        self._ended = False
        self.address = "?"
        self.closed = False
        self.deferred = False
        """Whether its frames wait for its turn; `proxy.shares` keeps it."""
        self.dirty = False
        self.favoured = False
        self.partial_since: float | None = None
        self.stuck_since: float | None = None
        self.requests = 0
        self.share = Share()
        self.heard = 0
        """Replies that had left when the request being handled was read: the client can have had no later one (D40)."""
        self.carried = 0
        """Number of the last reply with messages."""
        self.since_ms = 0

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; a connection above the server's limit is closed at once."""
        self._transport = cast("asyncio.Transport", transport)
        # With a high-water mark of 0 the transport says at once when the kernel took less than all: what is queued
        # here and not there is known never to have left.
        self._transport.set_write_buffer_limits(high=0)
        peer: Any = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = address_text(str(peer[0]), peer[1])
        socket = transport.get_extra_info("socket")
        if not self._server.admit(self, -1 if socket is None else socket.fileno()):
            self.closed = True
            self._transport.abort()
            return
        self._peer = self._server.peer_of(transport)
        self._account(CONNECTION_BYTES)

    def data_received(self, data: bytes) -> None:
        """Handle every frame that is complete."""
        if self.closed:
            return
        # Nothing is unanswered, unread or unwritten at nearly every call of a client that waits for its replies.
        frame = None if self._slots or self._out_bytes or not self._reading else self._splitter.whole(data)
        self._carried.clear()
        server = self._server
        shares = server.shares
        at_once = shares.admits(self)
        if frame is not None and at_once:
            self.heard = self.requests - self._stuck_replies
            self.requests += 1
            began = shares.now()
            server.handle(self, frame)
            shares.charge(self, began)
            limits = server.limits
            if (
                len(self._slots) >= limits.outstanding_max
                or self._out_bytes + self._slot_bytes > limits.output_bytes_max
                or self._steps is not None
            ):
                self._read_frames()
        else:
            try:
                self._splitter.feed(data)
            except FrameError as error:
                self._refuse(error)
                return
            self._note_left(len(data))
            if at_once:
                self._read_frames()
            else:
                shares.defer(self)
                self._note_input(self.requests)
        if self._server.budget.level >= Pressure.CLOSING:
            self._server.relieve()

    def eof_received(self) -> bool:
        """The client sends no more: parked pulls are answered empty, the rest is answered, then the socket closes."""
        self._ended = True
        for slot in list(self._slots):
            if slot.withdraw is not None:
                slot.withdraw()
        self._close_when_done()
        return True

    def pause_writing(self) -> None:
        """The kernel takes no more: later replies stay in our own queue."""
        self._writable = False
        if self.stuck_since is None:
            self.stuck_since = self._server.now()

    def resume_writing(self) -> None:
        """The peer has read what the transport held for it."""
        self._writable = True
        self._account(-self._stuck_bytes)
        self._stuck_bytes = self._stuck_replies = 0
        self.stuck_since = None
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand back what never left, and take parked pulls out of their queues."""
        carried, self._carried = self._carried, deque()
        if carried and isinstance(exc, ConnectionResetError | BrokenPipeError):
            acknowledged = self._peer.acknowledged()
            for begin, unread in carried:
                if acknowledged is not None and acknowledged <= begin + 1:
                    unread()
        self.closed = True
        self._transport = None
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.withdraw is not None:
                withdraw, slot.withdraw = slot.withdraw, None
                withdraw()
            if slot.data is not None and slot.lost is not None:
                slot.lost()
        out, self._out = self._out, deque()
        self._out_bytes = self._stuck_bytes = self._slot_bytes = self._unread = 0
        self._splitter.drop()
        self._server.budget.add(-self._counted)
        self._counted = 0
        for _, lost in out:
            if lost is not None:
                lost()
        self._server.forget(self)

    # What services call.

    def answer(self, data: bytes, lost: Lost | None = None) -> None:
        """Answer the request being handled, now; it waits for its turn when earlier ones are unanswered."""
        if self.closed:
            if lost is not None:
                lost()
        elif self._slots:
            slot = Slot(self)
            slot.data = data
            slot.lost = lost
            self._slots.append(slot)
            self._account(SLOT_BYTES)
            self.keep(slot)
        else:
            self._queue(data, lost)

    def keep(self, slot: Slot) -> None:
        """Take an answer into account that waits for those before it."""
        if self._slots[0] is not slot:
            assert slot.data is not None, "it has been answered"
            slot.kept_bytes = len(slot.data)
            self._slot_bytes += slot.kept_bytes
            self._account(slot.kept_bytes)

    def answered(self, slot: Slot, data: bytes, lost: Lost | None) -> None:
        """Take the answer that a slot just got."""
        slots = self._slots
        if len(slots) == 1 and self._reading and not (self._unread or self._ended or self._settling):
            # `settle`, inline, for the one request of a client that waits for its reply.
            slots.clear()
            self._counted -= SLOT_BYTES
            self._server.budget.used -= SLOT_BYTES
            self._queue(data, lost)
        else:
            self.keep(slot)
            self.settle()

    def later(self) -> Slot:
        """Keep the place of the request being handled; its answer comes through the slot."""
        slot = Slot(self)
        self._slots.append(slot)
        self._counted += SLOT_BYTES
        self._server.budget.used += SLOT_BYTES
        return slot

    @property
    def held_bytes(self) -> int:
        """Bytes that the connection makes the node hold, above those of an idle one."""
        return self._counted - CONNECTION_BYTES

    @property
    def host(self) -> str:
        """Address of the client without its port."""
        return self.address.rpartition(":")[0]

    def is_idle(self, since: float) -> bool:
        """Whether nothing was asked since that moment, and nothing waits, is unread or unanswered."""
        return self.share.last < since and not (self._slots or self._out or self._unread or self._stuck_bytes)

    @property
    def doing(self) -> str:
        """What the connection does at present, in a word: `waiting` (a parked pull), `busy`, `slow` or `idle`."""
        if self._out_bytes:
            return "slow"
        if self._slots:
            return "waiting" if self._slots[0].withdraw is not None else "busy"
        return "idle"

    def promise(self) -> None:
        """Note that the reply to the request being handled will stand for results that were taken."""
        self._promised = self.requests

    @property
    def carries_promise(self) -> bool:
        """Whether a reply that stands for results waits to be written, or for its turn.

        Every request has one reply, so what is neither in its slot nor in the output has left.
        """
        return self._promised > self.requests - len(self._slots) - len(self._out)

    @property
    def carries_messages(self) -> bool:
        """Whether a reply with messages waits to be written."""
        return any(lost is not None for _, lost in self._out)

    @property
    def ended(self) -> bool:
        """Whether the client said that it sends no more; its pulls must not wait."""
        return self._ended

    def may_start(self) -> bool:
        """Whether a pull may take messages now: no earlier request unanswered, and the peer reads its replies."""
        return not self._slots and self._out_bytes <= self._server.limits.output_bytes_max

    # Replies on their way out.

    def settle(self) -> None:
        """Move settled replies from the head of the order to the output, and start the pull that is next."""
        if self.closed or self._settling:
            return
        self._settling = True
        slots = self._slots
        try:
            while slots:
                head = slots[0]
                if head.data is not None:
                    slots.popleft()
                    self._slot_bytes -= head.kept_bytes
                    size = SLOT_BYTES + head.kept_bytes
                    self._counted -= size
                    self._server.budget.used -= size
                    self._queue(head.data, head.lost)
                elif head.start is not None and self._out_bytes <= self._server.limits.output_bytes_max:
                    start, head.start = head.start, None
                    start()
                else:
                    break
        finally:
            self._settling = False
        if not self._reading or self._splitter.ready:
            self._server.resume_soon(self)
        if self._ended:
            self._server.touch(self)

    def flush(self) -> None:
        """Write what is queued, until the kernel takes no more. Called at the end of each turn."""
        self.dirty = False
        transport = self._transport
        if transport is None or self.closed:
            return
        out = self._out
        count = self._stuck_replies
        while out and self._writable and not transport.is_closing():
            data, lost = out.popleft()
            count = 1
            if lost is None and out and out[0][1] is None:
                # Small replies of one turn share a system call; replies that carry messages go one by one, so that
                # it is known which of them never left.
                parts = [data]
                while out and out[0][1] is None:
                    parts.append(out.popleft()[0])
                count = len(parts)
                data = b"".join(parts)
            size = len(data)
            if lost is not None:
                if self._peer.gone():
                    data, lost = lost() or b"", None
                else:
                    self._carried.append((self._sent, lost))
            self._sent += len(data)
            transport.write(data)
            if lost is not None and transport.is_closing():
                # The write found the client gone, so nothing of this reply left (W9): `connection_lost` hands it back.
                self._carried.pop()
                out.appendleft((data, lost))
                return
            self._out_bytes -= size
            self._counted -= size
            self._server.budget.used -= size
        if not self._writable:
            # What was written last is not all with the kernel.
            self._stuck_replies = count
            stuck = transport.get_write_buffer_size()
            self._account(stuck - self._stuck_bytes)
            self._stuck_bytes = stuck
        if self._ended:
            self._close_when_done()

    def close(self) -> None:
        """Close after what was written has left; replies that wait for the end of a turn do not leave any more."""
        if self._transport is not None:
            if self.dirty:
                self._transport.abort()
            else:
                self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def leave_unanswered(self) -> None:
        """Close at once, without an answer to the request being handled and without handling another one."""
        self.abort()
        self.closed = True

    def hold(self, count: int) -> None:
        """Take bytes into account, or off it, that are held for this connection elsewhere."""
        self._account(count)

    def drop(self) -> None:
        """Close at once and let go of all that is held, replies that never left included: they are handed back."""
        transport = self._transport
        self.connection_lost(None)
        if transport is not None:
            transport.abort()

    def go_on(self) -> None:
        """Write what waited for the peer, then start and read what waited for that."""
        if self.dirty:
            # Replies of this turn leave with its end and not before: only then are their acks written (D9).
            self._server.go_on_soon(self)
            return
        self.flush()
        if not self.closed:
            self.settle()
            if not self.deferred:
                self._read_frames()

    @property
    def unread_bytes(self) -> int:
        """Bytes received of frames that are not handled yet."""
        return self._unread

    def favour(self, on: bool) -> None:
        """Read on whatever the pressure, or no more so; then see what that means now."""
        changed = on != self.favoured
        self.favoured = on
        if changed or not self._reading:
            self._server.resume_soon(self)

    def read_on(self) -> None:
        """Handle frames that were held back: while too much was unanswered, or for the sake of others."""
        if not self.closed:
            self._read_frames()

    def work(self, steps: Iterator[None]) -> None:
        """Have the request being handled worked off in steps, one per turn; later frames wait for the last one."""
        assert self._steps is None, "no frame is handled while another one is worked off"
        self._steps = steps

    # Inside.

    def _queue(self, data: bytes, lost: Lost | None) -> None:
        size = len(data)
        self._out.append((data, lost))
        self._out_bytes += size
        self._counted += size
        budget = self._server.budget
        budget.used += size
        if budget.used >= budget.next_at:
            budget.settle()
        if not self.dirty:
            self.dirty = True
            self._server.touch(self)

    def _account(self, count: int) -> None:
        """Bring a change of what is held into the node's account; nothing is held for a closed connection."""
        if not self.closed:
            self._counted += count
            self._server.budget.add(count)

    def _refuse(self, error: FrameError) -> None:
        """Close a connection whose bytes are no frames (nothing but this connection is affected)."""
        self._server.refused(self, error)
        if error.answer and self._transport is not None:
            self._out.append((error.answer, None))
            self._out_bytes += len(error.answer)
            self._account(len(error.answer))
        self._ended = True
        if self.dirty:
            # Replies of this turn leave with its end (D9), which closes the connection.
            if self._transport is not None:
                self._transport.pause_reading()
            return
        self.flush()
        if self._transport is not None and not self._slots:
            self._transport.close()

    def _close_when_done(self) -> None:
        if self._ended and not (self._slots or self._out or self.deferred) and self._transport is not None:
            self._transport.close()
