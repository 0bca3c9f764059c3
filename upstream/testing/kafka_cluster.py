"""A Kafka cluster in memory, by `upstream.kafka.link`: partitions with gaps, a coordinator for groups, fenced commits.

What of Kafka matters to who reads: order in a partition only; offsets that nobody can read (compaction, transaction
markers); everything takes some time; a member that is silent for longer than its session loses its partitions without
being told in time; commits of one who is no member are refused; a rebalance revokes first and assigns when the members
have given up what they had. Assignments are as even as can be, and sticky.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from broker.runtime.seams import Clock, Scheduler
from upstream.kafka.link import (
    Assignment,
    Commit,
    Done,
    Headers,
    KafkaFailure,
    KafkaRecord,
    MemberListener,
    Place,
    Produced,
    Subscribed,
)

DELAY_SECONDS_MAX = 0.02
REVOKE_SECONDS = 10.0
_BATCH = 50


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

    members: list[SimMember] = field(default_factory=list)
    generation: int = 0
    owners: dict[Place, SimMember] = field(default_factory=dict)
    target: dict[Place, SimMember] = field(default_factory=dict)
    committed: dict[Place, tuple[int, str]] = field(default_factory=dict)


class SimKafka:
    """The cluster; it outlives the nodes.

    Attributes:
        session_seconds: Silence after which a member is none any more.
        down: Nothing answers.
    """

    def __init__(
        self, random: Random, *, clock: Clock, scheduler: Scheduler, session_seconds: float = 10.0, gaps: float = 0.3
    ) -> None:
        self.random = random
        self.clock = clock
        self.scheduler = scheduler
        self.session_seconds = session_seconds
        self.down = False
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
        wanted: dict[Place, list[SimMember]] = {}
        for member in members:
            for topic, partitions in self.topics.items():
                if member.reads(topic):
                    for partition in partitions:
                        wanted.setdefault(partition.place, []).append(member)
        counts: Counter[SimMember] = Counter()
        target: dict[Place, SimMember] = {}
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

    def _give(self, group: _Group, member: SimMember, places: Sequence[Place]) -> None:
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

    def expel(self, member: SimMember) -> None:
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

    # What makes the ways to it

    def client(self) -> SimClient:
        """Return one node's ways to it."""
        return SimClient(self)


