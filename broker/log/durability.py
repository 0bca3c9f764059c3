"""What a change that is made in steps waits for: that something is durable, without the loop waiting for the disk.

Such a change is a generator. It yields None between two steps of bounded work, and an `Awaited` where the next step
makes sense only once that has completed; its driver lets the loop do other things meanwhile. In a store that makes no
syncs in the background all is made at once, and nothing is yielded but None.

What is staged in the log is waited for by `all_durable`, state files and folders by `saved`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

import structlog

from broker.errors import StoreError, StoreFailed
from broker.log.commit_log import CommitLog
from broker.log.group_commit import CommitDriver, GroupCommit
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite, FileWrites, Steps
from broker.runtime.store_metrics import FAILED

Result = TypeVar("Result")


logger = structlog.get_logger()


class WriteSide:
    """All through which a store writes, and whether it still may.

    Attributes:
        root: The store's folder.
        file_writes: Writes state files in steps, one after the other.
        commit: Makes appended records durable and visible.
        failed: The error of the failed write or sync after which nothing is accepted, or None.
        closed: The store was closed or abandoned.
    """

    def __init__(
        self,
        root: str,
        log: CommitLog,
        *,
        syncing: bool,
        runtime: Runtime,
        driver: CommitDriver | None,
        file_writes: FileWrites,
        before_write: Callable[[], None],
        on_failure: Callable[[], None],
    ) -> None:
        """Set up; nothing is written before the store has recovered.

        Args:
            root: The store's folder.
            log: Its commit log.
            syncing: As of `GroupCommit`, like `driver` and `before_write`.
            runtime: Time, counts, syncs.
            driver: Whose turns flush.
            file_writes: Abandoned with a failure.
            before_write: Writes the files that records are about to name.
            on_failure: Stops other writers of the store.
        """
        self.root = root
        self.file_writes = file_writes
        self.failed: StoreFailed | None = None
        self.closed = False
        self._on_failure = on_failure
        self._runtime = runtime
        self.commit = GroupCommit(
            log, syncing=syncing, runtime=runtime, fail=self.fail, driver=driver, before_write=before_write
        )

    def fail(self, what: str, cause: OSError) -> StoreFailed:
        """Stop writes permanently; callers that wait for a flush receive the error. One line in the log."""
        if self.failed is None:
            self.failed = StoreFailed(what, cause, at_ms=self._runtime.clock.wall_ms())
            self._runtime.metrics.counter(FAILED).value = 1
            self._on_failure()
            self.file_writes.abandon()
            logger.error("store_failed", root=self.root, what=what, file=cause.filename, error=str(cause))
        self.commit.fail(self.failed)
        return self.failed


class Awaited:
    """The coming result of a store.

    Attributes:
        is_told: It was.
        now: Completes it at once; the calling thread waits for the disk.
    """

    def __init__(self, commit: GroupCommit) -> None:
        """Expect a `done` of a store's appends."""
        self._expect(commit.flush, at_once=commit.syncs is None)

    @classmethod
    def of(cls, make: Callable[[], None]) -> Awaited:
        """Expect something else: `make` has it happen at once, and returns when it has."""
        awaited = cls.__new__(cls)

        def now() -> None:
            make()
            awaited.report(None)

        awaited._expect(now, at_once=False)
        return awaited

    @classmethod
    def of_writes(cls, file_writes: FileWrites) -> Awaited:
        """Expect the end of a file write."""
        awaited = cls.__new__(cls)
        awaited._expect(file_writes.finish, at_once=False)
        return awaited

    def _expect(self, now: Callable[[], None], *, at_once: bool) -> None:
        self.is_reported = False
        self.now = now
        self._at_once = at_once
        self._error: Exception | None = None
        self._then: Callable[[], object] | None = None

    def report(self, error: Exception | None) -> None:
        """Take the first result: a `done` of the store's appends."""
        if self.is_reported:
            return
        self.is_reported, self._error = True, error
        if self._then is not None:
            self._then()

    def then(self, callback: Callable[[], object]) -> None:
        """Have a callback called when it is complete; at once when it is."""
        if self.is_reported:
            callback()
        else:
            self._then = callback

    def steps(self) -> AwaitedSteps[None]:
        """Wait for it. Raises its error."""
        if self._at_once:
            self.now()
        while not self.is_reported:
            yield self
        if self._error is not None:
            raise self._error


AwaitedSteps = Generator[Awaited | None, None, Result]


def all_durable(writes: WriteSide) -> AwaitedSteps[None]:
    """Wait until what is staged, or on its way to the disk, is durable and was reported.

    Raises:
        StoreFailed: It is not.
        StoreError: The store is closed.
    """
    if writes.closed:
        raise StoreError("the store is closed; open it and query again")
    if writes.commit.unsettled:
        awaited = Awaited(writes.commit)
        writes.commit.when_reported(awaited.report)
        yield from awaited.steps()


def saved(writes: WriteSide, writing: Steps[Result]) -> AwaitedSteps[Result]:
    """Wait until a file write was made, after those that were there before; returns what it returns.

    With none before it, its first step is made at once.

    Raises:
        Exception: As the file write.
        StoreFailed: Also when the store failed before it had ended.
    """
    awaited = Awaited.of_writes(writes.file_writes)
    results: list[Result] = []

    def reporting() -> FileWrite:
        try:
            results.append((yield from writing))
        except Exception as error:
            awaited.report(error)
        else:
            awaited.report(None)

    def dropped() -> None:
        # A store that was abandoned as by a kill reports nothing.
        if writes.failed is not None:
            awaited.report(writes.failed)

    writes.file_writes.add(reporting(), dropped)
    yield from awaited.steps()
    return results[0]


def writing_nothing() -> FileWrite:
    """Change nothing: for who waits until those before it were made."""
    yield from ()
