"""A member of a group of a Kafka in memory: its thread, its session, what it hears late."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tests.fakes.kafka.cluster import SimKafka
from tests.fakes.kafka.commits import Asked, SimCommits
from tests.fakes.kafka.link import Answer, SimLink
from tests.fakes.kafka.rounds import ClassicRounds, IncrementalRounds, Rounds
from upstream.kafka.link import (
    Assignment,
    Commit,
    Done,
    Ends,
    KafkaFailure,
    KafkaPartition,
    KafkaRecord,
    LogBounds,
    MemberListener,
    OffsetsReported,
    TopicIds,
    Topics,
    TopicSubscription,
)
from upstream.kafka.positions.new_partitions import NewPartitions
from upstream.kafka.subscriptions import fits, is_expression

REVOKE_SECONDS = 10.0
_BATCH = 50
_AGAIN_SECONDS = 0.5
_STANDS_SECONDS = 2.0
_IDS_SECONDS = 1.0
_ROUNDS: dict[str, type[Rounds]] = {"classic": ClassicRounds, "consumer": IncrementalRounds}


class SimMember:
    """`upstream.kafka.link.GroupMember`.

    Attributes:
        client_id: Whose it is.
        paused: It hears and says nothing; what was under way is heard afterwards. Of a process that stands still as a
            whole (`pyddmq.testing.loop.Process`) all of this happens by itself.
        stands: It has lost the coordinator and finds it no more: it says nothing and is answered nothing.
        dead: Its process is none any more, or it has left.
    """

    def __init__(self, cluster: SimKafka, link: SimLink, group: str, client_id: str, instance_id: str = "") -> None:
        self._cluster = cluster
        self._link = link
        self.group_name = group
        self.client_id = client_id
        self.instance_id = instance_id
        self._listener: MemberListener | None = None
        self._topics: Sequence[TopicSubscription] = ()
        self._positions: dict[KafkaPartition, int] = {}
        self._resting: set[KafkaPartition] = set()
        self._leaders: dict[KafkaPartition, int] = {}
        """The highest epoch of a partition's leader; librdkafka keeps it where a topic is created again."""
        self._read: dict[KafkaPartition, int] = {}
        """The leader's epoch of the record before each position."""
        self._checked: dict[KafkaPartition, int] = {}
        """By which leader's log each position was checked."""
        self._ended: dict[KafkaPartition, int] = {}
        self._terms: dict[KafkaPartition, int] = {}
        """Of what it has, be it known to the node or about to be."""
        self._known: set[KafkaPartition] = set()
        self._term = 0
        self._epochs: dict[KafkaPartition, int] = {}
        self._epoch = 0
        self._giving: set[KafkaPartition] = set()
        self._backlog: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self.paused = False
        self.stands = False
        self.dead = False
        self._rounds = _ROUNDS[cluster.protocol](cluster, link, self)
        self._commits = SimCommits(link, self._rounds.put, self._terms.get, self._report, self.later)
        self._new_partitions = NewPartitions()
        self._commits.on_committed = self._new_partitions.committed

    # By the node

    def join(self, listener: MemberListener, topics: Sequence[TopicSubscription]) -> None:
        """Join."""
        assert self._listener is None, "a member joins once"
        self._listener = listener
        self._topics = list(topics)
        self._look_before(self._rounds.begin)
        self._poll()

    def subscribe(self, topics: Sequence[TopicSubscription]) -> None:
        """Read others."""
        self._topics = list(topics)
        self._look_before(self._rounds.subscribed)

    def read_from(self, place: KafkaPartition, offset: int, leader_epoch: int = -1) -> None:
        """Seek."""
        if place in self._terms:
            self._positions[place] = offset
            self._read[place] = leader_epoch
            self._checked.pop(place, None)
            self._ended.pop(place, None)
            self._epoch += 1
            self._epochs[place] = self._epoch

    def pause(self, places: Sequence[KafkaPartition]) -> None:
        """Rest."""
        self._resting.update(places)

    def resume(self, places: Sequence[KafkaPartition]) -> None:
        """Go on."""
        self._resting.difference_update(places)

    def commit(self, commits: Sequence[Commit], done: Done, *, soon: bool = False) -> None:
        """Commit, if it is a member then; always without delay."""
        if self.dead:
            return
        if self.paused:
            self._backlog.append((self.commit, (commits, done)))
            return
        if self.stands:
            failure = KafkaFailure("TIMED_OUT", "no answer to a commit", unknown=True)
            self.later(_STANDS_SECONDS, self._report, done, failure)
            return
        terms = [self._terms.get(KafkaPartition(each.topic, each.partition)) for each in commits]
        if commits:
            self._commits.ask(Asked(commits, terms, done))
        else:
            self._cluster.scheduler.call_soon(self._report, done, None)

    def ends(self, places: Sequence[KafkaPartition], reported: Ends) -> None:
        """Tell lows and ends."""

        def request(answer: Answer) -> None:
            found = {each: self._cluster.found(each) for each in places}
            ends = [
                LogBounds(place, each.low, each.high, each.stable) for place, each in found.items() if each is not None
            ]
            answer(
                self._report, reported, ends, {place: _missing(place) for place, each in found.items() if each is None}
            )

        self._link.ask(request, lambda _: None)

    def topics(self, names: Sequence[str], reported: Topics) -> None:
        """Tell which are there."""

        def request(answer: Answer) -> None:
            topics = self._cluster.topics.items()
            found = {t: len(found) for t, found in topics if any(fits(name, t) for name in names)}
            named = [name for name in names if not is_expression(name)]
            failures = {name: _missing(KafkaPartition(name, 0)) for name in named if name not in found}
            failures |= {name: self._cluster.refusals[name] for name in named if name in self._cluster.refusals}
            answer(self._report, reported, found, failures)

        self._link.ask(request, lambda _: None)

    def topic_ids(self, names: Sequence[str], reported: TopicIds) -> None:
        """Tell them, as late as by a process."""

        def request(answer: Answer) -> None:
            there = [name for name in names if name in self._cluster.topics]
            answer(self._report, reported, {name: self._cluster.topic_id(name) for name in there})

        self._cluster.scheduler.call_later(_IDS_SECONDS, self._link.ask, request, lambda _: None)

    def offsets_at(self, places: Sequence[KafkaPartition], time_ms: int, reported: OffsetsReported) -> None:
        """Tell them, or that nobody answers."""

        def request(answer: Answer) -> None:
            answer(self._report, reported, {place: self._at(place, time_ms) for place in places})

        self._link.ask(request, lambda _: self._report(reported, None))

    def abandon(self) -> None:
        """End: the group hears of it by the session alone."""
        self.dead = True
        self._listener = None

    def leave(self, done: Callable[[], None]) -> None:
        """Leave: what it has is revoked first."""

        def gone() -> None:
            self.dead = True
            done()

        def given_up() -> None:
            self._forget(list(self._terms))
            self._rounds.leave(gone)

        self._rounds.unsubscribed()
        known = sorted(self._known)
        if known and self._listener is not None:
            self._giving.update(known)
            self._listener.revoked(known, given_up)
        else:
            given_up()

    # By the world

    def kill(self) -> None:
        """The process has died; the coordinator notices by its silence."""
        self.dead = True

    def fail(self, failure: KafkaFailure) -> None:
        """Its thread ends by a fault: what it has is lost, and others get it."""
        self.dead = True
        if not self.instance_id:
            self._cluster.expel(self)
        known = sorted(self._known)
        self._forget(list(self._terms))
        assert self._listener is not None, "it has joined"
        self._listener.lost(known)
        self._listener.broken(failure)

    def wake(self) -> None:
        """The process goes on after a pause: first it hears what had been under way, then that it was expelled."""
        self.paused = False
        backlog, self._backlog = self._backlog, deque()
        for call, arguments in backlog:
            call(*arguments)

    # By its rounds

    @property
    def claims(self) -> Collection[KafkaPartition]:
        """What it has, with what it is about to give up."""
        return self._terms.keys()

    def reads(self, topic: str) -> bool:
        """Whether it subscribes a topic."""
        return any(fits(each.name, topic) for each in self._topics)

    def nudge(self) -> None:
        """There is news: the next heartbeat is brought forward, if it comes through."""
        if self._cluster.chance(self._cluster.prompt_share):
            self._link.report(self._report, self._rounds.beat)

    def later(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        """Call in its thread."""
        self._cluster.scheduler.call_later(seconds, self._report, call, *arguments)

    def to_have(self, places: Collection[KafkaPartition], settled: Callable[[], None]) -> None:
        """Have these and no others."""
        gone = [place for place in self._terms if place not in places and place not in self._giving]
        new = [place for place in places if place not in self._terms]
        for place in new:
            self._term += 1
            self._terms[place] = self._term
            self._epochs.pop(place, None)
            self._positions.pop(place, None)
        if new:
            self._look_up(new)
        elif not gone and self._listener is not None:
            self._listener.assigned([])
        if gone:
            self._give_up(sorted(gone), settled)

    def expelled(self) -> None:
        """It has nothing any more."""
        known = sorted(self._known)
        self._giving.clear()
        self._forget(list(self._terms))
        self._commits.expelled()
        if known and self._listener is not None:
            self._listener.lost(known)

    # Its thread

    def _give_up(self, places: list[KafkaPartition], settled: Callable[[], None]) -> None:
        known = [place for place in places if place in self._known]
        terms = [self._terms[place] for place in places]
        self._giving.update(places)
        ended = False

        def over() -> None:
            nonlocal ended
            if not ended:
                ended = True
                mine = [place for place, term in zip(places, terms, strict=True) if self._terms.get(place) == term]
                self._giving.difference_update(mine)
                self._forget(mine)
                settled()

        def too_late() -> None:
            if not ended and self._listener is not None:
                still = [place for place in known if place in self._known]
                over()
                self._listener.lost(still)

        assert self._listener is not None, "it has joined"
        if known:
            self.later(REVOKE_SECONDS, too_late)
            self._listener.revoked(known, over)
        else:
            over()

    def _forget(self, places: Sequence[KafkaPartition]) -> None:
        for place in places:
            self._terms.pop(place, None)
            self._positions.pop(place, None)
            self._epochs.pop(place, None)
            self._ended.pop(place, None)
        self._known.difference_update(places)
        self._resting.difference_update(places)
        self._giving.difference_update(places)

    def _look_before(self, then: Callable[[], None]) -> None:
        """Go on once it is known what is there of the topics before they are subscribed."""
        names = self._new_partitions.missing(self._topics)
        if not names:
            then()
            return

        def request(answer: Answer) -> None:
            committed = set(self._cluster.group(self.group_name).committed)
            places = list(self._cluster.places())
            there = {name: [place for place in places if fits(name, place.topic)] for name in names}
            answer(self._report, looked_up, there, committed)

        def looked_up(there: Mapping[str, Sequence[KafkaPartition]], committed: Collection[KafkaPartition]) -> None:
            for name, places in there.items():
                self._new_partitions.looked_up(name, places, [place for place in places if place in committed])
            then()

        self._link.ask(request, lambda _: self.later(_AGAIN_SECONDS, self._look_before, then))

    def _look_up(self, places: Sequence[KafkaPartition]) -> None:
        """Tell the node of partitions, once it is known where they stand."""
        terms = {place: self._terms[place] for place in places}

        def request(answer: Answer) -> None:
            there = [place for place in places if self._cluster.found(place) is not None]
            answer(self._report, reported, [self._found(place) for place in there])
            if len(there) < len(places):
                self.later(_AGAIN_SECONDS, again)

        def reported(found: Sequence[Assignment]) -> None:
            here = [each for each in found if self._terms.get(each.place) == terms[each.place]]
            here = [each for each in here if each.place not in self._known and each.place not in self._giving]
            self._known.update(each.place for each in here)
            if here and self._listener is not None:
                self._listener.assigned(here)

        def failed(_: KafkaFailure) -> None:
            self.later(_AGAIN_SECONDS, again)

        def again() -> None:
            left = [place for place in places if self._terms.get(place) == terms[place] and place not in self._known]
            if left:
                self._look_up(left)

        self._link.ask(request, failed)

    def _found(self, place: KafkaPartition) -> Assignment:
        partition = self._cluster.partition(place)
        offset, text = self._cluster.group(self.group_name).committed.get(place, (None, ""))
        times = [each.time_ms for each in self._topics if each.name == place.topic and each.time_ms is not None]
        at_time = None
        if times:
            found = self._at(place, times[0])
            at_time = partition.stable if found is None else found
        appeared = offset is None and self._new_partitions.is_new(place)
        if offset is not None:
            self._new_partitions.committed([place])
        epoch = self._cluster.group(self.group_name).leader_epochs.get(place, -1) if offset is not None else -1
        return Assignment(
            *place, partition.low, partition.high, offset, text, at_time, partition.stable, appeared, epoch
        )

    def _at(self, place: KafkaPartition, time_ms: int) -> int | None:
        records = sorted(self._cluster.partition(place).records.items())
        return next((offset for offset, each in records if each.timestamp_ms >= time_ms), None)

    def _poll(self) -> None:
        if self.dead:
            return
        if not self.paused and self._link.is_open:
            for place in sorted(self._positions):
                if place in self._known and place not in self._resting:
                    self._fetch(place)
        self._cluster.scheduler.call_later(self._cluster.poll_seconds + self._cluster.delay(), self._poll)

    def _fetch(self, place: KafkaPartition) -> None:
        partition, epoch = self._cluster.found(place), self._epochs.get(place, 0)
        if partition is None:
            return
        for each in self._cluster.topics[place.topic]:
            self._leaders[each.place] = max(self._leaders.get(each.place, 0), each.epoch)
        if partition.epoch < self._leaders[place]:
            return  # The leader refuses such a fetch, and librdkafka tries again without a word.
        if self._cluster.has_epochs and self._checked.get(place) != partition.epoch:
            self._checked[place] = partition.epoch
            # Where the log is another one it is read from there, as librdkafka does (KIP-320).
            if (read := self._read.get(place, -1)) >= 0 and (end := partition.end_of(read)) < self._positions[place]:
                self._positions[place] = end
                self._ended.pop(place, None)
        if self._positions[place] > partition.high:
            # Out of range: where librdkafka begins is `auto.offset.reset`.
            self._positions[place] = partition.low
            self._ended.pop(place, None)
        found = partition.read(max(self._positions[place], partition.low), _BATCH)
        # What was fetched waits in the client for the next poll: one that stands still finds it there afterwards.
        if found:
            self._positions[place] = found[-1].offset + 1
            self._read[place] = found[-1].leader_epoch
            self.later(0.001, self._records, epoch, found)
        elif self._positions[place] <= (end := partition.stable) != self._ended.get(place):
            # Of a position above it librdkafka tells no end.
            self._ended[place] = self._positions[place] = end
            self.later(0.001, self._at_end, epoch, place, end)

    def _records(self, epoch: int, found: Sequence[KafkaRecord]) -> None:
        place = KafkaPartition(found[0].topic, found[0].partition)
        if self._listener is not None and place in self._known and epoch == self._epochs.get(place):
            self._listener.records(found)

    def _at_end(self, epoch: int, place: KafkaPartition, offset: int) -> None:
        if self._listener is not None and place in self._known and epoch == self._epochs.get(place):
            self._listener.at_end(place, offset)

    def _report(self, call: Callable[..., Any], *arguments: Any) -> None:
        if self.dead:
            return
        if self.paused:
            self._backlog.append((call, arguments))
        else:
            call(*arguments)


def _missing(place: KafkaPartition) -> KafkaFailure:
    return KafkaFailure("UNKNOWN_TOPIC_OR_PART", f"there is no partition {place.partition} of topic {place.topic}")
