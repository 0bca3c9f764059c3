"""Whole campaigns: how the kills are shared out, and by whom they are made on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from tests.crash.by_disk import DiskReaper
from tests.crash.by_syscall import SyscallReaper
from tests.crash.campaign import Campaign
from tests.crash.moments import Reaper, plan
from tests.crash.outcome import Outcome
from tests.crash.process import NodeProcess
from tests.simulation.world import settings


def run_campaign(folder: Path, seed: int, kills: int, *, strace: bool | None = None) -> Outcome:
    """Run one campaign: a half of the kills at random, a tenth by the node's own disk, the others by strace.

    Args:
        folder: Empty; for the node's files.
        seed: Of the workload and of the moments.
        kills: How many.
        strace: Whether to use it; None: where it is there. Without, the node's own disk does its part.

    Raises:
        PromiseBroken: With the reason; the node's log and data are in the folder.
    """
    random = Random(f"plan {seed}")
    at_random = kills // 2
    by_disk = kills // 10
    disk = DiskReaper(folder)
    at_calls: dict[Reaper, int] = {}
    if SyscallReaper.available() if strace is None else strace:
        syscalls = SyscallReaper(folder, folder / "data")
        learn(syscalls, folder)
        at_calls[syscalls] = kills - at_random - by_disk
        at_calls[disk] = by_disk
    else:
        at_calls[disk] = kills - at_random
    planned = plan(random, at_random=at_random, at_calls=at_calls)

    async def run() -> Outcome:
        return await Campaign(folder, seed=seed, planned=planned).run()

    return asyncio.run(run())


def learn(reaper: SyscallReaper, folder: Path) -> dict[str, int]:
    """Have the reaper watch a start after a kill; returns how often each call touched the data directory."""
    node = NodeProcess(folder, settings())
    try:
        node.start()
        node.kill()
        node.start(prefix=reaper.learning_prefix())
        node.kill()
    finally:
        node.close()
    return reaper.learn()
