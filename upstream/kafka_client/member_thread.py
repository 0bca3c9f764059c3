"""The thread of one member: it polls, and everything that librdkafka reports of a rebalance happens in its polls.

    given by on_assign, resting -> looked up, `assigned` is posted -> read from an offset -> reported
    on_revoke: `revoked` is posted, and the thread waits for its end -> unassigned
    on_lost:   `lost` is posted -> unassigned

Each time that a partition is given begins a term of its own, so that what the loop asks for of a former one is dropped.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

from broker.runtime.seams import Clock
from upstream.kafka.group_protocol import CLASSIC
from upstream.kafka.link import Assignment, KafkaFailure, KafkaPartition, TopicSubscription
from upstream.kafka.positions.new_partitions import NewPartitions
from upstream.kafka_client.commits import AGAIN_SECONDS, CommitRequest, ConsumerCommits
from upstream.kafka_client.lookups import assignments_of, look_before, subscribes
from upstream.kafka_client.member_protocol import REPLACED, ProtocolChoice, is_replaced, is_unsupported
from upstream.kafka_client.package import confluent, failure_of
from upstream.kafka_client.posting import Post, Room
from upstream.kafka_client.records import PartitionRecords, batches_of
from upstream.kafka_client.troubles import ClientTroubles

# Which partitions of a consumer are read and which rest.
#
# librdkafka reads what is assigned at once, while a listener says first from where (`read_from`). So a partition rests
# from its assignment on, and goes when it is read and the listener has not paused it. All calls are made in the
# member's thread.


class Gates:
    """The gates of one consumer, which is given afterwards."""

    def __init__(self) -> None:
        self.consumer: Any = None
        self._read: set[KafkaPartition] = set()
        self._shut: set[KafkaPartition] = set()
        self._package = confluent()

    def shut(self, places: Iterable[KafkaPartition]) -> None:
        """Let these rest."""
        now = [each for each in places if each not in self._shut]
        self._shut.update(now)
        self._call("pause", [each for each in now if each in self._read])

    def unshut(self, places: Iterable[KafkaPartition]) -> None:
        """Let these continue."""
        now = [each for each in places if each in self._shut]
        self._shut.difference_update(now)
        self._call("resume", [each for each in now if each in self._read])

    def given(self, places: Iterable[KafkaPartition]) -> None:
        """Let what was just assigned rest until it is read; it was not paused yet."""
        now = list(places)
        self.gone(now)
        self._call("pause", now)

    def reads(self, place: KafkaPartition) -> None:
        """Let this go, unless it is paused."""
        if place not in self._read:
            self._read.add(place)
            if place not in self._shut:
                self._call("resume", [place])

    def gone(self, places: Iterable[KafkaPartition]) -> None:
        """Forget these."""
        now = set(places)
        self._read -= now
        self._shut -= now

    def _call(self, name: str, places: list[KafkaPartition]) -> None:
        if places:
            make = self._package.TopicPartition
            # One that went at this moment is not paused any more in any case.
            with contextlib.suppress(self._package.KafkaException):
                getattr(self.consumer, name)([make(*each) for each in places])


POLL_SECONDS = 0.02
"""How long an order may wait for an idle thread, a commit for one: nothing wakes a poll."""
SOON_SECONDS = 0.002
"""Likewise while a caller waits for commits: five hundred polls a second, which is half a hundredth of a processor."""
SOON_FOR_SECONDS = 1.0
"""So long after a commit that a caller waited for the next one is expected."""
BATCH = 500
_AGAIN_SECONDS = 1.0
_PROBE_SECONDS = 0.5
_LEAVE_ROUNDS = 250


class MemberThreadListener(Protocol):
    """The member's side in the loop."""

    def on_assigned(self, assignments: Sequence[Assignment], terms: Sequence[int]) -> None:
        """Partitions were given."""

    def on_revoked(self, places: Sequence[KafkaPartition], release: Callable[[], None]) -> None:
        """Partitions must be released."""

    def on_lost(self, places: Sequence[KafkaPartition]) -> None:
        """Partitions are gone."""

    def on_batch(self, batch: PartitionRecords) -> None:
        """Records and ends came."""

    def on_broken(self, failure: KafkaFailure) -> None:
        """The thread has ended by a fault."""

    def on_left(self) -> None:
        """The member has left."""


class PartitionSeek(NamedTuple):
    """A wish to read a partition from an offset on."""

    offset: int
    epoch: int
    term: int
    leader_epoch: int


