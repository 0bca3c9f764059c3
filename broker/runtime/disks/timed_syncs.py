"""How long the disk takes: syncs beside the loop are observed, from when they are begun until the loop hears of it."""

from __future__ import annotations

from broker.runtime.metrics import Metrics, declare_histogram
from broker.runtime.seams import Clock, DiskFile, Syncing, Syncs, Told

SYNC_SECONDS = declare_histogram(
    "pyddmq_sync_seconds",
    "Syncs of files that the loop does not wait for, from begin to end, by what is synced: commit_log, ack_journal",
    ("file",),
    bounds=range(6, 25),
)


class TimedSyncs:
    """`broker.runtime.seams.Syncs` over others, of which those of files are observed.

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

    def begin(self, file: DiskFile, done: Told) -> Syncing:
        """Begin to sync a file; see `Syncs.begin`."""
        began = self._now()

        def ended(error: OSError | None) -> None:
            self._took.observe(round((self._now() - began) * 1e6))
            done(error)

        return self._syncs.begin(file, ended)

    def begin_folder(self, path: str, done: Told) -> Syncing:
        """Begin to sync a folder; see `Syncs.begin_folder`."""
        return self._syncs.begin_folder(path, done)
