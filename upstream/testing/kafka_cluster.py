"""A Kafka cluster in memory, by `upstream.kafka.link`: partitions with gaps, a coordinator for groups, fenced commits.

What of Kafka matters to who reads: order in a partition only; offsets that nobody can read (compaction, transaction
markers); everything takes some time; a member that is silent for longer than its session loses its partitions without
being told in time; commits of one who is no member are refused; a rebalance revokes first and assigns when the members
have given up what they had. Assignments are as even as can be, and sticky.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from broker.runtime.seams import Clock, Scheduler
from upstream.kafka.link import (
    Headers,
    KafkaRecord,
    Place,
)

DELAY_SECONDS_MAX = 0.02


class Member(Protocol):
    """A member, as the coordinator sees it."""

    group_name: str

    def reads(self, topic: str) -> bool:
        """Whether it subscribes a topic."""
        ...

    def tell_assigned(self, places: Sequence[Place]) -> None:
        """Tell what the coordinator has given."""
        ...

    def tell_revoked(self, places: Sequence[Place]) -> None:
        """Tell what it must give up."""
        ...


class SimPartition:
    """One partition, whoever reads it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.records: dict[int, KafkaRecord] = {}
        self.low = 0
        self.high = 0


@dataclass(slots=True)
class _Group:
    """What the coordinator has of one group."""

    members: list[Member] = field(default_factory=list)
    generation: int = 0
    owners: dict[Place, Member] = field(default_factory=dict)
    target: dict[Place, Member] = field(default_factory=dict)
    committed: dict[Place, tuple[int, str]] = field(default_factory=dict)


class SimKafka:
    """The cluster; it outlives the nodes.

    Attributes:
        session_seconds: Silence after which a member is none any more.
        down: Nothing answers.
        missing: Topics to which nobody may produce.
    """

    def __init__(
        self, random: Random, *, clock: Clock, scheduler: Scheduler, session_seconds: float = 10.0, gaps: float = 0.3
    ) -> None:
        self.random = random
        self.clock = clock
        self.scheduler = scheduler
        self.session_seconds = session_seconds
        self.down = False
        self.missing: set[str] = set()
        self._gaps = gaps
        self.topics: dict[str, list[SimPartition]] = {}
        self.groups: dict[str, _Group] = {}

    # Topics

    def partitions(self, topic: str, count: int = 1) -> list[SimPartition]:
        """Return the partitions of a topic, made where there are less."""
        found = self.topics.setdefault(topic, [])
        for number in range(len(found), count):
            found.append(SimPartition(Place(topic, number)))
            for group in self.groups.values():
                self.rebalance(group)
        return found

    def append(
        self, place: Place, key: bytes | None, value: bytes | None, headers: Headers = (), *, gap: int | None = None
    ) -> int:
        """Put a record at the end, behind a gap at times; returns its offset."""
        partition = self.partitions(place.topic, place.partition + 1)[place.partition]
        if gap is None:
            gap = (self.random.random() < self._gaps) * self.random.randint(1, 3)
        offset = partition.high + gap
        partition.records[offset] = KafkaRecord(*place, offset, self.clock.wall_ms(), key, value, tuple(headers))
        partition.high = offset + 1
        return offset

    def expire(self, place: Place, low: int) -> None:
        """Let retention take what is below an offset."""
        partition = self.topics[place.topic][place.partition]
        partition.low = max(partition.low, min(low, partition.high))
        for offset in [each for each in partition.records if each < partition.low]:
            del partition.records[offset]

    def later(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call in a moment."""
        self.scheduler.call_later(self.random.uniform(0.001, DELAY_SECONDS_MAX), call, *arguments)

    # The coordinator

    def group(self, name: str) -> _Group:
        """Return a group."""
        return self.groups.setdefault(name, _Group())

    def rebalance(self, group: _Group) -> None:
        """Give each partition of the subscribed topics to one member; those that move are revoked first."""
        group.generation += 1
        members = group.members
        wanted: dict[Place, list[Member]] = {}
        for member in members:
            for topic, partitions in self.topics.items():
                if member.reads(topic):
                    for partition in partitions:
                        wanted.setdefault(partition.place, []).append(member)
        counts: Counter[Member] = Counter()
        target: dict[Place, Member] = {}
        most = -(-len(wanted) // len(members)) if members else 0
        for place, able in sorted(wanted.items()):
            owner = group.owners.get(place)
            if owner in able and counts[owner] < most:
                target[place] = owner
                counts[owner] += 1
        for place, able in sorted(wanted.items()):
            if place not in target:
                target[place] = min(able, key=lambda each: (counts[each], members.index(each)))
                counts[target[place]] += 1
        for member in members:
            mine = [place for place, owner in group.owners.items() if owner is member]
            if gone := [place for place in mine if target.get(place) is not member]:
                self.later(member.tell_revoked, gone)
        group.target = target
        for member in members:
            new = [place for place, owner in target.items() if owner is member and place not in group.owners]
            self._give(group, member, new)
            if not new:
                self.later(member.tell_assigned, [])

    def _give(self, group: _Group, member: Member, places: Sequence[Place]) -> None:
        for place in places:
            group.owners[place] = member
        if places:
            self.later(member.tell_assigned, list(places))

    def released(self, group: _Group, places: Sequence[Place]) -> None:
        """A member has given partitions up: they go to whose they are to be."""
        for place in places:
            group.owners.pop(place, None)
            owner = group.target.get(place)
            if owner is not None and owner in group.members:
                self._give(group, owner, [place])

    def expel(self, member: Member) -> None:
        """Its session is over, or it left: its partitions are free."""
        group = self.group(member.group_name)
        if member in group.members:
            group.members.remove(member)
            for place in [place for place, owner in group.owners.items() if owner is member]:
                del group.owners[place]
            self.rebalance(group)

    def forget_members(self) -> None:
        """Expel all that are killed, at once: as if their sessions were over."""
        for group in self.groups.values():
            group.members.clear()
            group.owners.clear()
            group.target.clear()
