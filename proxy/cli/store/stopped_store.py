"""A store that no node has open, under the store's own lock; its offsets, shown and moved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from broker.runtime.steps import noted, run_now
from proxy.cli.errors import CliError
from proxy.cli.store.store_files import store_errors
from proxy.operate.views.changes import ResetResult
from proxy.operate.views.groups import OffsetsAnswer
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    import asyncio

    from broker.runtime.bundle import Runtime
    from broker.store import Store
    from upstream.operate.positions import PositionTarget
    from upstream.progress.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedStore:
    """A store that no node has open, and what it was opened with; the loop, which is its scheduler, never runs."""

    root: str
    store: Store
    runtime: Runtime
    loop: asyncio.AbstractEventLoop


@contextlib.contextmanager
def opened(data: Path, *, change: bool = False) -> Iterator[StoppedStore]:
    """Open a data directory as a node does, recovery included, and close it in good order.

    Args:
        data: The directory.
        change: What is done to it stays. Without this not a byte of it changes, recovery included, and reading it is
            permission enough; nodes are kept out all the same.

    Raises:
        CliError: There is no store, a node has it open, or it cannot be used.
    """
    import asyncio
    from random import Random

    from broker.features import ALL
    from broker.opening.accepted_content import accept
    from broker.opening.reading import geometry_of
    from broker.options import StoreOptions
    from broker.runtime.bundle import runtime_of
    from broker.runtime.disks.private_disk import PrivateDisk
    from broker.store import Store
    from broker.tools.interchange import adopted

    root = str(data.absolute())
    disk = RealDisk() if change else PrivateDisk(RealDisk(read_only=True))
    loop = asyncio.new_event_loop()
    with contextlib.closing(loop), store_errors(data):
        if geometry_of(root, disk=disk) is None:
            raise CliError(f"{data} has no store; pass the data directory of a node", ExitCode.DATA_UNUSABLE)
        if not change:
            # It is shown all the same.
            accept(root, disk)
        options = adopted(root, StoreOptions(), disk=disk)
        runtime = runtime_of(disk, SystemClock(), scheduler=loop, random=Random())
        opening = Store.opening(root, options=options, features=ALL, runtime=runtime)
        store = run_now(noted(opening, lambda _: None))
        try:
            yield StoppedStore(root=root, store=store, runtime=runtime, loop=loop)
        finally:
            store.close()


@contextlib.contextmanager
def opened_progress(data: Path, *, change: bool = False) -> Iterator[tuple[StoppedStore, Progress]]:
    """`opened`, with the ack journal."""
    from upstream.embedded.queues import EmbeddedQueues
    from upstream.progress.progress import Progress

    with opened(data, change=change) as found:
        # The loop never runs: everything is made durable by `close`.
        progress = run_now(Progress.opening(found.root, queues=EmbeddedQueues(found.store), runtime=found.runtime))
        try:
            yield found, progress
        finally:
            progress.close()


def show(data: Path, group: str | None) -> OffsetsAnswer:
    """Return what `GET /api/offsets` would, of a store that no node has open.

    Raises:
        CliError: The group has no offsets there, or the directory cannot be used.
    """
    from upstream.embedded.queues import EmbeddedQueues
    from upstream.operate.positions import positions

    with opened_progress(data) as (stopped, progress):
        found = list(positions(progress, EmbeddedQueues(stopped.store), group=group))
    if group is not None and not found:
        text = f"{data} has no offsets of a group {group!r}; `pyddmq offsets show --data {data}` lists all groups"
        raise CliError(text, ExitCode.NOT_FOUND)
    return OffsetsAnswer(now_ms=SystemClock().wall_ms(), offsets_total=len(found), offsets=found)


def reset(
    data: Path, group: str, topic: str, queue: int | None, target: PositionTarget, *, dry_run: bool
) -> ResetResult:
    """Do what `POST /api/offsets/reset` does, on a store that no node has open.

    Raises:
        CliError: The group has no offsets there, or the target is outside of a queue.
    """
    from upstream.embedded.queues import EmbeddedQueues
    from upstream.operate.positions import PositionUnknown, TargetRefused, plan_moves, trackers_of

    with opened_progress(data, change=not dry_run) as (stopped, progress):
        queues = EmbeddedQueues(stopped.store)
        try:
            trackers = trackers_of(progress, queues, group, topic, queue)
            moves = plan_moves(trackers, target, queues)
        except PositionUnknown as unknown:
            raise CliError(str(unknown), ExitCode.NOT_FOUND) from unknown
        except TargetRefused as refusal:
            raise CliError(str(refusal), ExitCode.REFUSED) from refusal
        changed = not dry_run and any(move.changes for move in moves)
        for move in moves if changed else ():
            if move.changes:
                progress.reset(trackers[move.queue], move.to)
        progress.sync()
    return ResetResult(group=group, topic=topic, dry_run=dry_run, changed=changed, queues=moves)