class MemberThread:
    """Polls one consumer."""

    def __init__(
        self,
        group: str,
        make: Callable[..., Any],
        make_uncommitted: Callable[[], Any],
        reported: MemberThreadListener,
        *,
        post: Post,
        room: Room,
        troubles: ClientTroubles,
        clock: Clock,
        revoke_seconds: float,
        nothing_seconds: float,
        choice: ProtocolChoice,
        between_polls: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """Set up; `start` begins.

        Args:
            group: Names the thread.
            make: Makes the consumer, by a protocol and with callbacks.
            make_uncommitted: Makes one that reads all records, for a question.
            reported: The callback, through `post`.
            post: The way to the loop.
            room: Bounds what is posted.
            troubles: Told of errors.
            clock: For attempts again.
            revoke_seconds: How long a revoke may be held.
            nothing_seconds: After so long without an assignment, of a cluster that answers, there is none. Only with
                KIP-848: by the classic protocol brokers say so.
            choice: Of the protocol. With `auto` the consumer is made in the thread, once that is found.
            between_polls: Called with the consumer before each poll.
        """
        self._make_uncommitted = make_uncommitted
        self._reported = reported
        self._post = post
        self._room = room
        self._troubles = troubles
        self._clock = clock
        self._revoke_seconds = revoke_seconds
        self._nothing_seconds: float | None = nothing_seconds
        self._make = make
        self._choice = choice
        self._unsupported: KafkaFailure | None = None
        self._replaced: KafkaFailure | None = None
        self._between_polls = between_polls
        self._nothing_at: float | None = None
        self._package = confluent()
        self._end_code = self._package.KafkaError._PARTITION_EOF
        self._topics: Sequence[TopicSubscription] = ()
        self._subscribes = False
        self._subscribe_at = 0.0
        self._new_partitions = NewPartitions()
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._terms: dict[KafkaPartition, int] = {}
        self._term = 0
        self._new: list[KafkaPartition] = []
        self._new_at = 0.0
        self._wanted: dict[KafkaPartition, PartitionSeek] = {}
        self._reading: dict[KafkaPartition, int] = {}
        self._leaving = False
        self._probe_at = 0.0
        self._soon_until = 0.0
        self._gates = Gates()
        self._commits = ConsumerCommits(post, troubles, clock, self._terms.get)
        self._consumer: Any = None
        self._commits.on_committed = self._new_partitions.committed
        if not choice.is_auto and (protocol := choice.of(())) is not None:
            # At once, so that settings which are refused are known.
            self._begin_by(protocol)
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"kafka-{group}")

    # Called in the loop

    def start(self, topics: Sequence[TopicSubscription]) -> None:
        """Join for these topics."""
        self.subscribe(topics)
        self._thread.start()

    def subscribe(self, topics: Sequence[TopicSubscription]) -> None:
        """Read these topics and no others."""
        self._orders.put(lambda: self._subscribe(topics))

    def read_from(self, place: KafkaPartition, reading: PartitionSeek) -> None:
        """Read a partition from an offset on."""
        self._orders.put(lambda: self._wanted.__setitem__(place, reading))

    def pause(self, places: Sequence[KafkaPartition]) -> None:
        """Let these rest."""
        self._orders.put(lambda: self._gates.shut(self._present(places)))

    def resume(self, places: Sequence[KafkaPartition]) -> None:
        """Let these continue."""
        self._orders.put(lambda: self._gates.unshut(self._present(places)))

    def commit(self, asked: CommitRequest, *, soon: bool) -> None:
        """Commit these."""
        if soon:
            self._soon_until = self._clock.monotonic() + SOON_FOR_SECONDS
        self._orders.put(lambda: self._commits.put(asked))

    def leave(self) -> None:
        """Leave the group and end."""
        self._orders.put(lambda: setattr(self, "_leaving", True))

    # In the thread

    def _live(self) -> None:
        try:
            self._choose()
            while not self._leaving:
                self._round()
            if self._consumer is not None:
                self._leave()
        except Exception as error:
            failure = failure_of(error) if isinstance(error, self._package.KafkaException) else None
            failure = error if isinstance(error, KafkaFailure) else failure
            text = f"the member's thread has ended by {type(error).__name__}: {error}"
            self._post(self._reported.on_broken, failure or KafkaFailure("FAIL", text))
            self._close()
            return
        self._close()
        self._post(self._reported.on_left)

    def _choose(self) -> None:
        """Make the consumer once the protocol is found."""
        while self._consumer is None:
            self._obey()
            if self._leaving:
                return
            if (protocol := self._choice.of(self._topics)) is not None:
                self._begin_by(protocol)
                return
            self._troubles.unanswered(self._choice.unanswered)
            with contextlib.suppress(Empty):
                self._orders.get(timeout=_AGAIN_SECONDS)()

    def _begin_by(self, protocol: str) -> None:
        self._consumer = self._make(protocol, error_cb=self._heard_error, on_commit=self._commits.answered)
        self._gates.consumer = self._commits.consumer = self._consumer
        if protocol == CLASSIC:
            self._nothing_seconds = None

    def _heard_error(self, error: Any, topic: str = "") -> None:
        failure = failure_of(error)
        if self._choice.is_auto and is_unsupported(failure):
            self._unsupported = failure
        if is_replaced(failure):
            self._replaced = KafkaFailure(REPLACED, str(failure), fenced=True)
        self._troubles.note(error, topic)

    def _present(self, places: Sequence[KafkaPartition]) -> list[KafkaPartition]:
        return [each for each in places if each in self._terms]

    def _obey(self) -> None:
        while not self._orders.empty():
            self._orders.get()()

    def _round(self) -> None:
        if self._unsupported is not None:
            # Another member takes its place, by the classic protocol.
            self._choice.refused()
            raise self._unsupported
        if self._replaced is not None:
            raise self._replaced
        self._obey()
        self._commits.round()
        if self._troubles.cut_off and self._clock.monotonic() >= self._probe_at:
            self._probe()
        if self._subscribes and self._clock.monotonic() >= self._subscribe_at:
            self._begin_to_read()
        if self._new and self._clock.monotonic() >= self._new_at:
            self._look_up()
        if self._wanted:
            self._seek()
        if self._nothing_at is not None and self._clock.monotonic() >= self._nothing_at:
            self._find_nothing()
        self._between_polls(self._consumer)
        if self._room.wait(POLL_SECONDS):
            self._hand_on(self._poll())

    def _probe(self) -> None:
        """Ask a cluster that was away whether it is there again."""
        with contextlib.suppress(self._package.KafkaException):
            self._consumer.list_topics(timeout=_PROBE_SECONDS)
            self._troubles.answered()
        self._probe_at = self._clock.monotonic() + _AGAIN_SECONDS

    def _find_nothing(self) -> None:
        self._probe()
        if self._troubles.cut_off:
            self._nothing_at = self._probe_at
        else:
            self._nothing_at = None
            self._post(self._reported.on_assigned, [], [])

    def _poll(self) -> list[Any]:
        # `consume` alone would wait for a whole batch.
        soon = self._clock.monotonic() < self._soon_until
        first = self._consumer.poll(SOON_SECONDS if soon else POLL_SECONDS)
        return [] if first is None else [first, *self._consumer.consume(BATCH - 1, 0)]

    def _hand_on(self, messages: list[Any]) -> None:
        if not messages:
            return
        for batch in batches_of(messages, self._reading, self._end_code, self._heard_error):
            self._troubles.answered()
            self._room.fill(batch.weight)
            self._post(self._reported.on_batch, batch)

    def _subscribe(self, topics: Sequence[TopicSubscription]) -> None:
        self._topics = topics
        self._troubles.forget()
        self._subscribes = bool(topics)
        self._subscribe_at = 0.0
        if not topics and self._consumer is not None:
            self._consumer.unsubscribe()

    def _begin_to_read(self) -> None:
        try:
            look_before(self._consumer, self._topics, self._new_partitions)
        except self._package.KafkaException as error:
            self._troubles.note(error.args[0])
            self._subscribe_at = self._clock.monotonic() + _AGAIN_SECONDS
            return
        self._subscribes = False
        if self._nothing_seconds is not None:
            self._nothing_at = self._clock.monotonic() + self._nothing_seconds
        names = sorted({each.name for each in self._topics})
        self._consumer.subscribe(names, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        places = [KafkaPartition(each.topic, each.partition) for each in partitions]
        make = self._package.TopicPartition
        # At some offset, so that librdkafka looks up none; it is read from where the loop will say.
        consumer.incremental_assign([make(each.topic, each.partition, 0) for each in places])
        self._gates.given(places)
        names = {each.name for each in self._topics}
        for place in places:
            self._term += 1
            self._terms[place] = self._term
            if place.topic in names or not place.topic.startswith("__"):
                # Others, of Kafka's own, an expression fits by the brokers' rules alone; they rest.
                self._new.append(place)
        self._new_at = 0.0
        self._nothing_at = None
        if not places:
            self._post(self._reported.on_assigned, [], [])

    def _look_up(self) -> None:
        """Tell of partitions that were given; while the cluster does not answer they stay untold."""
        try:
            found, failures = assignments_of(
                self._consumer,
                self._new,
                self._topics,
                new_partitions=self._new_partitions,
                make_uncommitted=self._make_uncommitted,
            )
        except self._package.KafkaException as error:
            self._troubles.note(error.args[0])
            self._new_at = self._clock.monotonic() + _AGAIN_SECONDS
            return
        # Those that cannot be read yet keep no others from being read.
        self._new = [each for each in self._new if each in failures]
        self._new_at = self._clock.monotonic() + _AGAIN_SECONDS
        self._troubles.answered()
        self._troubles.allowed(*{each.topic for each in found})
        if found:
            self._post(self._reported.on_assigned, found, [self._terms[each.place] for each in found])

    def _seek(self) -> None:
        for place, reading in list(self._wanted.items()):
            if self._terms.get(place) == reading.term:
                self._reading.pop(place, None)
                try:
                    self._consumer.seek(
                        self._package.TopicPartition(*place, reading.offset, leader_epoch=reading.leader_epoch)
                    )
                except self._package.KafkaException as error:
                    if failure_of(error).code == "STATE":
                        continue  # It is being given; in the next round.
                    raise
                self._reading[place] = reading.epoch
                self._gates.reads(place)
            del self._wanted[place]

    def _revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._let_go(consumer, [KafkaPartition(each.topic, each.partition) for each in partitions])

    def _let_go(self, consumer: Any, places: list[KafkaPartition]) -> None:
        reported = self._stop_reading(places)
        if reported:
            released: list[bool] = []
            if self._post(self._reported.on_revoked, reported, lambda: self._orders.put(lambda: released.append(True))):
                self._wait_for(released)
            if not released:
                self._post(self._reported.on_lost, reported)
        self._give_up(consumer, places)

    def _wait_for(self, released: list[bool]) -> None:
        """Do as ordered until the loop has released it; commits among it count."""
        until = self._clock.monotonic() + self._revoke_seconds
        while not released and (left := until - self._clock.monotonic()) > 0:
            with contextlib.suppress(Empty):
                self._orders.get(timeout=min(left, AGAIN_SECONDS))()
                self._obey()
            self._commits.finish()

    def _lose(self, consumer: Any, partitions: list[Any]) -> None:
        places = [KafkaPartition(each.topic, each.partition) for each in partitions]
        # librdkafka has it that a topic is gone, and its partitions lost, where others are subscribed of which it has
        # not heard yet. The coordinator knows nothing of that until this ends: what is committed still counts.
        unsubscribed = [each for each in places if not subscribes(self._topics, each.topic)]
        if reported := self._stop_reading([each for each in places if each not in unsubscribed]):
            self._post(self._reported.on_lost, reported)
        self._give_up(consumer, [each for each in places if each not in unsubscribed])
        self._commits.expelled()
        if unsubscribed:
            self._let_go(consumer, unsubscribed)

    def _stop_reading(self, places: list[KafkaPartition]) -> list[KafkaPartition]:
        """Tell no more records of these; return those of which the loop knows."""
        reported = [each for each in places if each in self._terms and each not in self._new]
        self._new = [each for each in self._new if each not in places]
        for place in places:
            self._reading.pop(place, None)
            self._wanted.pop(place, None)
        return reported

    def _give_up(self, consumer: Any, places: list[KafkaPartition]) -> None:
        for place in places:
            self._terms.pop(place, None)
        self._gates.gone(places)
        if not places:
            return
        with contextlib.suppress(self._package.KafkaException):
            consumer.incremental_unassign(partitions_of(self._package, places))

    def _leave(self) -> None:
        self._consumer.unsubscribe()
        for _ in range(_LEAVE_ROUNDS):
            if not self._terms:
                break
            self._consumer.poll(POLL_SECONDS)

    def _close(self) -> None:
        self._terms.clear()
        self._obey()
        self._commits.close()
        if self._consumer is None:
            return
        with contextlib.suppress(self._package.KafkaException, RuntimeError):
            self._consumer.close()


def partitions_of(package: Any, places: Sequence[KafkaPartition]) -> list[Any]:
    """Return places as the package has them."""
    return [package.TopicPartition(*each) for each in places]
