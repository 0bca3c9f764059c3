"""Sends under way together in an event loop: a task runs `OrderedSends` while there are any."""

from __future__ import annotations

import asyncio

from pyddmq.client.aio.async_connection import AsyncConnection
from pyddmq.client.ordered_sends import OrderedSends, Send
from pyddmq.client.sends import Resending


class LoopSends:
    """Belongs to one event loop. The arguments are those of `OrderedSends`."""

    def __init__(
        self, connection: AsyncConnection, resending: Resending, *, in_flight_max: int, deduplicate: bool
    ) -> None:
        self._connection = connection
        self._sends = OrderedSends(connection, resending, _pause, in_flight_max=in_flight_max, deduplicate=deduplicate)
        self._task: asyncio.Task[None] | None = None
        self.withdraw = self._sends.withdraw

    async def connect(self, timeout_ms: int) -> None:
        """Open the connection now. Raises CannotConnect, or ClientMisuse: it is closed."""
        self._sends.check_open()
        if self._task is None:
            await self._connection.open(timeout_ms=timeout_ms)

    def submit(self, send: Send) -> None:
        """Take a send; it goes out behind those before it. Raises ClientMisuse: it is closed."""
        self._sends.submit(send)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._sends.run()
        except Exception:
            # A fault of ours: no caller is to wait for ever.
            self._sends.close()
            self._sends.give_up()
            raise
        finally:
            self._task = None

    async def close(self) -> None:
        """Give up what is under way, and close the connection. Harmless the second time."""
        self._sends.close()
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._connection.end()
        self._sends.give_up()


async def _pause(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return True
