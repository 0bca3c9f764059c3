"""DDMQ's own client libraries, imitated, above a limit of theirs: they slow down, keep the node, and lose nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tests.access.world import CONSUMER_PORT, PRODUCER_PORT, AccessWorld, message
from tests.fakes.sdk import CONSUMERS, PRODUCERS, Account, ConsumerHabits, ProducerHabits, SdkConsumer, SdkProducer
from tests.fakes.sdk.account import Message
from tests.fakes.sdk.producer import Surroundings
from tests.insides import opened_of

ACCESS = """
access:
  networks: [{cidr: 10.20.0.0/16, principal: legacy}, {cidr: 10.30.0.0/16, principal: other}]
  rules: [{principals: [legacy, other], produce: [orders], consume: [billing]}]
"""
LEGACY, OTHER = "10.20.0.7", "10.30.0.7"


def limited(**limits: float) -> str:
    """The sections of a node that limits `legacy`."""
    given = ", ".join(f"{key}: {value}" for key, value in limits.items())
    return f"{ACCESS}limits: {{principals: [{{principals: [legacy], {given}}}]}}\n"


class Sdks:
    """A node, and the surroundings of libraries."""

    def __init__(self, access: str) -> None:
        self.world = AccessWorld(access)
        self.account = Account()

    def around(self, host: str = LEGACY) -> Surroundings:
        """What a client at an address is given."""
        return Surroundings(
            self.world.loop,
            self._connect(host),
            self.account,
            Random(3),
            lambda: ("127.0.0.1", CONSUMER_PORT),
            lambda: ("127.0.0.1", PRODUCER_PORT),
        )

    def _connect(self, host: str) -> Callable[..., Awaitable[bool]]:
        async def connect(protocol: object, address: tuple[str, int]) -> bool:
            return self.world.network.connect(protocol, address, host=host) is not None  # type: ignore[arg-type]

        return connect

    def run(self, client: SdkProducer | SdkConsumer, *, seconds: float) -> float | None:
        """Let a client do its work; returns how long it took, None when it has not ended."""
        began = self.world.loop.time()
        task = self.world.loop.create_task(client.run())
        self.world.loop.run(task.done, seconds=seconds)
        done = task.done()
        took = self.world.loop.time() - began
        task.cancel()
        self.world.run(0.1)
        return took if done else None

    def publish(self, count: int) -> None:
        """Have messages sent by a client without limits."""
        messages = [Message(f"k{number % 5}", number) for number in range(count)]
        assert self.run(SdkProducer(PRODUCERS[0], self.around(OTHER), "orders", messages), seconds=60) is not None


@pytest.mark.parametrize("habits", PRODUCERS, ids=lambda each: each.name)
def test_producer_above_its_rate_slows_down_and_keeps_the_node(habits: ProducerHabits) -> None:
    """Every message is stored once, at the rate; no answer has a library leave its only node out, none is missing."""
    sdks = Sdks(limited(requestsPerSecond=20))
    messages = [Message("k", number) for number in range(60)]
    took = sdks.run(SdkProducer(habits, sdks.around(), "orders", messages), seconds=60)
    assert took is not None
    assert 1.9 <= took <= 4.5
    assert len(sdks.account.acknowledged) == 60
    assert opened_of(sdks.world.node).store.topics["orders"].queues[0].max_offset == 60
    events = sdks.account.events
    assert set(events) <= {"send code 15", "sent again", "send given up", "send code 11 of an odd key"}
    assert 0 < events["send code 15"] <= 26 * took, "a refusal rests its connection for 40 ms"


@pytest.mark.parametrize("habits", CONSUMERS, ids=lambda each: each.name)
def test_consumer_above_its_rate_slows_down_and_loses_no_result(habits: ConsumerHabits) -> None:
    """It gets and finishes everything; no result is thrown away with an exception or sent twice after its answer."""
    sdks = Sdks(limited(requestsPerSecond=5))
    sdks.publish(200)
    consumer = SdkConsumer(habits, sdks.around(), "billing")
    consumer.calm()
    assert sdks.run(consumer, seconds=20) is None
    sdks.account.close()
    assert not sdks.account.faults
    assert opened_of(sdks.world.node).progress.trackers["billing", "orders", 0].watermark == 200
    assert not sdks.account.repeats, "nothing came again"
    assert not {each for each in sdks.account.events if each.startswith(("pull unanswered", "result thrown"))}
    asked = sum(
        sdks.world.node.runtime.metrics.value("pyddmq_requests_total", "consumer", name) for name in ("pull", "submit")
    )
    assert asked <= 5 * 20 + 5 + 22


@pytest.mark.parametrize("habits", CONSUMERS, ids=lambda each: each.name)
def test_consumers_far_above_their_rate_come_once_a_second_each(habits: ConsumerHabits) -> None:
    """Ten of them at two calls a second in all: each is refused, takes its time, and none gives its results up."""
    sdks = Sdks(limited(requestsPerSecond=2))
    sdks.publish(100)
    consumers = [SdkConsumer(habits, sdks.around(), "billing") for _ in range(10)]
    for each in consumers:
        each.calm()
    tasks = [sdks.world.loop.create_task(each.run()) for each in consumers]
    sdks.world.run(30.0)
    for task in tasks:
        task.cancel()
    sdks.world.run(0.1)
    assert not sdks.account.faults
    assert "result thrown away" not in sdks.account.events
    assert not sdks.account.events["pull unanswered"]
    asked = sdks.world.node.runtime.metrics.value("pyddmq_requests_total", "consumer", "pull")
    assert asked <= 10 * 31 + 2 * 30 + 10


@pytest.mark.parametrize("habits", PRODUCERS, ids=lambda each: each.name)
def test_producer_without_a_place_gets_one_when_another_leaves(habits: ProducerHabits) -> None:
    """It is refused in the way in which it keeps the node, and goes on by itself."""
    sdks = Sdks(limited(connections=1))
    first = sdks.world.client("producer", LEGACY)
    first.call("sendSync", message=message("orders"), timeout=50)
    task = sdks.world.loop.create_task(SdkProducer(habits, sdks.around(), "orders", [Message("k", 0)]).run())
    sdks.world.run(5.0)
    assert not sdks.account.acknowledged
    first.transport.abort()
    sdks.world.run(5.0)
    assert task.done()
    assert len(sdks.account.acknowledged) == 1
