"""DDMQ's own client libraries, imitated: they have no field for a token, and are told by their network alone.

Where the network is somebody's they work on unchanged. Elsewhere they are denied, and what that costs is measured: how
often they ask, whether they keep the node, what becomes of results.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tests.access.world import CONSUMER_PORT, PRODUCER_PORT, AccessWorld
from tests.fakes.sdk import CONSUMERS, PRODUCERS, Account, ConsumerHabits, ProducerHabits, SdkConsumer, SdkProducer
from tests.fakes.sdk.account import Message
from tests.fakes.sdk.producer import Surroundings
from tests.insides import opened_of

RULES = """
access:
  networks: [{cidr: 10.20.0.0/16, principal: legacy}]
  rules: [{principals: [legacy], produce: [orders], consume: [billing]}]
"""
INSIDE, OUTSIDE = "10.20.0.7", "10.30.0.7"
SECONDS = 60.0


class Sdks:
    """A node, and where libraries reach it from."""

    def __init__(self, host: str) -> None:
        self.world = AccessWorld(RULES)
        self.host = host
        self.account = Account()
        self.around = Surroundings(
            self.world.loop,
            self._connect(),
            self.account,
            Random(3),
            lambda: ("127.0.0.1", CONSUMER_PORT),
            lambda: ("127.0.0.1", PRODUCER_PORT),
        )

    def _connect(self) -> Callable[..., Awaitable[bool]]:
        async def connect(protocol: object, address: tuple[str, int]) -> bool:
            return self.world.network.connect(protocol, address, host=self.host) is not None  # type: ignore[arg-type]

        return connect

    def run(self, *clients: SdkProducer | SdkConsumer, seconds: float) -> bool:
        """Let clients do their work; whether the first of them has ended."""
        tasks = [self.world.loop.create_task(each.run()) for each in clients]
        self.world.loop.run(tasks[0].done, seconds=seconds)
        done = tasks[0].done()
        for task in tasks:
            task.cancel()
        self.world.run(0.1)
        return done


def messages(count: int) -> list[Message]:
    """Numbered messages of one key."""
    return [Message("k", number) for number in range(count)]


@pytest.mark.parametrize("habits", PRODUCERS, ids=lambda each: each.name)
def test_producer_works_on_where_its_network_is_somebodys(habits: ProducerHabits) -> None:
    """Unchanged, and every message is stored once."""
    sdks = Sdks(INSIDE)
    assert sdks.run(SdkProducer(habits, sdks.around, "orders", messages(20)), seconds=SECONDS)
    assert len(sdks.account.acknowledged) == 20
    assert sdks.world.denied() == 0 or habits.odd_key_share


@pytest.mark.parametrize("habits", PRODUCERS, ids=lambda each: each.name)
def test_denied_producer_tries_as_often_as_its_library_does_and_keeps_the_node(habits: ProducerHabits) -> None:
    """Code 13 is one of those after which no library leaves its only node out (S9)."""
    sdks = Sdks(OUTSIDE)
    assert not sdks.run(SdkProducer(habits, sdks.around, "orders", messages(1)), seconds=0.1)
    given_up, again = sdks.account.events["send given up"], sdks.account.events["sent again"]
    assert given_up > 0
    assert again == pytest.approx(habits.retries * given_up, abs=habits.retries)
    assert not sdks.account.acknowledged
    assert set(sdks.account.events) <= {"send given up", "sent again", "send code 13", "send code 11 of an odd key"}


@pytest.mark.parametrize("habits", CONSUMERS, ids=lambda each: each.name)
def test_consumer_works_on_where_its_network_is_somebodys(habits: ConsumerHabits) -> None:
    """Unchanged; what it acknowledges is finished."""
    sdks = Sdks(INSIDE)
    sdks.run(SdkProducer(PRODUCERS[0], sdks.around, "orders", messages(10)), seconds=SECONDS)
    consumer = SdkConsumer(habits, sdks.around, "billing")
    consumer.calm()
    sdks.run(consumer, seconds=20)
    assert opened_of(sdks.world.node).progress.trackers["billing", "orders", 0].watermark == 10
    assert sdks.world.denied() == 0


@pytest.mark.parametrize("habits", CONSUMERS, ids=lambda each: each.name)
def test_denied_consumer_does_not_spin(habits: ConsumerHabits) -> None:
    """It asks no more often than its linger and its own pause allow: some twenty times a second, and gets nothing."""
    sdks = Sdks(OUTSIDE)
    sdks.run(SdkConsumer(habits, sdks.around, "billing"), seconds=10)
    asked = sdks.account.events["pull code 8"]
    per_call = max(habits.linger_ms, 20) / 1000 + habits.retry
    assert 0 < asked <= 10 / per_call + 2
    assert sdks.account.events["delivered"] == 0