class SimMember:
    """`upstream.kafka.link.GroupMember`.

    Attributes:
        paused: The process stands still (SIGSTOP): it hears and says nothing; what was under way is heard afterwards.
    """

    def __init__(self, cluster: SimKafka, group: str) -> None:
        self._cluster = cluster
        self.group_name = group
        self._listener: MemberListener | None = None
        self._topics: Sequence[Subscribed] = ()
        self._positions: dict[Place, int] = {}
        self._resting: set[Place] = set()
        self._ended: dict[Place, int] = {}
        self._owned: set[Place] = set()
        self._epoch = 0
        self._heard = cluster.clock.monotonic()
        self._backlog: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self.paused = False
        self.dead = False
        self.fenced = False

    # By the node

    def join(self, listener: MemberListener, topics: Sequence[Subscribed]) -> None:
        """Join."""
        assert self._listener is None, "a member joins once"
        self._listener = listener
        self._topics = list(topics)
        self._cluster.later(self._joined)
        self._beat()
        self._poll()

    def subscribe(self, topics: Sequence[Subscribed]) -> None:
        """Read others."""
        self._topics = list(topics)
        self._cluster.rebalance(self._cluster.group(self.group_name))

    def reads(self, topic: str) -> bool:
        """Whether it subscribes a topic."""
        return any(
            re.match(each.name, topic) is not None if each.name.startswith("^") else each.name == topic
            for each in self._topics
        )

    def read_from(self, place: Place, offset: int) -> None:
        """Seek."""
        if place in self._owned:
            self._positions[place] = offset
            self._ended.pop(place, None)
            self._epoch += 1

    def pause(self, places: Sequence[Place]) -> None:
        """Rest."""
        self._resting.update(places)

    def resume(self, places: Sequence[Place]) -> None:
        """Go on."""
        self._resting.difference_update(places)

    def commit(self, commits: Sequence[Commit], done: Done) -> None:
        """Commit, if it is a member then."""

        def arrive() -> None:
            if self.dead:
                return
            if self._cluster.down:
                self._tell(done, KafkaFailure("_TRANSPORT", "the cluster cannot be reached", unknown=True))
                return
            group = self._cluster.group(self.group_name)
            owned = all(group.owners.get(Place(each.topic, each.partition)) is self for each in commits)
            if self not in group.members or not owned:
                self._tell(done, KafkaFailure("ILLEGAL_GENERATION", "not a member any more", fenced=True))
                return
            self._heard = self._cluster.clock.monotonic()
            for each in commits:
                assert len(each.metadata) <= 4095, "Kafka refuses longer texts"
                group.committed[Place(each.topic, each.partition)] = (each.offset, each.metadata)
            self._tell(done, None)

        self._cluster.later(arrive)

    def ends(self, places: Sequence[Place], told: Callable[[Sequence[tuple[Place, int, int]]], None]) -> None:
        """Tell lows and highs."""

        def arrive() -> None:
            found = [(each, self._partition(each).low, self._partition(each).high) for each in places]
            self._tell(told, found)

        if not self._cluster.down:
            self._cluster.later(arrive)

    def leave(self, done: Callable[[], None]) -> None:
        """Leave: what it has is revoked first."""

        def gone() -> None:
            self._cluster.expel(self)
            self.dead = True
            self._cluster.later(done)

        def given_up() -> None:
            self._owned.clear()
            self._cluster.later(gone)

        if self._owned and self._listener is not None:
            self._listener.revoked(sorted(self._owned), given_up)
        else:
            given_up()

    # By the world

    def kill(self) -> None:
        """The process has died; the coordinator notices by its silence."""
        self.dead = True

    def wake(self) -> None:
        """The process goes on after a pause: first it hears what had been under way, then that it was expelled."""
        self.paused = False
        backlog, self._backlog = self._backlog, deque()
        for call, arguments in backlog:
            call(*arguments)

    # Its thread

    def _joined(self) -> None:
        if self.dead:
            return
        self._heard = self._cluster.clock.monotonic()
        group = self._cluster.group(self.group_name)
        group.members.append(self)
        self._cluster.rebalance(group)

    def _beat(self) -> None:
        """Tell the coordinator that it lives, and look whether it still is a member."""
        if not self.dead and not self.paused and not self._cluster.down:
            self._heard = self._cluster.clock.monotonic()
        group = self._cluster.group(self.group_name)
        if self in group.members and self._cluster.clock.monotonic() - self._heard > self._cluster.session_seconds:
            self._cluster.expel(self)
            self._tell(self._expelled)
        if not self.dead or self in group.members:
            self._cluster.scheduler.call_later(self._cluster.session_seconds / 3, self._beat)

    def _expelled(self) -> None:
        owned, self._owned = sorted(self._owned), set()
        if owned and self._listener is not None:
            self._listener.lost(owned)
        self._cluster.later(self._joined)

    def tell_assigned(self, places: Sequence[Place]) -> None:
        """Tell what the coordinator has given."""
        group = self._cluster.group(self.group_name)
        found = []
        for place in places:
            if group.owners.get(place) is not self:
                continue
            partition = self._partition(place)
            offset, text = group.committed.get(place, (None, ""))
            if offset is not None and not partition.low <= offset <= partition.high:
                offset, text = None, ""
            times = [each.time_ms for each in self._topics if each.name == place.topic and each.time_ms is not None]
            at_time = next(
                (o for o, r in sorted(partition.records.items()) if times and r.timestamp_ms >= times[0]),
                partition.high,
            )
            found.append(Assignment(*place, partition.low, partition.high, offset, text, at_time if times else None))
        self._tell(self._assigned, found)

    def _assigned(self, found: Sequence[Assignment]) -> None:
        assert self._listener is not None, "it has joined"
        self._owned.update(each.place for each in found)
        self._listener.assigned(found)

    def tell_revoked(self, places: Sequence[Place]) -> None:
        """Tell what it must give up."""
        self._tell(self._revoked, places)

    def _revoked(self, places: Sequence[Place]) -> None:
        here = [place for place in places if place in self._owned]
        ended = False

        def done() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._owned.difference_update(here)
                for place in here:
                    self._positions.pop(place, None)
                self._cluster.later(self._cluster.released, self._cluster.group(self.group_name), list(places))

        assert self._listener is not None, "it has joined"
        self._cluster.scheduler.call_later(REVOKE_SECONDS, done)
        if here:
            self._listener.revoked(here, done)
        else:
            done()

    def _poll(self) -> None:
        if self.dead:
            return
        if not self.paused and not self._cluster.down:
            for place in sorted(self._positions):
                if place in self._owned and place not in self._resting:
                    self._fetch(place)
        self._cluster.later(self._poll)

    def _fetch(self, place: Place) -> None:
        partition, start = self._partition(place), max(self._positions[place], self._partition(place).low)
        found = [each for offset, each in sorted(partition.records.items()) if offset >= start][:_BATCH]
        epoch = self._epoch
        if found:
            self._positions[place] = found[-1].offset + 1
            self._tell(self._records, epoch, found)
        elif self._ended.get(place) != partition.high:
            self._ended[place] = self._positions[place] = partition.high
            self._tell(self._at_end, epoch, place, partition.high)

    def _records(self, epoch: int, found: Sequence[KafkaRecord]) -> None:
        here = found[0]
        if self._listener is not None and epoch == self._epoch and Place(here.topic, here.partition) in self._owned:
            self._listener.records(found)

    def _at_end(self, epoch: int, place: Place, offset: int) -> None:
        if self._listener is not None and epoch == self._epoch and place in self._owned:
            self._listener.at_end(place, offset)

    def _partition(self, place: Place) -> SimPartition:
        return self._cluster.topics[place.topic][place.partition]

    def _tell(self, call: Callable[..., Any], *arguments: Any) -> None:
        if self.dead:
            return
        if self.paused:
            self._backlog.append((call, arguments))
        else:
            call(*arguments)


