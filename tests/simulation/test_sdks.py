"""DDMQ's client libraries, imitated, over the simulated network: what was acknowledged and acked survives kills.

Starts are slow here, so that clients of every library come while the node recovers.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from actions.registry import Registry
from conf.loader import loads
from proxy.node.node import Node
from proxy.node.parts import Seams
from proxy.services.consumer_service import ConsumerService
from pyddmq.testing import NetworkFaults, Process, SimDisk, SimNetwork, SimSyncs, VirtualClock, VirtualLoop
from tests.fakes.sdk import CONSUMERS, PRODUCERS, Account, SdkConsumer, SdkProducer, Surroundings
from tests.fakes.sdk.account import Message
from tests.fakes.sdk.channel import Address
from tests.insides import opened_of

YAML = """
node: {segmentBytes: 131072, queueFileUnits: 100, ackSegmentBytes: 4096, maxMessageBytes: 50000}
topics: {orders: {queues: 4}, later: {queues: 1, messageType: DELAY}}
groups:
  - group: billing
    topics:
      - {topic: orders, orderKey: KEY, timeout: 3000, maxRetry: -1, retryIntervals: [100, -1], maxPullBatchSize: 8}
"""
START_STEP_SECONDS = 0.05
MORE = 4.0
"""What is rare in a long run happens so much more often in these short ones."""
FULL_SECONDS = 2.0
KEYS = 10
PRODUCER, CONSUMER = ("127.0.0.1", 9613), ("127.0.0.1", 9713)


class SdkWorld:
    """One node over several lives, with a producer and two consumers of each library."""

    def __init__(self, seed: int, messages: int, limits: str = "") -> None:
        self.yaml = YAML + limits
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.random = Random(f"sdks {seed}")
        self.network = SimNetwork(self.loop, Random(f"network {seed}"), NetworkFaults(delay_ms_max=1.0))
        self.disk = SimDisk()
        self.account = Account()
        self.process: Process
        self.node: Node
        self.around = Surroundings(
            loop=self.loop,
            connect=self._connect,
            account=self.account,
            random=self.random,
            consumer=lambda: CONSUMER,
            producer=lambda: PRODUCER,
        )
        # A key is one producer's, so that its messages are sent in their order.
        keys = [f"k{number}" for number in range(KEYS)]
        self.consumers = [
            SdkConsumer(
                replace(
                    habits,
                    drop_share=habits.drop_share * MORE,
                    close_share=habits.close_share * MORE,
                    stall_share=habits.stall_share * MORE,
                ),
                self.around,
                "billing",
            )
            for habits in CONSUMERS
            for _ in range(2)
        ]
        self.producers = [
            SdkProducer(
                replace(habits, odd_key_share=habits.odd_key_share * MORE),
                self.around,
                "orders",
                numbered(keys[place :: len(PRODUCERS)], messages // len(PRODUCERS)),
            )
            for place, habits in enumerate(PRODUCERS)
        ]

    async def _connect(self, protocol: asyncio.Protocol, address: Address) -> bool:
        return self.network.connect(protocol, address) is not None

    def start(self) -> None:
        """Begin to start a node; clients find it while it recovers."""
        self.process = Process("node")
        seams = Seams(
            loop=self.loop,
            clock=self.clock,
            disk=self.disk,
            randomness=Random(1),
            network=self.network,
            syncs=SimSyncs(self.disk, self.loop, Random(2)),
            step_pause_seconds=START_STEP_SECONDS,
        )
        self.node = Node(loads(self.yaml, actions=Registry()).config, seams=seams, registry=Registry())
        self.started = self.process.run(self.loop.create_task, self.node.start())

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.disk.kill()

    def run(self, *, kills: int) -> Account:
        """Have everything sent, pulled and acked over so many kills."""
        self.start()
        consumers = [self.loop.create_task(each.run()) for each in self.consumers]
        producers = [self.loop.create_task(each.run()) for each in self.producers]
        for life in range(kills):
            self.loop.run(self.started.done, seconds=60)
            self.started.result()
            aim = self.account.events["delivered"] + self.random.randrange(20, 150)
            self._until(
                lambda aim=aim: self.account.events["delivered"] >= aim or all(each.done() for each in producers)
            )
            if life == min(2, kills - 1):
                self._refuse_acks()
            self.kill()
            self.start()
        self._until(lambda: all(each.done() for each in producers))
        for each in self.consumers:
            each.calm()
        self._until(lambda: not (self.account.unfinished or self.lag()))
        for each in self.consumers:
            each.stopped = True
        self._until(lambda: all(each.done() for each in consumers))
        for task in (*producers, *consumers):
            task.result()
        self.kill()
        self.account.close()
        return self.account

    def _refuse_acks(self) -> None:
        """Have the disk be full for the ack journal for a while."""
        for _ in range(1_000):
            self.disk.fail("write", error=errno.ENOSPC, path_part="/acks/")
        self.loop.run(None, seconds=FULL_SECONDS, turns_max=1_000_000)
        self.disk.heal()

    def lag(self) -> int:
        """Unfinished messages of the group."""
        trackers = opened_of(self.node).progress.trackers.items()
        ends = [queue.max_offset for queue in opened_of(self.node).store.topics["orders"].queues]
        return sum(each.unfinished(ends[queue]) for (group, _, queue), each in trackers if group == "billing")

    def _until(self, condition: object) -> None:
        assert callable(condition)
        done = self.loop.run(condition, seconds=600, turns_max=20_000_000)
        assert not self.loop.errors, self.loop.errors[0]
        assert done, self.account.lines()


def numbered(keys: list[str], count: int) -> Iterator[Message]:
    """So many messages, the keys in turn, each with its own numbers."""
    for place in range(count):
        yield Message(keys[place % len(keys)], place // len(keys))


def test_kills_cost_libraries_nothing_that_was_answered() -> None:
    """Nothing lost, no key out of order, no answered ack again; what comes again, its client had not told."""
    account = SdkWorld(1, 2_000).run(kills=12)
    print("\n".join(account.lines()))
    assert len(account.acknowledged) == 2_000
    assert account.faults == []
    assert account.repeats["thrown away"] == 0, "no exception answers results that were not taken"
    assert account.events["send TApplicationException"] == account.events["pull TApplicationException"] == 0
    for name in (
        "pull code 3",
        "pull code 6",
        "send code 20",
        "send code 11 of an odd key",
        "sent again",
        "closed without reading",
    ):
        assert account.events[name], name
    for name in ("dropped", "stalled", "pull unanswered"):
        assert account.events[name], name


def test_limits_cost_libraries_nothing_but_time() -> None:
    """All of them above the rates of their address, over kills: nothing is lost, reordered, or acked in vain."""
    limits = "limits: {share: 1, addresses: [{networks: [0.0.0.0/0], requestsPerSecond: 60, parkedPulls: 6}]}\n"
    account = SdkWorld(1, 600, limits).run(kills=4)
    print("\n".join(account.lines()))
    assert len(account.acknowledged) == 600
    assert account.faults == []
    assert account.repeats["thrown away"] == 0
    assert account.events["send code 15"] > 100
    assert account.events["pull code 9"] > 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
def test_kills_cost_libraries_nothing_with_any_seed(seed: int) -> None:
    """The same, longer, with other seeds."""
    account = SdkWorld(seed, 5_000).run(kills=40)
    print("\n".join(account.lines()))
    assert account.faults == []
    assert account.repeats["thrown away"] == 0


def test_results_refused_while_starting_would_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fault put back, exceptions for results that were not taken, the account shows it."""
    monkeypatch.setattr("proxy.services.starting_service.carries_results", lambda _: False)
    assert any(SdkWorld(seed, 2_000).run(kills=12).repeats["thrown away"] for seed in range(1, 6))


def test_account_of_the_clients_catches_a_node_that_forgets_acks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken node, which answers results and takes none, is told of."""
    calls = iter(range(10**9))

    def forgetful(self: ConsumerService, results: Any, *args: Any) -> bool:
        if next(calls) % 50 == 0:
            return True
        taken: bool = apply(self, results, *args)
        return taken

    apply = ConsumerService._apply
    monkeypatch.setattr(ConsumerService, "_apply", forgetful)
    account = SdkWorld(1, 500).run(kills=2)
    assert account.counts["acked again"] > 0
