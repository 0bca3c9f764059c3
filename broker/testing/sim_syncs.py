"""Syncs in the background of a `SimDisk`: what they cover becomes durable when they end, a seeded while later.

A power loss meanwhile takes what it takes of unsynced changes; a kill lets nobody know how they ended. Faults and
`stop_after` of the disk strike when they end. Syncs of one file may end in any order, and one that failed takes with it
what later ones would have covered, as on Linux.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from broker.seams import DiskFile, Scheduler, Told
from broker.testing.sim_disk import SimDisk, SimFile


class SimSyncs:
    """`broker.seams.Syncs` over a simulated disk.

    Attributes:
        ended: How many have ended.

    Args:
        disk: Whose files are synced.
        scheduler: Virtual time.
        random: Draws how long they take.
        seconds_max: The longest one.
    """

    def __init__(self, disk: SimDisk, scheduler: Scheduler, random: Random, *, seconds_max: float = 0.002) -> None:
        self.ended = 0
        self._disk = disk
        self._scheduler = scheduler
        self._random = random
        self._seconds_max = seconds_max

    def begin(self, file: DiskFile, done: Told) -> None:
        """Begin to sync a file of the disk; another one is synced by itself when that ends."""
        sync = file.syncing() if isinstance(file, SimFile) else file.sync
        self._later(sync, done)

    def begin_folder(self, path: str, done: Told) -> None:
        """Begin to sync a folder."""
        self._later(self._disk.syncing_folder(path), done)

    def _later(self, sync: Callable[[], None], done: Told) -> None:
        seconds = self._random.random() * self._seconds_max if self._random.random() < 0.8 else 0.0
        self._scheduler.call_later(seconds, self._end, sync, self._disk.epoch, done)

    def _end(self, sync: Callable[[], None], epoch: int, done: Told) -> None:
        if epoch != self._disk.epoch:
            # The process that began it is gone.
            return
        self.ended += 1
        try:
            sync()
        except OSError as error:
            done(error)
        else:
            done(None)
