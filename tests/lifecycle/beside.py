"""Turns of a store as a node ends them: syncs of the log, and savings of state files, go on beside what else happens.

So a kill point lies between the beginning of a sync and its end as well, with other files changed in between. The syncs
of savings are slow: messages come, fall due and are delivered while a file is half saved.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from broker.store import Store
from broker.testing import ManualScheduler, SimDisk, SimSyncs
from tests.integration.waiting_tools import let_pass

SAVING_SECONDS_MAX = 0.5


class Beside:
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
        store.syncs = SimSyncs(disk, scheduler, random)
        store.savings.syncs = SimSyncs(disk, scheduler, random, seconds_max=SAVING_SECONDS_MAX)
        store.on_pending = self._soon
        store.landed.on_shown = self._durable
        store.landed.alarms, store.landed.on_early = scheduler, self._begin

    def _soon(self) -> None:
        self._scheduler.call_soon(self._begin)

    def _begin(self) -> None:
        if self._store.pending:
            self._before()
            self._store.begin_flush()

    def _durable(self) -> None:
        self._begin()
        self._store.settle()
        self._after()
        self._begin()

    def under_way(self) -> str:
        """What is under way now."""
        names = {
            "flush": bool(self._store._begun),
            "staged": self._store.pending,
            "saving": self._store.savings._syncing is not None,
        }
        return " ".join(name for name, holds in names.items() if holds)

    def saved(self) -> None:
        """Let time pass until no saving is under way."""
        savings = self._store.savings
        let_pass(self._scheduler, lambda: savings._saving is None)
