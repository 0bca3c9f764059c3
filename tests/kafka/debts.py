"""What a real Kafka owes a node: answers to its questions, its share of partitions, records up to their ends.

Stands between the node and the product's client, and passes everything on as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from broker.runtime.seams import Clock
from tests.kafka_world import Loop
from upstream.kafka.link import (
    Assignment,
    Commit,
    Done,
    Ends,
    Headers,
    KafkaFailure,
    KafkaPartition,
    KafkaProducer,
    KafkaRecord,
    MemberListener,
    OffsetsReported,
    PartitionReader,
    Produced,
    RecordsRead,
    TopicIds,
    Topics,
    TopicSubscription,
)
from upstream.kafka_client.member import LibrdkafkaMember

LATE_SECONDS = 0.1
"""Of the node's time: what Kafka was asked before is waited for."""


class NodeLoop(Loop):
    """The loop of one node, which a kill closes: what threads tell afterwards nobody hears."""

    def __init__(self) -> None:
        super().__init__()
        self._closed = False

    def close(self) -> None:
        """Take no more calls, as an event loop."""
        self._closed = True

    def call_soon_threadsafe(self, callback: Callable[..., Any], /, *args: Any) -> object:
        """Run later. Raises RuntimeError when closed."""
        if self._closed:
            raise RuntimeError("the loop is closed")
        return super().call_soon_threadsafe(callback, *args)


