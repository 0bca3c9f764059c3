"""One segment of the commit log: its file, and what is staged for it."""

from __future__ import annotations

from broker.runtime.seams import Buffer, DiskFile


class Segment:
    """One segment file and what is staged for it."""

    __slots__ = ("base", "file", "staged", "staged_at", "staged_bytes", "unsynced")

    def __init__(self, base: int, file: DiskFile) -> None:
        self.base = base
        self.file = file
        self.staged: list[Buffer] = []
        self.staged_at = 0
        self.staged_bytes = 0
        self.unsynced = False
