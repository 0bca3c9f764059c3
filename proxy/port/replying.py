"""The replies of a connection: given in any order, they leave in that of the requests.

Replies of a turn leave with its end. A reply that never left our buffer hands its messages back; so does one whose peer
has closed, as the system knows before the loop hears of it.

What a connection holds in memory (unfinished frames, requests without an answer, replies not yet taken by the peer)
is in the node's account all the time (`upstream.budget`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

from proxy.limits.quota import Quota
from proxy.port.accepting import Accepting
from proxy.port.network import NoPeer, Peer
from proxy.port.reply_slot import NO_CALL, SLOT_BYTES, Leased, Lost, ReplySlot
from proxy.tls.channel import TlsTransport
from proxy.wire.call import Call
from proxy.wire.frames import FrameSplitter

READ_BYTES_MIN = 64 * 1024
"""What a slow peer has to read within `write_seconds_max`, unless less waits for it."""
CARRIED_MAX = 4
"""Replies with messages, of those the peer may not have got, that go back at once after a reset."""

_NO_PEER = NoPeer()


class Replying:
    """What a connection holds, and its way out; `proxy.port.reading` is the way in.

    Attributes:
        requests: Requests that were handled, or are now.
        carried: Number of the last reply with messages.
        closed: Nothing is taken or written any more.
        deferred: Whether its frames wait for its turn; `proxy.port.shares` keeps it.
        dirty: Whether something waits for the end of the turn.
        ended: The client said that it sends no more; its pulls must not wait.
        quota: What its client may take; None where nobody is limited.
        slots: Requests without an answer that has its turn, the oldest first.
        received_at: Monotonic seconds when the last bytes were received that were handled.
        stuck_since: Monotonic seconds since when replies wait because the peer does not read; None when none waits.
        unread_bytes: Bytes received of frames that are not handled yet.
    """

    __slots__ = (
        "_advancing",
        "_carried",
        "_counted",
        "_out",
        "_out_bytes",
        "_peer",
        "_promised",
        "_reading",
        "_sent",
        "_server",
        "_slot_bytes",
        "_splitter",
        "_stuck_bytes",
        "_stuck_replies",
        "_taken_at",
        "_taken_bytes",
        "_tls",
        "_transport",
        "_writable",
        "carried",
        "closed",
        "deferred",
        "dirty",
        "ended",
        "quota",
        "received_at",
        "requests",
        "slots",
        "stuck_since",
        "unread_bytes",
    )

    def __init__(self, server: Accepting[Self]) -> None:
        self._server: Accepting[Self] = server
        self._splitter = FrameSplitter(server.limits.frame_bytes_max, admin_hint=server.admin_hint)
        self._transport: asyncio.Transport | None = None
        self.slots: deque[ReplySlot] = deque()
        self._out: deque[tuple[bytes, Lost | None]] = deque()
        self._out_bytes = 0
        self._stuck_bytes = 0
        self._stuck_replies = 0
        self._slot_bytes = 0
        self.unread_bytes = 0
        self._counted = 0
        self._peer: Peer = _NO_PEER
        self._tls: TlsTransport | None = None
        self._sent = 0
        self._carried: deque[tuple[int, Lost]] = deque(maxlen=CARRIED_MAX)
        """Replies with messages since the peer was last heard of: where each begins in all that was sent."""
        self._promised = 0
        self._writable = True
        self._reading = True
        self._advancing = False
        self.ended = False
        self.requests = 0
        self.carried = 0
        self.closed = False
        self.deferred = False
        self.dirty = False
        self.received_at = 0.0
        self.quota: Quota | None = None
        self.stuck_since: float | None = None
        self._taken_at = 0.0
        self._taken_bytes = 0
        """While replies wait: what the kernel had taken at `_taken_at`, when the peer last read enough."""

    # What services call.

    def answer(self, data: bytes, lost: Lost | None = None) -> None:
        """Answer the request being handled, now; it waits for its turn when earlier ones are unanswered."""
        if self.closed:
            if lost is not None:
                lost()
        elif self.slots:
            slot = ReplySlot(self)
            slot.data = data
            slot.lost = lost
            self.slots.append(slot)
            self.hold(SLOT_BYTES)
            self.keep(slot)
        else:
            self._queue(data, lost)

    def keep(self, slot: ReplySlot) -> None:
        """Take an answer into account that waits for those before it."""
        if self.slots[0] is not slot:
            assert slot.data is not None, "it has been answered"
            slot.kept_bytes = len(slot.data)
            self._slot_bytes += slot.kept_bytes
            self.hold(slot.kept_bytes)

    def answered(self: Self, slot: ReplySlot, data: bytes, lost: Lost | None) -> None:
        """Take the answer that a slot just got."""
        slots = self.slots
        if len(slots) == 1 and self._reading and not (self.unread_bytes or self.ended or self._advancing):
            # `advance` and `_queue`, inline, for the one request of a client that waits for its reply.
            slots.clear()
            server, size = self._server, len(data)
            self._out.append((data, lost))
            self._out_bytes += size
            self._counted += size - SLOT_BYTES
            budget = server.budget
            budget.used += size - SLOT_BYTES
            if budget.used >= budget.next_at:
                budget.recount()
            if self.quota is not None:
                self.quota.sent(size)
            if not self.dirty:
                self.dirty = True
                server.touch(self)
        else:
            self.keep(slot)
            self.advance()

    def later(self, call: Call = NO_CALL) -> ReplySlot:
        """Keep the place of the request being handled, a call's; its answer comes through the slot."""
        slot = ReplySlot(self, call)
        self.slots.append(slot)
        self._counted += SLOT_BYTES
        self._server.budget.used += SLOT_BYTES
        return slot

    def fail(self, slot: ReplySlot, error: Exception) -> None:
        """Answer a call that could not be handled later than it arrived."""
        self._server.fail_call(slot, slot.call, error)

    def hold(self, count: int) -> None:
        """Bring a change of what is held for this connection into the node's account; nothing is for a closed one."""
        if not self.closed:
            self._counted += count
            self._server.budget.add(count)

    def promise(self, number: int) -> None:
        """Note that the reply to the request of that number will stand for results that were taken."""
        self._promised = max(self._promised, number)

    def has_promised(self, number: int) -> bool:
        """Whether the request of that number was the last one whose reply stands for results."""
        return self._promised == number

    @property
    def carries_promise(self) -> bool:
        """Whether a reply that stands for results waits to be written, or for its turn.

        Every request has one reply, so what is neither in its slot nor in the output has left.
        """
        return self._promised > self.requests - len(self.slots) - len(self._out)

    @property
    def carries_messages(self) -> bool:
        """Whether a reply with messages waits to be written."""
        return any(lost is not None for _, lost in self._out)

    def may_start(self, slot: ReplySlot | None = None) -> bool:
        """Whether a call (that of a slot, or the one being handled) may take messages now.

        No earlier request is unanswered, and the peer reads its replies.
        """
        is_next = not self.slots if slot is None else bool(self.slots) and self.slots[0] is slot
        return is_next and self._out_bytes <= self._server.limits.output_bytes_max

    @property
    def doing(self) -> str:
        """What the connection does at present, in a word: `writing`, `waiting` (a parked pull), `busy` or `idle`."""
        if self.unsent_bytes:
            return "writing"
        if self.slots:
            return "waiting" if self.slots[0].withdraw is not None else "busy"
        return "idle"

    @property
    def unsent_bytes(self) -> int:
        """Bytes of replies that the connection holds because the peer has not read them."""
        return self._out_bytes + self._stuck_bytes

    def reads_too_little(self, now: float) -> bool:
        """Whether replies wait and the peer read less than `READ_BYTES_MIN` of them in `write_seconds_max`.

        Called once a second: the time begins anew whenever enough was read.
        """
        if self.stuck_since is None:
            return False
        taken = self._taken()
        if taken >= self._taken_bytes + READ_BYTES_MIN:
            self._taken_bytes, self._taken_at = taken, now
        return now - self._taken_at >= self._server.limits.write_seconds_max

    def _taken(self) -> int:
        """Return how many bytes the kernel has taken so far."""
        sent = self._sent if self._tls is None else self._tls.sent
        return sent - (0 if self._transport is None else self._transport.get_write_buffer_size())

    def leave_unanswered(self) -> None:
        """Close at once, without an answer to the request being handled and without handling another one."""
        self.abort()
        self.closed = True

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close after what was written has left; replies that wait for the end of a turn do not leave any more."""
        if self._transport is not None:
            if self.dirty:
                self._transport.abort()
            else:
                self._transport.close()

    # Replies on their way out.

    def advance(self: Self) -> None:
        """Move finished replies from the head of the order to the output, and start the pull that is next."""
        if self.closed or self._advancing:
            return
        self._advancing = True
        slots = self.slots
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
            self._advancing = False
        if not self._reading or self._splitter.ready:
            self._server.resume_soon(self)
        if self.ended:
            self._server.touch(self)

    def flush(self) -> None:
        """Write what is queued, until the kernel takes no more. Called at the end of each turn."""
        self.dirty = False
        transport = self._transport
        if transport is None or self.closed:
            return
        out = self._out
        is_writable = self._writable
        if len(out) == 1 and out[0][1] is None and is_writable and not (self.ended or transport.is_closing()):
            # One reply without messages that the kernel takes whole, as nearly all do.
            data, _ = out.popleft()
            size = self._out_bytes
            self._out_bytes = 0
            self._sent += size
            transport.write(data)
            self._counted -= size
            self._server.budget.used -= size
            if self._writable:
                self.stuck_since = None
            else:
                self._note_stuck(transport, 1, size)
            return
        count, size = self._stuck_replies, self._stuck_bytes
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
                if self._peer.gone() or (isinstance(lost, Leased) and not lost.holds()):
                    data, lost = lost() or b"", None
                else:
                    # As the peer's system counts: by TLS the bytes are others, and there are some before the first.
                    self._carried.append((self._sent if self._tls is None else self._tls.sent, lost))
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
        if self._writable:
            self.stuck_since = None
        else:
            self._note_stuck(transport, count, size)
        if self.ended:
            self._close_when_done()

    def _note_stuck(self, transport: asyncio.Transport, count: int, size: int) -> None:
        """Note that what was written last is not all with the kernel: the transport keeps it whole until it is."""
        self._stuck_replies = count
        stuck = max(size, transport.get_write_buffer_size())
        self.hold(stuck - self._stuck_bytes)
        self._stuck_bytes = stuck

    def _queue(self: Self, data: bytes, lost: Lost | None) -> None:
        size = len(data)
        self._out.append((data, lost))
        self._out_bytes += size
        self._counted += size
        budget = self._server.budget
        budget.used += size
        if budget.used >= budget.next_at:
            budget.recount()
        if self.quota is not None:
            self.quota.sent(size)
        if not self.dirty:
            self.dirty = True
            self._server.touch(self)

    def _close_when_done(self) -> None:
        if self.ended and not (self.slots or self._out or self.deferred) and self._transport is not None:
            self._transport.close()
