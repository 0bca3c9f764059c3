"""A Kafka cluster in memory: its topics, its groups, and what becomes of the whole of it."""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any
from zlib import crc32

from broker.runtime.seams import Clock, Scheduler
from tests.fakes.kafka.classic import ClassicGroup
from tests.fakes.kafka.groups import Member, SimGroup
from tests.fakes.kafka.incremental import IncrementalGroup
from tests.fakes.kafka.link import DELAY_SECONDS_MAX, SimLink
from tests.fakes.kafka.log import SimPartition
from upstream.kafka.link import Commit, Headers, KafkaFailure, KafkaPartition, KafkaRecord

PROTOCOLS: dict[str, type[SimGroup]] = {"classic": ClassicGroup, "consumer": IncrementalGroup}


class SimKafka:
    """The cluster; it outlives the nodes.

    Attributes:
        session_seconds: Silence after which a member is none any more.
        beat_seconds: From one heartbeat of a member to the next.
        poll_seconds: A member waits so long, and a moment, from one poll to the next.
        prompt_share: Of the news of a coordinator those that bring the next heartbeat forward.
        down: Nothing answers.
        has_epochs: It says of records by which leader they were written.
        patience_seconds: A client of a cluster that is down says so after at most so long.
        offsets_seconds: A group without members for so long loses what it committed; None: never.
        sent_seconds_max: After so long a record that is not acknowledged has failed.
        missing: Topics to which nobody may produce.
        producers_denied: Why every producer ends with its first record; None: they work.
        limits: Bytes of a record that a topic takes at most.
        transaction_bytes_max: What a transaction of several records writes before its time is over.
        metadata_max: Characters of a commit's text that the brokers take.
        refusals: What is said of topics that are denied, or without a leader.
        unseen: Topics that are there, and that brokers do not know for a moment, as after their restart.
        deleted: Topics that were deleted, with their partitions.
        settings: Of topics, as Kafka names them.
        coordinator: Of transactions (`tests.fakes.kafka.transactions`), once somebody needs it.
        on_append, on_owned, on_committed, on_refused, on_held: Told what happens, where somebody wants to know.
        on_counted: Told of each record that counts from now on: it is in no transaction, or in one that is committed.
    """

    def __init__(
        self,
        random: Random,
        *,
        clock: Clock,
        scheduler: Scheduler,
        session_seconds: float = 10.0,
        gaps: float = 0.3,
        protocol: str = "consumer",
    ) -> None:
        self.random = random
        self.clock = clock
        self.scheduler = scheduler
        self.session_seconds = session_seconds
        self.beat_seconds = session_seconds / 6
        self.poll_seconds = 0.0
        self.prompt_share = 1.0
        self.protocol = protocol
        self.down = False
        self.has_epochs = True
        self.patience_seconds = 0.0
        self.offsets_seconds: float | None = None
        self.sent_seconds_max = 30.0
        self.missing: set[str] = set()
        self.deleted: dict[str, int] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.coordinator: object | None = None
        self.producers_denied: KafkaFailure | None = None
        self.limits: dict[str, int] = {}
        self.transaction_bytes_max = 1 << 40
        self.metadata_max = 4095
        self.refusals: dict[str, KafkaFailure] = {}
        self.unseen: set[str] = set()
        self.links: list[SimLink] = []
        self.topics: dict[str, list[SimPartition]] = {}
        self.groups: dict[str, SimGroup] = {}
        self.on_append: Callable[[KafkaRecord], None] = lambda _: None
        self.on_counted: Callable[[KafkaRecord], None] = lambda _: None
        self.on_owned: Callable[[str, KafkaPartition, Member | None], None] = lambda group, place, member: None
        self.on_committed: Callable[[str, Commit], None] = lambda group, commit: None
        self.on_refused: Callable[[str, Member, KafkaFailure], None] = lambda group, member, failure: None
        self.on_held: Callable[[str, Member, bool], None] = lambda group, member, holds: None
        self._lives: Counter[str] = Counter()
        """How often each topic was made again."""
        self._gaps = gaps
        self._context = contextvars.copy_context()
        self._stored: dict[tuple[int, int], tuple[int, int]] = {}

    # Topics

    def partitions(self, topic: str, count: int = 1) -> list[SimPartition]:
        """Return the partitions of a topic, made where there are less."""
        found = self.topics.setdefault(topic, [])
        for number in range(len(found), count):
            found.append(SimPartition(KafkaPartition(topic, number)))
            for group in self.groups.values():
                if any(member.reads(topic) for member in group.members):
                    group.changed()
        return found

    def partition(self, place: KafkaPartition) -> SimPartition:
        """Return a partition that is there."""
        return self.topics[place.topic][place.partition]

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic that is there."""
        return f"{crc32(topic.encode()):08x}-{self._lives[topic]}"

    def found(self, place: KafkaPartition) -> SimPartition | None:
        """Return a partition, if it is there."""
        partitions = () if place.topic in self.unseen else self.topics.get(place.topic, ())
        return partitions[place.partition] if place.partition < len(partitions) else None

    def places(self) -> Iterable[KafkaPartition]:
        """All partitions."""
        return [each.place for partitions in self.topics.values() for each in partitions]

    def append(
        self,
        place: KafkaPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        gap: int | None = None,
        transaction: str | None = None,
    ) -> int:
        """Put a record at the end, behind a gap at times; returns its offset."""
        partition = self.partitions(place.topic, place.partition + 1)[place.partition]
        if gap is None:
            gap = (self.random.random() < self._gaps) * self.random.randint(1, 3)
        epoch = partition.epoch if self.has_epochs else -1
        record = KafkaRecord(*place, partition.high + gap, self.clock.wall_ms(), key, value, tuple(headers), epoch)
        partition.append(record, transaction)
        self.on_append(record)
        if transaction is None:
            self.on_counted(record)
        return record.offset

    def append_once(
        self, producer: int, number: int, place: KafkaPartition, record: tuple[Any, ...]
    ) -> tuple[int, int]:
        """Put a record of an idempotent producer at the end, unless it is there; returns partition and offset."""
        known = self._stored.get((producer, number))
        if known is None:
            key, value, headers = record
            known = self._stored[producer, number] = (place.partition, self.append(place, key, value, headers))
        return known

    def end(self, transaction: str, *, commit: bool) -> None:
        """End a transaction, in all partitions."""
        for place in self.places():
            for record in self.partition(place).end(transaction, commit=commit):
                self.on_counted(record)

    def expire(self, place: KafkaPartition, low: int) -> None:
        """Let retention take what is below an offset."""
        self.partition(place).expire(low)

    def cut(self, place: KafkaPartition, high: int) -> None:
        """Lose what a partition has from an offset on."""
        self.partition(place).cut(high)

    def delete(self, topic: str) -> None:
        """Delete a topic, with what groups committed of it; members keep its partitions until they look again."""
        self.deleted[topic] = len(self.topics.pop(topic))
        for group in self.groups.values():
            for place in [each for each in group.committed if each.topic == topic]:
                del group.committed[place]

    def make_again(self, topic: str) -> None:
        """Make a deleted topic again, with as many partitions and nothing in them."""
        self._lives[topic] += 1
        self.topics[topic] = [SimPartition(KafkaPartition(topic, number)) for number in range(self.deleted.pop(topic))]
        for group in self.groups.values():
            if any(member.reads(topic) for member in group.members):
                group.changed()

    # Time, and ways

    def after(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        """Call later, outside of every process."""
        self._context.copy().run(self.scheduler.call_later, seconds, call, *arguments)

    def in_here(self, context: contextvars.Context, call: Callable[..., Any], *arguments: Any) -> None:
        """Call in the context of a client's process, in the next turn."""
        context.copy().run(self.scheduler.call_later, 0.0, call, *arguments)

    def delay(self) -> float:
        """How long a message is under way."""
        return self.random.uniform(0.001, DELAY_SECONDS_MAX)

    def patience(self) -> float:
        """How long a client of a cluster that is down waits before it says so."""
        return self.random.uniform(0, self.patience_seconds)

    def chance(self, share: float) -> bool:
        """Draw."""
        return self.random.random() < share

    def now(self) -> float:
        """Seconds, monotonic."""
        return self.clock.monotonic()

    def link(self) -> SimLink:
        """Return a way to the cluster, for a client in the process that is running."""
        self.links.append(SimLink(self))
        return self.links[-1]

    def stop(self) -> None:
        """The broker is killed: all connections break; its log stays."""
        for link in self.links:
            link.reset()
        self.down = True

    def start(self) -> None:
        """It is there again, with the groups as they were."""
        self.down = False
        for place in self.places():
            self.partition(place).epoch += 1
        for group in self.groups.values():
            group.restarted()

    # Groups

    def group(self, name: str) -> SimGroup:
        """Return a group."""
        if name not in self.groups:
            self.groups[name] = PROTOCOLS[self.protocol](self, name)
        return self.groups[name]

    def owned(self, group: str, place: KafkaPartition, member: Member | None) -> None:
        """Tell that a partition has another owner."""
        self.on_owned(group, place, member)

    def noted(self, group: str, commit: Commit) -> None:
        """Tell of a commit."""
        self.on_committed(group, commit)

    def refused(self, group: str, member: Member, failure: KafkaFailure) -> None:
        """Tell of a commit that was refused."""
        self.on_refused(group, member, failure)

    def held(self, group: str, member: Member, holds: bool, /) -> None:
        """Tell that commits wait behind a join, or do not any more."""
        self.on_held(group, member, holds)

    def expel(self, member: Member) -> None:
        """As if its session were over."""
        self.group(member.group_name).expel(member)

    def forget_members(self) -> None:
        """Expel all that are killed, at once: as if their sessions were over."""
        for group in self.groups.values():
            group.forget()

    def readable(self, place: KafkaPartition, start: int, count: int) -> Sequence[KafkaRecord]:
        """Return records that a consumer may be given."""
        return self.partition(place).read(start, count)
