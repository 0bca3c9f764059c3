"""The way in of a connection: bytes received and not handled, and which replies had left when they came (D40)."""

from __future__ import annotations

from collections import deque

from proxy.wire.frames import FrameSplitter
from upstream.budget import Budget


class Intake:
    """What one connection received, in the node's account until it is handled.

    Attributes:
        splitter: Cuts it into frames.
        unread_bytes: Bytes of frames that are not handled yet.
        partial_since: Monotonic seconds since when a frame has been arriving; None while none is.
    """

    __slots__ = ("_budget", "_fed", "_marks", "partial_since", "splitter", "unread_bytes")

    def __init__(self, splitter: FrameSplitter, budget: Budget) -> None:
        self.splitter = splitter
        self._budget = budget
        self._fed = 0
        self._marks: deque[tuple[int, int]] = deque()
        self.unread_bytes = 0
        self.partial_since: float | None = None

    def note_left(self, count: int, left: int) -> None:
        """Note how many replies had left when `count` bytes were received, for the frames that end in them."""
        self._fed += count
        marks = self._marks
        if self.splitter.buffered == count:
            marks.clear()
        if marks and marks[-1][1] == left:
            marks.pop()
        marks.append((self._fed, left))

    def heard(self) -> int:
        """Return how many replies had left when the frame was received that was taken just now."""
        end = self._fed - self.splitter.buffered
        marks = self._marks
        while marks[0][0] < end:
            marks.popleft()
        return marks[0][1]

    @property
    def held_bytes(self) -> int:
        """What it has in the account: what gathers in pieces has an eighth of its size to spare."""
        return self.unread_bytes + self.unread_bytes // 8

    def recount(self, now: float, *, handled: bool) -> None:
        """Bring into the account what is not handled; `handled`: frames were since the last time."""
        unread = self.splitter.buffered
        if unread != self.unread_bytes:
            before = self.held_bytes
            self.unread_bytes = unread
            self._budget.add(self.held_bytes - before)
        if not self.splitter.partial:
            self.partial_since = None
        elif self.partial_since is None or handled:
            # From the frame's first byte on: one that drips in byte by byte must not live forever.
            self.partial_since = now

    def close(self) -> None:
        """Let go of what was received, and leave the account."""
        self._budget.add(-self.held_bytes)
        self.unread_bytes = 0
        self.splitter.drop()
