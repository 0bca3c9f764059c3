"""How a connection takes frames from what was received, in its share of the loop, and when it reads no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from proxy.shares import SLICE_FRAMES, SLICE_SECONDS
from proxy.wire.errors import FrameError
from upstream.budget import Pressure

if TYPE_CHECKING:
    import asyncio
    from collections import deque

    from proxy.connection import Connection
    from proxy.reply_slot import Lost, Slot
    from proxy.server import ThriftServer
    from proxy.wire.frames import FrameSplitter

INPUT_BYTES_SLOWED = 64 * 1024
"""Unfinished input up to which a connection is read on whatever the pressure: every ordinary call fits."""


class Reading:
    """The part of `proxy.connection.Connection` that handles what arrived."""

    __slots__ = ("_fed", "_marks", "_reading", "_steps", "_unread", "heard", "partial_since", "requests")

    if TYPE_CHECKING:
        _ended: bool
        _fed: int
        _marks: deque[tuple[int, int]]
        _out: deque[tuple[bytes, Lost | None]]
        _out_bytes: int
        _reading: bool
        _server: ThriftServer
        _slot_bytes: int
        _slots: deque[Slot]
        _splitter: FrameSplitter
        _steps: Iterator[None] | None
        _stuck_replies: int
        _transport: asyncio.Transport | None
        _unread: int
        closed: bool
        deferred: bool
        favoured: bool
        heard: int
        partial_since: float | None
        requests: int

        def _account(self, count: int) -> None: ...
        def _refuse(self, error: FrameError) -> None: ...

    def _read_frames(self) -> None:
        """Handle what is there, for as long as the connection's share of this turn lasts."""
        splitter = self._splitter
        server = self._server
        connection = cast("Connection", self)
        limits = server.limits
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
                len(self._slots) < limits.outstanding_max
                and self._out_bytes + self._slot_bytes <= limits.output_bytes_max
                and self._steps is None
                and self.requests < handled + SLICE_FRAMES
                and moment < began + SLICE_SECONDS
            ):
                frame = splitter.next()
                if frame is None:
                    break
                self._hear()
                self.requests += 1
                server.handle(connection, frame)
                if self.closed:
                    return
                moment = shares.now()
        except FrameError as error:
            self._refuse(error)
            return
        shares.charge(connection, began)
        if self._steps is not None or (splitter.ready and not self._is_full()):
            shares.defer(connection)
        elif self._ended:
            server.touch(connection)
        self._note_input(handled)

    def _note_left(self, count: int) -> None:
        """Note which replies had left when `count` bytes were received, for the frames that end in them."""
        self._fed += count
        marks = self._marks
        if self._splitter.buffered == count:
            marks.clear()
        left = self.requests - len(self._slots) - len(self._out) - self._stuck_replies
        if marks and marks[-1][1] == left:
            marks.pop()
        marks.append((self._fed, left))

    def _hear(self) -> None:
        """Look up which replies had left when the frame was received that was taken just now."""
        end = self._fed - self._splitter.buffered
        marks = self._marks
        while marks[0][0] < end:
            marks.popleft()
        self.heard = marks[0][1]

    def _step(self, steps: Iterator[None]) -> None:
        try:
            next(steps)
        except StopIteration:
            self._steps = None
        except Exception as error:
            self._steps = None
            self._server.step_failed(cast("Connection", self), error)

    def _is_full(self) -> bool:
        """Whether so much is unanswered or unread by the peer that no further frame is handled."""
        limits = self._server.limits
        return (
            len(self._slots) >= limits.outstanding_max or self._out_bytes + self._slot_bytes > limits.output_bytes_max
        )

    def _note_input(self, handled: int) -> None:
        """Bring into the account what was received and is not handled, and read on or not.

        Args:
            handled: How many requests there were before the last ones were handled.
        """
        splitter, server = self._splitter, self._server
        full = self._is_full()
        unread = splitter.buffered
        if unread != self._unread:
            # What gathers in pieces has an eighth of its size to spare.
            self._account(unread + unread // 8 - self._unread - self._unread // 8)
            self._unread = unread
        if not splitter.partial:
            self.partial_since = None
        elif self.partial_since is None or self.requests != handled:
            # From the frame's first byte on: one that drips in byte by byte must not live for ever.
            self.partial_since = server.now()
        if unread > INPUT_BYTES_SLOWED and (
            self.deferred or (not self.favoured and server.budget.level >= Pressure.SLOWED)
        ):
            full = True
        if full == self._reading and self._transport is not None and not self._ended:
            self._reading = not full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
