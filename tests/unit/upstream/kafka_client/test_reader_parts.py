"""The reader over a librdkafka that only remembers."""

from __future__ import annotations

from typing import Any

import pytest

from pyddmq.testing.manual_time import ManualClock
from tests.conftest import need_module
from tests.kafka_world import Loop
from upstream.kafka.link import KafkaPartition
from upstream.kafka_client.package import KafkaUnusable
from upstream.kafka_client.reader import LibrdkafkaReader

STUCK, READ = KafkaPartition("t", 0), KafkaPartition("t", 1)


class Message:
    """A record."""

    def __init__(self, place: KafkaPartition, offset: int) -> None:
        self.place, self._offset = place, offset

    def topic(self) -> str:
        """Of it."""
        return self.place.topic

    def partition(self) -> int:
        """Of it."""
        return self.place.partition

    def offset(self) -> int:
        """Of it."""
        return self._offset

    def error(self) -> None:
        """It is a record."""

    def key(self) -> None:
        """It has none."""

    def value(self) -> bytes:
        """Its body."""
        return b"%d" % self._offset

    def leader_epoch(self) -> None:
        """Not known."""

    def headers(self) -> None:
        """It has none."""

    def timestamp(self) -> tuple[int, int]:
        """When it was stored."""
        return 1, 0


class Consumer:
    """Gives what it is assigned, but nothing of the partitions that it is stuck on; each poll takes a second."""

    def __init__(self, clock: ManualClock, stuck: frozenset[KafkaPartition]) -> None:
        self.clock, self.stuck = clock, stuck
        self.positions: dict[KafkaPartition, int] = {}
        self.closed = False

    def assign(self, places: list[Any]) -> None:
        """Read these."""
        self.positions = {KafkaPartition(each.topic, each.partition): each.offset for each in places}

    def unassign(self) -> None:
        """Read nothing."""
        self.positions = {}

    def poll(self, _: float) -> Message | None:
        """Give a record."""
        self.clock.advance(1)
        for place in self.positions:
            if place not in self.stuck:
                self.positions[place] += 1
                return Message(place, self.positions[place] - 1)
        return None

    def consume(self, _: int, __: float) -> list[Message]:
        """Give no more."""
        return []

    def close(self) -> None:
        """End."""
        self.closed = True


class Settings:
    """Makes consumers, the first of which is stuck on a partition."""

    cluster = "main"

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.made: list[Consumer] = []
        self.refusals = 0

    def reader(self, _: str) -> Consumer:
        """Make one, unless the next one is refused."""
        if self.made and self.refusals:
            self.refusals -= 1
            raise KafkaUnusable("ssl.ca.location failed: No such file or directory")
        self.made.append(Consumer(self.clock, frozenset() if self.made else frozenset({STUCK})))
        return self.made[-1]

    def give_password(self, _: Consumer) -> None:
        """There is none."""


@pytest.fixture
def settings() -> Settings:
    """Return settings over a clock of the test."""
    need_module("confluent_kafka")
    return Settings(ManualClock())


@pytest.mark.parametrize("refusals", [0, 2])
def test_partition_of_which_nothing_comes_is_read_by_another_consumer(
    refusals: int, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after its topic was created again on a broker that was restarted; others are read all the while.

    Where no other consumer can be made for a while, that is tried again.
    """
    monkeypatch.setattr("upstream.kafka_client.reader._AGAIN_SECONDS", 0.01)
    settings.refusals = refusals
    loop, found = Loop(), dict[KafkaPartition, list[bytes | None]]()
    made: Any = settings
    reader = LibrdkafkaReader("c", settings=made, loop=loop, clock=settings.clock)
    reader.fetch(STUCK, [5], lambda records, _: found.update({STUCK: [each.value for each in records]}))
    reader.fetch(READ, [*range(200)], lambda records, _: found.update({READ: [each.value for each in records[-1:]]}))
    loop.until(lambda: len(found) == 2, "both")
    reader.close()
    assert found == {STUCK: [b"5"], READ: [b"199"]}
    assert settings.made[0].closed
    assert len(settings.made) == 2
