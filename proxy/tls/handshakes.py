"""Turns of handshakes: however many begin at once, between two of them sockets are read and calls are answered.

A step of a handshake takes half a millisecond of the loop and cannot be cut in two. A thousand clients that come back
at the same moment would otherwise keep all others waiting for half a second. So a turn ends with the step that fills
it, and the loop is left to others for twice as long as it took: handshakes have a third of it.
"""

from __future__ import annotations

from collections import deque

from broker.runtime.seams import Clock, Scheduler
from proxy.tls.channel import TlsChannel

TURN_SECONDS = 0.0005
"""For handshakes in one turn of the loop; the step that reaches it is finished."""
OTHERS = 2
"""How many times as long as a turn took the loop is left to others."""


class Handshakes:
    """Those of all ports of a node, in the order in which they asked."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._now = clock.monotonic
        self._scheduler = scheduler
        self._waiting: deque[TlsChannel] = deque()
        self._due = False
        self._free_at = 0.0

    def ask(self, channel: TlsChannel) -> None:
        """Have it make its step when its turn comes; harmless twice."""
        if not channel.asked:
            channel.asked = True
            self._waiting.append(channel)
        self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if self._due:
            return
        self._due = True
        wait = self._free_at - self._now()
        if wait > 0:
            self._scheduler.call_later(wait, self._turn)
        else:
            self._scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        began = self._now()
        until = began + TURN_SECONDS
        waiting = self._waiting
        try:
            while waiting:
                channel = waiting.popleft()
                channel.asked = False
                channel.shake()
                if self._now() >= until:
                    break
        finally:
            now = self._now()
            self._free_at = now + OTHERS * (now - began)
            if waiting:
                self._ask_for_turn()
