"""A campaign of kills: clients work, the node dies at random, and the ledger knows what it had promised.

The clients are those of the simulation, here on real sockets. A kill comes when a seeded number of things has
happened and publishes, deliveries and acks are in the middle; so every kill catches something.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from broker.disk import RealDisk
from broker.metrics import Metrics
from broker.seams import SystemClock
from broker.store import Store
from proxy.testing.network import Mark
from tests.crash.process import NodeProcess
from tests.simulation.clients import PERFECT, Consumer, ConsumerHabits, Producer, ProducerHabits
from tests.simulation.ledger import Ledger, PromiseBroken, Stamp
from tests.simulation.lines import Client, Link, Surroundings
from tests.simulation.wire import Reply, consumer_codec, consumer_idl
from tests.simulation.world import TIMEOUT_MS, dead_letters, settings, store_options, stored_records, subscriptions

SLACK_SECONDS = 1.0
"""How late a client on a busy machine may read what the node wrote."""
WAIT_SECONDS_MAX = 60.0


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

    def now(self) -> Mark:
        """Return the next mark; each is a turn of its own."""
        sequence = next(self._sequence)
        return Mark(sequence, sequence, self._loop.time(), False)

    def written(self, transport: Any, position: int) -> Mark:
        """Return the time of reading."""
        return self.now()

    def when_arrived(self, transport: Any, callback: Callable[[Mark], None]) -> None:
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


@dataclass(slots=True)
class Kill:
    """One kill: what it caught in the middle, and how long the restart took in seconds."""

    publishes: int
    deliveries: int
    acks: int
    pulls: int
    restart_seconds: float = 0.0


@dataclass(slots=True)
class Outcome:
    """A campaign's figures."""

    seed: int
    kills: list[Kill] = field(default_factory=list)
    acknowledged: int = 0
    delivered: int = 0
    events: Counter[str] = field(default_factory=Counter)

    def table(self) -> str:
        """Return the figures for people."""
        lines = ["kill  publishes  deliveries  acks  pulls   restart"]
        for number, kill in enumerate(self.kills, 1):
            lines.append(
                f"{number:4}  {kill.publishes:9}  {kill.deliveries:10}  {kill.acks:4}  {kill.pulls:5}"
                f"  {kill.restart_seconds:6.2f} s"
            )
        total = [
            sum(getattr(kill, name) for kill in self.kills) for name in ("publishes", "deliveries", "acks", "pulls")
        ]
        lines.append(f" all  {total[0]:9}  {total[1]:10}  {total[2]:4}  {total[3]:5}")
        lines.append(
            f"seed {self.seed}: {len(self.kills)} kills with that much in the middle; {self.acknowledged} publishes "
            f"acknowledged, {self.delivered} deliveries; nothing lost, nothing acknowledged came again"
        )
        return "\n".join(lines)


