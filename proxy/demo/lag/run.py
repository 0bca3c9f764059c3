"""One run: a node in this process, the events to its topic, a consumer per group, and an operator.

All of it is in one event loop that skips waits (`SkippingLoop`): twelve minutes pass in seconds. The wall clock
begins so far in the past that the run ends about now.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import selectors
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

from actions.registry import Registry
from broker.runtime.disk import RealDisk
from broker.runtime.seams import Clock, SystemClock
from conf import loads
from lag.journal.writer import FOLDER
from lag.rules.statuses import SEVERITY
from proxy.demo.events import DemoEvent, read_body
from proxy.demo.lag.stages import (
    AWAY,
    BY_GROUP,
    EVENTS_PER_SECOND,
    PAUSE_AT,
    QUEUES,
    QUICK,
    RESET_AT,
    SECONDS,
    STAGES,
    TOPIC,
    configuration,
    is_poisoned,
    pace_of,
    poison_case,
)
from proxy.node.node import Node
from proxy.node.parts import Seams
from proxy.operate.changes.groups import PauseBody
from proxy.operate.changes.node import node_changes
from proxy.operate.changes.offsets import ResetBody
from proxy.operate.lookups.lag import lag_of
from proxy.operate.views.lag import LagAnswer
from proxy.port.network import AsyncioNetwork
from pyddmq.client.aio.async_consumer import AsyncConsumer
from pyddmq.client.aio.async_producer import AsyncProducer
from pyddmq.client.sends import OutgoingMessage

# An event loop that skips waits: minutes of a node and its clients, over real sockets, pass in seconds.
#
# When nothing is ready, the loop's time continues to its next timer at once. It works where all parties live in one
# loop, and nothing comes from threads or other processes: those would not be waited for.


class _Selector(selectors.DefaultSelector):
    """Asks once what is ready, and has the wait skipped where nothing is.

    Attributes:
        skipped: How much was, in seconds.
    """

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.skipped += timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._own = _Selector()
        super().__init__(self._own)

    def time(self) -> float:
        """Seconds: those of the machine, and those that were skipped."""
        return super().time() + self._own.skipped


class SkippingClock:
    """`broker.runtime.seams.Clock` by such a loop.

    Args:
        loop: The loop.
        wall_ms: The wall clock now, in Unix ms.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_ms: int) -> None:
        self._loop = loop
        self._base_us = wall_ms * 1000 - round(loop.time() * 1_000_000)

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self.wall_us() // 1000

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return self._base_us + round(self._loop.time() * 1_000_000)

    def monotonic(self) -> float:
        """Seconds: the loop's time."""
        return self._loop.time()

    def since_boot(self) -> float:
        """As `monotonic`."""
        return self._loop.time()

    def sleep(self, seconds: float) -> None:
        """Wait in real time: a blocking call skips nothing."""
        SystemClock().sleep(seconds)


Verdict = tuple[str, str | None]
"""A group's status and cause: those of its worst queue."""
_LOOK_SECONDS = 30.0
_LINGER_MS = 50
_PAUSE_SECONDS = 1.0
_BATCH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRun:
    """What a run left.

    Attributes:
        from_ms: When the first event was sent, in Unix ms.
        to_ms: When it ended.
        journal: The folder of the node's lag journal.
        live: What the node said at the end.
        seen: Of each group, what the node said of it, without repeats.
    """

    from_ms: int
    to_ms: int
    journal: str
    live: LagAnswer
    seen: dict[str, list[Verdict]]


def verdicts(answer: LagAnswer) -> dict[str, Verdict]:
    """Return status and cause of each group."""
    found: dict[str, Verdict] = {}
    for queue in sorted(answer.queues, key=lambda each: (SEVERITY[each.status], each.lag or 0)):
        found[queue.group] = queue.status, queue.cause
    return found


def run_stages(
    data: str,
    events: Sequence[DemoEvent],
    *,
    broken: Collection[str] = (),
    reported: Callable[[float], None] = lambda _: None,
) -> LagRun:
    """Run a node through all stages.

    Args:
        data: An empty folder for its data.
        events: In the order in which they are sent.
        broken: Groups whose staging is left out.
        told: Called now and then with the seconds that have passed, of `SECONDS`.

    Raises:
        StoreError, OSError: The folder cannot be used.
    """
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(_LagDemo(data, events, broken, reported).run())


