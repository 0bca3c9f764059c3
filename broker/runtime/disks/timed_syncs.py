"""How long the disk takes: syncs beside the loop are observed, from when they are begun until the loop hears of it."""

from __future__ import annotations

from collections import deque

from broker.runtime.metrics import Metrics, declare_histogram
from broker.runtime.seams import Clock, DiskFile, Reported, Syncing, Syncs

SYNC_SECONDS = declare_histogram(
    "pyddmq_sync_seconds",
    "Duration of file syncs that the loop does not wait for, by file: commit_log, ack_journal",
    ("file",),
    bounds=range(6, 25),
)
WINDOW_SECONDS = 60.0
"""For how long the longest sync is remembered."""


class TimedSyncs:
    """`broker.runtime.seams.Syncs` over others, of which those of files are observed, one at a time.

    Args:
        syncs: Makes them.
        clock: Its monotonic part measures.
        metrics: Has the series.
        file: Label of the series.
    """

    def __init__(self, syncs: Syncs, clock: Clock, metrics: Metrics, file: str) -> None:
        self._syncs = syncs
        self._now = clock.monotonic
        self._took = metrics.histogram(SYNC_SECONDS, file)
        self._began: float | None = None
        self._longest: deque[tuple[float, float]] = deque([(self._now(), 0.0)], maxlen=2)
        """When one ended and what it took: the longest of this half of the window, and of the half before."""

    def begin(self, file: DiskFile, done: Reported) -> Syncing:
        """Begin to sync a file; see `Syncs.begin`."""
        began = self._began = self._now()

        def ended(error: OSError | None) -> None:
            now, self._began = self._now(), None
            took = now - began
            self._took.observe(round(took * 1e6))
            at, longest = self._longest[-1]
            if now - at >= WINDOW_SECONDS / 2:
                self._longest.append((now, took))
            elif took > longest:
                self._longest[-1] = (at, took)
            done(error)

        return self._syncs.begin(file, ended)

    @property
    def longest_seconds(self) -> float:
        """Longest sync of a file of the last minute or so, the one on its way included."""
        now = self._now()
        under_way = 0.0 if self._began is None else now - self._began
        return max([under_way, *(took for at, took in self._longest if now - at < WINDOW_SECONDS)])

    def begin_folder(self, path: str, done: Reported) -> Syncing:
        """Begin to sync a folder; see `Syncs.begin_folder`."""
        return self._syncs.begin_folder(path, done)
