"""Clients of Kafka in tests: a loop that the test itself turns, and a listener that remembers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from broker.runtime.seams import SystemClock
from conf.sections.kafka import KafkaClusterConfig
from tests.patient import until
from upstream.kafka.link import Assignment, Commit, KafkaFailure, KafkaPartition, KafkaRecord, TopicSubscription
from upstream.kafka_client.client import LibrdkafkaClient
from upstream.kafka_client.member import LibrdkafkaMember


class Loop:
    """What threads tell waits until the test asks for it."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()

    def call_soon_threadsafe(self, callback: Callable[..., Any], /, *args: Any) -> object:
        """Run later."""
        self._calls.put((callback, args))
        return None

    def turn(self, seconds: float = 0.01) -> None:
        """Run what is there, waiting a moment for the first."""
        try:
            call, arguments = self._calls.get(timeout=seconds)
            while True:
                call(*arguments)
                call, arguments = self._calls.get_nowait()
        except Empty:
            pass

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Turn until something holds."""

        def holds() -> object:
            self.turn()
            return condition()

        until(holds, what)


class Heard:
    """Remembers what a member tells.

    Attributes:
        loud: Everything in its order, as (what, detail).
        reads: Whether an assigned partition is read at once: from what is committed, or else from its first record.
        holds: Whether a revoke is kept open, in `open`.
    """

    def __init__(self, *, reads: bool = True, holds: bool = False) -> None:
        self.member: LibrdkafkaMember | None = None
        self.reads = reads
        self.holds = holds
        self.loud: list[tuple[str, Any]] = []
        self.given: dict[KafkaPartition, Assignment] = {}
        self.open: list[Callable[[], None]] = []
        self.got: list[KafkaRecord] = []
        self.ended: dict[KafkaPartition, int] = {}
        self.troubles: list[KafkaFailure | None] = []

    def assigned(self, assignments: Sequence[Assignment]) -> None:
        """Remember, and read."""
        if not assignments:
            self.loud.append(("assigned", None))
        for each in assignments:
            self.given[each.place] = each
            self.loud.append(("assigned", each.place))
            if self.reads:
                assert self.member is not None
                self.member.read_from(each.place, each.low if each.committed is None else each.committed)

    def revoked(self, places: Sequence[KafkaPartition], done: Callable[[], None]) -> None:
        """Remember, and let go."""
        self.loud.append(("revoked", tuple(places)))

        def end() -> None:
            for each in places:
                self.given.pop(each, None)
            done()

        if self.holds:
            self.open.append(end)
        else:
            end()

    def lost(self, places: Sequence[KafkaPartition]) -> None:
        """Remember."""
        self.loud.append(("lost", tuple(places)))
        for each in places:
            self.given.pop(each, None)

    def records(self, records: Sequence[KafkaRecord]) -> None:
        """Remember."""
        for each in records:
            assert KafkaPartition(each.topic, each.partition) in self.given, f"{each} of a partition that is not given"
            self.got.append(each)
        self.loud.append(("records", [(each.partition, each.offset) for each in records]))

    def at_end(self, place: KafkaPartition, offset: int) -> None:
        """Remember."""
        assert place in self.given, f"{place} is not given"
        self.ended[place] = offset
        self.loud.append(("at_end", (place, offset)))

    def trouble_reported(self, failure: KafkaFailure | None) -> None:
        """Remember."""
        self.troubles.append(failure)

    def broken(self, failure: KafkaFailure) -> None:
        """Remember."""
        self.loud.append(("broken", failure))

    def values(self, partition: int | None = None) -> list[bytes | None]:
        """Bodies in their order."""
        return [each.value for each in self.got if partition in (None, each.partition)]

    def lost_places(self) -> set[KafkaPartition]:
        """All that was lost."""
        return {place for what, places in self.loud if what == "lost" for place in places}


class Clients:
    """Clients of one cluster, ended with the test."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.loop = Loop()
        self._members: list[LibrdkafkaMember] = []
        self._heards: list[Heard] = []
        self._ends: list[Callable[[], None]] = []

    def client(self, **settings: Any) -> LibrdkafkaClient:
        """Return a client; `librdkafka` and the other settings of a cluster."""
        settings = {"session_timeout": 6000, "group_protocol": "classic", **settings}
        config = KafkaClusterConfig(bootstrap_servers=settings.pop("address", self.address), **settings)
        client = LibrdkafkaClient("main", config, client_id="test", loop=self.loop, clock=SystemClock())
        self._ends.append(client.close)
        return client

    def join(
        self,
        group: str,
        topics: Sequence[str | TopicSubscription],
        heard: Heard | None = None,
        instance: str = "",
        **settings: Any,
    ) -> tuple[LibrdkafkaMember, Heard]:
        """Return a member that joins, and who hears what it tells."""
        heard = heard or Heard()
        self._heards.append(heard)
        heard.member = member = self.client(**settings).member(group, "test", instance)
        self._members.append(member)
        member.join(heard, [TopicSubscription(each) if isinstance(each, str) else each for each in topics])
        return member, heard

    def joined(
        self, group: str, topics: Sequence[str | TopicSubscription], heard: Heard | None = None, **settings: Any
    ) -> tuple[LibrdkafkaMember, Heard]:
        """Likewise, once it has partitions."""
        member, heard = self.join(group, topics, heard, **settings)
        self.until(lambda: heard.given, "partitions")
        return member, heard

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Turn the loop until something holds."""
        self.loop.until(condition, what)

    def ended(self, heard: Heard, place: KafkaPartition, offset: int) -> None:
        """Turn the loop until an end was told."""
        self.until(lambda: heard.ended.get(place) == offset, f"the end at {offset}")

    def commit(self, member: LibrdkafkaMember, *commits: Commit) -> KafkaFailure | None:
        """Commit, and wait for how it ended."""
        ended: list[KafkaFailure | None] = []
        member.commit(commits, ended.append)
        self.until(lambda: ended, "a commit")
        return ended[0]

    def leave(self, member: LibrdkafkaMember) -> None:
        """Have a member leave, and wait for that."""
        left: list[bool] = []
        member.leave(lambda: left.append(True))
        self.until(lambda: left, "a member to leave")
        self.forget(member)

    def forget(self, member: LibrdkafkaMember) -> None:
        """Leave a member alone at the end: it has left."""
        self._members.remove(member)

    def send(self, topic: str, values: Sequence[bytes | None], *, partition: int = 0, key: bytes | None = None) -> None:
        """Append records by the product's producer, and wait for them."""
        producer = self.client().producer()
        sent: list[int] = []

        def done(failure: KafkaFailure | None, _: int, offset: int) -> None:
            assert failure is None, failure
            sent.append(offset)

        for value in values:
            producer.produce(topic, partition, key, value, (), done)
        self.until(lambda: len(sent) == len(values), "records to be taken")
        producer.close(5)

    def end(self) -> None:
        """End all."""
        for heard in self._heards:
            heard.holds = False
        for member in list(self._members):
            self.leave(member)
        for each in self._ends:
            each()
