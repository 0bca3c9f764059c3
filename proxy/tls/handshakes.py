"""Turns of handshakes: however many begin at once, between two of them sockets are read and calls are answered.

A step of a handshake takes half a millisecond of the loop and cannot be cut in two. A thousand clients that come back
at the same moment would otherwise keep all others waiting for half a second.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from broker.runtime.seams import Clock, Scheduler

TURN_SECONDS = 0.001
"""For handshakes in each turn of the loop; the step that reaches it is finished."""


class Shaking(Protocol):
    """A connection with a handshake.

    Attributes:
        asked: Whether it waits here.
    """

    asked: bool

    def shake(self) -> None:
        """Make the step that is due."""
        ...


class Handshakes:
    """Those of all ports of a node, in the order in which they asked."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._now = clock.monotonic
        self._scheduler = scheduler
        self._waiting: deque[Shaking] = deque()
        self._due = False

    def ask(self, channel: Shaking) -> None:
        """Have it make its step when its turn comes; harmless twice."""
        if not channel.asked:
            channel.asked = True
            self._waiting.append(channel)
        if not self._due:
            self._due = True
            self._scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        until = self._now() + TURN_SECONDS
        waiting = self._waiting
        try:
            while waiting:
                channel = waiting.popleft()
                channel.asked = False
                channel.shake()
                if self._now() >= until:
                    break
        finally:
            if waiting and not self._due:
                self._due = True
                self._scheduler.call_soon(self._turn)
