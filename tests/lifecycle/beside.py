"""Turns of a store as a node ends them: syncs of the log, and writes of state files, go on beside what else happens.

So a kill point lies between the beginning of a sync and its end as well, with other files changed in between. The syncs
of file writes are slow: messages come, fall due and are delivered while a file is half saved.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from broker.log.group_commit import CommitDriver
from broker.store import Store
from pyddmq.testing import ManualScheduler, SimDisk, SimSyncs
from tests.insides import is_writing_files
from tests.integration.turns import take_over
from tests.integration.waiting_tools import let_pass

WRITE_SECONDS_MAX = 0.5


class Beside(CommitDriver):
    """Ends the turns of one store.

    Args:
        store: Whose.
        disk: Its disk.
        scheduler: Virtual time.
        random: Draws how long syncs take.
        before: Called before a flush begins: the last look at what is staged.
        after: Called when what was begun is visible and told.
    """

    def __init__(
        self,
        store: Store,
        disk: SimDisk,
        scheduler: ManualScheduler,
        random: Random,
        *,
        before: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._before = before
        self._after = after
        self._flush = store.commit.begin
        store.commit.begin = self._begin  # type: ignore[method-assign]
        take_over(store, self, syncs=SimSyncs(disk, scheduler, random), alarms=scheduler)
        store.file_writes.syncs = SimSyncs(disk, scheduler, random, seconds_max=WRITE_SECONDS_MAX)

    def on_staged(self) -> None:
        """Flush it at the end of the turn."""
        self._scheduler.call_soon(self._begin)

    def on_reported(self, raised: Exception | None) -> None:
        """Look at what it led to."""
        if raised is not None:
            raise raised
        self._after()

    def _begin(self) -> bool:
        if self._store.pending:
            self._before()
        return self._flush()

    def under_way(self) -> str:
        """What is under way now."""
        names = {
            "flush": self._store.commit.is_under_way,
            "staged": self._store.pending,
            "writing": self._store.file_writes._syncing is not None,
        }
        return " ".join(name for name, holds in names.items() if holds)

    def saved(self) -> None:
        """Let time pass until no file write is under way."""
        let_pass(self._scheduler, lambda: not is_writing_files(self._store))
