"""A simulated node with sinks: Redis over the simulated network, files on the simulated disk, actions that misbehave.

Before each sink stands an action that fails, raises, is slow, or takes longer than its time limit, now and then; and
for every seventeenth message always, which is thus a dead letter. Every message has exactly one outcome: it is in the
sink once, or it is a dead letter and not in the sink. Each key is in its order.
"""

from __future__ import annotations

import asyncio
import json
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar

from actions.client_factories import Outside
from actions.registry import Registry
from actions.sinks.faults import ServerAway
from actions.sinks.files.sink import LOOK_SECONDS
from actions.sinks.redis.link import CommandRefused, RedisLink, RedisWish
from actions.sinks.redis.names import Words
from broker.features import ALL
from broker.runtime.metrics import Metrics
from broker.store import Store
from pyddmq.actions import Action, Failed, Job, RetryLater, Status
from pyddmq.testing import NetworkFaults, Process
from pyddmq.testing.network import SimNetwork
from tests.simulation.caller import Caller
from tests.simulation.ledger import PromiseBroken
from tests.simulation.stored import dead_letters
from tests.simulation.world import DATA, World, settings, store_options
from tests.unit.actions.sinks.memory_redis import MemoryRedis

HOST, PORT, OUT = "10.0.0.60", 6379, "/out"
KEYS = 6
POISON = 17
TRIES = 9
TROUBLES_MAX = 3
TIME_LIMIT_MS = 300
REDIS, FILE = "mirrored", "filed"