class SimClient:
    """`upstream.kafka.link.KafkaClient` of one node."""

    def __init__(self, cluster: SimKafka) -> None:
        self._cluster = cluster
        self.members: list[SimMember] = []

    def member(self, group: str, client_id: str) -> SimMember:
        """Return a member."""
        member = SimMember(self._cluster, group)
        self.members.append(member)
        return member

    def reader(self) -> SimReader:
        """Return a reader."""
        return SimReader(self._cluster)

    def producer(self) -> SimProducer:
        """Return a producer."""
        return SimProducer(self._cluster)

    def kill(self) -> None:
        """The node has died."""
        for member in self.members:
            member.kill()


class SimReader:
    """`upstream.kafka.link.PartitionReader`."""

    def __init__(self, cluster: SimKafka) -> None:
        self._cluster = cluster

    def fetch(self, place: Place, offsets: Sequence[int], there: Callable[[Sequence[KafkaRecord]], None]) -> None:
        """Read again."""

        def arrive() -> None:
            records = self._cluster.topics[place.topic][place.partition].records
            there([records[each] for each in offsets if each in records])

        self._cluster.later(arrive)

    def close(self) -> None:
        """Nothing is held."""


class SimProducer:
    """`upstream.kafka.link.Producer`."""

    def __init__(self, cluster: SimKafka) -> None:
        self._cluster = cluster

    def produce(  # noqa: PLR0917 - as the protocol says
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        """Append some time later."""

        def arrive() -> None:
            if self._cluster.down:
                self._cluster.later(done, KafkaFailure("_MSG_TIMED_OUT", "not acknowledged", unknown=True), -1, -1)
                return
            count = len(self._cluster.partitions(topic))
            number = partition if partition is not None else sum(key or b"") % count
            offset = self._cluster.append(Place(topic, number), key, value, headers)
            self._cluster.later(done, None, number, offset)

        self._cluster.later(arrive)

    def partitions(self, topic: str) -> int | None:
        """As they are."""
        found = self._cluster.topics.get(topic)
        return None if found is None else len(found)

    def close(self, seconds: float) -> None:
        """Nothing is held."""
