"""State files are saved in steps: nothing else waits while the disk syncs.

A saving is a generator that changes files and yields what has to be durable before it goes on: an open file, or the
path of a folder whose entries changed. `Savings` runs one after the other, in the order in which they came, each sync
beside the loop; so no two of them ever change the same file at once. `at_once` runs a saving through. Both ways make
the same changes in the same order. A saving takes what it writes in its first step and keeps to it: what changes
meanwhile is for the next one.

A sync that failed is thrown into the saving as `SyncFailed`, also that of a full disk: what was written before may be
gone, so it is no use to wait for space. A write that finds the disk full changed nothing and can be made later
(`can_wait` tells the two apart).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from broker.errors import NO_SPACE
from broker.runtime.seams import Disk, DiskFile, Syncing, Syncs

Result = TypeVar("Result")
Unsynced = DiskFile | str
Steps = Generator[Unsynced, None, Result]
Saving = Steps[None]
Dropped = Callable[[], object]


class SyncFailed(OSError):
    """A file or folder could not be synced."""


def can_wait(error: OSError) -> bool:
    """Whether an error of a saving means that it can be made later: the disk is full and nothing was lost by it."""
    return error.errno in NO_SPACE and not isinstance(error, SyncFailed)


def at_once(disk: Disk, saving: Steps[Result]) -> Result:
    """Run a saving through, in the calling thread. Raises what it raises."""
    try:
        _run_on(disk, saving, next(saving))
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("a saving ends")


def _run_on(disk: Disk, saving: Steps[Result], what: Unsynced) -> None:
    """Sync what a saving waits for and let it go on; raises StopIteration when it has ended."""
    while True:
        what = _go_on(saving, _synced(disk, what))


def _synced(disk: Disk, what: Unsynced) -> OSError | None:
    """Sync a file or folder; return why it failed."""
    try:
        if isinstance(what, str):
            disk.sync_folder(what)
        else:
            what.sync()
    except OSError as error:
        return error
    return None


def _go_on(saving: Steps[Result], error: OSError | None) -> Unsynced:
    """Let a saving make its next step, told how its sync ended."""
    if error is None:
        return next(saving)
    failed = SyncFailed(error.errno, error.strerror, error.filename)
    failed.__cause__ = error
    return saving.throw(failed)


def _nothing() -> None:
    """Do nothing."""


class Savings:
    """Runs the savings of one store.

    Attributes:
        syncs: Makes their syncs; without it each of them is made at once.

    Args:
        disk: Where their files are.
    """

    def __init__(self, disk: Disk) -> None:
        self.syncs: Syncs | None = None
        self._disk = disk
        self._waiting: deque[tuple[Saving, Dropped]] = deque()
        self._saving: Saving | None = None
        self._dropped: Dropped = _nothing
        """Told when that one is dropped."""
        self._syncing: Syncing | None = None
        """Of the one that runs: the sync that it waits for, None while it makes a step."""
        self._finishing = False

    @property
    def are_idle(self) -> bool:
        """Nothing is under way and nothing waits: the first step of one that is added now is made at once."""
        return self._saving is None and not self._waiting and not self._finishing

    def add(self, saving: Saving, dropped: Dropped = _nothing) -> None:
        """Run a saving when those before it have ended; it sees to its errors itself.

        `dropped` is called when `abandon` drops it, begun or not.
        """
        self._waiting.append((saving, dropped))
        if self.syncs is None:
            self.finish()
        elif self._saving is None and not self._finishing:
            self._begin_next()

    def finish(self) -> None:
        """Run at once what is left of those that were added; nothing happens when a saving calls it."""
        if self._finishing or (self._saving is not None and self._syncing is None):
            return
        self._finishing = True
        try:
            if self._syncing is not None:
                # It is told how that ended, and makes its other steps.
                self._syncing.wait()
            while self._waiting:
                at_once(self._disk, self._waiting.popleft()[0])
        finally:
            self._finishing = False

    def abandon(self) -> None:
        """Drop them where they are, as a stop would."""
        told = [dropped for _, dropped in self._waiting]
        self._waiting.clear()
        saving, self._saving = self._saving, None
        syncing, self._syncing = self._syncing, None
        if saving is not None:
            told.insert(0, self._dropped)
            if syncing is not None:
                saving.close()
        for dropped in told:
            dropped()

    def _begin_next(self) -> None:
        saving, self._dropped = self._waiting.popleft()
        self._saving = saving
        self._step(saving, lambda: next(saving))

    def _step(self, saving: Saving, step: Callable[[], Unsynced]) -> None:
        """Make a step of the saving that runs, and begin the sync that it asks for."""
        assert self.syncs is not None
        self._syncing = None
        try:
            what = step()
            if self._finishing:
                _run_on(self._disk, saving, what)
        except StopIteration:
            self._end(saving)
            return
        except BaseException:
            self._end(saving)
            raise
        if saving is not self._saving:
            # What its step led to has dropped it.
            saving.close()
            return
        done = partial(self._synced, saving)
        if isinstance(what, str):
            self._syncing = self.syncs.begin_folder(what, done)
        else:
            self._syncing = self.syncs.begin(what, done)

    def _end(self, saving: Saving) -> None:
        if saving is self._saving:
            self._saving = None
            if self._waiting and not self._finishing:
                self._begin_next()

    def _synced(self, saving: Saving, error: OSError | None) -> None:
        if saving is self._saving:
            self._step(saving, lambda: _go_on(saving, error))


class Saver:
    """Saves one thing again and again.

    Args:
        disk: Where its files are.
        savings: The store's.
        saving: Makes the saving of how it is when that begins.
    """

    def __init__(self, disk: Disk, savings: Savings, saving: Callable[[], Saving]) -> None:
        self._disk = disk
        self._savings = savings
        self._saving = saving
        self._is_under_way = False

    def begin(self) -> None:
        """Save it beside the loop; nothing when that is under way."""
        if not self._is_under_way:
            self._is_under_way = True
            self._savings.add(self._run())

    def now(self, saving: Saving | None = None) -> None:
        """Save it at once, or make another saving of it, after all that is under way."""
        self._savings.finish()
        at_once(self._disk, saving or self._saving())

    def _run(self) -> Saving:
        try:
            yield from self._saving()
        finally:
            self._is_under_way = False
