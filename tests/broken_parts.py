"""Parts of the broker that break a promise: for broken nodes of the simulation and broken builds of the lifecycle."""

from __future__ import annotations

from broker.log.group_commit import GroupCommit
from broker.opening.queue_build import QueueBuild


def sync_and_settle_at_once(commit: GroupCommit) -> None:
    """In place of `GroupCommit._sync_oldest`: a flush settles when its sync begins."""
    log, syncs = commit._log, commit.syncs
    segment = log.unsynced
    if segment is not None and syncs is not None:
        syncs.begin(segment.file, lambda error: log.synced(segment) if error is None else None)
    commit._sync_ended(None)


def keep_half_a_batch(build: QueueBuild, end: int) -> tuple[int, int]:
    """In place of `QueueBuild.finish`: an incomplete batch at the end of the log is kept."""
    build._settle()
    return 0, end
