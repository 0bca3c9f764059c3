"""Real sockets for the simulation's clients, and a client that asks for what is unfinished."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from pyddmq.testing.network import NetworkMark
from tests.simulation.ledger import Stamp
from tests.simulation.lines import Client, Link, Surroundings
from tests.simulation.wire import Reply, consumer_codec, consumer_idl


class RealEdge:
    """Real sockets as clients see them: an answer counts as given when it is sent, a delivery when it is read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sequence = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, link: Link, address: tuple[str, int], host: str) -> None:
        """Connect from `host`, an address of the loopback network."""
        task = self._loop.create_task(self._connect(link, address, host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def now(self) -> NetworkMark:
        """Return the next mark; each is a turn of its own."""
        sequence = next(self._sequence)
        return NetworkMark(sequence, sequence, self._loop.time(), False)

    def written(self, transport: Any, position: int) -> NetworkMark:
        """Return the time of reading."""
        return self.now()

    def when_arrived(self, transport: Any, callback: Callable[[NetworkMark], None]) -> None:
        """Call back at once."""
        callback(self.now())

    async def _connect(self, link: Link, address: tuple[str, int], host: str) -> None:
        try:
            await self._loop.create_connection(lambda: link, *address, local_addr=(host, 0))
        except OSError:
            link.refused()


class Stats(Client):
    """Asks for getConsumeStats over and over and keeps the last answer."""

    def __init__(self, around: Surroundings, groups: tuple[str, ...]) -> None:
        super().__init__("stats", "127.3.0.1", consumer_codec(), around, around.consumer_address)
        self.groups = groups
        self.lag: dict[str, int] = {}

    @property
    def idle(self) -> bool:
        """Whether every group has answered and has nothing unfinished."""
        return set(self.lag) == set(self.groups) and not any(self.lag.values())

    def on_connected(self) -> None:
        self.lag = {}
        self._ask()

    def _ask(self) -> None:
        if self.link is not None:
            for group in self.groups:
                self.call("getConsumeStats", group, request=consumer_idl.ConsumeStatsRequest(group=group))
            self.later(0.1, self._ask)

    def on_reply(self, link: Link, about: str, reply: Reply, stamp: Stamp) -> None:
        if reply.error is not None:
            raise reply.error
        self.lag[about] = sum(
            each.produceOffsets[qid] - each.consumeOffsets[qid] for each in reply.value for qid in each.produceOffsets
        )