class Campaign:
    """Kills one node again and again.

    Args:
        folder: For the node's files.
        seed: Of the workload and of the moments of the kills.
        kills: How many.
    """

    def __init__(self, folder: Path, *, seed: int, kills: int) -> None:
        wanted = settings()
        wanted["node"] |= {"segmentBytes": 1 << 20, "queueFileUnits": 1_000}
        self._settings = wanted
        self._node = NodeProcess(folder, wanted)
        self._random = Random(f"crash {seed}")
        self._kills = kills
        self._ledger = Ledger(subscriptions(), slack_seconds=SLACK_SECONDS)
        self._outcome = Outcome(seed)
        self._errors: list[Exception] = []
        self._noticed = asyncio.Event()
        self._clients: list[Producer | Consumer] = []

    async def run(self) -> Outcome:
        """Run the campaign and hold its history against the promises.

        Raises:
            PromiseBroken: With the seed's history; the node's log is in the folder.
        """
        try:
            self._node.start()
            around = self._surroundings()
            self._begin(around)
            for _ in range(self._kills):
                await self._kill()
            await self._settle(around)
            self._check()
        finally:
            self._node.close()
        return self._outcome

    def _surroundings(self) -> Surroundings:
        loop = asyncio.get_running_loop()
        return Surroundings(
            loop=loop,
            edge=RealEdge(loop),
            ledger=self._ledger,
            random=self._random,
            counts=self._outcome.events,
            consumer_address=lambda: self._node.consumer,
            producer_address=lambda: self._node.producer,
            failed=self._errors.append,
            noticed=self._noticed.set,
            exact=False,
        )

    def _begin(self, around: Surroundings) -> None:
        habits = ProducerHabits(pause_seconds=0.01, keys=40)
        for number in range(3):
            host = f"127.1.0.{number + 1}"
            topics = ("orders", "events")
            self._clients.append(Producer(host, host, around, replace(habits), topics=topics, compact=number == 0))
        for place, group in enumerate(("by-key", "by-path", "free")):
            for number in range(3):
                self._add_consumer(around, group, f"127.2.{place}.{number + 1}", ConsumerHabits(), number == 0)
        for client in self._clients:
            client.connect()

    def _add_consumer(
        self, around: Surroundings, group: str, host: str, habits: ConsumerHabits, compact: bool
    ) -> Consumer:
        consumer = Consumer(
            host, host, around, habits, group=group, topic=None, timeout=TIMEOUT_MS / 1000, compact=compact
        )
        self._clients.append(consumer)
        return consumer

    async def _kill(self) -> None:
        """Wait for the seeded moment, kill, start again."""
        aim = self._progress() + self._random.randrange(50, 600)
        await self._wait(
            lambda: self._progress() >= aim and self._pulls() > 0 and all(self._ledger.outstanding().values())
        )
        kill = Kill(pulls=self._pulls(), **self._ledger.outstanding())
        self._node.kill()
        self._outcome.kills.append(kill)
        loop = asyncio.get_running_loop()
        self._ledger.ended(power_lost=False, time=loop.time())
        began = loop.time()
        self._node.start()
        kill.restart_seconds = loop.time() - began

    def _pulls(self) -> int:
        """Calls of consumers that are unanswered now."""
        return sum(len(each.link.pending) for each in self._clients if each.link and isinstance(each, Consumer))

    async def _settle(self, around: Surroundings) -> None:
        """Have perfect clients finish everything."""
        for client in self._clients:
            if isinstance(client, Producer):
                client.stopped = True
            else:
                client.habits = PERFECT
        for place, group in enumerate(("by-key", "by-path", "free")):
            self._add_consumer(around, group, f"127.4.0.{place + 1}", PERFECT, False).connect()
        stats = Stats(around, ("by-key", "by-path", "free"))
        stats.connect()
        await self._wait(lambda: stats.idle, lambda: f"not finished: {stats.lag}")
        stats.stopped = True
        everybody: list[Client] = [*self._clients, stats]
        for each in everybody:
            each.stopped = True
            if each.link is not None:
                each.link.transport.abort()

    def _check(self) -> None:
        code = self._node.stop()
        if code != 0:
            raise PromiseBroken(0, f"the node ended with {code}: {self._node.log.read_text()[-2000:]}")
        store = Store.open(
            str(self._node.data),
            options=store_options(self._settings),
            disk=RealDisk(),
            clock=SystemClock(),
            random=Random(0),
            metrics=Metrics(),
        )
        try:
            self._ledger.check(stored_records(store, ("orders", "events")), dead_letters(store))
        finally:
            store.close()
        self._outcome.acknowledged = sum(each.outcome == "stored" for each in self._ledger.publishes.values())
        self._outcome.delivered = self._outcome.events["delivered"]

    def _progress(self) -> int:
        return len(self._ledger.publishes) + self._outcome.events["delivered"]

    async def _wait(
        self, until: Callable[[], bool], what: Callable[[], str] = lambda: "the clients make no progress"
    ) -> None:
        """Wait for a condition that changes when a reply is read."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_SECONDS_MAX
        while not until():
            self._noticed.clear()
            try:
                await asyncio.wait_for(self._noticed.wait(), deadline - loop.time())
            except TimeoutError as error:
                raise PromiseBroken(0, what()) from error
            if self._errors:
                raise self._errors[0]
