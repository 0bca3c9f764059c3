"""The way out of a connection: replies whose turn has come, until the kernel has them.

Replies of a turn leave with its end. Small ones share a system call; those that carry messages go one by one, so that
it is known which of them never left. Such a reply hands its messages back; so does one whose peer has closed, as the
system knows before the loop hears of it, and one of which a reset connection's peer acknowledged nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque

from proxy.port.network import NoPeer, Peer
from proxy.port.reply_slot import Leased, Lost
from proxy.tls.channel import TlsTransport
from upstream.budget import Budget

READ_BYTES_MIN = 64 * 1024
"""What a slow peer has to read within `write_seconds_max`, unless less waits for it."""
CARRIED_MAX = 4
"""Replies with messages, of those the peer may not have got, that go back at once after a reset."""

_NO_PEER = NoPeer()


class Outbox:
    """Replies of one connection on their way out, in the node's account all the time.

    Attributes:
        replies: Those that wait for the end of the turn or for the peer, each with its `Lost`.
        waiting_bytes: Bytes of these.
        stuck_bytes: Bytes of the write that the transport keeps, since the kernel did not take all of it.
        stuck_replies: How many replies that is.
        stuck_since: Monotonic seconds since when replies wait because the peer does not read; None when none waits.
        is_writable: Whether the transport takes a reply; else the replies stay here.
        carried: Replies with messages since the peer was last heard of: where each begins in all that was sent.
        peer: What the system knows of the other end.
    """

    __slots__ = (
        "_budget",
        "_sent",
        "_taken_at",
        "_taken_bytes",
        "_tls",
        "_transport",
        "carried",
        "is_writable",
        "peer",
        "replies",
        "stuck_bytes",
        "stuck_replies",
        "stuck_since",
        "waiting_bytes",
    )

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._transport: asyncio.Transport | None = None
        self._tls: TlsTransport | None = None
        self.peer: Peer = _NO_PEER
        self.replies: deque[tuple[bytes, Lost | None]] = deque()
        self.waiting_bytes = 0
        self.stuck_bytes = 0
        self.stuck_replies = 0
        self.stuck_since: float | None = None
        self.is_writable = True
        self.carried: deque[tuple[int, Lost]] = deque(maxlen=CARRIED_MAX)
        self._sent = 0
        self._taken_at = 0.0
        self._taken_bytes = 0
        """While replies wait: what the kernel had taken at `_taken_at`, when the peer last read enough."""

    def open(self, transport: asyncio.Transport, peer: Peer) -> None:
        """Write to this transport from now on."""
        self._transport, self.peer = transport, peer
        if isinstance(transport, TlsTransport):
            self._tls = transport

    def close(self) -> list[Lost]:
        """Write no more; returns what is to be called for replies that never left, and leaves the account."""
        self._transport = None
        self._budget.add(-self.held_bytes)
        lost = [each for _, each in self.replies if each is not None]
        self.replies.clear()
        self.waiting_bytes = self.stuck_bytes = 0
        return lost

    @property
    def held_bytes(self) -> int:
        """Bytes of replies that are held because the peer has not read them."""
        return self.waiting_bytes + self.stuck_bytes

    @property
    def carries_messages(self) -> bool:
        """Whether a reply with messages waits to be written."""
        return any(lost is not None for _, lost in self.replies)

    def add(self, data: bytes, lost: Lost | None) -> None:
        """Take a reply, to be written at the end of the turn."""
        size = len(data)
        self.replies.append((data, lost))
        self.waiting_bytes += size
        budget = self._budget
        budget.used += size
        if budget.used >= budget.next_at:
            budget.recount()

    def write(self) -> None:
        """Write what waits, until the kernel takes no more."""
        transport, replies = self._transport, self.replies
        if transport is None:
            return
        count, size = self.stuck_replies, self.stuck_bytes
        while replies and self.is_writable and not transport.is_closing():
            data, lost = replies.popleft()
            count = 1
            if lost is None and replies and replies[0][1] is None:
                parts = [data]
                while replies and replies[0][1] is None:
                    parts.append(replies.popleft()[0])
                count = len(parts)
                data = b"".join(parts)
            size = len(data)
            self.waiting_bytes -= size
            self._budget.used -= size
            if lost is not None:
                if self.peer.gone() or (isinstance(lost, Leased) and not lost.holds()):
                    data, lost = lost() or b"", None
                else:
                    # As the peer's system counts: by TLS the bytes are others, and there are some before the first.
                    self.carried.append((self._sent if self._tls is None else self._tls.sent, lost))
            self._sent += len(data)
            transport.write(data)
            if lost is not None and transport.is_closing():
                # The write found the client gone, so nothing of this reply left (W9): `close` hands it back.
                self.carried.pop()
                replies.appendleft((data, lost))
                self.waiting_bytes += size
                self._budget.used += size
                return
        if self.is_writable:
            self.stuck_since = None
        else:
            # What was written last is not all with the kernel: the transport keeps it whole until it is.
            self.stuck_replies = count
            stuck = max(size, transport.get_write_buffer_size())
            self._budget.add(stuck - self.stuck_bytes)
            self.stuck_bytes = stuck

    def pause(self, now: float) -> None:
        """The kernel takes no more: later replies stay here."""
        self.is_writable = False
        if self.stuck_since is None:
            self.stuck_since = self._taken_at = now
            self._taken_bytes = self._taken()

    def resume(self) -> None:
        """The peer has read what the transport held for it; `stuck_since` ends once nothing else waits."""
        self.is_writable = True
        self._budget.add(-self.stuck_bytes)
        self.stuck_bytes = self.stuck_replies = 0

    def reads_too_little(self, now: float, seconds_max: float) -> bool:
        """Whether replies wait and the peer read less than `READ_BYTES_MIN` of them in this number of seconds.

        Called once a second: the time begins again whenever enough was read.
        """
        if self.stuck_since is None:
            return False
        taken = self._taken()
        if taken >= self._taken_bytes + READ_BYTES_MIN:
            self._taken_bytes, self._taken_at = taken, now
        return now - self._taken_at >= seconds_max

    def _taken(self) -> int:
        """Return how many bytes the kernel has taken so far."""
        sent = self._sent if self._tls is None else self._tls.sent
        return sent - (0 if self._transport is None else self._transport.get_write_buffer_size())

    def give_back_unread(self) -> None:
        """The connection was reset: hand back what the peer's system has acknowledged nothing of."""
        acknowledged = self.peer.acknowledged() if self.carried else None
        carried, self.carried = self.carried, deque()
        for begin, unread in carried:
            if acknowledged is not None and acknowledged <= begin + 1:
                unread()
