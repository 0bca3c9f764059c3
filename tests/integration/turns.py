"""Turns that flush a store as a node's do, for stores that a test opened without any."""

from __future__ import annotations

from collections.abc import Callable

from broker.log.group_commit import CommitDriver
from broker.runtime.seams import Scheduler, Syncs
from broker.store import Store


def take_over(
    store: Store, driver: CommitDriver | None, *, syncs: Syncs | None = None, alarms: Scheduler | None = None
) -> None:
    """Have an open store flushed by other turns from now on: as if it had been opened with them."""
    store.commit.driver, store.commit.syncs, store.commit.alarms = driver, syncs, alarms


class Turns(CommitDriver):
    """Has a call made when something is staged, and passes on what callbacks raise.

    Args:
        staged: Called when the first record is staged after a flush.
        told: Called when who waited was told.
    """

    def __init__(
        self, staged: Callable[[], object] = lambda: None, reported: Callable[[], object] = lambda: None
    ) -> None:
        self._staged = staged
        self._reported = reported

    def on_staged(self) -> None:
        """See the class."""
        self._staged()

    def on_reported(self, raised: Exception | None) -> None:
        """See the class."""
        if raised is not None:
            raise raised
        self._reported()
