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

    def __init__(self, place: KafkaPartition, offset: int, error: Any = None) -> None:
        self.place, self._offset, self._error = place, offset, error

    def topic(self) -> str:
        """Of it."""
        return self.place.topic

    def partition(self) -> int:
        """Of it."""
        return self.place.partition

    def offset(self) -> int:
        """Of it."""
        return self._offset

    def error(self) -> Any:
        """Of one that is no record."""
        return self._error

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


@pytest.mark.parametrize("known_again", [True, False])
def test_partition_that_a_broker_does_not_know_has_no_gap(settings: Settings, *, known_again: bool) -> None:
    """Its records come where it is known again soon; else it is said that neither they nor gaps were found."""
    package = need_module("confluent_kafka")

    class Restarted(Consumer):
        def poll(self, seconds: float) -> Message | None:
            self.clock.advance(0.4)
            if self.positions and (not known_again or self.clock.monotonic() < 0.5):
                return Message(READ, -1, package.KafkaError(package.KafkaError.UNKNOWN_TOPIC_OR_PART))
            return super().poll(seconds)

    settings.made.append(Restarted(settings.clock, frozenset()))
    settings.reader = lambda _: settings.made[0]  # type: ignore[method-assign]
    loop, found = Loop(), list[tuple[list[int], list[Any]]]()
    made: Any = settings
    reader = LibrdkafkaReader("c", settings=made, loop=loop, clock=settings.clock)
    reader.fetch(READ, [5], lambda records, gaps: found.append(([each.offset for each in records], list(gaps))))
    loop.until(lambda: found, "the answer")
    reader.close()
    assert found == [([5] if known_again else [], [])]
