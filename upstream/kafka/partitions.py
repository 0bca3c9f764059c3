"""The partitions of one group's member of a Kafka cluster, from their assignment to their end.

    assigned -> claimed (a first commit succeeds: no other member has it) -> given: the topic has the queue
    revoked  -> withheld (nothing more of it is handed out; answers count) -> taken: the topic has it no more -> its
    last commit -> the client may continue
    lost     -> taken: others may have it already

Progress of such a group is the trackers alone. Its journal is on a volatile disk (`volatile_disk`), since the text of
a commit is what the next owner needs, and this node may be that (D52).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from broker.runtime.bundle import Runtime
from broker.runtime.disks.volatile_disk import VolatileDisk
from broker.runtime.later import Repeated
from broker.runtime.steps import run_now
from conf.models import GroupConfig
from upstream.job import GroupQueue
from upstream.kafka.commits.blobs import Blobs, Named
from upstream.kafka.commits.commits import KafkaOffsets, OffsetCommitter, Remembered
from upstream.kafka.commits.metadata import CommitMetadata, decode, decode_blob
from upstream.kafka.lease import Lease
from upstream.kafka.link import (
    Assignment,
    GroupMember,
    KafkaFailure,
    KafkaPartition,
    KafkaRecord,
    LogBounds,
)
from upstream.kafka.member_settings import FOREIGN, LOST, PARTITIONS, REVOKED, MemberSettings
from upstream.kafka.positions.log_watch import LogWatch
from upstream.kafka.positions.stream import PartitionStream
from upstream.kafka.positions.topic_ids import TopicIdWatch
from upstream.kafka.silence import Silence
from upstream.kafka.subscriptions import Subscriptions, is_expression, subscribed
from upstream.kafka.topics import KafkaQueue, KafkaTopic, own
from upstream.progress.progress import Progress
from upstream.progress.tracker import OffsetTracker
from upstream.queues import UNKNOWN, CommittedOffsets, TakeOver

__all__ = ["NOT_IN", "NO_TOPIC", "WAITING", "MemberSettings", "Partitions"]

WAITING = "waiting for the cluster"
"""What a topic's state is while its partitions are not known."""
NOT_IN = "not a member, since no client pulls here"
"""Likewise of a group that is pulled from other nodes, or from none (D56)."""
NO_TOPIC = "no matching topic yet"
"""Likewise of an expression."""
_LOOK_SECONDS = 0.02
_TOPICS_SECONDS = 20.0
_ENDS_SECONDS = 1.0
_CLAIM_AGAIN_SECONDS = 1.0


