"""The watch of the configuration file, beyond what the simulation does with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import SystemClock
from proxy.node.reload import Reloader
from proxy.process import serve


class _Reloads:
    """A reloader whose first reload meets a fault."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.path = Path()

    def look(self, *, is_there: bool) -> None: ...

    async def reload(self) -> None:
        self.texts.append(self.path.read_text())
        if len(self.texts) == 1:
            raise AttributeError("of a user's class")


def test_fault_of_a_reload_does_not_end_the_watch(tmp_path: Path) -> None:
    """It is reported, and the next change of the file is taken up."""
    reloads, limited_log = _Reloads(), RateLimitedLog(SystemClock())
    reloads.path = tmp_path / "node.yaml"

    async def changes(*_: object, **__: object) -> AsyncIterator[None]:
        for text in ("one", "second"):
            reloads.path.write_text(text)
            yield
        await asyncio.Event().wait()

    async def run() -> None:
        reloader = cast(Reloader, reloads)
        watching = asyncio.ensure_future(serve.watch_configuration(reloads.path, None, reloader, limited_log, changes))
        await asyncio.wait((watching,), timeout=1)
        watching.cancel()

    asyncio.run(run())
    assert reloads.texts == ["one", "second"]
    assert limited_log.faults == 1
