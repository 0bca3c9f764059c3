"""A member of a group of a Kafka in memory: its thread, its session, what it hears late."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from upstream.kafka.link import (
    Assignment,
    Commit,
    Done,
    Ends,
    KafkaFailure,
    KafkaRecord,
    MemberListener,
    OffsetsTold,
    Place,
    Subscribed,
    Topics,
)
from upstream.kafka.subscriptions import fits
from upstream.testing.kafka_cluster import SimKafka, SimPartition

REVOKE_SECONDS = 10.0
_BATCH = 50
_AGAIN_SECONDS = 0.5


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
        self._epochs: Counter[Place] = Counter()
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
        return any(fits(each.name, topic) for each in self._topics)

    def read_from(self, place: Place, offset: int) -> None:
        """Seek."""
        if place in self._owned:
            self._positions[place] = offset
            self._ended.pop(place, None)
            self._epochs[place] += 1

    def pause(self, places: Sequence[Place]) -> None:
        """Rest."""
        self._resting.update(places)

    def resume(self, places: Sequence[Place]) -> None:
        """Go on."""
        self._resting.difference_update(places)

    def commit(self, commits: Sequence[Commit], done: Done) -> None:
        """Commit, if it is a member then."""
        if self.paused:
            self._backlog.append((self.commit, (commits, done)))
            return

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

    def ends(self, places: Sequence[Place], told: Ends) -> None:
        """Tell lows and highs."""

        def arrive() -> None:
            found = [(each, self._partition(each).low, self._partition(each).high) for each in places]
            self._tell(told, found)

        if not self._cluster.down:
            self._cluster.later(arrive)

    def topics(self, names: Sequence[str], told: Topics) -> None:
        """Tell which are there."""

        def arrive() -> None:
            topics = self._cluster.topics.items()
            self._tell(told, {t: len(found) for t, found in topics if any(fits(name, t) for name in names)})

        if not self._cluster.down:
            self._cluster.later(arrive)

    def offsets_at(self, places: Sequence[Place], time_ms: int, told: OffsetsTold) -> None:
        """Tell them, or that nobody answers."""

        def arrive() -> None:
            if self._cluster.down:
                self._tell(told, None)
                return
            found = {}
            for place in places:
                records = sorted(self._partition(place).records.items())
                found[place] = next((offset for offset, each in records if each.timestamp_ms >= time_ms), None)
            self._tell(told, found)

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

    def fail(self, failure: KafkaFailure) -> None:
        """Its thread ends by a fault: what it has is lost, and others get it."""
        self.dead = True
        self._cluster.expel(self)
        owned, self._owned = sorted(self._owned), set()
        assert self._listener is not None, "it has joined"
        self._listener.lost(owned)
        self._listener.broken(failure)

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
        if self._cluster.down:
            self._cluster.scheduler.call_later(_AGAIN_SECONDS, self._joined)
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
        self._resting.clear()
        if owned and self._listener is not None:
            self._listener.lost(owned)
        self._cluster.later(self._joined)

    def tell_assigned(self, places: Sequence[Place]) -> None:
        """Tell what the coordinator has given."""
        group = self._cluster.group(self.group_name)
        found = []
        for place in places:
            if group.owners.get(place) is not self or place in self._owned:
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
        found = [each for each in found if each.place not in self._owned]
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
                self._resting.difference_update(here)
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
        epoch = self._epochs[place]
        if found:
            self._positions[place] = found[-1].offset + 1
            self._tell(self._records, epoch, found)
        elif self._ended.get(place) != partition.high:
            self._ended[place] = self._positions[place] = partition.high
            self._tell(self._at_end, epoch, place, partition.high)

    def _records(self, epoch: int, found: Sequence[KafkaRecord]) -> None:
        place = Place(found[0].topic, found[0].partition)
        if self._listener is not None and epoch == self._epochs[place] and place in self._owned:
            self._listener.records(found)

    def _at_end(self, epoch: int, place: Place, offset: int) -> None:
        if self._listener is not None and epoch == self._epochs[place] and place in self._owned:
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
