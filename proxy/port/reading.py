"""How a connection takes frames from what was received, in its share of the loop, and when it reads no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Self

from broker.runtime.steps import StepsEnd, step
from proxy.port.accepting import Accepting
from proxy.port.replying import Replying
from proxy.port.shares import SLICE_FRAMES, SLICE_SECONDS, Share
from proxy.wire.errors import FrameError
from upstream.budget import Pressure

INPUT_BYTES_SLOWED = 64 * 1024
"""Unfinished input up to which a connection is read on whatever the pressure: every ordinary call fits."""

READ_BYTES = 128 * 1024
"""A read of as many bytes is the last one of its connection in a turn: libuv would read on, 8 MiB at a time, and a
client that sends long frames without end would keep all others waiting."""


class Reading(Replying):
    """The way in of a connection.

    Attributes:
        heard: Replies that had left when the request being handled was read: the client can have had no later one
            (D40).
        favoured: Whether it is read on whatever the pressure.
        leaving: Whether the peer has closed its end, which was not read yet: it is read on to that, whatever the
            pressure.
        partial_since: Monotonic seconds since when a frame has been arriving; None while none is.
        share: What it took of the loop's time.
    """

    __slots__ = ("_fed", "_marks", "_resting", "_steps", "favoured", "heard", "leaving", "partial_since", "share")

    def __init__(self, server: Accepting[Self]) -> None:
        super().__init__(server)
        self._steps: Generator[None, None, None] | None = None
        self._resting = False
        self._fed = 0
        self._marks: deque[tuple[int, int]] = deque()
        self.heard = 0
        self.favoured = False
        self.leaving = False
        self.partial_since: float | None = None
        self.share = Share()

    def favour(self: Self, on: bool) -> None:
        """Read on whatever the pressure, or no more so; then see what that means now."""
        changed = on != self.favoured
        self.favoured = on
        if changed or not self._reading:
            self._server.resume_soon(self)

    def read_on(self) -> None:
        """Handle frames that were held back: while too much was unanswered, or for the sake of others."""
        if not self.closed:
            self._read_frames()

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

    def _read_frames(self: Self) -> None:
        """Handle what is there, for as long as the connection's share of this turn lasts."""
        splitter = self._splitter
        server = self._server
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
                len(self.slots) < limits.outstanding_max
                and self._out_bytes + self._slot_bytes <= limits.output_bytes_max
                and self._steps is None
                and not self._resting
                and self.requests < handled + SLICE_FRAMES
                and moment < began + SLICE_SECONDS
            ):
                frame = splitter.next()
                if frame is None:
                    break
                self._hear()
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

    def _note_left(self, count: int) -> None:
        """Note which replies had left when `count` bytes were received, for the frames that end in them."""
        self._fed += count
        marks = self._marks
        if self._splitter.buffered == count:
            marks.clear()
        left = self.requests - len(self.slots) - len(self._out) - self._stuck_replies
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
            or self._out_bytes + self._slot_bytes > limits.output_bytes_max
        )

    def _note_input(self, handled: int) -> None:
        """Bring into the account what was received and is not handled, and read on or not.

        Args:
            handled: How many requests there were before the last ones were handled.
        """
        splitter, server = self._splitter, self._server
        full = self._is_full()
        unread = splitter.buffered
        if unread != self.unread_bytes:
            # What gathers in pieces has an eighth of its size to spare.
            self.hold(unread + unread // 8 - self.unread_bytes - self.unread_bytes // 8)
            self.unread_bytes = unread
        if not splitter.partial:
            self.partial_since = None
        elif self.partial_since is None or self.requests != handled:
            # From the frame's first byte on: one that drips in byte by byte must not live for ever.
            self.partial_since = server.now()
        if unread > INPUT_BYTES_SLOWED and (
            self.deferred or (not (self.favoured or self.leaving) and server.budget.level >= Pressure.SLOWED)
        ):
            full = True
        if full == self._reading and self._transport is not None and not self.ended:
            self._reading = not full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _refuse(self: Self, error: FrameError) -> None:
        """Close a connection whose bytes are no frames (nothing but this connection is affected)."""
        self._server.refused(self, error)
        if error.answer and self._transport is not None:
            self._out.append((error.answer, None))
            self._out_bytes += len(error.answer)
            self.hold(len(error.answer))
        self.ended = True
        if self.dirty:
            # Replies of this turn leave with its end (D9), which closes the connection.
            if self._transport is not None:
                self._transport.pause_reading()
            return
        self.flush()
        if self._transport is not None and not self.slots:
            self._transport.close()
