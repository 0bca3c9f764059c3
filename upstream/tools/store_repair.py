"""Repair of a whole data directory: the broker's part, then the ack journal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any

from broker.opening.recovery import ProgressCallback
from broker.runtime.bundle import runtime_of
from broker.runtime.seams import Clock, Disk
from broker.runtime.steps import run_now
from broker.store import Store
from broker.tools.check import Check, Finding
from broker.tools.repair import repair
from upstream.embedded.queues import EmbeddedQueues
from upstream.progress.progress import Progress
from upstream.tools.store_check import check_data


def repair_data(
    root: str, *, disk: Disk, clock: Clock, random: Random, progress: ProgressCallback | None = None
) -> list[Finding]:
    """Mend a data directory that nobody has open. Returns and raises as `broker.tools.repair.repair`.

    Where the journal's snapshot is lost, a group that is known nowhere else begins at the oldest message when the node
    starts, whose configuration says which groups there are (`upstream.progress.lost_snapshot`).
    """
    runtime = runtime_of(disk, clock, scheduler=_Never(), random=random)

    def findings_of(check: Check) -> Collection[Finding]:
        return list(check_data(check, progress))

    def journal(store: Store) -> None:
        run_now(Progress.opening(root, queues=EmbeddedQueues(store), runtime=runtime)).close()

    return repair(root, runtime, findings_of=findings_of, then=journal)


class _Never:
    """A scheduler of a program that ends before anything is due; closing syncs."""

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> _Never:
        """Forget the call."""
        return self

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> _Never:
        """Forget the call."""
        return self

    def cancel(self) -> None:
        """Nothing is scheduled."""
