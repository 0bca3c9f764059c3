"""One client connection: frames in, replies out in request order.

The rules of a connection (D18): frames take effect in arrival order and are answered in request order. A pull that
waits delays only the replies after it, not the acks that came with them. At most `outstanding_max` requests are
unanswered, then reading stops; it also stops while the peer does not read its replies. End of file ends the waiting
of parked pulls. A reply that never left hands its messages back.

A connection knows nothing of services: it hands each frame to its server's `handle` and gets replies through
`answer` (at once) or a `ReplySlot` (later; `proxy.port.reply_slot`). What was received and is not handled is in its
`Intake`, replies whose turn has come are in its `Outbox`; here is what is between: the order of requests, and when it
reads on. All that it holds in memory is in the node's account all the time (`upstream.budget`).

How many frames are handled before others have their turn is `proxy.port.shares`. A frame that asks for much is worked
off in steps (`work`), one in each turn of its connection; no later frame of the connection is handled before the last
step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import Any, Self, cast

from broker.runtime.steps import StepsEnd, step
from proxy.access.rights import Rights
from proxy.limits.quota import Quota
from proxy.port.accepting import Accepting
from proxy.port.intake import Intake
from proxy.port.network import address_text, host_of
from proxy.port.outbox import Outbox
from proxy.port.reply_slot import NO_CALL, SLOT_BYTES, Lost, ReplySlot
from proxy.port.shares import SLICE_FRAMES, SLICE_SECONDS, TURN_SECONDS, Share
from proxy.tls.channel import TLS_BYTES, TlsTransport
from proxy.tls.peer_certificate import PeerCertificate
from proxy.wire.call import Call
from proxy.wire.errors import FrameError
from proxy.wire.frames import FrameSplitter
from proxy.wire.texts import client_name
from upstream.budget import Pressure

_SLOWED = Pressure.SLOWED

CONNECTION_BYTES = 8 * 1024
"""What an idle connection takes: its objects here and the loop's; 6 KB were measured with uvloop, 7 KB with asyncio."""
INPUT_BYTES_SLOWED = 64 * 1024
"""Unfinished input up to which a connection is read on whatever the pressure: every ordinary call fits."""
READ_BYTES = 128 * 1024
"""A read of as many bytes is the last one of its connection in a turn: libuv would read on, 8 MiB at a time, and a
client that sends long frames without end would keep all others waiting."""


