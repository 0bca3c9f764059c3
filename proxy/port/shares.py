"""Fair shares of the loop: how long the frames of one connection, and of all that wait, may keep others waiting.

A connection that asks one thing at a time is served as its bytes arrive. What else has arrived (frames behind others,
and whatever comes of a connection that took much lately, while the turn is spent) waits here, connection by connection
in turns: each gets `SLICE_FRAMES` frames or `SLICE_SECONDS`, all together `TURN_SECONDS` per turn of the loop, and
between two turns sockets are read. So a client that asks little waits for a few milliseconds, however many others ask
without end; a single frame is never cut in two, and what one may cost is bounded where it is read
(`proxy.wire.limits`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare

DEFERRED = declare(
    "pyddmq_connections_deferred_total", "Times that frames of a connection waited for the turn of others"
)

SLICE_FRAMES = 64
"""Frames of one connection at a time."""
SLICE_SECONDS = 0.001
"""Time for the frames of one connection at a time; the frame that reaches it is finished."""
TURN_SECONDS = 0.002
"""Time for what waits, per turn of the loop, and for what is served as it arrives before heavy users have to wait."""
HEAVY_SECONDS = 0.010
"""Time taken lately from which on a connection is a heavy user."""
FORGIVEN_SHARE = 0.1
"""Share of the loop that a connection may take forever without being a heavy user."""


class Share:
    """What one connection took of the loop's time lately: it is forgiven at `FORGIVEN_SHARE`."""

    __slots__ = ("_used", "last")

    def __init__(self) -> None:
        self._used = 0.0
        self.last = 0.0
        """Moment of its last frame, or of its beginning; monotonic seconds."""

    def used(self, now: float) -> float:
        """Seconds taken, less what is forgiven by now."""
        return max(0.0, self._used - (now - self.last) * FORGIVEN_SHARE)

    def used_more(self, seconds: float) -> None:
        """Take note of what it took lately, since `last`."""
        self._used += seconds

    def add(self, began: float, now: float) -> None:
        """Take note of what it took from `began` to `now`."""
        used = self._used - (began - self.last) * FORGIVEN_SHARE
        self._used = (used if used > 0.0 else 0.0) + now - began
        self.last = now


class Sharing(Protocol):
    """What the shares need of a connection.

    Attributes:
        deferred: Whether its frames wait for its turn; kept here.
        share: What it took.
    """

    deferred: bool
    share: Share

    def read_on(self) -> None:
        """Handle frames that were held back."""
        ...


class Shares:
    """The loop's time, shared by the connections of all ports of a node.

    Attributes:
        spent: Seconds taken by frames served as they arrived, since the last end of a turn; who ends one begins again.
        turns: Turns in which something that waited was served.
    """

    def __init__(self, runtime: Runtime) -> None:
        """Set up: the node's monotonic clock measures, its scheduler runs the turns."""
        self.spent = 0.0
        self.turns = 0
        self.now = runtime.clock.monotonic
        self._scheduler = runtime.scheduler
        self._waiting: deque[Sharing] = deque()
        self._asked = False
        self._deferred = runtime.metrics.counter(DEFERRED)

    @property
    def waiting(self) -> int:
        """Connections whose frames wait."""
        return len(self._waiting)

    def admits(self, connection: Sharing) -> bool:
        """Whether a frame that just arrived may be served at once."""
        return not connection.deferred and (
            self.spent < TURN_SECONDS or connection.share.used(self.now()) < HEAVY_SECONDS
        )

    def charge_all(self, charges: Sequence[tuple[Share, int]], weight: int, began: float) -> None:
        """Note what calls of several connections took together from `began` on: each by its part of the weight."""
        seconds = self.now() - began
        self.spent += seconds
        if seconds > 0.0:
            for share, part in charges:
                share.used_more(seconds * part / weight)

    def charge(self, connection: Sharing, began: float) -> float:
        """Note what a connection took from `began` on; returns the moment up to which that is."""
        now = self.now()
        self.spent += now - began
        connection.share.add(began, now)
        return now

    def defer(self, connection: Sharing) -> None:
        """Have a connection's frames served when its turn comes; harmless twice."""
        if not connection.deferred:
            connection.deferred = True
            self._deferred.value += 1
            self._waiting.append(connection)
        if not self._asked:
            self._asked = True
            self._scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        """Serve those that wait, once each and for so long at most."""
        self._asked = False
        self.turns += 1
        self.spent = 0.0
        until = self.now() + TURN_SECONDS
        waiting = self._waiting
        try:
            for _ in range(len(waiting)):
                connection = waiting.popleft()
                connection.deferred = False
                connection.read_on()
                if self.now() >= until:
                    break
        finally:
            if waiting and not self._asked:
                self._asked = True
                self._scheduler.call_soon(self._turn)
