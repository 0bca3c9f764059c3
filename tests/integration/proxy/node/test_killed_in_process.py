"""What the tests call a kill within one process: nothing of the node goes on after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.running_node import RunningNode


def test_no_task_of_a_killed_node_makes_another_step(tmp_path: Path) -> None:
    """A sink that read a closed store, and wrote what it had besides, put its file out of order."""
    node = RunningNode("topics: {t: {}}", tmp_path / "data")
    states: list[str] = []
    working: list[asyncio.Task[None]] = []

    async def work() -> None:
        while True:
            states.append(node.node.state)
            await asyncio.sleep(0)

    async def begin() -> None:
        working.append(asyncio.get_running_loop().create_task(work()))

    with node:
        node.wait_for(begin())
        node.kill()

    assert working[0].cancelled()
    assert states[0] == "ready"
    assert "stopped" not in states
