"""Power losses under a real process: what was acknowledged was synced, and what was not is gone without a trace."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from tests.crash.by_disk import DiskReaper
from tests.crash.campaign import Campaign
from tests.crash.moments import plan
from tests.crash.outcome import Outcome
from tests.powerloss.mount import Mount

CUTS = 200
CAMPAIGNS = 8
TIMEOUT_MS = 6_000
"""The file system is slow: a reply may wait for it for seconds."""
STRICT_SECONDS = 10.0

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("fuse")]


def run_campaign(folder: Path, seed: int, cuts: int) -> Outcome:
    """Cut the power of one node again and again: half at random, half around its disk operations."""
    mount = Mount(folder, seed)
    try:
        planned = plan(Random(f"cuts {seed}"), at_random=cuts // 2, at_calls={DiskReaper(folder): cuts - cuts // 2})

        async def run() -> Outcome:
            campaign = Campaign(
                folder,
                seed=seed,
                planned=planned,
                data=mount.path / "data",
                power=mount.cut,
                timeout_ms=TIMEOUT_MS,
                strict_seconds=STRICT_SECONDS,
                # With `sync` no clock is part of what is checked.
                ack_flush="sync" if seed % 2 else "async",
            )
            return await campaign.run()

        return asyncio.run(run())
    finally:
        mount.close()


@pytest.mark.parametrize("seed", range(CAMPAIGNS))
def test_power_losses_take_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    """Promises 1, 2, 3 and 6 over power losses in recovery, work, reload and drain."""
    outcome = run_campaign(tmp_path, seed, CUTS // CAMPAIGNS)
    print(f"\n{outcome.table()}")
    assert len(outcome.kills) == CUTS // CAMPAIGNS
    assert outcome.acknowledged > 100


def test_unsynced_write_is_forgotten_and_synced_one_is_kept(tmp_path: Path) -> None:
    """The layer itself: what was synced is there after a cut; the rest, names too, may be gone, and sometimes is."""
    mount = Mount(tmp_path, 1)
    lost = 0
    try:
        for number in range(10):
            kept, forgotten = mount.path / f"kept{number}", mount.path / f"forgotten{number}"
            _write(kept, b"synced", sync=True)
            _sync_folder(mount.path)
            _write(forgotten, b"not synced", sync=False)
            mount.cut()
            assert kept.read_bytes() == b"synced"
            lost += not forgotten.exists() or forgotten.read_bytes() != b"not synced"
        assert lost
    finally:
        mount.close()


def _write(path: Path, data: bytes, *, sync: bool) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fdatasync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)