class Unshowable(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise SystemExit


RAISED: tuple[type[BaseException], ...] = (
    ValueError, SystemExit, asyncio.CancelledError, KeyboardInterrupt, Unshowable
)  # fmt: skip
"""What actions raise, in turn: user code may raise anything."""


class Abrupt(Action):
    """A plain action that raises now and then, for a message once."""

    raised: ClassVar[set[tuple[str, int]]] = set()

    def act(self, job: Job) -> Status:
        """Go on, or raise."""
        uid = json.loads(bytes(job.body))["uid"]
        if uid % 5 == 0 and (job.group, uid) not in self.raised:
            self.raised.add((job.group, uid))
            raise RAISED[uid // 5 % len(RAISED)]("not now")
        return Status.CONTINUE


class Troubles(Action):
    """Stands before a sink; what it does is drawn by message and call, and for a message seldom enough to end well."""

    seed: ClassVar[int] = 0
    troubled: ClassVar[Counter[tuple[str, int]]] = Counter()
    did: ClassVar[Counter[str]] = Counter()

    async def act(self, job: Job) -> Status:
        """Go on, after a while; or not this time."""
        uid = json.loads(bytes(job.body))["uid"]
        if uid % POISON == 0:
            self.did["poison"] += 1
            raise Failed("poison")
        of = (job.group, uid)
        draw = Random(f"{self.seed} {of} {self.troubled[of]} {self.did.total()}").random()
        await asyncio.sleep(draw * 0.05)
        if draw > 0.3 or self.troubled[of] == TROUBLES_MAX:
            return Status.CONTINUE
        self.troubled[of] += 1
        kind = ("fails", "raises", "slow", "too slow", "later")[int(draw * 1000) % 5]
        self.did[kind] += 1
        if kind == "fails":
            raise Failed("not now")
        if kind == "raises":
            raise RAISED[self.did[kind] % len(RAISED)]("not now")
        if kind == "later":
            raise RetryLater(20)
        await asyncio.sleep(TIME_LIMIT_MS * (2 if kind == "too slow" else 0.5) / 1000)
        return Status.CONTINUE


class SimRedisServer(asyncio.Protocol):
    """A Redis at an address of the simulated network; one round trip per connection.

    It cuts connections before or after it carried out what was asked for, is slow, silent, or without memory.
    """

    def __init__(self, memory: MemoryRedis, random: Random, did: Counter[str], perfect: Callable[[], bool]) -> None:
        self._memory = memory
        self._random = random
        self._did = did
        self._perfect = perfect
        self._got = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        # Also at a kill of the node, with what lay in its pipe, when no loop runs.
        self._got += data
        size = int.from_bytes(self._got[:4], "big")
        if len(self._got) < 4 + size:
            return
        commands: list[Words] = pickle.loads(bytes(self._got[4 : 4 + size]))
        draw = 1.0 if self._perfect() else self._random.random()
        if draw < 0.05:
            self._did["cut"] += 1
            self._transport.abort()
            return
        if draw < 0.08:
            self._did["full"] += 1
            self._answer([CommandRefused("OOM command not allowed")] * len(commands))
            return
        self._at_work = self._loop.create_task(self._work(commands, draw))

    async def _work(self, commands: list[Words], draw: float) -> None:
        answers = await self._memory.round_trip(commands)
        if draw < 0.14:
            self._did["answer lost"] += 1
            self._transport.abort()
        elif draw < 0.16:
            self._did["silent"] += 1
        elif draw < 0.3:
            self._did["slow"] += 1
            asyncio.get_running_loop().call_later(self._random.random() * 0.3, self._answer, answers)
        else:
            self._answer(answers)

    def _answer(self, answers: Sequence[Any]) -> None:
        raw = pickle.dumps(answers)
        self._transport.write(len(raw).to_bytes(4, "big") + raw)


class _Trip(asyncio.Protocol):
    """The client's end of a round trip."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._got = bytearray()

    def data_received(self, data: bytes) -> None:
        self._got += data
        size = int.from_bytes(self._got[:4], "big")
        if len(self._got) >= 4 + size and not self.answer.done():
            self.answer.set_result(pickle.loads(bytes(self._got[4:])))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(ServerAway("connection lost"))


class SimRedisLink:
    """What the sink is given: a connection per round trip, over the simulated network."""

    def __init__(self, network: SimNetwork, wish: RedisWish) -> None:
        self._network = network
        self._wish = wish

    async def round_trip(self, commands: Sequence[Words]) -> list[Any]:
        """As `RedisLink`."""
        trip = _Trip()
        transport = self._network.connect(trip, (self._wish.host, self._wish.port), host="10.0.0.9")
        if transport is None:
            raise ServerAway("connection refused")
        raw = pickle.dumps(list(commands))
        transport.write(len(raw).to_bytes(4, "big") + raw)
        try:
            async with asyncio.timeout(self._wish.timeout_seconds):
                answers: list[Any] = await trip.answer
                return answers
        except TimeoutError as error:
            raise ServerAway("no answer in time") from error
        finally:
            transport.abort()

    async def renew(self) -> None:
        """Nothing stays open."""

    async def close(self) -> None:
        """Nothing stays open."""


def configuration() -> dict[str, Any]:
    """Both groups, in YAML's names."""
    options = {
        "Troubles": {"timeLimit": TIME_LIMIT_MS},
        "Redis": {
            "hosts": [f"{HOST}:{PORT}"],
            "once": True,
            "timeout": 400,
            "commands": [["RPUSH", "list:${key}", "${$.uid}"], ["INCR", "count"]],
        },
        "File": {"url": OUT, "path": "${topic}", "flushMs": 10, "rotateMessages": 20},
    }
    wanted = settings()
    wanted["topics"] = {"orders": {"queues": 2}}
    wanted["groups"] = []
    for group, sink in ((REDIS, "Redis"), (FILE, "File")):
        abrupt, troubles = f"{__name__}:Abrupt", f"{__name__}:Troubles"
        wanted["groups"].append(
            {
                "group": group,
                "topics": [
                    {
                        "topic": "orders",
                        "orderKey": "KEY",
                        "actions": ["Async", abrupt, troubles, sink],
                        "maxRetry": TRIES - 1,
                        "retryIntervals": [20] * (TRIES - 1),
                        "options": {troubles: options["Troubles"], sink: options[sink]},
                    }
                ],
            }
        )
    return wanted


class Sinking:
    """One seeded run.

    Attributes:
        world: Node, network and disk.
        redis: What is in the Redis server.
        did: What the server did.
        sent: Of each key the numbers of its messages, in their order.
        perfect: Whether the server does what it is asked for.
    """

    def __init__(self, seed: int) -> None:
        self.world = World(seed, faults=NetworkFaults(reset_share=0.003))
        world = self.world
        world.registry = Registry(outside=Outside(random=Random(f"outside {seed}"), redis=self._link))
        world.config = world.load(configuration()).config
        self.redis = MemoryRedis()
        self.did: Counter[str] = Counter()
        self.perfect = False
        self.sent: dict[str, list[int]] = {}
        self.random = Random(f"sinking {seed}")
        self._caller = Caller(world, "10.9.0.1")
        self._uid = 0
        Troubles.seed = seed
        Troubles.troubled.clear()
        Troubles.did.clear()
        Abrupt.raised.clear()
        habits = Random(f"redis {seed}")
        listening = world.network.listen(
            lambda: SimRedisServer(self.redis, habits, self.did, lambda: self.perfect), HOST, PORT, backlog=128
        )
        task = Process("redis").run(world.loop.create_task, listening)
        world.run(until=task.done, seconds=5)

    def _link(self, wish: RedisWish) -> RedisLink:
        return SimRedisLink(self.world.network, wish)

    def send(self, count: int) -> None:
        """Publish so many messages."""
        for _ in range(count):
            key = f"k{self.random.randrange(KEYS)}"
            self._uid += 1
            faults, self.world.network.faults = self.world.network.faults, NetworkFaults()
            self._caller.send("orders", key, uid=self._uid)
            self.world.network.faults = faults
            self.sent.setdefault(key, []).append(self._uid)

    def again(self) -> None:
        """Kill the node, perhaps with the power, and start it anew."""
        self.world.kill(power=self.random.random() < 0.5)
        self.world.start()
        self._caller = self._caller.other()

    def settle(self) -> None:
        """Wait until everything has its outcome, and hold it against what was sent; raises PromiseBroken."""
        self.perfect = True
        self.world.network.faults = NetworkFaults()
        node = self.world.node
        assert node is not None

        def over() -> bool:
            return not any(node.in_force.groups[group].stats(details_max=0).topics[0].lag for group in (REDIS, FILE))

        if not self.world.run(until=over, seconds=600):
            raise PromiseBroken(2, "not all was consumed")
        # A life that has no message for a sink looks after the files of those before it, too.
        self.world.run(seconds=LOOK_SECONDS + 1)
        self.world.stop()
        letters = self._letters()
        self._check(REDIS, self._in_redis(), letters[REDIS])
        self._check(FILE, self._in_files(), letters[FILE])
        if int(self.redis.data.get(b"count", b"0")) != sum(len(each) for each in self._in_redis().values()):
            raise PromiseBroken(2, "a second effect, or half of one")

    def _check(self, group: str, found: dict[str, list[int]], dead: set[int]) -> None:
        """Hold what a sink has of each key, in its order, and the group's dead letters against what was sent."""
        for key, sent in self.sent.items():
            wanted = [uid for uid in sent if uid % POISON]
            if found.get(key, []) != wanted:
                raise PromiseBroken(3, f"{group} {key}: {found.get(key)} came of {wanted}")
        poison = {uid for sent in self.sent.values() for uid in sent if uid % POISON == 0}
        if dead != poison:
            raise PromiseBroken(6, f"{group}: dead letters {sorted(dead)} and not {sorted(poison)}")

    def _in_redis(self) -> dict[str, list[int]]:
        lists = {name.decode(): raw for name, raw in self.redis.data.items() if name.startswith(b"list:")}
        return {name.removeprefix("list:"): [int(each) for each in raw] for name, raw in lists.items()}

    def _in_files(self) -> dict[str, list[int]]:
        disk, folder = self.world.disk, f"{OUT}/orders"
        lines: list[tuple[str, int, dict[str, Any]]] = []
        for name in disk.list(folder):
            assert not name.startswith("."), "a node that stops closes its files"
            file = disk.open(f"{folder}/{name}")
            for number, line in enumerate(file.read(0, file.size()).splitlines()):
                message = json.loads(line)
                lines.append((name, number, message))
        found: dict[str, list[int]] = {}
        for _, _, message in sorted(lines, key=lambda each: each[:2]):
            found.setdefault(message["key"], []).append(message["body"]["uid"])
        return found

    def _letters(self) -> dict[str, set[int]]:
        world = self.world
        runtime: dict[str, Any] = {"disk": world.disk, "clock": world.clock, "random": Random(0), "metrics": Metrics()}
        store = Store.open(DATA, options=store_options(settings()), features=ALL, **runtime)
        try:
            found: dict[str, set[int]] = {REDIS: set(), FILE: set()}
            for letter in dead_letters(store):
                found[letter.group].add(letter.uid)
            return found
        finally:
            store.close()
