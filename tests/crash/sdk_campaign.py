"""Kills of a real node under clients that behave as DDMQ's own libraries do.

The node keeps its ports over its lives, as a real one does, so clients come while it recovers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pyddmq import Producer
from tests.crash.process import NodeProcess
from tests.fakes.sdk import CONSUMERS, PRODUCERS, Account, Channel, SdkConsumer, SdkProducer, Surroundings
from tests.fakes.sdk.account import Message
from tests.fakes.sdk.channel import Address, Gone, connect_sockets
from tests.patient import PATIENCE_SECONDS, quiet_ports

TOPIC, GROUP = "orders", "billing"
EACH = 2
"""Producers and consumers of each library."""
KEYS_EACH = 10
"""Keys of a producer."""
HASTE = 5.0
"""The libraries' pauses are this much shorter, so that a run is spent with work."""
RESENDS = 1_000_000
MONTH_MS = 30 * 86_400_000

SETTINGS: dict[str, Any] = {
    "node": {"segmentBytes": 1_048_576, "queueFileUnits": 1_000, "ackSegmentBytes": 65_536, "maxMessageBytes": 50_000},
    "topics": {TOPIC: {"queues": 4}},
    "groups": [
        {
            "group": GROUP,
            "topics": [
                {
                    "topic": TOPIC,
                    "orderKey": "KEY",
                    "timeout": 3000,
                    "maxRetry": -1,
                    "retryIntervals": [100, -1],
                    "maxPullBatchSize": 8,
                }
            ],
        }
    ],
}


class FixedNode(NodeProcess):
    """A node that listens on the same ports in all its lives."""

    def __init__(self, folder: Path) -> None:
        self.ports = quiet_ports(3)
        super().__init__(folder, SETTINGS)

    def configure(self, settings: dict[str, Any]) -> None:
        """Write the configuration with the ports."""
        super().configure(settings)
        producer, consumer, admin = self.ports
        text = self._config.read_text()
        for name, port in (("producerPort", producer), ("consumerPort", consumer), ("adminPort", admin)):
            text = text.replace(f"{name}: 0\n", f"{name}: {port}\n")
        self._config.write_text(text)


class SdkCampaign:
    """One run.

    Args:
        folder: For the node's files.
        seed: Of the workload.
        messages: How many are sent in all.
        kills: How often the node is killed, at even distances.
        own_producer: They are sent by the project's own client, which sends again until it is answered.
        numbered: The imitated libraries number what they send, as none of DDMQ's does: nothing is stored twice.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        messages: int,
        kills: int,
        own_producer: bool = False,
        numbered: bool = False,
    ) -> None:
        self.account = Account()
        self._node = FixedNode(folder)
        self._random = Random(f"sdks {seed}")
        self._messages = messages
        self._kills = kills
        self._own = own_producer
        self._numbered = numbered
        producer, consumer, _ = self._node.ports
        self._producer: Address = ("127.0.0.1", producer)
        self._consumer: Address = ("127.0.0.1", consumer)

    async def run(self) -> Account:
        """Have everything sent, pulled and acked over the kills.

        Raises:
            AssertionError: The clients do not come to an end.
        """
        loop = asyncio.get_running_loop()
        around = Surroundings(
            loop=loop,
            connect=connect_sockets,
            account=self.account,
            random=self._random,
            consumer=lambda: self._consumer,
            producer=lambda: self._producer,
            haste=HASTE,
            month_ms=int(time.time() * 1000) % MONTH_MS,
        )
        consumers = [SdkConsumer(habits, around, GROUP) for habits in CONSUMERS for _ in range(EACH)]
        await self._start()
        pool = ThreadPoolExecutor(EACH * len(PRODUCERS))
        try:
            pulling = [loop.create_task(each.run()) for each in consumers]
            sending = [loop.create_task(run) for run in self._senders(around, pool)]
            for place in range(self._kills):
                aim = self._messages * (place + 1) // (self._kills + 1)
                await self._wait(partial(self._finished, aim), [*sending, *pulling])
                self._node.kill()
                await self._start()
            await self._wait(lambda: all(each.done() for each in sending), [*sending, *pulling])
            for each in consumers:
                each.calm()
            await self._wait(lambda: not self.account.unfinished, pulling)
            while await self._lag(loop):
                await around.pause(0.5)
            for each in consumers:
                each.stopped = True
            await asyncio.wait_for(asyncio.gather(*pulling, *sending), PATIENCE_SECONDS)
        finally:
            pool.shutdown(wait=False)
            self._node.close()
        self.account.close()
        return self.account

    def _senders(self, around: Surroundings, pool: ThreadPoolExecutor) -> Iterator[Any]:
        habits = PRODUCERS * EACH
        for place, each in enumerate(habits):
            # A key is one producer's, so that its messages are sent in their order.
            keys = [f"{each.name}-{place}-{number}" for number in range(KEYS_EACH)]
            count = self._messages // len(habits) + (place < self._messages % len(habits))
            messages = [Message(keys[number % KEYS_EACH], number // KEYS_EACH) for number in range(count)]
            habit = replace(each, numbered=self._numbered)
            yield self._send(messages, pool) if self._own else SdkProducer(habit, around, TOPIC, messages).run()

    async def _send(self, messages: list[Message], pool: ThreadPoolExecutor) -> None:
        """Send by the project's own client."""
        loop = asyncio.get_running_loop()
        host, port = self._producer
        again = self.account.events
        with Producer(f"{host}:{port}", resends=RESENDS, on_resend=lambda _: again.update(["sent again"])) as producer:
            for message in messages:
                body = f"{message.key}:{message.number}".encode()
                await loop.run_in_executor(pool, partial(producer.send, TOPIC, body, key=message.key))
                self.account.sent(message)

    def _finished(self, count: int) -> bool:
        return len(self.account.reported) >= count

    async def _start(self) -> None:
        """Start the node in a thread of its own: clients go on meanwhile, and find it before it is ready."""
        started = await asyncio.get_running_loop().run_in_executor(None, self._node.start)
        assert started, "the node ended before it was ready"

    async def _lag(self, loop: asyncio.AbstractEventLoop) -> int:
        """Unfinished messages of the group, as the node tells them."""
        channel = Channel(loop, compact=True)
        if not await connect_sockets(channel, self._consumer):
            return 1
        try:
            reply = await channel.call("getConsumeStats", {"request": {"group": GROUP}}, seconds=10)
        except Gone:
            return 1
        finally:
            channel.close()
        [row] = reply.value
        return sum(end - row["consumeOffsets"].get(qid, 0) for qid, end in row["produceOffsets"].items())

    @staticmethod
    async def _wait(until: Callable[[], bool], tasks: list[asyncio.Task[Any]]) -> None:
        """Wait for a condition; a client that fails ends the run."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while not until():
            for task in tasks:
                if task.done():
                    task.result()
            assert loop.time() < deadline, "the clients make no progress"
            await asyncio.sleep(0.01)


def run_sdks(
    folder: Path, *, seed: int, messages: int, kills: int, own_producer: bool = False, numbered: bool = False
) -> Account:
    """Run one campaign and return its account."""
    campaign = SdkCampaign(
        folder, seed=seed, messages=messages, kills=kills, own_producer=own_producer, numbered=numbered
    )
    return asyncio.run(campaign.run())