class Connection(asyncio.Protocol):
    """The protocol of one accepted socket; also the `Holder` of what is delivered over it.

    Attributes:
        address: `ip:port` of the client, for people; an IPv4 address that came mapped into IPv6 as IPv4's.
        carried: Number of the last reply with messages.
        certificate: The client's, checked; None where it has shown none.
        client: What the client first said of itself (library and version); "" until it does. Decides nothing.
        closed: Nothing is taken or written any more.
        deferred: Whether its frames wait for its turn; `proxy.port.shares` keeps it.
        dirty: Whether something waits for the end of the turn.
        ended: The client said that it sends no more; its pulls must not wait.
        favoured: Whether it is read on whatever the pressure.
        heard: Replies that had left when the request being handled was read; the client had no later one (D40).
        host: As `address`, without its port.
        intake: What was received and is not handled.
        is_encrypted: Whether it came by TLS.
        leaving: Whether the peer has closed, which was not read yet: it is read on to that, whatever the pressure.
        outbox: Replies whose turn has come.
        quota: What its client may take; None without limits.
        received_at: Monotonic seconds when the last bytes were received that were handled.
        requests: Requests that were handled, or are now.
        rights: What it may do; None without rules.
        share: What it took of the loop's time.
        since_ms: When it was accepted, wall clock.
        slots: Requests without an answer that has its turn, the oldest first.
    """

    __slots__ = (
        "_advancing",
        "_promised",
        "_reading",
        "_resting",
        "_server",
        "_slot_bytes",
        "_slots_held",
        "_steps",
        "_transport",
        "address",
        "carried",
        "certificate",
        "client",
        "closed",
        "deferred",
        "dirty",
        "ended",
        "favoured",
        "heard",
        "host",
        "intake",
        "is_encrypted",
        "leaving",
        "outbox",
        "quota",
        "received_at",
        "requests",
        "rights",
        "share",
        "since_ms",
        "slots",
    )

    def __init__(self, server: Accepting[Self]) -> None:
        self._server: Accepting[Self] = server
        self.intake = Intake(FrameSplitter(server.limits.frame_bytes_max, admin_hint=server.admin_hint), server.budget)
        self.outbox = Outbox(server.budget)
        self.slots: deque[ReplySlot] = deque()
        self._slot_bytes = 0
        """Bytes of answers that wait for those before them."""
        self._slots_held = 0
        """What the account has for this object itself, its slots and the calls in them."""
        self._transport: asyncio.Transport | None = None
        self._steps: Generator[None, None, None] | None = None
        self._promised = 0
        self._reading = True
        self._resting = False
        self._advancing = False
        self.address = "?"
        self.host = ""
        self.is_encrypted = False
        self.certificate: PeerCertificate | None = None
        self.since_ms = 0
        self.client = ""
        self.rights: Rights | None = None
        self.quota: Quota | None = None
        self.share = Share()
        self.requests = self.carried = self.heard = 0
        self.received_at = 0.0
        self.closed = self.deferred = self.dirty = self.ended = self.favoured = self.leaving = False

    def note_client(self, said: str | bytes | None) -> None:
        """Keep what the client says of itself, the first time that it does."""
        if said and not self.client:
            self.client = client_name(said)

    # What the transport calls.

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
        self.is_encrypted = isinstance(transport, TlsTransport)
        socket = transport.get_extra_info("socket")
        if not self._server.admit(self, -1 if socket is None else socket.fileno()):
            self.closed = True
            self._transport.abort()
            return
        self.outbox.open(self._transport, self._server.peer_of(transport))
        self.hold(self._idle_bytes)

    def secured(self, certificate: PeerCertificate | None) -> None:
        """The handshake has ended."""
        self.certificate = certificate

    def data_received(self: Self, data: bytes) -> None:
        """Handle every frame that is complete."""
        if self.closed or self.ended:
            return
        intake, outbox = self.intake, self.outbox
        # Nothing is unanswered, unread or unwritten at nearly every call of a client that waits for its replies.
        frame = None if self.slots or outbox.waiting_bytes or not self._reading else intake.splitter.whole(data)
        outbox.carried.clear()
        server = self._server
        shares = server.shares
        at_once = not self.deferred and (shares.spent < TURN_SECONDS or shares.admits(self))
        if frame is not None and at_once:
            self.heard = self.requests - outbox.stuck_replies
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
                or outbox.waiting_bytes + self._slot_bytes > limits.output_bytes_max
                or self._steps is not None
            ):
                self._read_frames()
        else:
            began = shares.now()
            try:
                intake.splitter.feed(data)
            except FrameError as error:
                self._refuse(error)
                return
            self.received_at = shares.charge(self, began)
            left = self.requests - len(self.slots) - len(outbox.replies) - outbox.stuck_replies
            intake.note_left(len(data), left)
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
        """The kernel takes no more."""
        self.outbox.pause(self._server.now())

    def resume_writing(self) -> None:
        """The peer has read what the transport held for it."""
        self.outbox.resume()
        self.go_on()

    def connection_lost(self: Self, exc: Exception | None) -> None:
        """Hand back what never left, and take parked pulls out of their queues."""
        if isinstance(exc, ConnectionResetError | BrokenPipeError):
            self.outbox.give_back_unread()
        self.closed = True
        self._transport = None
        slots, self.slots = self.slots, deque()
        for slot in slots:
            if slot.withdraw is not None:
                withdraw, slot.withdraw = slot.withdraw, None
                withdraw()
            if slot.data is not None and slot.lost is not None:
                slot.lost()
        self.intake.close()
        self._server.budget.add(-self._slots_held)
        self._slots_held = self._slot_bytes = 0
        for lost in self.outbox.close():
            lost()
        self._server.forget(self)

    # What services call.

    def answer(self: Self, data: bytes, lost: Lost | None = None) -> None:
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
            self._keep(slot, data)
        else:
            self._queue(data, lost)

    def later(self, call: Call = NO_CALL) -> ReplySlot:
        """Keep the place of the request being handled, a call's; its answer comes through the slot."""
        slot = ReplySlot(self, call)
        self.slots.append(slot)
        self._slots_held += SLOT_BYTES
        self._server.budget.used += SLOT_BYTES
        return slot

    def answered(self: Self, slot: ReplySlot, data: bytes, lost: Lost | None) -> None:
        """Take the answer that a slot just got."""
        slots = self.slots
        if len(slots) == 1 and self._reading and not (self.intake.unread_bytes or self.ended or self._advancing):
            # `advance`, inline, for the one request of a client that waits for its reply.
            slots.clear()
            self._slots_held -= SLOT_BYTES
            self._server.budget.used -= SLOT_BYTES
            self._queue(data, lost)
        else:
            self._keep(slot, data)
            self.advance()

    def _keep(self, slot: ReplySlot, data: bytes) -> None:
        """Take an answer into account that waits for those before it."""
        if self.slots[0] is not slot:
            slot.kept_bytes = len(data)
            self._slot_bytes += slot.kept_bytes
            self.hold(slot.kept_bytes)

    def _queue(self: Self, data: bytes, lost: Lost | None) -> None:
        """Take a reply whose turn has come; it leaves with the end of the turn."""
        self.outbox.add(data, lost)
        if self.quota is not None:
            self.quota.sent(len(data))
        if not self.dirty:
            self.dirty = True
            self._server.touch(self)

    def fail(self: Self, slot: ReplySlot, error: Exception) -> None:
        """Answer a call that could not be handled later than it arrived."""
        self._server.fail_call(slot, slot.call, error)

    def hold(self, count: int) -> None:
        """Bring a change of what is held for this connection into the node's account; nothing is for a closed one."""
        if not self.closed:
            self._slots_held += count
            self._server.budget.add(count)

    def promise(self, number: int) -> None:
        """Note that the reply to the request of that number will stand for results that were taken."""
        if number > self._promised:  # noqa: PLR1730 - the call of `max` costs more than all of this
            self._promised = number

    def has_promised(self, number: int) -> bool:
        """Whether the request of that number was the last one whose reply confirms results."""
        return self._promised == number

    def may_start(self, slot: ReplySlot | None = None) -> bool:
        """Whether a call (that of a slot, or the one being handled) may take messages now.

        No earlier request is unanswered, and the peer reads its replies.
        """
        is_next = not self.slots if slot is None else bool(self.slots) and self.slots[0] is slot
        return is_next and self.outbox.waiting_bytes <= self._server.limits.output_bytes_max

    def work(self: Self, steps: Generator[None, None, None]) -> None:
        """Have the request being handled worked off in steps, one per turn; later frames wait for the last one."""
        assert self._steps is None, "no frame is handled while another one is worked off"
        self._steps = steps
        self._server.resume_soon(self)

    def rest(self: Self, seconds: float) -> None:
        """Handle no further frame for so long, and read none: the client waits for the node as for a slow network."""
        if self._resting:
            return
        self._resting = True
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
        self._server.rest(self, seconds)

    def leave_unanswered(self) -> None:
        """Close at once, without an answer to the request being handled and without handling another one."""
        self.abort()
        self.closed = True

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
                    self._slots_held -= size
                    self._server.budget.used -= size
                    self._queue(head.data, head.lost)
                elif head.start is not None and self.outbox.waiting_bytes <= self._server.limits.output_bytes_max:
                    start, head.start = head.start, None
                    start()
                else:
                    break
        finally:
            self._advancing = False
        if not self._reading or self.intake.splitter.ready:
            self._server.resume_soon(self)
        if self.ended:
            self._server.touch(self)

    def flush(self) -> None:
        """Write what is queued, until the kernel takes no more. Called at the end of each turn."""
        self.dirty = False
        if not self.closed:
            self.outbox.write()
            if self.ended:
                self._close_when_done()

    def withdraw_waiting(self) -> None:
        """Answer what waits for messages: empty."""
        for slot in list(self.slots):
            if slot.withdraw is not None:
                slot.withdraw()

    def read_on(self: Self) -> None:
        """Handle frames that were held back: while too much was unanswered, or for the sake of others."""
        if not self.closed:
            self._read_frames()

    def rested(self: Self) -> None:
        """Go on after a rest."""
        self._resting = False
        if not self.closed:
            self._server.resume_soon(self)

    def go_on(self: Self) -> None:
        """Write what waited for the peer, then start and read what waited for that."""
        if self.dirty:
            # Replies of this turn leave with its end and not before: only then are their acks written (D9).
            self._server.go_on_soon(self)
            return
        self.flush()
        if not self.closed:
            self.advance()
            if not self.deferred:
                self._read_frames()

    def favour(self: Self, on: bool) -> None:
        """Read on whatever the pressure, or no more so; then see what that means now."""
        changed = on != self.favoured
        self.favoured = on
        if changed or not self._reading:
            self._server.resume_soon(self)

    def look_for_end(self: Self) -> None:
        """Notice that the peer has closed while nothing is read from it. Called every second or so.

        What it sent before counts: frames that are complete are handled, for which reading continues.
        """
        peer = self.outbox.peer
        if self._reading or self.ended or self.closed or not peer.gone():
            return
        unread = peer.unread()
        if self.intake.partial_since is not None and unread is not None and unread < self.intake.splitter.missing:
            self.drop()
            return
        self.withdraw_waiting()
        if not self.closed:
            self.leaving = True
            self._server.resume_soon(self)

    def _read_frames(self: Self) -> None:
        """Handle what is there, for as long as the connection's share of this turn lasts."""
        splitter = self.intake.splitter
        server = self._server
        shares = server.shares
        handled = self.requests
        began = moment = shares.now()
        if self._steps is not None:
            self._step(self._steps)
            if self.closed:
                return
            moment = shares.now()
        try:
            while (
                not self._is_full()
                and self._steps is None
                and self.requests < handled + SLICE_FRAMES
                and moment < began + SLICE_SECONDS
            ):
                frame = splitter.next()
                if frame is None:
                    break
                self.heard = self.intake.heard()
                self.requests += 1
                server.handle(self, frame)
                if self.closed:
                    return
                moment = shares.now()
        except FrameError as error:
            self._refuse(error)
            return
        shares.charge(self, began)
        if self._steps is not None or (splitter.ready and not self._is_full()):
            shares.defer(self)
        elif self.ended:
            server.touch(self)
        self._note_input(handled)

    def _step(self: Self, steps: Generator[None, None, None]) -> None:
        try:
            if isinstance(step(steps), StepsEnd):
                self._steps = None
        except Exception as error:
            self._steps = None
            self._server.step_failed(self, error)

    def _is_full(self) -> bool:
        """Whether it rests, or so much is unanswered or unread by the peer, that no further frame is handled."""
        limits = self._server.limits
        return (
            self._resting
            or len(self.slots) >= limits.outstanding_max
            or self.outbox.waiting_bytes + self._slot_bytes > limits.output_bytes_max
        )

    def _note_input(self, handled: int) -> None:
        """Account for what is not handled, after `handled` requests, and read on or not."""
        server, intake = self._server, self.intake
        full = self._is_full()
        intake.recount(server.now(), handled=self.requests != handled)
        if intake.unread_bytes > INPUT_BYTES_SLOWED and (
            self.deferred or (not (self.favoured or self.leaving) and server.budget.level >= _SLOWED)
        ):
            full = True
        if full == self._reading and self._transport is not None and not self.ended:
            self._reading = not full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _refuse(self: Self, error: FrameError) -> None:
        """Close a connection whose bytes are no frames, once what it asked before is answered; keep nothing of it."""
        self._server.refused(self, error)
        self.intake.splitter.drop()
        self.intake.recount(self._server.now(), handled=True)
        self.ended = True
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
        self.withdraw_waiting()
        if error.answer:
            self.answer(error.answer)
        if not self.dirty:  # Else replies of this turn leave with its end (D9), which closes the connection.
            self.flush()

    # What its server asks of it.

    @property
    def held_bytes(self) -> int:
        """Bytes that the connection makes the node hold, above those of an idle one."""
        return self.taken_bytes - self._idle_bytes

    @property
    def taken_bytes(self) -> int:
        """Bytes that closing the connection frees."""
        return self._slots_held + self.intake.held_bytes + self.outbox.held_bytes

    @property
    def _idle_bytes(self) -> int:
        return CONNECTION_BYTES + TLS_BYTES if self.is_encrypted else CONNECTION_BYTES

    @property
    def carries_promise(self) -> bool:
        """Whether a reply that is for results waits to be written, or for its turn.

        Every request has one reply, so what is neither in its slot nor in the output has left.
        """
        return self._promised > self.requests - len(self.slots) - len(self.outbox.replies)

    @property
    def doing(self) -> str:
        """What the connection does at present, in a word: `writing`, `waiting` (a parked pull), `busy` or `idle`."""
        if self.outbox.held_bytes:
            return "writing"
        if self.slots:
            return "waiting" if self.slots[0].withdraw is not None else "busy"
        return "idle"

    def is_idle(self, since: float) -> bool:
        """Whether nothing was asked since that moment, and nothing waits, is unread or unanswered."""
        outbox = self.outbox
        return self.share.last < since and not (
            self.slots or outbox.replies or self.intake.unread_bytes or outbox.stuck_bytes
        )

    def part(self) -> None:
        """Read no more, let what was asked be answered, and close."""
        if self._reading and self._transport is not None:
            self._transport.pause_reading()
        self.eof_received()

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

    def drop(self) -> None:
        """Close at once and release all that is held, replies that never left included: they are handed back."""
        transport = self._transport
        self.connection_lost(None)
        if transport is not None:
            transport.abort()

    def _close_when_done(self) -> None:
        if self.ended and not (self.slots or self.outbox.replies or self.deferred) and self._transport is not None:
            self._transport.close()
