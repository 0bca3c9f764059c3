"""When a node's retention runs: once a second, and on at once while there is more to do."""

from __future__ import annotations

from broker.log.awaited import AwaitedSteps
from broker.runtime.seams import Scheduler
from broker.runtime.steps import StepRunner
from broker.store import Store
from upstream.embedded.expiry import Expiry

STEP_SECONDS = 1.0
ON_SECONDS = 0.02
"""Between the steps of much work, so that everything else has its turn."""


class Retaining:
    """Runs the retention of one node.

    Args:
        store: Whose log files go.
        expiry: Looks after the groups.
        scheduler: The event loop.
    """

    def __init__(self, store: Store, expiry: Expiry, scheduler: Scheduler) -> None:
        self._store = store
        self._expiry = expiry
        self._scheduler = scheduler
        self._going_on = False
        self._runner = StepRunner(scheduler.call_soon)
        store.retention.holds.append(expiry)

    def run(self) -> None:
        """Tell groups that are near to losing messages, then do a step; the node calls this every STEP_SECONDS."""
        self._expiry.look_ahead()
        if not self._going_on:
            self._step()

    def stop(self) -> None:
        """Do nothing any more; a file that waits for the disk stays."""
        self._runner.stop()

    def _step(self) -> None:
        self._runner.run(self._steps())

    def _steps(self) -> AwaitedSteps[None]:
        self._going_on, more = True, False
        try:
            more = yield from self._store.retention.steps()
        finally:
            self._going_on = more
        if more:
            self._scheduler.call_later(ON_SECONDS, self._step)