@dataclass(slots=True)
class _LagDemo:
    data: str
    events: Sequence[DemoEvent]
    broken: Collection[str]
    reported: Callable[[float], None]
    began: float = 0.0
    seen: dict[str, list[Verdict]] = field(default_factory=lambda: {each.group: [] for each in STAGES})

    async def run(self) -> LagRun:
        loop = asyncio.get_running_loop()
        clock = SkippingClock(loop, SystemClock().wall_ms() - SECONDS * 1000)
        node = await self._node(loop, clock)
        self.began, from_ms = loop.time(), clock.wall_ms()
        consumer, producer = (f"127.0.0.1:{server.address[1]}" for server in (node.consumer, node.producer))
        clients = [asyncio.create_task(self._consume(stage.group, consumer)) for stage in STAGES]
        try:
            async with asyncio.TaskGroup() as working:
                for work in (self._send(producer), self._operate(node), self._look(node)):
                    working.create_task(work)
            live, journal = lag_of(node, limit=1_000), f"{self.data}/{FOLDER}"
            return LagRun(from_ms=from_ms, to_ms=clock.wall_ms(), journal=journal, live=live, seen=self.seen)
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
            await node.stop(drain_seconds=0)

    async def _node(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> Node:
        registry = Registry()
        config = loads(configuration(self.data), file="demo.yaml", actions=registry).config
        seams = Seams(loop=loop, clock=clock, disk=RealDisk(), randomness=random.Random(14), network=AsyncioNetwork())
        node = Node(config, seams=seams, registry=registry)
        await node.start()
        return node

    def _seconds(self) -> float:
        return asyncio.get_running_loop().time() - self.began

    async def _send(self, address: str) -> None:
        """Publish a second's events every second."""
        async with AsyncProducer(address) as producer:
            for second in range(SECONDS):
                await asyncio.sleep(self.began + second - asyncio.get_running_loop().time())
                sent = self.events[second * EVENTS_PER_SECOND : (second + 1) * EVENTS_PER_SECOND]
                if sent:
                    messages = [OutgoingMessage(topic=TOPIC, body=each.body("lag"), key=each.case) for each in sent]
                    await producer.send_batch(messages)

    async def _consume(self, group: str, address: str) -> None:
        """Work off what comes, at the group's pace, until cancelled."""
        poison = poison_case(self.events) if group == "poison" and group not in self.broken else None
        async with AsyncConsumer(address, group, TOPIC, batch_size=_BATCH, linger_ms=_LINGER_MS) as consumer:
            while True:
                pace = pace_of(group, self._seconds(), self.broken)
                if pace == AWAY:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                # Work is taken from all queues at once: no consumer is to seem absent from one of them.
                batch = [message for _ in range(QUEUES) for message in await consumer.pull(patience_ms=10_000)]
                if pace != QUICK:
                    await asyncio.sleep(len(batch) / pace)
                for message in batch:
                    seen = read_body(message.body)
                    if poison is not None and seen is not None and is_poisoned(self.events[seen.sequence], poison):
                        consumer.fail(message)
                    else:
                        consumer.ack(message)
                if len(batch) < _BATCH or pace != QUICK:
                    await consumer.flush()
                    await asyncio.sleep(_PAUSE_SECONDS if pace == QUICK else 0)

    async def _operate(self, node: Node) -> None:
        """Pause one group, and reset another one."""
        await asyncio.sleep(PAUSE_AT - self._seconds())
        if "paused" not in self.broken:
            await _change(node, "pause", PauseBody(group="paused"))
        await asyncio.sleep(RESET_AT - self._seconds())
        if "reset" not in self.broken:
            body = ResetBody(group="reset", topic=TOPIC, to="earliest", dry_run=False)
            await _change(node, "reset_offsets", body)

    async def _look(self, node: Node) -> None:
        """Ask the node every half minute, as its admin port would be asked."""
        while (left := SECONDS - self._seconds()) > 0:
            await asyncio.sleep(min(_LOOK_SECONDS, left))
            self.reported(self._seconds())
            for group, verdict in verdicts(lag_of(node, limit=1_000)).items():
                if group in BY_GROUP and self.seen[group][-1:] != [verdict]:
                    self.seen[group].append(verdict)


def scratch_folder() -> TemporaryDirectory[str]:
    """Return a folder for a run's data, in memory where there is such a place: a run syncs it thousands of times."""
    memory = "/dev/shm"
    return TemporaryDirectory(prefix="pyddmq-demo-", dir=memory if os.access(memory, os.W_OK) else None)


async def _change(node: Node, name: str, body: Any) -> None:
    [change] = [each for each in node_changes(node) if each.name == name]
    answer = change.run(body)
    if inspect.isawaitable(answer):
        await answer
