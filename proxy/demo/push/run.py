"""One run: a node in this process, the events to its topic, and a receiver at two URLs that misbehaves.

All of it is in one event loop that skips waits (`SkippingLoop`), over real sockets: back-offs of seconds, silences and
slow replies cost nothing.

The first URL is down from a share of the events on until the node has put it out. The last events are sent when it may
be probed, so that it comes in again however fast or slow the machine is.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from actions.outside import Outside
from actions.registry import Registry
from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from conf import loads
from proxy.demo.checker import Checker, Findings, Tamper
from proxy.demo.events import Event
from proxy.demo.lag.skipping import SkippingClock, SkippingLoop
from proxy.demo.push.receiver import Receiver
from proxy.demo.report import Check, Judged
from proxy.node.node import Node
from proxy.node.parts import Seams
from proxy.port.network import AsyncioNetwork
from pyddmq.client.aio.async_producer import AsyncProducer
from pyddmq.client.sends import OutgoingMessage
from upstream.views import SubscriptionView, TargetView

TOPIC = "permits"
GROUP = "permits-push"
BATCH = 64
TIMEOUT_MS = 1000
DOWN_AT, HELD_AT = 0.3, 0.8
"""Shares of the events: done when the first URL goes down, and sent before the others wait for it to be probed."""
POLL_SECONDS = 0.05
QUIET_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport(Judged):
    """The outcome of a run.

    Attributes:
        events: Events sent.
        requests: Requests that the receiver had.
        did: What it did with them, by name.
        counted: What the action counted of its own.
        seconds: How long all took, those included that were skipped.
    """

    events: int
    requests: int
    did: dict[str, int]
    counted: dict[str, int]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            **self.verdict(),
            "events": self.events,
            "requests": self.requests,
            "receiver": self.did,
            "action": self.counted,
            "seconds": round(self.seconds, 3),
        }


def run_push(
    folder: str, run: str, events: Sequence[Event], *, spoil: str | None = None, told: Callable[[int], None]
) -> PushReport:
    """Push all events and judge what the receiver saw.

    Args:
        folder: An empty folder for the node's data.
        run: Run id.
        events: In the order in which they are sent.
        spoil: As `Tamper` takes it.
        told: Is told now and then how many events are done.

    Raises:
        StoreError, OSError: The folder cannot be used.
        ValueError: The run is too short for what is to be spoilt.
    """
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(_Run(folder, run, events, spoil, told).run())


@dataclass(slots=True)
class _Run:
    folder: str
    name: str
    events: Sequence[Event]
    spoil: str | None
    told: Callable[[int], None]
    ports: list[int] = field(default_factory=list)

    async def run(self) -> PushReport:
        loop = asyncio.get_running_loop()
        key = secrets.token_hex(16)
        (Path(self.folder) / "push.key").write_text(key)
        checker = Checker(self.events)
        tamper = Tamper(self.spoil, self.events, checker)
        receiver = Receiver(self.name, self.events, tamper, key=key.encode(), silence_seconds=TIMEOUT_MS * 3 / 1000)
        runners = [await self._serve(handler) for handler in (receiver.first, receiver.second)]
        node = await self._node(loop)
        began = loop.time()
        try:
            async with asyncio.TaskGroup() as working:
                working.create_task(self._send(node, tamper, receiver))
                working.create_task(self._watch(node, tamper))
            seconds = loop.time() - began
            view = node.groups[GROUP].stats(details_max=0)
        finally:
            await node.stop(drain_seconds=0)
            for runner in runners:
                await runner.cleanup()
        counted = _counted(node)
        return PushReport(
            run=self.name,
            checks=_checks(checker, receiver, counted, view.topics[0], dead_letters=_dead_letters(node)),
            events=len(self.events),
            requests=sum(receiver.did.values()),
            did=dict(receiver.did.most_common()),
            counted=counted,
            seconds=seconds,
        )

    async def _serve(self, handler: Callable[..., Any]) -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.ports.append(runner.addresses[0][1])
        return runner

    async def _node(self, loop: asyncio.AbstractEventLoop) -> Node:
        registry = Registry(outside=Outside(random=random.Random(15)))
        config = loads(configuration(self.folder, self.ports), file="demo.yaml", actions=registry).config
        clock = SkippingClock(loop, SystemClock().wall_ms())
        seams = Seams(loop=loop, clock=clock, disk=RealDisk(), randomness=random.Random(15), network=AsyncioNetwork())
        node = Node(config, seams=seams, registry=registry)
        await node.start()
        return node

    async def _send(self, node: Node, tamper: Tamper, receiver: Receiver) -> None:
        """Send the events; the last of them when the first URL was down and may be probed."""
        total = len(self.events)
        held = int(total * HELD_AT)
        receiver.down_from(math.ceil(DOWN_AT * total))
        async with AsyncProducer(f"127.0.0.1:{node.producer.address[1]}") as producer:
            await self._send_some(producer, self.events[:held])
            await _until(lambda: _first_url(node).state != "closed" or not _lag(node))
            receiver.up()
            await _until(lambda: not _lag(node))
            await _until(lambda: (_first_url(node).probe_ms or 0) <= node.seams.clock.wall_ms())
            await self._send_some(producer, self.events[held:])

    async def _send_some(self, producer: AsyncProducer, events: Sequence[Event]) -> None:
        for start in range(0, len(events), BATCH):
            sent = events[start : start + BATCH]
            messages = [OutgoingMessage(topic=TOPIC, body=each.body(self.name), key=each.case) for each in sent]
            await producer.send_batch(messages)

    async def _watch(self, node: Node, tamper: Tamper) -> None:
        """Say how far it is, until all is done or nothing happens any more."""
        loop = asyncio.get_running_loop()
        total, done, since = len(self.events), -1, loop.time()
        while _lag(node) or tamper.done_count < total:
            if done != tamper.done_count:
                done, since = tamper.done_count, loop.time()
                self.told(done)
            elif loop.time() - since > QUIET_SECONDS:
                return
            await asyncio.sleep(POLL_SECONDS)


async def _until(holds: Callable[[], bool]) -> None:
    # The node tells nobody of this; it is looked at from outside.
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)


def _lag(node: Node) -> int:
    return node.groups[GROUP].stats(details_max=0).topics[0].lag or 0


def _first_url(node: Node) -> TargetView:
    push = node.groups[GROUP].stats(details_max=0).topics[0].push
    assert push is not None, "the group pushes"
    return push.urls[0]


def configuration(folder: str, ports: Sequence[int]) -> str:
    """Return the node's configuration, as YAML; docs/actions-push.md shows it."""
    first, second = ports
    return f"""
node: {{producerPort: 0, consumerPort: 0, data: {folder + "/data"!r}, flush: async}}
topics:
  {TOPIC}: {{queues: 4}}
groups:
  - group: {GROUP}
    topics:
      - topic: {TOPIC}
        orderKey: KEY
        actions: [Async, AsyncHttp]
        urls: ["http://127.0.0.1:{first}/permits", "http://127.0.0.1:{second}/permits"]
        httpMaxTps: 2000
        timeout: {TIMEOUT_MS}
        maxRetry: -1
        retryIntervals: [50, 200, -1]
        options:
          AsyncHttp:
            signature: {{keyId: demo, secret: {{file: {folder + "/push.key"!r}}}}}
            breaker: {{failures: 5, openMs: 500, openMsMax: 2000}}
"""


