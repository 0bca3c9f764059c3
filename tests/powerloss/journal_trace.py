"""What the disk saw of the ack journal: since when something of it is written and not synced (D9).

An ack is answered when its entry is written, and synced 100 ms later at the latest. A client's clock cannot judge
that: between the node's write and the client's reading lie two schedulers. The file system can, by the order of what
reached it. An answered ack whose entry was written before the oldest one that is not durable may not be lost; and a
node that goes on working on its disk while an entry is older than the bound has forgotten it.

A new segment is durable when its file and then its folder were synced, which counts as one sync: until then the cut may
take its name, and all that was written to it.
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
        self._nameless: dict[str, float | None] = {}
        """Of files whose names are not durable: the oldest write, synced or not."""
        self._late = self._late_max = 0

    def written(self, path: str) -> None:
        """Note a write that arrives, of any file."""
        now = self._now()
        if self._since and now - min(self._since.values()) > BOUND_SECONDS:
            self._late += 1
            self._late_max = max(self._late_max, self._late)
        if path.endswith(JOURNAL):
            self._since.setdefault(path, now)
            if path in self._nameless and self._nameless[path] is None:
                self._nameless[path] = now

    def named(self, path: str) -> None:
        """Note a name that a file gets, which a cut may take until the folder is synced."""
        if path.endswith(JOURNAL):
            self._nameless[path] = None

    def synced(self, path: str) -> None:
        """Note that a file's writes are durable, where its name is."""
        if self._since.pop(path, None) is not None:
            self._late = 0

    def folder_synced(self, folder: str) -> None:
        """Note that the names in a folder are durable."""
        for path in [each for each in self._nameless if each.startswith(f"{folder}/")]:
            del self._nameless[path]

    def gone(self, path: str) -> None:
        """Note that a file has this name no more."""
        self.synced(path)
        self._nameless.pop(path, None)

    def taken(self) -> tuple[float, int]:
        """Begin anew after a loss of the power.

        Returns:
            When the oldest write that was not synced arrived, now where there is none; and how many writes, of any
            file, arrived at the most while one of the journal's was older than the bound.
        """
        nameless = [oldest for oldest in self._nameless.values() if oldest is not None]
        found = min([*self._since.values(), *nameless], default=self._now()), self._late_max
        self._since.clear()
        self._nameless.clear()
        self._late = self._late_max = 0
        return found
