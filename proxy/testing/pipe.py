"""What is under way in one direction of a simulated connection."""

from __future__ import annotations

import asyncio
from collections import deque


class Pipe:
    """One direction of a connection: pieces on their way, the last of them perhaps the end of file (None)."""

    __slots__ = ("arrived_at", "cut", "ended", "pieces", "size", "timer")

    def __init__(self) -> None:
        self.pieces: deque[tuple[float, bytes | None]] = deque()
        self.size = 0
        self.arrived_at = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.ended = False
        self.cut = False