def _counted(node: Node) -> dict[str, int]:
    found = {}
    for spec, labels, count in node.runtime.metrics:
        if spec.name == "pyddmq_action_events_total" and labels[2] == "AsyncHttp":
            found[labels[3]] = round(count)
    return dict(sorted(found.items()))


def _dead_letters(node: Node) -> int:
    return sum(round(count) for spec, _, count in node.runtime.metrics if spec.name == "pyddmq_dead_letters_total")


def _checks(
    checker: Checker, receiver: Receiver, counted: dict[str, int], topic: SubscriptionView, *, dead_letters: int
) -> tuple[Check, ...]:
    breaker, lost = Findings(), Findings()
    if not counted.get("url_out") or not counted.get("url_in"):
        breaker.add(f"out {counted.get('url_out', 0)} times, in {counted.get('url_in', 0)} times")
    for url in topic.push.urls if topic.push is not None else ():
        if url.state != "closed":
            breaker.add(f"{url.url} is {url.state} at the end")
    if topic.lag or dead_letters:
        lost.add(f"{topic.lag} not consumed, {dead_letters} dead letters")
    return (
        Check(name="delivery", promise="every event was pushed and taken", findings=checker.missing()),
        Check(name="order", promise="every case came in order, one event at a time", findings=checker.order),
        Check(name="retry", promise="what failed came again in its place", findings=checker.unretried()),
        Check(name="consumed", promise="nothing is left, and nothing was given up", findings=lost),
        Check(name="signed", promise="every request was signed", findings=receiver.forged),
        Check(name="breaker", promise="the URL that was down went out, and came in again", findings=breaker),
    )