class Debts:
    """What a node has asked of Kafka and not got yet, with when, by the node's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: list[tuple[float, Callable[[], object]]] = []
        self._asked, self._answered = Counter[Hashable](), Counter[Hashable]()

    def add(self, paid: Callable[[], object]) -> None:
        """Note something that `paid` will tell to be there."""
        self._open.append((self._clock.monotonic(), paid))

    def answer(self, reported: Callable[..., None]) -> Callable[..., None]:
        """Note a question, and return what is to be told the answer."""
        answers: list[bool] = []
        self.add(lambda: answers)

        def report(*answer: Any) -> None:
            answers.append(True)
            reported(*answer)

        return report

    def latest(self, kind: Hashable, reported: Callable[..., None]) -> Callable[..., None]:
        """Likewise of a question that a later one of its kind may take the place of: its answer is that of both."""
        self._asked[kind] = number = self._asked[kind] + 1
        self.add(lambda: self._answered[kind] >= number)

        def report(*answer: Any) -> None:
            self._answered[kind] = max(self._answered[kind], number)
            reported(*answer)

        return report

    def due(self) -> bool:
        """Whether something is late."""
        self._open = [each for each in self._open if not each[1]()]
        return any(at + LATE_SECONDS <= self._clock.monotonic() + 1e-6 for at, _ in self._open)


class WatchedMember:
    """A member, and between it and who listens what is owed: answers, its share, all records up to the ends."""

    def __init__(self, member: LibrdkafkaMember, debts: Debts, ends: Mapping[KafkaPartition, int]) -> None:
        """Watch `member`; `ends` are those of all partitions, as they become."""
        self._member = member
        self._debts = debts
        self._ends = ends
        self._reported: dict[KafkaPartition, int] = {}
        self._rests: set[KafkaPartition] = set()
        self._listener: MemberListener | None = None
        self.given: set[KafkaPartition] = set()

    def has_read(self, place: KafkaPartition) -> bool:
        """Whether a partition is told to its end, if it is read at all."""
        return place in self._rests or self._reported.get(place, self._ends[place]) >= self._ends[place]

    # Asked

    def join(self, listener: MemberListener, topics: Sequence[TopicSubscription]) -> None:
        """Join, and owe the whole of these topics."""
        self._listener = listener
        names = {each.name for each in topics}
        self._debts.add(lambda: self.given >= {place for place in self._ends if place.topic in names})
        self._member.join(self, topics)

    def subscribe(self, topics: Sequence[TopicSubscription]) -> None:
        """Pass on."""
        self._member.subscribe(topics)

    def read_from(self, place: KafkaPartition, offset: int, leader_epoch: int = -1) -> None:
        """Owe all from there on."""
        self._reported[place] = offset
        self._debts.add(lambda: self.has_read(place))
        self._member.read_from(place, offset, leader_epoch)

    def pause(self, places: Sequence[KafkaPartition]) -> None:
        """Owe none of these."""
        self._rests.update(places)
        self._member.pause(places)

    def resume(self, places: Sequence[KafkaPartition]) -> None:
        """Owe them again."""
        self._rests.difference_update(places)
        self._debts.add(lambda: all(self.has_read(each) for each in places))
        self._member.resume(places)

    def commit(self, commits: Sequence[Commit], done: Done, *, soon: bool = False) -> None:
        """Owe an answer."""
        self._member.commit(commits, self._debts.answer(done), soon=soon)

    def abandon(self) -> None:
        """Pass on."""
        self._member.abandon()

    def ends(self, places: Sequence[KafkaPartition], reported: Ends) -> None:
        """Owe an answer."""
        self._member.ends(places, self._debts.latest(tuple(places), reported))

    def topics(self, names: Sequence[str], reported: Topics) -> None:
        """Owe an answer."""
        self._member.topics(names, self._debts.latest("topics", reported))

    def topic_ids(self, names: Sequence[str], reported: TopicIds) -> None:
        """Owe an answer."""
        self._member.topic_ids(names, self._debts.answer(reported))

    def offsets_at(self, places: Sequence[KafkaPartition], time_ms: int, reported: OffsetsReported) -> None:
        """Owe an answer."""
        self._member.offsets_at(places, time_ms, self._debts.answer(reported))

    def leave(self, done: Callable[[], None]) -> None:
        """Owe that it has left."""
        self._member.leave(self._debts.answer(done))

    # Told

    def assigned(self, assignments: Sequence[Assignment]) -> None:
        """Note its share."""
        places = {each.place for each in assignments}
        self.given |= places
        self._rests -= places
        self._who_listens().assigned(assignments)

    def revoked(self, places: Sequence[KafkaPartition], done: Callable[[], None]) -> None:
        """Note what it has no more."""
        self._forget(places)
        self._who_listens().revoked(places, done)

    def lost(self, places: Sequence[KafkaPartition]) -> None:
        """Likewise."""
        self._forget(places)
        self._who_listens().lost(places)

    def records(self, records: Sequence[KafkaRecord]) -> None:
        """Note how far it is."""
        self._who_listens().records(records)
        for each in records:
            self._reported[KafkaPartition(each.topic, each.partition)] = each.offset + 1

    def at_end(self, place: KafkaPartition, offset: int) -> None:
        """Likewise."""
        self._who_listens().at_end(place, offset)
        self._reported[place] = offset

    def trouble_reported(self, failure: KafkaFailure | None) -> None:
        """Pass on."""
        self._who_listens().trouble_reported(failure)

    def broken(self, failure: KafkaFailure) -> None:
        """Pass on."""
        self._who_listens().broken(failure)

    def _forget(self, places: Sequence[KafkaPartition]) -> None:
        self.given.difference_update(places)
        self._rests.difference_update(places)
        for each in places:
            self._reported.pop(each, None)

    def _who_listens(self) -> MemberListener:
        assert self._listener is not None, "nothing is told before it has joined"
        return self._listener


class WatchedReader:
    """A reader that owes what it is asked for."""

    def __init__(self, reader: PartitionReader, debts: Debts) -> None:
        self._reader = reader
        self._debts = debts

    def fetch(self, place: KafkaPartition, offsets: Sequence[int], there: RecordsRead) -> None:
        """Owe them."""
        self._reader.fetch(place, offsets, self._debts.answer(there))

    def close(self) -> None:
        """Pass on."""
        self._reader.close()


class WatchedProducer:
    """A producer that owes an acknowledgement."""

    def __init__(self, producer: KafkaProducer, debts: Debts) -> None:
        self._producer = producer
        self._debts = debts

    def produce(  # noqa: PLR0917 - as it is called for every record
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        """Owe it."""
        self._producer.produce(topic, partition, key, value, headers, self._debts.answer(done))

    def withdraw(self, done: Produced) -> bool:
        """Owe it to the end: nothing is withdrawn."""
        return False

    def partitions(self, topic: str) -> int | None:
        """Pass on."""
        return self._producer.partitions(topic)

    def unreachable(self, topic: str) -> KafkaFailure | None:
        """Pass on."""
        return self._producer.unreachable(topic)

    def close(self, seconds: float) -> None:
        """Pass on."""
        self._producer.close(seconds)
