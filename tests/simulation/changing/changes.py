"""Changes of the configuration in the middle of everything, each by a reload that lasts over restarts.

Topics get more queues; a group comes that begins at the end of its topics; another one pushes for a while what its
clients had; actions are slow to open and to close, or do not open. Consumers inside the program, which began at the
end, too, are judged by what they got: they miss nothing, and the orderly ones get each queue in its order.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from aiohttp import web

from broker.consumer import ConcurrentStatus, ConsumedMessage, Consumers, OrderlyStatus
from broker.consumer.options import ConsumerOptions
from broker.format.properties import parse_properties
from broker.format.record import split
from broker.runtime.rate_limited_log import RateLimitedLog
from proxy.node.node import Node
from pyddmq.testing import Process
from tests.fakes.http import serve_http
from tests.insides import opened_of
from tests.simulation.ledger import Place, PromiseBroken
from tests.simulation.operator import now
from tests.simulation.stored import QID_PREFIX
from tests.simulation.waiting import Opens
from tests.simulation.world import LATE, LATE_TOPICS, OPENS_SLOWLY, PUSHES, RULES, TIMEOUT_MS, Edit, World
from upstream.embedded.queues import offsets_of

HOSTS = ("10.0.0.50", "10.0.0.51")
PUSHED = "by-key"
OPENS = "tests.simulation.waiting:Opens"
QUEUES_MAX = 12
INSIDE = "inside"
LOOK_SECONDS = 0.01
DRAIN_SECONDS = 1
"""Less than the timeout: a generation may end while its messages are out."""
ASKED_SECONDS = 0.1
"""How much earlier than it is read a request may have been sent."""
ORDERED, ANY = "orderly", "concurrent"


class Changing:
    """What runs about changes have besides: a receiver of pushes, and consumers inside the program."""

    def __init__(self, world: World) -> None:
        self.world = world
        Opens.begin(world.seed, world.report_broken)
        # The topics are empty yet.
        world.edits["from the end"] = partial(_from_the_end, "by-path")
        world.config = world.load(world.settings()).config
        self.receiver = Receiver(world)
        self.consumers = InsideConsumers(world)
        world.inside.append(self.consumers)

    def end(self) -> None:
        """No more bad habits, and every group is there."""
        self.receiver.perfect = True
        if self.world.node is None:
            self.world.start()
        add_group(self.world, Random(0))

    def check(self) -> None:
        """Hold what consumers inside got against the log. Raises PromiseBroken."""
        if not self.world.run(seconds=120, until=lambda: not self.consumers.missing()):
            raise PromiseBroken(6, f"consumers inside never got {self.consumers.missing()}")


def _from_the_end(group: str, settings: dict[str, Any]) -> None:
    [found] = [each for each in settings["groups"] if each["group"] == group]
    for topic in found["topics"]:
        topic["consumeFromWhere"] = "last"


class InsideConsumers:
    """Two orderly consumers of one group, and a concurrent one of another; they begin at the end.

    Attributes:
        got: By group and queue the offsets that listeners took, in their order; repeats are left out.
    """

    def __init__(self, world: World) -> None:
        self.got: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        self._world = world
        self._random = Random(f"inside {world.seed}")
        self._consumers: Consumers | None = None

    def serves(self, node: Node) -> None:
        """Begin to consume."""
        opened, seams = opened_of(node), node.parts.seams
        consumers = self._consumers = Consumers.open(
            opened.store,
            disk=seams.disk,
            clock=seams.clock,
            scheduler=self._world.loop,
            metrics=node.runtime.metrics,
            limited_log=RateLimitedLog(seams.clock),
            offsets=offsets_of(opened.progress),
        )
        topics, options = dict.fromkeys(LATE_TOPICS, "*"), ConsumerOptions(from_where="last", suspend_ms=50)
        for number in range(2):
            consumers.orderly(
                f"{INSIDE}-{ORDERED}", topics, partial(self._take, ORDERED), client_id=f"{number}", options=options
            ).start()
        consumers.concurrent(f"{INSIDE}-{ANY}", topics, partial(self._take, ANY), options=options).start()

    def stops(self) -> None:
        """End them."""
        if self._consumers is not None:
            self._consumers.close()

    def _take(self, kind: str, messages: Sequence[ConsumedMessage], context: object) -> Any:
        if kind == ORDERED and self._random.random() < 0.02:
            return OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        for each in messages:
            got = self.got[kind, each.topic, each.queue_id]
            if not got or each.offset > got[-1]:
                got.append(each.offset)
            elif each.offset not in got:
                if kind == ORDERED:
                    self._world.report_broken(PromiseBroken(3, f"inside: {each.offset} came after {got[-1]}"))
                got.append(each.offset)
        self._world.report.events["inside"] += len(messages)
        return OrderlyStatus.SUCCESS if kind == ORDERED else ConcurrentStatus.SUCCESS

    def missing(self) -> dict[str, list[int]]:
        """Return what was stored, by kind and queue, and did not come."""
        assert self._world.node is not None
        store, found = opened_of(self._world.node).store, {}
        for topic in LATE_TOPICS:
            for queue in store.topics[topic].queues:
                for kind in (ORDERED, ANY):
                    left = set(range(queue.max_offset)) - set(self.got[kind, topic, queue.queue_id])
                    if left:
                        found[f"{kind} {topic} {queue.queue_id}"] = sorted(left)
        return found


class Receiver:
    """Takes what the group by key pushes, at two addresses, and enters it in the ledger as a client does."""

    def __init__(self, world: World) -> None:
        self.perfect = False
        self._world = world
        self._random = Random(f"receiver {world.seed}")
        process = Process("receiver")
        for host in HOSTS:
            task = process.run(world.loop.create_task, serve_http(world.network, self.handle, host, 80))
            world.run(until=task.done, seconds=5)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        body, world = await request.read(), self._world
        host = f"{request.url.host}"
        if world.node is None:
            return web.Response(status=503)
        headers = request.headers
        place = Place(headers["Pyddmq-Topic"], headers["Pyddmq-Qid"], int(headers["Pyddmq-Offset"]))
        stamp = now(world)
        of = stamp._replace(asked=0, asked_time=stamp.time - ASKED_SECONDS)
        try:
            uid = _uid_at(world.node, place)
            publish = world.ledger.publishes[uid]
            key = headers.get("Pyddmq-Key", "")
            world.ledger.delivered(PUSHED, place, host, of, uid=uid, key=key, tag=publish.tag, body=body)
        except PromiseBroken as broken:
            world.report_broken(broken)
        world.report.events["pushed"] += 1
        draw = 1.0 if self.perfect else self._random.random()
        seconds = RULES["timeout"] * 2 if draw < 0.03 else draw * 0.05
        life, end, given_up = world.ledger.life, world.loop.time() + seconds, math.inf
        while world.loop.time() < min(end, given_up):
            await asyncio.sleep(LOOK_SECONDS)
            if request.transport is None or world.ledger.life != life:
                break
            if PUSHES not in world.edits:
                # The generation that pushed drains; then what it has out is given up.
                given_up = min(given_up, world.loop.time() + DRAIN_SECONDS - ASKED_SECONDS)
        if world.ledger.life != life:
            return web.Response(status=503)
        success = draw >= 0.15 and request.transport is not None
        world.ledger.answered(PUSHED, place, host, now(world), success, of, named=True)
        if not success:
            return web.Response(status=500) if draw < 0.1 else web.json_response({"errno": 3})
        return web.json_response({"errno": 0})


def _uid_at(node: Node, place: Place) -> int:
    store = opened_of(node).store
    queue = store.topics[place.topic].queues[int(place.qid.rpartition("_")[2])]
    [(physical, size, _)] = queue.read(place.offset, 1)
    return int(parse_properties(bytes(split(store.read(physical, size))[1]))["uid"])


# The changes


def widen_topic(world: World, random: Random) -> None:
    """Give a topic up to three queues more."""
    topic, more = random.choice(LATE_TOPICS), random.randrange(1, 4)
    count = min(len(opened_of(_node(world)).store.topics[topic].queues) + more, QUEUES_MAX)

    def widen(settings: dict[str, Any]) -> None:
        settings["topics"][topic]["queues"] = count

    _change(world, f"queues of {topic}", widen)


def add_group(world: World, random: Random) -> None:
    """A group comes that begins at the end of its topics; once."""
    if LATE in world.edits:
        return
    keyed = {"timeout": TIMEOUT_MS, "maxRetry": 3, "retryIntervals": [60, 250], "maxPullBatchSize": 8}
    topics = [{"topic": topic, "orderKey": "KEY", "consumeFromWhere": "last", **keyed} for topic in LATE_TOPICS]
    _change(world, LATE, lambda settings: settings["groups"].append({"group": LATE, "topics": topics}))
    for topic in LATE_TOPICS:
        queues = opened_of(_node(world)).store.topics[topic].queues
        to = {f"{QID_PREFIX}{each.queue_id}": each.max_offset for each in queues}
        world.ledger.reset(LATE, topic, to, now(world))
    for _ in range(2):
        world.add_consumer(LATE)


def push_or_pull(world: World, random: Random) -> None:
    """The group by key is pushed, or pulled again; what clients hold, and what waits for a retry, stays so."""
    pushes = {
        "actions": ["Async", "AsyncHttp"],
        "urls": [f"http://{host}:80/hook" for host in HOSTS],
        "options": {"AsyncHttp": {"breaker": {"failures": 0}}},
    }
    if world.edits.pop(PUSHES, None) is not None:
        _reload(world)
        return
    _change(world, PUSHES, lambda settings: settings["groups"][0]["topics"][0].update(pushes))


def open_slowly(world: World, random: Random) -> None:
    """Groups get, or lose, an action that takes its time to open and to close, and some times does not open."""
    wanted = [[OPENS] * random.randrange(3) for _ in range(2)]

    def change(settings: dict[str, Any]) -> None:
        for group, more in zip(settings["groups"][1:3], wanted, strict=True):
            for topic in group["topics"]:
                actions = topic.get("actions", ["PullServer"])
                topic["actions"] = [*actions[:-1], *more, actions[-1]]

    _change(world, OPENS_SLOWLY, change)


def _change(world: World, name: str, edit: Edit) -> None:
    world.edits[name] = edit
    _reload(world)


def _reload(world: World) -> None:
    result = world.reload()
    if not result.accepted:
        raise PromiseBroken(7, f"a good reload was refused: {result.problems}")


def _node(world: World) -> Node:
    assert world.node is not None
    return world.node


CHANGES: dict[str, Callable[[World, Random], None]] = {
    each.__name__: each for each in (widen_topic, add_group, push_or_pull, open_slowly)
}
