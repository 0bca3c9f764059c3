"""A member of a group as the loop sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.runtime.seams import Clock
from upstream.calls.seams import ThreadLoop
from upstream.kafka.link import (
    Assignment,
    Commit,
    Done,
    Ends,
    KafkaFailure,
    KafkaPartition,
    KafkaRecord,
    MemberListener,
    OffsetsReported,
    TopicIds,
    Topics,
    TopicSubscription,
)
from upstream.kafka_client.commits import CommitRequest, not_ours
from upstream.kafka_client.lookups import bounds_of_each, offsets_at, topics_of
from upstream.kafka_client.member_protocol import ProtocolChoice
from upstream.kafka_client.member_thread import MemberThread, PartitionSeek
from upstream.kafka_client.posting import Post, Room
from upstream.kafka_client.query_thread import QueryConsumers, QueryThread
from upstream.kafka_client.records import PartitionRecords
from upstream.kafka_client.settings import Settings
from upstream.kafka_client.troubles import ClientTroubles

ROOM_BYTES = 8 * 1024 * 1024
NOTHING_SECONDS = 3.0
LAST_SECONDS = 5.0
"""After revokeTimeout the listener stops waiting for answers and commits those that came: so much longer the thread
waits for that commit. Were it no longer, a message that is out all the while would cost the answers of others."""


class LibrdkafkaMember:
    """`upstream.kafka.link.GroupMember`.

    What it reports is in step with what it was asked for: a record that was on its way when its partition went, or was
    to be read from elsewhere, has another epoch and is dropped here.
    """

    def __init__(
        self,
        group: str,
        client_id: str,
        instance_id: str = "",
        *,
        settings: Settings,
        loop: ThreadLoop,
        clock: Clock,
        queries: QueryThread,
        query_consumers: QueryConsumers,
        choice: ProtocolChoice,
        topic_ids: Callable[[Sequence[str], TopicIds], None],
    ) -> None:
        """Make the consumer.

        Args:
            group: The group.
            client_id: How brokers name the member in their logs.
            instance_id: `group.instance.id`; "": none.
            settings: Of the cluster.
            loop: The event loop.
            clock: For attempts again.
            queries: Looks up ends,
            query_consumers: by these consumers.
            choice: Of the group protocol.
            topic_ids: Finds those.

        Raises:
            KafkaUnusable: The package is missing, or refuses a setting.
        """
        config = settings.config
        revoke_seconds = config.revoke_timeout / 1000
        self._post = Post(loop)
        self._room = Room(ROOM_BYTES)
        self._queries = queries
        self._query_consumers = query_consumers
        self._topic_ids = topic_ids
        self._whole = config.group_protocol == "consumer"
        self._listener: MemberListener | None = None
        self._terms: dict[KafkaPartition, int] = {}
        self._epochs: dict[KafkaPartition, int] = {}
        self._epoch = 0
        self._left: Callable[[], None] | None = None
        self._over = False
        troubles = ClientTroubles(lambda failure: self._post(self._report_trouble, failure), settings.hide)
        self._thread = MemberThread(
            group,
            lambda protocol, **callbacks: settings.consumer(group, client_id, protocol, instance_id, **callbacks),
            lambda: settings.looker(client_id),
            self,
            post=self._post,
            room=self._room,
            troubles=troubles,
            clock=clock,
            revoke_seconds=revoke_seconds + LAST_SECONDS,
            # Others may have to give up first what it gets.
            between_polls=settings.give_password,
            nothing_seconds=revoke_seconds + NOTHING_SECONDS,
            choice=choice,
        )

    def join(self, listener: MemberListener, topics: Sequence[TopicSubscription]) -> None:
        """Join the group for these topics; once."""
        assert self._listener is None, "a member joins once"
        self._listener = listener
        self._thread.start(list(topics))

    def subscribe(self, topics: Sequence[TopicSubscription]) -> None:
        """Read these topics from now on, and no others."""
        self._thread.subscribe(list(topics))

    def read_from(self, place: KafkaPartition, offset: int, leader_epoch: int = -1) -> None:
        """Read an assigned partition from an offset on; one that has gone meanwhile is let be."""
        if (term := self._terms.get(place)) is not None:
            self._epoch += 1
            self._epochs[place] = self._epoch
            self._thread.read_from(place, PartitionSeek(offset, self._epoch, term, leader_epoch))

    def pause(self, places: Sequence[KafkaPartition]) -> None:
        """Read no further records of these."""
        self._thread.pause([each for each in places if each in self._terms])

    def resume(self, places: Sequence[KafkaPartition]) -> None:
        """Read on."""
        self._thread.resume([each for each in places if each in self._terms])

    def commit(self, commits: Sequence[Commit], done: Done, *, soon: bool = False) -> None:
        """Commit offsets."""
        terms = [self._terms.get(KafkaPartition(each.topic, each.partition)) for each in commits]
        known = [each for each in terms if each is not None]
        if len(known) < len(terms) or self._over:
            self._post(done, not_ours())
        elif not commits:
            self._post(done, None)
        else:
            self._thread.commit(CommitRequest(list(commits), known, done), soon=soon)

    def ends(self, places: Sequence[KafkaPartition], reported: Ends) -> None:
        """Ask for first offsets and ends."""
        wanted = list(places)

        def query() -> Callable[[], None]:
            ends, failures = bounds_of_each(
                self._query_consumers.committed(), self._query_consumers.uncommitted(), wanted
            )
            return lambda: None if self._over else reported(ends, failures)

        self._queries.submit(query, instead_of=(self, "ends", *wanted))

    def topics(self, names: Sequence[str], reported: Topics) -> None:
        """Ask which topics of these names, or of these expressions, are there."""
        wanted = list(names)

        def query() -> Callable[[], None]:
            found, failures = topics_of(self._query_consumers.committed(), wanted, whole=self._whole)
            return lambda: None if self._over else reported(found, failures)

        self._queries.submit(query, instead_of=(self, "topics"))

    def topic_ids(self, names: Sequence[str], reported: TopicIds) -> None:
        """Ask for the ids of topics."""
        self._topic_ids(names, lambda ids: None if self._over else reported(ids))

    def offsets_at(self, places: Sequence[KafkaPartition], time_ms: int, reported: OffsetsReported) -> None:
        """Ask for the first offsets of a moment or later."""
        wanted = dict.fromkeys(places, time_ms)

        def query() -> Callable[[], None]:
            found = offsets_at(self._query_consumers.committed(), wanted)
            return lambda: reported({place: None if offset < 0 else offset for place, offset in found.items()})

        self._queries.submit(query, lambda: reported(None))

    def abandon(self) -> None:
        """End; the thread leaves the group if it can."""
        self._over = True
        self._terms.clear()
        self._epochs.clear()
        if self._listener is not None:
            self._listener = None
            self._thread.leave()

    def leave(self, done: Callable[[], None]) -> None:
        """Leave the group."""
        self._left = done
        if self._listener is None or self._over:
            self._post(self.on_left)
        else:
            self._thread.leave()

    # Told by the thread, in the loop

    def on_assigned(self, assignments: Sequence[Assignment], terms: Sequence[int]) -> None:
        """Partitions were given."""
        for each, term in zip(assignments, terms, strict=True):
            self._terms[each.place] = term
            self._epochs.pop(each.place, None)
        if self._listener is not None:
            self._listener.assigned(assignments)

    def on_revoked(self, places: Sequence[KafkaPartition], release: Callable[[], None]) -> None:
        """Partitions must be released; the thread waits for `release`."""
        here = [each for each in places if each in self._terms]
        terms = [self._terms[each] for each in here]
        for place in here:
            self._epochs.pop(place, None)

        def done() -> None:
            for place, term in zip(here, terms, strict=True):
                if self._terms.get(place) == term:
                    del self._terms[place]
            release()

        if here and self._listener is not None:
            self._listener.revoked(here, done)
        else:
            done()

    def on_lost(self, places: Sequence[KafkaPartition]) -> None:
        """Partitions are gone."""
        here = [each for each in places if self._terms.pop(each, None) is not None]
        for place in here:
            self._epochs.pop(place, None)
        if here and self._listener is not None:
            self._listener.lost(here)

    def on_batch(self, batch: PartitionRecords) -> None:
        """Records and ends came."""
        self._room.free(batch.weight)
        if self._listener is None or self._over:
            return
        if records := self._present(batch):
            self._listener.records(records)
        for place, offset, epoch in batch.ends:
            if self._epochs.get(place) == epoch:
                self._listener.at_end(place, offset)

    def on_broken(self, failure: KafkaFailure) -> None:
        """The thread has ended by a fault: nothing is read any more, and others get what it had."""
        self.on_lost(list(self._terms))
        self._over = True
        if self._left is not None:
            self.on_left()
        elif self._listener is not None:
            self._listener.broken(failure)

    def on_left(self) -> None:
        """The member has left."""
        self._over = True
        done, self._left = self._left, None
        if done is not None:
            done()

    def _present(self, batch: PartitionRecords) -> list[KafkaRecord]:
        epochs = self._epochs
        gone = {place for place, epoch in batch.epochs.items() if epochs.get(place) != epoch}
        if not gone:
            return batch.records
        return [each for each in batch.records if (each.topic, each.partition) not in gone]

    def _report_trouble(self, failure: KafkaFailure | None) -> None:
        if self._listener is not None and self._left is None:
            self._listener.trouble_reported(failure)
