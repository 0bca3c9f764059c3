"""What the disk saw of the ack journal: since when something of it is written and not synced (D9).

An ack is answered when its entry is written, and synced 100 ms later at the latest. A client's clock cannot judge
that: between the node's write and the client's reading lie two schedulers. The file system can, by the order of what
reached it. An answered ack whose entry was written before the oldest unsynced one was synced, and may not be lost; and
a node that goes on working on its disk while an entry is older than the bound has forgotten it.
"""

from __future__ import annotations

from collections.abc import Callable

JOURNAL = ".acks"
"""How the names of its files end; the next one's space, claimed ahead, has another."""
BOUND_SECONDS = 0.1


class JournalTrace:
    """Follows writes and syncs of the journal's files.

    Args:
        now: Monotonic seconds, those of the clients.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: dict[str, float] = {}
        self._late = self._late_max = 0

    def written(self, path: str) -> None:
        """Note a write that arrives, of any file."""
        now = self._now()
        if self._since and now - min(self._since.values()) > BOUND_SECONDS:
            self._late += 1
            self._late_max = max(self._late_max, self._late)
        if path.endswith(JOURNAL):
            self._since.setdefault(path, now)

    def synced(self, path: str) -> None:
        """Note that a file's writes are durable, or that it is gone."""
        if self._since.pop(path, None) is not None:
            self._late = 0

    def taken(self) -> tuple[float, int]:
        """Begin anew after a loss of the power.

        Returns:
            When the oldest write that was not synced arrived, now where there is none; and how many writes, of any
            file, arrived at the most while one of the journal's was older than the bound.
        """
        found = min(self._since.values(), default=self._now()), self._late_max
        self._since.clear()
        self._late = self._late_max = 0
        return found
