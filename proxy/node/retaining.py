"""When a node's retention runs: once a second, and on at once while there is more to do."""

from __future__ import annotations

from functools import partial

from broker.log.awaited import AwaitedSteps
from broker.runtime.seams import Scheduler
from broker.store import Store
from upstream.expiry import Expiry

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
        self._stopped = False
        store.retention.keepers.append(expiry)

    def run(self) -> None:
        """Tell groups that are near to losing messages, then do a step; the node calls this every STEP_SECONDS."""
        self._expiry.look_ahead()
        if not self._going_on:
            self._step()

    def stop(self) -> None:
        """Do nothing any more; a file that waits for the disk stays."""
        self._stopped = True

    def _step(self) -> None:
        self._going_on = True
        self._go_on(self._store.retention.steps())

    def _go_on(self, steps: AwaitedSteps[bool]) -> None:
        """Go on up to where a step waits for the disk."""
        if self._stopped:
            return
        try:
            awaited = next(steps)
        except StopIteration as end:
            self._going_on = end.value
        except BaseException:
            self._going_on = False
            raise
        else:
            go_on = partial(self._scheduler.call_soon, self._go_on, steps)
            if awaited is None:
                go_on()
            else:
                awaited.then(go_on)
            return
        if self._going_on:
            self._scheduler.call_later(ON_SECONDS, self._step)