class Partitions:
    """Those of one member: `upstream.kafka.link.MemberListener`, and `upstream.queues.Queues` for its progress.

    Attributes:
        group: Name of the group.
        trouble: Why the cluster cannot be reached, or None.
        lease: Says whether they are the member's for certain.
        progress: How far each is.
        subscriptions: What the group reads.
        streams: What arrived of each and was not read yet.
        topics: By name; what the group subscribes is there, if only without partitions.
        logs: Where the logs of its partitions begin and end.
        topic_troubles: What is wrong with single topics.
    """

    truncated_to = UNKNOWN

    def __init__(
        self, config: GroupConfig, *, member: GroupMember, blobs: Blobs, runtime: Runtime, settings: MemberSettings
    ) -> None:
        """Set up; `join` begins.

        Args:
            config: The group.
            member: The group's.
            blobs: What has no room in texts of commits.
            runtime: The node's; its disk is not used.
            settings: Times and bounds.
        """
        self.group = config.group
        self.trouble: KafkaFailure | None = None
        self.subscriptions = Subscriptions(config, whole=settings.whole_names)
        self._expanded = config
        self._member = member
        self._blobs = blobs
        self._knowns: dict[KafkaQueue, CommitMetadata] = {}
        """What is known of those that arrive."""
        self._remembered = Remembered()
        self._runtime = runtime
        self._settings = settings
        self.lease = Lease(runtime.clock, settings.session_seconds, regained=self._regained)
        self.topics = {each.topic: KafkaTopic(each.topic) for each in config.topics}
        self._arriving: dict[KafkaPartition, KafkaQueue] = {}
        self._owned: dict[KafkaPartition, KafkaQueue] = {}
        self.streams: dict[KafkaQueue, PartitionStream] = {}
        self._broken: Callable[[KafkaFailure], None] = lambda _: None
        self._group_queues: Callable[[], Sequence[GroupQueue]] = tuple
        self._go_on: Callable[[], None] = lambda: None
        self._changed: Callable[[], bool] = lambda: True
        self._leaving = False
        self._awaits_until = runtime.clock.monotonic() + settings.session_seconds
        self._is_in = False
        """Whether it has a member that has joined, or is about to."""
        self._is_member = False
        """Whether the cluster has said what this member has, be it nothing."""
        self._gauge = runtime.metrics.counter(PARTITIONS, self.group)
        volatile = replace(runtime, disk=VolatileDisk(), syncs=None)
        self.progress = run_now(Progress.opening("", queues=self, runtime=volatile))
        self.logs = LogWatch(
            self.group,
            owned=self._owned,
            streams=self.streams,
            progress=self.progress,
            runtime=runtime,
            ask=self._ask_for_ends,
            begin_anew=self._begin_anew,
        )
        self.topic_troubles = self.logs.troubles
        self._ids = TopicIdWatch(runtime.clock, self._there, self._ask_for_ends, self.logs.unread.begins_anew)
        self._silence = Silence(runtime.clock, settings.session_seconds, settings.revoke_seconds)
        self.commits = OffsetCommitter(
            self.group,
            member=member,
            lease=self.lease,
            blobs=blobs,
            queues=self._to_commit,
            tracker_of=self._tracker,
            runtime=runtime,
            interval_seconds=settings.commit_seconds,
            answered=self._committed,
        )
        self._ends = Repeated(runtime.scheduler, _ENDS_SECONDS, self._ask_for_ends)
        self._looks = Repeated(runtime.scheduler, _TOPICS_SECONDS, self._ask_for_topics)

    # Life

    def begin(
        self,
        group_queues: Callable[[], Sequence[GroupQueue]],
        go_on: Callable[[], None],
        changed: Callable[[], bool],
        broken: Callable[[KafkaFailure], None],
    ) -> None:
        """Begin; `enter` makes a member of it.

        Args:
            group_queues: Tells what the group has in hand.
            go_on: Told when messages may be handed out again after they might not be.
            changed: Told when `expanded` has changed; whether the group reads accordingly.
            broken: Told when the member has ended by a fault.
        """
        self._group_queues = group_queues
        self._go_on = go_on
        self._changed = changed
        self._broken = broken
        self._looks.begin()
        self._ask_for_topics()

    def enter(self, member: GroupMember) -> None:
        """Become a member, by one that has not joined."""
        self._leaving = False
        self._is_in = True
        self._silence.begin()
        self._member = self.commits.member = member
        self.commits.begin()
        self._ends.begin()
        self._member.join(self, subscribed(self.subscriptions.config))
        self._ask_for_topics()

    def broken(self, failure: KafkaFailure) -> None:
        """Be no member any more; what is wrong is shown until one commits again."""
        self._be_out()
        self.trouble_reported(failure)
        self._broken(failure)

    def _be_out(self) -> None:
        self._is_in = self._is_member = False
        self.commits.end()
        self._ends.end()
        self.lease.end()

    def configure(self, config: GroupConfig) -> None:
        """Read what a changed configuration lists; `expanded` says all of it."""
        self.subscriptions.config = config
        self._settings = self._settings.reloaded(config)
        if self._is_in:
            self._member.subscribe(subscribed(config))
        self._ask_for_topics()

    def expanded(self, config: GroupConfig) -> GroupConfig:
        """Return a configuration of the group with its entries for the topics that are there, and this node's part."""
        subscriptions = Subscriptions(config, whole=self._settings.whole_names)
        subscriptions.found = self.subscriptions.found
        found = subscriptions.expanded(Counter(place.topic for place in self._owned))
        for each in found.topics:
            self.topic_named(each.topic)
        return found

    def _there(self) -> Sequence[KafkaQueue]:
        return [*self._owned.values(), *self._arriving.values()]

    def _expand(self) -> None:
        """Tell of what the group reads now, if that is not what it was."""
        now = self.expanded(self.subscriptions.config)
        if now != self._expanded and not (self._is_in and self._leaving) and self._changed():
            self._expanded = now

    def _ask_for_topics(self) -> None:
        # A node that is no member asks, too: clients name topics that fit an expression.
        if names := self.subscriptions.names:
            self._member.topics(names, self._heard_topics)

    def _heard_topics(self, there: Mapping[str, int], failures: Mapping[str, KafkaFailure]) -> None:
        self._silence.cluster_heard()
        self.logs.log(self.topic_troubles.heard_topics(failures))
        self.subscriptions.heard(there, {queue.topic for queue in self._there()})
        self._expand()

    def leave(self, done: Callable[[], None]) -> None:
        """Commit what is finished, give up all partitions with a last commit, and be no member any more."""
        self._leaving = True

        def left() -> None:
            self._be_out()
            self._remembered.forget()
            self.topic_troubles.forget()
            self.trouble = None
            done()

        if self._owned:
            seconds = self._settings.leave_seconds(cut_off=self.trouble is not None)
            self.commits.last(lambda: self._member.leave(left), seconds=seconds)
        else:
            self._member.leave(left)

    def end(self) -> None:
        """Ask for nothing more; it has left."""
        self._looks.end()

    @property
    def owned(self) -> Sequence[KafkaQueue]:
        """The partitions that this node has."""
        return list(self._owned.values())

    @property
    def awaits_first(self) -> bool:
        """Whether this member has had no partition since the start: for a session at most."""
        return self._runtime.clock.monotonic() < self._awaits_until

    @property
    def is_settled(self) -> bool:
        """Whether the cluster has said what this member has, and all of it is claimed: committed where it was."""
        return self._is_member and not self._arriving

    def look(self) -> None:
        """Give up a member that is; another one takes its place."""
        failure = self.standing
        if failure is not None and self._silence.is_over:
            self._member.abandon()
            self.lost(list(self._owned))
            self.broken(failure)

    def needs_new_client(self) -> bool:
        """Whether the member is to leave and join again, as its client reads nothing of a partition that has more."""
        return self.logs.nothing_comes()

    @property
    def standing(self) -> KafkaFailure | None:
        """Why the member is stuck, of a cluster that answers; None: it is not."""
        waits = self._is_in and not self._leaving and (bool(self._owned or self._arriving) or not self._is_member)
        return self._silence.trouble(waits=waits)

    def unknown(self, topic: str) -> str | None:
        """Return why it is not known where the group is in this member's partitions of a topic; None: it is."""
        if (standing := self.standing) is not None:
            return f"{WAITING}: {standing}"
        if self._is_in and (failure := self.topic_troubles.of(topic)) is not None:
            return failure
        arriving, owned = (any(place.topic == topic for place in each) for each in (self._arriving, self._owned))
        if self._is_member and not arriving and (owned or self.trouble is None):
            missing = is_expression(topic) and not self.subscriptions.finds(topic)
            return NO_TOPIC if missing else None
        if self.trouble is not None:
            return f"{WAITING}: {self.trouble}"
        return WAITING if self._is_in else NOT_IN

    # What the client reports

    def assigned(self, assignments: Sequence[Assignment]) -> None:
        """Claim partitions."""
        if self._leaving:
            return
        if known := [each.place for each in assignments if each.place in self._owned]:
            # Another member had them meanwhile, without a notice.
            self.lost(known)
        self._is_member = True
        self._silence.heard()
        if assignments:
            self.subscriptions.given({each.topic for each in assignments})
            self._expand()
        arrived = []
        for each in assignments:
            queue = KafkaQueue(each, self.subscriptions.start_of(each))
            self._arriving[each.place] = queue
            arrived.append(queue)
        if arrived:
            self._ask_for_topics()
            self._ids.ask(self._member)
        ready = []
        for queue in arrived:
            said = self._knowns[queue] = self._known(queue)
            self._blobs.own(queue.place, said.blob)
            if said.blob is None:
                ready.append(queue)
            else:
                self._read_blob(queue, said.blob)
        self._claim(ready)

    def _read_blob(self, queue: KafkaQueue, named: Named) -> None:
        """Claim a partition once what its text only names is read; without it where it cannot be had."""

        def come(text: str | None) -> None:
            if text is not None and not (known := decode_blob(text, queue.stood_at)).foreign:
                self._knowns[queue] = queue.kept(known)._replace(clean=self._knowns[queue].clean)
            self._claim([queue])

        self._blobs.read(named, queue.place, queue.stood_at, come)

    def _claim(self, queues: Sequence[KafkaQueue]) -> None:
        """Commit where partitions stand: it succeeds for their owner alone, and ends the note that they were left."""
        here = [queue for queue in queues if self._arriving.get(queue.place) is queue]
        if not here:
            return
        clean = []
        for queue in here:
            known = self._knowns[queue]
            self._place_tracker(queue, known)
            if known.clean or queue.assignment.committed is None:
                clean.append(queue)

        def done(failure: KafkaFailure | None) -> None:
            if failure is None:
                for queue in here:
                    self._knowns.pop(queue, None)
                self._give([queue for queue in here if queue in clean])
                if rest := [queue for queue in here if queue not in clean]:
                    self._wait_for_takeover(rest)
            else:
                # Where they are another's by now the client says so, and they arrive no more.
                self._runtime.scheduler.call_later(_CLAIM_AGAIN_SECONDS, self._claim, here)

        self.commits.now(here, done)

    def _wait_for_takeover(self, queues: Sequence[KafkaQueue]) -> None:
        """Leave partitions alone for as long as a client of the owner before may be at work (`takeover: strict`)."""
        seconds = self._settings.takeover_seconds
        if not seconds:
            self._give(queues)
            return
        self._runtime.scheduler.call_later(seconds, self._give, queues)

    def _known(self, queue: KafkaQueue) -> CommitMetadata:
        assignment = queue.assignment
        if assignment.committed is None:
            return CommitMetadata()
        known = decode(assignment.metadata, assignment.committed)
        queue.topic_id = known.topic_id or None
        if assignment.is_beyond:
            return CommitMetadata()
        if known.foreign:
            self._runtime.metrics.counter(FOREIGN, self.group).add()
        return queue.kept(known)

    def _place_tracker(self, queue: KafkaQueue, known: CommitMetadata) -> None:
        """Have a tracker stand where the commit and its text say, and what this node knew if that is of the same."""
        key = (self.group, queue.topic, queue.queue_id)
        tracker = self.progress.tracker(*key, first_offset=lambda: queue.start)
        self.progress.reset(tracker, queue.stood_at)
        remembered, queue.leader_epoch = self._remembered.finished(queue.assignment)
        ranges = (*known.ranges, *remembered)
        for start, end in ranges:
            tracker.finish_range(start, end)
        queue.claimed = max((end for _, end in ranges), default=0), queue.leader_epoch
        # Retention took these while no node had the partition.
        queue.expired = tracker.finish_range(queue.stood_at, queue.start)
        tracker.failures.update(
            {offset: failure for offset, failure in known.failures.items() if not tracker.is_finished(offset)}
        )
        self.progress.flush()
        self.progress.offsets.set(*key, tracker.watermark)

    def _give(self, queues: Sequence[KafkaQueue]) -> None:
        """Let the group read partitions that are this member's."""
        given = [queue for queue in queues if self._arriving.get(queue.place) is queue]
        for queue in given:
            del self._arriving[queue.place]
            self._owned[queue.place] = queue
            self.streams[queue] = PartitionStream(queue, self._member, self._stream_room)
            # One that begins again may rest still, since its stream before was full.
            self._member.resume([queue.place])
            self.topic_named(queue.topic).give(queue)
            self.logs.given(queue)
        if given and not self._arriving:
            self._awaits_until = -1.0
        self._report(given)

    def _stream_room(self) -> int:
        """How many bytes each partition may hold that were not read yet."""
        return self._settings.waiting_bytes // max(1, len(self._owned))

    def revoked(self, places: Sequence[KafkaPartition], done: Callable[[], None]) -> None:
        """Give partitions up in order."""
        self._runtime.metrics.counter(REVOKED, self.group).add(len(places))
        self._silence.heard()
        self._forget_arriving(places)
        queues = [self._owned[place] for place in places if place in self._owned]
        if not queues:
            done()
            return
        gone = set(queues)
        withheld = [each for each in self._group_queues() if each.queue in gone]
        for group_queue in withheld:
            group_queue.withheld = True
        self._member.pause([queue.place for queue in queues])
        until = self._runtime.clock.monotonic() + self._settings.revoke_seconds

        def look() -> None:
            busy = {own(each.queue) for each in withheld if each.in_flight or each.calls}
            if busy and not self._leaving and self.lease.holds and self._runtime.clock.monotonic() < until:
                self._runtime.scheduler.call_later(_LOOK_SECONDS, look)
                return
            still = [queue for queue in queues if self._owned.get(queue.place) is queue]
            self._take(still)

            def committed(_: KafkaFailure | None) -> None:
                self.commits.forget(still)
                done()

            if still:
                # Also where the lease has ended, as after a time in which nothing could be committed: what is not the
                # member's any more Kafka refuses.
                self.commits.now(still, committed, clean=gone - busy)
            else:
                committed(None)

        look()

    def _forget_arriving(self, places: Sequence[KafkaPartition]) -> None:
        for place in places:
            if (queue := self._arriving.pop(place, None)) is not None:
                self._knowns.pop(queue, None)
                self.commits.forget([queue])

    def lost(self, places: Sequence[KafkaPartition]) -> None:
        """Forget partitions that others may have."""
        self._runtime.metrics.counter(LOST, self.group).add(len(places))
        self._forget_arriving(places)
        queues = [self._owned[place] for place in places if place in self._owned]
        self._take(queues)
        self.commits.forget(queues)
        if queues:
            self.commits.unsettle()
        if not self._owned:
            self._is_member = False
            self.lease.end()

    def _take(self, queues: Sequence[KafkaQueue]) -> None:
        for queue in queues:
            self._remembered.keep(queue, self._tracker(queue), self.commits.said(queue))
            del self._owned[queue.place]
            del self.streams[queue]
            self.topic_named(queue.topic).take(queue)
        self.logs.gone(queues)
        self._report(queues)

    def records(self, records: Sequence[KafkaRecord]) -> None:
        """Take what came."""
        queues = []
        for place, run in groupby(records, key=lambda record: KafkaPartition(record.topic, record.partition)):
            queue, came = self._owned.get(place), list(run)
            if queue is None:
                continue
            if not (self.logs.goes_back(queue, came[0].offset) or self.logs.differs(queue, came)):
                self.streams[queue].arrived(came)
                queues.append(queue)
        self._report(queues)

    def at_end(self, place: KafkaPartition, offset: int) -> None:
        """Note that there is no more for now."""
        queue = self._owned.get(place)
        if queue is not None and not self.logs.goes_back(queue, offset):
            self.streams[queue].at_end(offset)
            self._report([queue])

    def trouble_reported(self, failure: KafkaFailure | None) -> None:
        """Note whether the cluster can be reached."""
        before, self.trouble = self.trouble, failure
        if failure is not None and (before is None or before.code != failure.code):
            self._runtime.limited_log.note("kafka_trouble", self.group, kind=failure.code, error=str(failure))

    def _regained(self) -> None:
        # What follows may commit: not from within a commit's answer.
        self._runtime.scheduler.call_soon(self._go_on)

    def _to_commit(self) -> Collection[KafkaQueue]:
        # What finished is staged for a journal, which keeps nothing: it is only not to pile up.
        self.progress.flush()
        # Of a log that is another one, or may be, the offset says nothing.
        return [queue for queue in self._owned.values() if not (queue.missing or queue.doubted)]

    def _committed(self, failure: KafkaFailure | None) -> None:
        self._silence.heard(failure)
        if failure is not None and failure.fenced:
            # The member is none any more, or one of the partitions is another's: its client will say which. Until then,
            # or until a commit succeeds again, nothing is handed out.
            self.lease.end()
        self.trouble_reported(failure)

    def _ask_for_ends(self) -> None:
        if self._owned:
            known = {queue: queue.max_offset for queue in self._owned.values()}
            self._member.ends(list(self._owned), partial(self._heard_ends, known))
            self._ids.look(self._member)
        elif self._arriving or not self._is_member:
            self._ask_for_topics()

    def _heard_ends(
        self,
        known: Mapping[KafkaQueue, int],
        ends: Sequence[LogBounds],
        failures: Mapping[KafkaPartition, KafkaFailure],
    ) -> None:
        self._silence.cluster_heard()
        self._ids.ends_heard()
        self.logs.heard(known, ends, failures)

    def _begin_anew(self, queue: KafkaQueue, made: Callable[[int | None], Assignment]) -> None:
        config = self.subscriptions.of(queue.topic)

        def begin(at_times: Mapping[KafkaPartition, int | None] | None) -> None:
            if self._owned.get(queue.place) is queue:
                self.assigned([made(None if at_times is None else at_times.get(queue.place))])

        if config is not None and config.consume_timestamp is not None:
            self._member.offsets_at([queue.place], config.consume_timestamp, begin)
        else:
            begin(None)

    def _report(self, queues: Sequence[KafkaQueue]) -> None:
        for name in dict.fromkeys(queue.topic for queue in queues):
            self.topic_named(name).reported()
        if self._gauge.value != len(self._owned):
            self._gauge.value = len(self._owned)
            self._expand()

    def _tracker(self, queue: KafkaQueue) -> OffsetTracker:
        return self.progress.trackers[self.group, queue.topic, queue.queue_id]

    # Queues

    def queue(self, topic: str, queue_id: int) -> KafkaQueue | None:
        """Return a partition that this member has or is about to have."""
        place = KafkaPartition(topic, queue_id)
        return self._owned.get(place) or self._arriving.get(place)

    def make_durable(self) -> None:
        """Kafka has acknowledged what is reported."""

    def opening_offsets(self, root: str, runtime: Runtime, *, finish_writes: Callable[[], None]) -> KafkaOffsets:
        """They come with the partitions."""
        return KafkaOffsets(finish_writes)

    def taking_over(self, offsets: CommittedOffsets) -> Generator[None, None, TakeOver]:
        """Nobody had anything in hand that the texts of commits do not say."""
        yield
        return lambda tracker_of, metrics: False

    def topic_named(self, name: str) -> KafkaTopic:
        """Return a topic, made on first use."""
        return self.topics.setdefault(name, KafkaTopic(name))

    def stored_ms(self, queue: KafkaQueue, offset: int) -> int | None:
        """Return when a message that is in hand, or the last one, was stored; None of others."""
        if offset == queue.newest[0]:
            return queue.newest[1] if queue.newest[1] >= 0 else None
        in_hand = (each.live[offset] for each in self._group_queues() if each.queue is queue and offset in each.live)
        stored_ms = next((job.physical for job in in_hand), -1)
        return stored_ms if stored_ms >= 0 else None
