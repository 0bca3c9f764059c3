"""When a node builds its index: in turns of the loop that have nothing better to do (D7).

After a flush the work begins a moment later. While messages come in, a small piece is done now and then; once a while
passes without a turn, pieces follow each other with room between them for whatever arrives. With nothing to build,
nothing is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from broker.index.index import Index
from broker.seams import Handle, Scheduler

BUSY_SECONDS = 0.05
BUSY_RECORDS = 64
IDLE_SECONDS = 0.005
IDLE_RECORDS = 128
"""About a millisecond of the loop's time."""

_log = structlog.get_logger(__name__)


class IndexWork:
    """Builds one store's index on a loop.

    Args:
        index: What is built.
        scheduler: The loop.
        turns: Tells a number that grows with each turn in which the node did something.
    """

    def __init__(self, index: Index, *, scheduler: Scheduler, turns: Callable[[], int]) -> None:
        self._index = index
        self._scheduler = scheduler
        self._turns = turns
        self._seen = -1
        self._timer: Handle | None = None

    def wake(self) -> None:
        """See to it that what has been stored is indexed some time; costs nothing while that is under way."""
        if self._timer is None:
            self._timer = self._scheduler.call_later(BUSY_SECONDS, self._work)

    def stop(self) -> None:
        """Do nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _work(self) -> None:
        self._timer = None
        turns = self._turns()
        busy, self._seen = turns != self._seen, turns
        try:
            more = self._index.step(BUSY_RECORDS if busy else IDLE_RECORDS)
        except Exception:
            _log.exception("index_work_failed")
            return
        if more:
            self._timer = self._scheduler.call_later(BUSY_SECONDS if busy else IDLE_SECONDS, self._work)
