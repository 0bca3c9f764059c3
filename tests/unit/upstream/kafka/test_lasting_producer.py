"""The producer of a cluster ends by a fault, and another takes its place."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from broker.runtime.bundle import runtime_of
from pyddmq.testing import SimDisk
from pyddmq.testing.manual_time import ManualClock, ManualScheduler
from tests.fakes.memory.producer import MemoryProducer
from upstream.kafka.lasting_producer import HELD_SECONDS, RESTARTS, LastingProducer
from upstream.kafka.link import Broken, KafkaFailure

DENIED = KafkaFailure("CLUSTER_AUTHORIZATION_FAILED", "not authorized")


class World:
    """One, over producers in memory."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.scheduler = ManualScheduler(clock)
        self.runtime = runtime_of(SimDisk(), clock, scheduler=self.scheduler)
        self.made: list[Broken] = []
        self.refused: Exception | None = None
        self.ended: list[KafkaFailure | None] = []
        self.lasting = LastingProducer("main", self._make, self.runtime)

    def _make(self, broken: Broken) -> MemoryProducer:
        if self.refused is not None:
            raise self.refused
        self.made.append(broken)
        return MemoryProducer(self.scheduler, {"t": 1})

    def send(self) -> None:
        """Send one."""
        self.lasting.produce("t", 0, None, b"x", (), lambda failure, *_: self.ended.append(failure))


def test_producer_that_failed_is_replaced_and_says_why_until_then() -> None:
    """After a second, then two; what the cluster denies is denied, and not unreachable."""
    world = World()
    for seconds in (1, 2, 4):
        world.made[-1](DENIED)
        with pytest.raises(KafkaFailure, match="not authorized"):
            world.send()
        assert world.lasting.partitions("t") is None
        world.scheduler.advance(seconds - 0.01)
        count = len(world.made)
        world.scheduler.advance(0.02)
        assert len(world.made) == count + 1
    assert str(world.lasting.trouble) == str(DENIED)
    world.send()
    world.scheduler.advance(HELD_SECONDS)
    assert world.ended == [None]
    assert world.lasting.trouble is None
    assert world.runtime.metrics.counter(RESTARTS, "main").value == 3


def test_late_word_of_a_former_producer_and_one_that_cannot_be_made() -> None:
    """The first changes nothing, the second is tried again."""
    world = World()
    first: Callable[[KafkaFailure], None] = world.made[0]
    first(DENIED)
    world.refused = KafkaFailure("NO_CLIENT", "a secret is gone")
    world.scheduler.advance(1)
    world.refused = None
    world.scheduler.advance(2)
    assert len(world.made) == 2
    first(DENIED)
    world.send()
    world.scheduler.advance(1)
    assert world.ended == [None]


class Message(list[tuple[str, bytes | None]]):
    """Headers of a record, whose end can be seen."""


def test_refused_messages_are_not_kept() -> None:
    """The reason is the same for all sends until there is another producer, which may take for ever."""
    world = World()
    world.made[-1](DENIED)
    kept: list[weakref.ref[Message]] = []

    def send() -> None:
        message = Message([("h", b"x")])
        kept.append(weakref.ref(message))
        world.lasting.produce("t", 0, None, b"x", message, lambda *_: None)

    for _ in range(10):
        with pytest.raises(KafkaFailure, match="not authorized"):
            send()
    gc.collect()
    assert sum(each() is not None for each in kept) <= 1
