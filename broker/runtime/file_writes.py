"""State files are saved in steps: nothing else waits while the disk syncs.

A file write is a generator that changes files and yields what has to be durable before it continues: an open file, the
path of a folder whose entries changed, or a list of both, which are synced side by side; or `TURN`, between pieces of
work that would delay everything else. `FileWrites` runs one after the other, in the order in which they came, each sync
beside the loop; so no two ever change the same file at once.
`at_once` runs one through. Both ways make the same changes in the same order. A file write takes what it writes in
its first step and keeps to it: what changes meanwhile is for the next one.

A sync that failed is thrown into the file write as `SyncFailed`, also that of a full disk: what was written before may
be gone, so it is no use to wait for space. A write that finds the disk full changed nothing and can be made later
(`can_wait` distinguishes the two).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeVar, cast

from broker.errors import NO_SPACE
from broker.runtime.seams import Disk, DiskFile, Reported, Syncing, Syncs
from broker.runtime.steps import StepsEnd, step

Result = TypeVar("Result")
Single = DiskFile | str
Unsynced = Single | list[Single]
Steps = Generator[Unsynced, None, Result]
FileWrite = Steps[None]
Dropped = Callable[[], object]
AT_ONCE = 1024
"""Entries of a table that one step of a file write works on, a few milliseconds."""


class _Turn:
    """Nothing is to be synced."""

    def sync(self) -> None:
        """Sync nothing."""


TURN = cast(DiskFile, _Turn())
"""What a file write yields where everything else may have its turn: a file of which `sync` does nothing."""


class SyncFailed(OSError):
    """A file or folder could not be synced."""


def can_wait(error: OSError) -> bool:
    """Whether an error of a file write means that it can be made later: the disk is full and nothing was lost by it."""
    return error.errno in NO_SPACE and not isinstance(error, SyncFailed)


def at_once(disk: Disk, writing: Steps[Result], syncs: Syncs | None = None) -> Result:
    """Run a file write through while the caller waits; with `syncs`, a list is synced side by side.

    Raises what it raises.
    """
    return _run_on(disk, writing, step(writing), syncs)


def _run_on(disk: Disk, writing: Steps[Result], made: Unsynced | StepsEnd[Result], syncs: Syncs | None) -> Result:
    """Sync what a file write waits for after a step, and let it continue to its end."""
    while not isinstance(made, StepsEnd):
        made = _go_on(writing, _synced(disk, made, syncs))
    return made.result


def _synced(disk: Disk, what: Unsynced, syncs: Syncs | None) -> OSError | None:
    """Sync a file, a folder or several; return why it failed."""
    if isinstance(what, list):
        if syncs is None:
            return next((error for each in what if (error := _synced(disk, each, None)) is not None), None)
        errors: list[OSError | None] = []
        _Together(syncs, what, errors.append).wait()
        return errors[0] if errors else None
    try:
        if isinstance(what, str):
            disk.sync_folder(what)
        else:
            what.sync()
    except OSError as error:
        return error
    return None


def _go_on(writing: Steps[Result], error: OSError | None) -> Unsynced | StepsEnd[Result]:
    """Let a file write make its next step, with the result of its sync."""
    if error is None:
        return step(writing)
    failed = SyncFailed(error.errno, error.strerror, error.filename)
    failed.__cause__ = error
    return step(writing, error=failed)


class _Together:
    """`broker.runtime.seams.Syncing` of several files and folders; `done` receives the first error."""

    def __init__(self, syncs: Syncs, unsynced: Sequence[Single], done: Reported) -> None:
        self._left = len(unsynced)
        self._error: OSError | None = None
        self._done = done
        self._begun = [
            syncs.begin_folder(each, self._ended) if isinstance(each, str) else syncs.begin(each, self._ended)
            for each in unsynced
        ]

    def _ended(self, error: OSError | None) -> None:
        self._left -= 1
        self._error = self._error or error
        if not self._left:
            self._done(self._error)

    def wait(self) -> None:
        """Wait for all of them."""
        for each in self._begun:
            each.wait()


def _nothing() -> None:
    """Do nothing."""


class FileWrites:
    """Runs the file writes of one store.

    Attributes:
        syncs: Makes their syncs; without it each of them is made at once.

    Args:
        disk: Where their files are.
        syncs: As the attribute.
    """

    def __init__(self, disk: Disk, syncs: Syncs | None = None) -> None:
        self.syncs = syncs
        self._disk = disk
        self._waiting: deque[tuple[FileWrite, Dropped]] = deque()
        self._writing: FileWrite | None = None
        self._dropped: Dropped = _nothing
        """Told when that one is dropped."""
        self._syncing: Syncing | None = None
        """Of the one that runs: the sync that it waits for, None while it makes a step."""
        self._finishing = False

    @property
    def are_idle(self) -> bool:
        """Nothing is under way and nothing waits: the first step of one that is added now is made at once."""
        return self._writing is None and not self._waiting and not self._finishing

    def add(self, writing: FileWrite, dropped: Dropped = _nothing) -> None:
        """Run a file write when those before it have ended; it sees to its errors itself.

        `dropped` is called when `abandon` drops it, begun or not.
        """
        self._waiting.append((writing, dropped))
        if self.syncs is None:
            self.finish()
        elif self._writing is None and not self._finishing:
            self._begin_next()

    def finish(self) -> None:
        """Run at once what is left of those that were added; nothing happens when a file write calls it."""
        if self._finishing or (self._writing is not None and self._syncing is None):
            return
        self._finishing = True
        try:
            if self._syncing is not None:
                # It receives the result, and makes its other steps.
                self._syncing.wait()
            while self._waiting:
                at_once(self._disk, self._waiting.popleft()[0], self.syncs)
        finally:
            self._finishing = False

    def now(self, writing: Steps[Result]) -> Result:
        """Run a file write while the caller waits, after those that were added. Raises what it raises."""
        self.finish()
        return at_once(self._disk, writing, self.syncs)

    def abandon(self) -> None:
        """Drop them where they are, as a stop would."""
        reported = [dropped for _, dropped in self._waiting]
        self._waiting.clear()
        writing, self._writing = self._writing, None
        syncing, self._syncing = self._syncing, None
        if writing is not None:
            reported.insert(0, self._dropped)
            if syncing is not None:
                writing.close()
        for dropped in reported:
            dropped()

    def _begin_next(self) -> None:
        writing, self._dropped = self._waiting.popleft()
        self._writing = writing
        self._step(writing, lambda: step(writing))

    def _step(self, writing: FileWrite, make: Callable[[], Unsynced | StepsEnd[None]]) -> None:
        """Make a step of the file write that runs, and begin the sync that it asks for."""
        assert self.syncs is not None
        self._syncing = None
        try:
            made = make()
            if self._finishing:
                made = StepsEnd(_run_on(self._disk, writing, made, self.syncs))
        except BaseException:
            self._end(writing)
            raise
        if isinstance(made, StepsEnd):
            self._end(writing)
            return
        if writing is not self._writing:
            # What its step led to has dropped it.
            writing.close()
            return
        done = partial(self._synced, writing)
        if isinstance(made, list):
            self._syncing = _Together(self.syncs, made, done)
        elif isinstance(made, str):
            self._syncing = self.syncs.begin_folder(made, done)
        else:
            self._syncing = self.syncs.begin(made, done)

    def _end(self, writing: FileWrite) -> None:
        if writing is self._writing:
            self._writing = None
            if self._waiting and not self._finishing:
                self._begin_next()

    def _synced(self, writing: FileWrite, error: OSError | None) -> None:
        if writing is self._writing:
            self._step(writing, lambda: _go_on(writing, error))


class StateWriter:
    """Saves one thing again and again.

    Args:
        disk: Where its files are.
        file_writes: The store's.
        writing: Makes the file write of how it is when that begins.
    """

    def __init__(self, disk: Disk, file_writes: FileWrites, writing: Callable[[], FileWrite]) -> None:
        self._disk = disk
        self._file_writes = file_writes
        self._writing = writing
        self._is_under_way = False

    def begin(self) -> None:
        """Save it beside the loop; nothing when that is under way."""
        if not self._is_under_way:
            self._is_under_way = True
            self._file_writes.add(self._run())

    def now(self, writing: FileWrite | None = None) -> None:
        """Save it at once, or make another write of it, after all that is under way."""
        self._file_writes.now(writing or self._writing())

    def _run(self) -> FileWrite:
        try:
            yield from self._writing()
        finally:
            self._is_under_way = False
