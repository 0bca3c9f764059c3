"""Acks are told when they are durable: those that come together, or during a sync, share one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from broker.runtime.file_writes import FileWrite, FileWrites
from proxy.services.results.ack_syncs import AckSyncs
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from upstream.progress.progress import Progress, ProgressFailed


class Syncing:
    """A sync that ends when it is told to."""

    def __init__(self, done: Callable[[OSError | None], None]) -> None:
        self.done = done

    def wait(self) -> None:
        """End it."""
        self.done(None)


class Syncs:
    """`Syncs` whose syncs are under way until somebody ends them."""

    def __init__(self) -> None:
        self.under_way: list[Syncing] = []

    def begin(self, file: Any, done: Callable[[OSError | None], None]) -> Syncing:
        """Begin one."""
        self.under_way.append(Syncing(done))
        return self.under_way[-1]

    begin_folder = begin


class Journal:
    """What `AckSyncs` needs of the progress: a sync in steps, which may fail."""

    def __init__(self) -> None:
        self.begun = 0
        self.fails = False

    def syncing(self) -> FileWrite:
        """One sync."""
        self.begun += 1
        try:
            yield cast("Any", "a file")
        except OSError as error:
            raise ProgressFailed("syncing", error) from error
        if self.fails:
            raise ProgressFailed("syncing", OSError(5, "broken"))


def test_acks_share_syncs() -> None:
    """Two in a turn make one sync; two that come during it wait for the next, together."""
    clock = ManualClock()
    scheduler, journal, syncs = ManualScheduler(clock), Journal(), Syncs()
    acks = AckSyncs(cast("Progress", journal), FileWrites(SimDisk(), cast("Any", syncs)), scheduler)
    reported: list[tuple[str, bool]] = []

    def add(name: str) -> None:
        acks.add(lambda durable: reported.append((name, durable)))

    add("a")
    add("b")
    scheduler.advance(0)
    add("c")
    add("d")
    scheduler.advance(0)
    assert (journal.begun, reported) == (1, [])
    syncs.under_way.pop().wait()
    assert reported == [("a", True), ("b", True)]
    scheduler.advance(0)
    assert journal.begun == 2
    journal.fails = True
    syncs.under_way.pop().wait()
    assert reported[2:] == [("c", False), ("d", False)]
    add("e")
    scheduler.advance(0)
    assert journal.begun == 3


def test_acks_go_on_when_the_store_fails() -> None:
    """Its file writes are dropped, a sync of acks among them, begun or not: that is answered, and others follow."""
    scheduler, journal, syncs = ManualScheduler(ManualClock()), Journal(), Syncs()
    file_writes = FileWrites(SimDisk(), cast("Any", syncs))
    acks = AckSyncs(cast("Progress", journal), file_writes, scheduler)
    for begun in (True, False):
        reported: list[bool] = []
        if not begun:
            file_writes.add(journal.syncing())
        acks.add(reported.append)
        scheduler.advance(0)
        file_writes.abandon()
        acks.add(reported.append)
        scheduler.advance(0)
        assert reported == [False]
        syncs.under_way[-1].wait()
        assert reported == [False, True]
