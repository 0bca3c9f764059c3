"""A simulated node that pushes: a receiver with bad habits at two addresses, and the account of what it saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiohttp import web

from broker.features import ALL
from broker.runtime.metrics import Metrics
from broker.store import Store
from pyddmq.testing import NetworkFaults, Process
from tests.fakes.http import serve_http
from tests.simulation.caller import Caller
from tests.simulation.facts import DeadLetter
from tests.simulation.ledger import PromiseBroken
from tests.simulation.stored import dead_letters
from tests.simulation.world import DATA, TIMEOUT_MS, World, settings, store_options

GROUP = "pushed"
HOSTS = ("10.0.0.50", "10.0.0.51")
KEYS = 6


def subscription(**more: Any) -> dict[str, Any]:
    """The pushed subscription, in YAML's names."""
    return {
        "topic": "orders",
        "orderKey": "KEY",
        "actions": ["Async", "AsyncHttp"],
        "urls": [f"http://{host}:80/hook" for host in HOSTS],
        "timeout": TIMEOUT_MS,
        "maxRetry": -1,
        "retryIntervals": [60, 250, -1],
        "options": {"AsyncHttp": {"breaker": {"failures": 4, "openMs": 300, "openMsMax": 2000}, "connections": 4}},
        **more,
    }


@dataclass(slots=True)
class Account:
    """What the receiver saw.

    Attributes:
        taken: Of each key its messages, by number, in the order in which the receiver took them; repeats too.
        repeats: How many it took more than once.
        did: What it did.
    """

    taken: dict[str, list[int]] = field(default_factory=dict)
    repeats: int = 0
    did: Counter[str] = field(default_factory=Counter)

    def take(self, key: str, uid: int) -> None:
        """Note that the receiver takes a message; raises PromiseBroken when it is not its turn."""
        taken = self.taken.setdefault(key, [])
        if taken and uid < taken[-1]:
            raise PromiseBroken(3, f"{key}: {uid} was taken after {taken[-1]}")
        if taken and uid == taken[-1]:
            self.repeats += 1
        taken.append(uid)


class Habits:
    """What a receiver does to a request, drawn from a seed; `perfect` takes everything, `failing` nothing.

    Attributes:
        came: By offset when each of its requests came, in seconds of the loop.
    """

    def __init__(self, world: World, account: Account) -> None:
        self.perfect = self.failing = False
        self.answer: int | dict[str, object] | None = None
        self.asked = 0
        self.came: dict[int, list[float]] = {}
        self._random = Random(f"receiver {world.seed}")
        self._account = account
        self._world = world

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        body = await request.read()
        key, uid = request.headers["Pyddmq-Key"], int(request.headers["Pyddmq-Offset"])
        if not body:
            raise PromiseBroken(1, f"{key}: {uid} has no body")
        self.asked += 1
        self.came.setdefault(uid, []).append(self._world.loop.time())
        if isinstance(self.answer, int):
            return web.Response(status=self.answer)
        if self.answer is not None:
            return web.json_response(self.answer)
        if self.failing:
            return web.Response(status=503)
        draw = 1.0 if self.perfect else self._random.random()
        account = self._account
        if draw < 0.06:
            account.did["status"] += 1
            return web.Response(status=self._random.choice((500, 503, 404, 302, 410)))
        if draw < 0.12:
            account.did["reset"] += 1
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if draw < 0.15:
            account.did["silence"] += 1
            await asyncio.sleep(TIMEOUT_MS * 2 / 1000)
            return web.Response()
        if draw < 0.21:
            account.did["errno"] += 1
            return web.json_response({"errno": self._random.choice((3, "no", 1_000_002))})
        try:
            account.take(key, uid)
        except PromiseBroken as broken:
            self._world.errors.append(broken)
        account.did["taken"] += 1
        # Slow behind the taking: what a request of a dead node does later than its successor's nobody could prevent.
        if draw < 0.3:
            account.did["slow"] += 1
            await asyncio.sleep(self._random.random() * TIMEOUT_MS / 2000)
        return web.json_response({"errno": self._random.choice((0, "0", 1_000_000, 1_000_001))})


class Pushing:
    """One seeded run.

    Attributes:
        world: Node, network and disk.
        account: What the receiver saw.
        sent: Of each key the offsets of its messages, in their order.
    """

    def __init__(self, seed: int, **more: Any) -> None:
        self.world = World(seed, faults=NetworkFaults(reset_share=0.003))
        wanted = settings()
        wanted["topics"] = {"orders": {"queues": 1}}
        wanted["groups"] = [{"group": GROUP, "topics": [subscription(**more)]}]
        self.world.config = self.world.load(wanted).config
        self.account = Account()
        self.habits = Habits(self.world, self.account)
        self.sent: dict[str, list[int]] = {}
        self.random = Random(f"story {seed}")
        self.caller = Caller(self.world, "10.9.0.1")
        self._uid = 0
        receiver = Process("receiver")
        for host in HOSTS:
            task = receiver.run(
                self.world.loop.create_task, serve_http(self.world.network, self.habits.handle, host, 80)
            )
            self.world.run(until=task.done, seconds=5)

    def send(self, count: int) -> None:
        """Publish so many messages."""
        for _ in range(count):
            key = f"k{self.random.randrange(KEYS)}"
            self._uid += 1
            faults, self.world.network.faults = self.world.network.faults, NetworkFaults()
            place = self.caller.send("orders", key, uid=self._uid)
            self.world.network.faults = faults
            self.sent.setdefault(key, []).append(place.offset)

    def again(self) -> None:
        """Kill the node, and start it anew."""
        self.world.kill()
        self.world.start()
        self.caller = self.caller.other()

    def settle(self) -> None:
        """Let the receiver take everything that is left; raises PromiseBroken when it does not get it."""
        self.habits.perfect = True
        self.world.network.faults = NetworkFaults()
        node = self.world.node
        assert node is not None

        def over() -> bool:
            return not node.in_force.groups[GROUP].stats(details_max=0).topics[0].lag

        if not self.world.run(until=over, seconds=300):
            raise PromiseBroken(2, f"not all was pushed: {node.in_force.groups[GROUP].stats(details_max=0)}")
        for key, offsets in self.sent.items():
            if list(dict.fromkeys(self.account.taken.get(key, []))) != offsets:
                raise PromiseBroken(2, f"{key}: sent {offsets}, taken {self.account.taken.get(key)}")
        self.world.stop()

    def letters(self) -> list[DeadLetter]:
        """Stop the node, and return the dead letters of its store."""
        world = self.world
        world.stop()
        options = store_options(settings())
        runtime: dict[str, Any] = {"disk": world.disk, "clock": world.clock, "random": Random(0), "metrics": Metrics()}
        store = Store.open(DATA, options=options, features=ALL, **runtime)
        try:
            return list(dead_letters(store))
        finally:
            store.close()
