"""What a connection needs of the server that accepted it, and what that allows its peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from proxy.port.network import DESCRIPTORS_UNBOUNDED, Peer
from proxy.port.reply_slot import ReplySlot
from proxy.port.shares import Shares
from proxy.wire.call import Call
from proxy.wire.errors import FrameError
from upstream.budget import Budget

Accepted_contra = TypeVar("Accepted_contra", contravariant=True)
"""A connection, as its server sees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one server allows its peers.

    Attributes:
        frame_bytes_max: Largest frame (maxReadBufferBytes); a longer one closes its connection before memory is taken.
        output_bytes_max: Replies waiting for one slow reader; above it nothing more is read from that connection.
        outstanding_max: Unanswered requests of one connection (D18).
        connections_max: Connections open at once on this port.
        address_connections_max: Of these, from one address.
        idle_seconds: Silence after which a connection makes room for another where there is none.
        frame_seconds_max: Time for a frame to arrive completely, from its first byte on.
        write_seconds_max: Time in which a slow peer has to read 64 KiB of its replies, or all of them.
        descriptors_max: File descriptors from this number on are kept for the store: a connection that gets one is
            closed.
    """

    frame_bytes_max: int = 5_000_000
    output_bytes_max: int = 16_000_000
    outstanding_max: int = 64
    connections_max: int = 10_000
    address_connections_max: int = 10_000
    idle_seconds: float = 600.0
    frame_seconds_max: float = 30.0
    write_seconds_max: float = 30.0
    descriptors_max: int = DESCRIPTORS_UNBOUNDED


class Accepting(Protocol[Accepted_contra]):
    """The server of a connection; `proxy.port.server` is the one there is.

    Attributes:
        limits: What it allows; asked again each time, for a reload may change them.
        admin_hint: Where HTTP is served.
        budget: The node's account of memory.
        shares: The loop's time.
        relieve: Called when a connection brought the account to where others must be closed.
    """

    limits: ServerLimits
    admin_hint: str
    budget: Budget
    shares: Shares
    relieve: Callable[[], None]

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def admit(self, connection: Accepted_contra, descriptor: int) -> bool:
        """Count a new connection; False when there is no place for it."""
        ...

    def peer_of(self, transport: asyncio.BaseTransport) -> Peer:
        """Return what the system knows of a connection's other end."""
        ...

    def forget(self, connection: Accepted_contra) -> None:
        """A connection is gone."""
        ...

    def refused(self, connection: Accepted_contra, error: FrameError) -> None:
        """A connection sent something that is no frame."""
        ...

    def handle(self, connection: Accepted_contra, frame: bytes) -> bool:
        """Dispatch one frame; returns whether it waits for the pass of this turn."""
        ...

    def fail_call(self, slot: ReplySlot, call: Call, error: Exception) -> None:
        """A fault of ours met a call that has its place."""
        ...

    def step_failed(self, connection: Accepted_contra, error: Exception) -> None:
        """A fault of ours met a request that was worked off in steps."""
        ...

    def touch(self, connection: Accepted_contra) -> None:
        """A connection has something to write at the end of this turn."""
        ...

    def resume_soon(self, connection: Accepted_contra) -> None:
        """Read on from a connection when its turn comes."""
        ...

    def go_on_soon(self, connection: Accepted_contra) -> None:
        """Let a connection continue after the end of this turn."""
        ...

    def rest(self, connection: Accepted_contra, seconds: float) -> None:
        """Call `rested` of a connection after so long."""
        ...
