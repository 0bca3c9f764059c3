"""Syncs in the background of a `SimDisk`: what they cover becomes durable when they end, a seeded while later.

A power loss meanwhile takes what it takes of unsynced changes; after a kill it is unknown how they ended. Faults and
`stop_after` of the disk strike when they end. Syncs of one file may end in any order, and one that failed takes with it
what later ones would have covered, as on Linux.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from broker.runtime.seams import DiskFile, Reported, Scheduler, Syncing
from pyddmq.testing.sim_disk import SimDisk, SimFile


class SimSyncs:
    """`broker.runtime.seams.Syncs` over a simulated disk.

    Attributes:
        ended: Number of syncs that have ended.

    Args:
        disk: The disk of the files.
        scheduler: A `VirtualLoop` or a `ManualScheduler`.
        random: Draws how long each sync takes.
        seconds_max: Upper bound of that, in seconds.
    """

    def __init__(self, disk: SimDisk, scheduler: Scheduler, random: Random, *, seconds_max: float = 0.002) -> None:
        self.ended = 0
        self._disk = disk
        self._scheduler = scheduler
        self._random = random
        self.seconds_max = seconds_max

    def begin(self, file: DiskFile, done: Reported) -> Syncing:
        """Begin to sync a file of the disk; another one is synced by itself when that ends."""
        return self._later(file.syncing() if isinstance(file, SimFile) else file.sync, done)

    def begin_folder(self, path: str, done: Reported) -> Syncing:
        """Begin to sync a folder."""
        return self._later(self._disk.syncing_folder(path), done)

    def _later(self, sync: Callable[[], None], done: Reported) -> Syncing:
        begun = _SimSync(self, self._disk, sync, done)
        seconds = self._random.random() * self.seconds_max if self._random.random() < 0.8 else 0.0
        self._scheduler.call_later(seconds, begun.wait)
        return begun


class _SimSync:
    """A sync on its way."""

    def __init__(self, syncs: SimSyncs, disk: SimDisk, sync: Callable[[], None], done: Reported) -> None:
        self._syncs = syncs
        self._disk = disk
        self._epoch = disk.epoch
        self._sync = sync
        self._done: Reported | None = done

    def wait(self) -> None:
        """End it, once; without a call when the process that began it has ended."""
        done, self._done = self._done, None
        if done is None or self._epoch != self._disk.epoch:
            return
        self._syncs.ended += 1
        try:
            self._sync()
        except OSError as error:
            done(error)
        else:
            done(None)
