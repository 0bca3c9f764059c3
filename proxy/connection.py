"""One client connection: frames in, replies out in request order.

The rules of a connection (D18): frames take effect in arrival order and are answered in request order. A pull that
waits delays only the replies after it, not the acks that came with them. At most `outstanding_max` requests are
unanswered, then reading stops; it also stops while the peer does not read its replies. End of file ends the waiting
of parked pulls. A reply that never left our buffer hands its messages back.

A connection knows nothing of services: it hands each frame to its server's `handle` and gets replies through
`answer` (at once) or a `Slot` (later; `proxy.reply_slot`).

What a connection holds in memory (unfinished frames, requests without an answer, replies not yet taken by the peer)
is in the node's account all the time (`upstream.budget`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from proxy.network import address_text
from proxy.reply_slot import SLOT_BYTES, Lost, Slot
from proxy.wire.errors import FrameError
from proxy.wire.frames import FrameSplitter
from upstream.budget import Pressure

if TYPE_CHECKING:
    from proxy.server import ThriftServer

CONNECTION_BYTES = 8 * 1024
"""What an idle connection takes: its objects here and the loop's; 6 KB were measured with uvloop, 7 KB with asyncio."""
INPUT_BYTES_SLOWED = 64 * 1024
"""Unfinished input up to which a connection is read on whatever the pressure: every ordinary call fits."""


class Connection(asyncio.Protocol):
    """The protocol of one accepted socket; also the `Holder` of what is delivered over it."""

    __slots__ = (
        "_counted",
        "_ended",
        "_out",
        "_out_bytes",
        "_promised",
        "_reading",
        "_server",
        "_settling",
        "_slot_bytes",
        "_slots",
        "_splitter",
        "_stuck_bytes",
        "_transport",
        "_unread",
        "_writable",
        "address",
        "closed",
        "dirty",
        "favoured",
        "partial_since",
        "requests",
        "since_ms",
        "stuck_since",
    )

    def __init__(self, server: ThriftServer) -> None:
        self._server = server
        self._splitter = FrameSplitter(server.limits.frame_bytes_max, admin_hint=server.admin_hint)
        self._transport: asyncio.Transport | None = None
        self._slots: deque[Slot] = deque()
        self._out: deque[tuple[bytes, Lost | None]] = deque()
        self._out_bytes = 0
        self._stuck_bytes = 0
        self._slot_bytes = 0
        self._unread = 0
        self._counted = 0
        self._promised = 0
        self._writable = True
        self._reading = True
        self._settling = False
        self._ended = False
        self.address = "?"
        self.closed = False
        self.dirty = False
        self.favoured = False
        self.partial_since: float | None = None
        self.stuck_since: float | None = None
        self.requests = 0
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
        self._account(CONNECTION_BYTES)

    def data_received(self, data: bytes) -> None:
        """Handle every frame that is complete."""
        if self.closed:
            return
        # Nothing is unanswered, unread or unwritten at nearly every call of a client that waits for its replies.
        frame = None if self._slots or self._out_bytes or not self._reading else self._splitter.whole(data)
        if frame is not None:
            self.requests += 1
            server = self._server
            server.handle(self, frame)
            limits = server.limits
            if (
                len(self._slots) >= limits.outstanding_max
                or self._out_bytes + self._slot_bytes > limits.output_bytes_max
            ):
                self._read_frames()
        else:
            try:
                self._splitter.feed(data)
            except FrameError as error:
                self._refuse(error)
                return
            self._read_frames()
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
        self._stuck_bytes = 0
        self.stuck_since = None
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand back what never left, and take parked pulls out of their queues."""
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
        while out and self._writable and not transport.is_closing():
            data, lost = out.popleft()
            if lost is None and out and out[0][1] is None:
                # Small replies of one turn share a system call; replies that carry messages go one by one, so that
                # it is known which of them never left.
                parts = [data]
                while out and out[0][1] is None:
                    parts.append(out.popleft()[0])
                data = b"".join(parts)
            transport.write(data)
            if lost is not None and transport.is_closing():
                # The write found the client gone, so nothing of this reply left (W9): `connection_lost` hands it back.
                out.appendleft((data, lost))
                return
            size = len(data)
            self._out_bytes -= size
            self._counted -= size
            self._server.budget.used -= size
        if not self._writable:
            stuck = transport.get_write_buffer_size()
            self._account(stuck - self._stuck_bytes)
            self._stuck_bytes = stuck
        if self._ended:
            self._close_when_done()

    def close(self) -> None:
        """Close after what is queued has been written."""
        self._ended = True
        self._server.touch(self)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

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
        """Handle frames that were held back while too much was unanswered."""
        if not self.closed:
            self._read_frames()

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

    def _read_frames(self) -> None:
        splitter = self._splitter
        server = self._server
        limits = server.limits
        handled = self.requests
        try:
            while (
                len(self._slots) < limits.outstanding_max
                and self._out_bytes + self._slot_bytes <= limits.output_bytes_max
            ):
                frame = splitter.next()
                if frame is None:
                    break
                self.requests += 1
                server.handle(self, frame)
                if self.closed:
                    return
        except FrameError as error:
            self._refuse(error)
            return
        full = (
            len(self._slots) >= limits.outstanding_max or self._out_bytes + self._slot_bytes > limits.output_bytes_max
        )
        unread = splitter.buffered
        if unread != self._unread:
            # What gathers in pieces has an eighth of its size to spare.
            self._account(unread + unread // 8 - self._unread - self._unread // 8)
            self._unread = unread
        if not unread or not splitter.partial:
            self.partial_since = None
        elif self.partial_since is None or self.requests != handled:
            # From the frame's first byte on: one that drips in byte by byte must not live for ever.
            self.partial_since = server.now()
        if unread > INPUT_BYTES_SLOWED and not self.favoured and server.budget.level >= Pressure.SLOWED:
            full = True
        if full == self._reading and self._transport is not None and not self._ended:
            self._reading = not full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

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
        if self._ended and not self._slots and not self._out and self._transport is not None:
            self._transport.close()
