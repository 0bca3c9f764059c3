"""Commits of one member: how far its partitions are finished, with the text that says the rest (D52, D53).

Every `interval` what has changed goes in one commit, and while one is under way no other is begun: so an ack is with
Kafka a round trip after at most an interval. When nothing has changed for a while everything is committed again, for
the lease (`upstream.kafka.lease`). That a commit was refused because the member is none any more ends all of it.

By the classic protocol no commit gets through while the group is shared out: a broker answers the member's join, which
lasts until all others have joined or their sessions have ended, before it reads on from that connection. So a member
that is to leave first has what is finished committed (`last`); who left at once would have all come again that was
answered since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import Steps
from broker.runtime.later import Later, Repeated
from broker.runtime.metrics import declare
from upstream.kafka.commits.blobs import BLOB_MAX, Blobs, Named
from upstream.kafka.commits.metadata import NAMED_MIN, TEXT_MAX, TEXT_MIN, Ranges, encode, encode_named
from upstream.kafka.lease import Lease
from upstream.kafka.link import Assignment, Commit, Done, GroupMember, KafkaFailure, KafkaPartition
from upstream.kafka.topics import KafkaQueue
from upstream.progress.tracker import OffsetTracker

# The committed offsets of one Kafka group, as its progress sees them: what was read when a partition was given.


class KafkaOffsets:
    """`upstream.queues.CommittedOffsets`; what commits to Kafka is `upstream.kafka.commits.commits`."""

    def __init__(self, finish_writes: Callable[[], None]) -> None:
        self.changed_outside = False
        self.finish_writes = finish_writes
        self._values: dict[tuple[str, str, int], int] = {}

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return what was set last."""
        return self._values.get((group, topic, queue_id))

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep it."""
        self._values[group, topic, queue_id] = offset

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield all."""
        for (group, topic, queue_id), offset in self._values.items():
            yield group, topic, queue_id, offset

    def writing(self) -> Steps[bool]:
        """Nothing is written."""
        yield from ()
        return True


# What a member knew of partitions that went, for the case that it gets them back as it left them.
#
# A member that is expelled, as after a restart of the cluster or a pause, often is given the same partitions again.
# The commit then says less than it knew: what was answered while nothing could be committed is missing there. That a
# message is finished stays true for any owner of the partition, so it may be kept, and need not come again. Only
# where an operator has set the group back must it come again; then what is committed is none of the texts that this
# member has sent since its last commit that is known to have succeeded, and what it knew is forgotten.


Said = tuple[int, str]
"""Offset and text of a commit."""


class _Known(NamedTuple):
    said: Sequence[Said]
    ranges: Ranges
    leader_epoch: int


class Remembered:
    """That of one member. It is kept for a partition until that goes again, or the member leaves."""

    def __init__(self) -> None:
        self._known: dict[KafkaPartition, _Known] = {}

    def keep(self, queue: KafkaQueue, tracker: OffsetTracker, said: Sequence[Said]) -> None:
        """Keep what a tracker knows of a partition that goes.

        Args:
            queue: The partition.
            tracker: As it is at the end.
            said: Commits that Kafka may have of it: the last that has succeeded, and those that were sent since.
        """
        if said:
            start = min(offset for offset, _ in said)
            below = [(start, tracker.watermark)] if start < tracker.watermark else []
            self._known[queue.place] = _Known(list(said), [*below, *tracker.finished_ranges()], queue.leader_epoch)

    def finished(self, assignment: Assignment) -> tuple[Ranges, int]:
        """Return what is finished of a partition that is given, beyond what its commit says, and the leader's epoch.

        Nothing where it moved.
        """
        known = self._known.get(assignment.place)
        if known is None or (assignment.committed, assignment.metadata) not in known.said:
            return (), assignment.leader_epoch
        if known.ranges and known.ranges[-1][1] > assignment.high:
            # Records are gone, as by an unclean election: their offsets are or will be those of others.
            return (), assignment.leader_epoch
        return known.ranges, known.leader_epoch

    def forget(self) -> None:
        """Forget all: the member has left, and what comes later is another life."""
        self._known.clear()


COMMITS = declare("pyddmq_kafka_commits_total", "Commits of offsets to Kafka that succeeded.", ("group",))
COMMIT_ERRORS = declare(
    "pyddmq_kafka_commit_errors_total", "Commits of offsets that Kafka rejected.", ("group", "code")
)
CUT = declare(
    "pyddmq_kafka_commit_texts_cut_total",
    "Commits without room for all acks above the offset: after a crash some messages are delivered again.",
    ("group",),
)

BLOB_SECONDS_MAX = 2.0
"""How long a commit waits at most for what its text has no room for; less where the lease needs it sooner."""

TOO_LONG = "OFFSET_METADATA_TOO_LARGE"
"""Kafka refuses the commit for its text."""
LAST_TELL_SECONDS = 1.0
"""A member that leaves, and is delayed for so long, logs the reason."""
SAID_MAX = 64
"""Failed commits, one after the other, whose content is kept. Should one before them have arrived after
all, what was finished since comes again."""

Stand = tuple[int, int, int]
TrackerOf = Callable[[KafkaQueue], OffsetTracker]


class OffsetCommitter:
    """Commits what has changed of the queues of one member.

    Attributes:
        member: Who commits; another one after it has left.
    """

    def __init__(
        self,
        group: str,
        *,
        member: GroupMember,
        lease: Lease,
        blobs: Blobs,
        queues: Callable[[], Collection[KafkaQueue]],
        tracker_of: TrackerOf,
        runtime: Runtime,
        interval_seconds: float,
        answered: Callable[[KafkaFailure | None], None],
    ) -> None:
        """Set up; nothing is committed before `begin`.

        Args:
            group: Its name.
            member: Who commits.
            lease: Extended by each commit that succeeds.
            blobs: Keeps what has no room in a text.
            queues: Which partitions are the member's now.
            tracker_of: Says how far one is.
            runtime: Dates commits, makes them later, counts them.
            interval_seconds: From one commit to the next.
            answered: Told how each commit ended, after who asked for it.
        """
        self._group = group
        self.member = member
        self._lease = lease
        self._blobs = blobs
        self._queues = queues
        self._tracker_of = tracker_of
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._answered = answered
        self._ticks = Repeated(runtime.scheduler, interval_seconds, self._tick)
        self._patience = Later(runtime.scheduler, self._give_up)
        self._stands: dict[KafkaQueue, Stand] = {}
        """What of each queue Kafka has."""
        self._said: dict[KafkaQueue, list[Said]] = {}
        """What Kafka may have of each: its last commit that has succeeded, and those that were sent since."""
        self._turns: dict[KafkaQueue, int] = {}
        """The turn of each queue's last commit."""
        self._turn = 0
        self._sent = -1.0
        self._under_way: object | None = None
        self._awaited: list[tuple[int, Callable[[bool], None]]] = []
        """Who waits until what was finished then is committed, with the turn of the last commit by then."""
        self._open: set[int] = set()
        """Turns of commits that are under way."""
        self._tick_turn = 0
        self._covered = 0
        """Turn of the last commit of all that had changed that has succeeded."""
        self._soon = False
        self._room = TEXT_MAX
        """Characters that a text may have: fewer where the brokers refuse so long a one."""

    def begin(self) -> None:
        """Begin to commit."""
        self._forget()
        self._open.clear()
        self._ticks.begin()

    def end(self) -> None:
        """Commit no more by itself."""
        self._ticks.end()
        self._patience.cancel()
        self.unsettle()

    def when_durable(self, reported: Callable[[bool], None]) -> None:
        """Report once what has finished by now is committed, which is begun at once; False: it will not be."""
        self._awaited.append((self._turn, reported))
        self._hurry()

    def last(self, go: Callable[[], None], *, seconds: float) -> None:
        """Call `go`, once, when what is finished by now is committed, or will not be, or after so many seconds."""
        gone = False

        def end(_: bool = True) -> None:
            nonlocal gone
            if not gone:
                gone = True
                waiting.cancel()
                reporting.cancel()
                go()

        def report() -> None:
            self._limited_log.note("kafka_last_commit_awaited", self._group, seconds=seconds)

        waiting = Later(self._scheduler, end)
        reporting = Later(self._scheduler, report)
        waiting.after(seconds)
        reporting.after(LAST_TELL_SECONDS)
        self.when_durable(end)

    def unsettle(self) -> None:
        """Tell who waits that it will not be: a partition is another's."""
        settling, self._awaited = self._awaited, []
        for _, reported in settling:
            reported(False)

    def _hurry(self) -> None:
        if self._awaited and not self._soon and self._under_way is None:
            self._soon = True
            self._scheduler.call_soon(self._settle_soon)

    def _settle_soon(self) -> None:
        self._soon = False
        if self._awaited:
            self._tick()

    def _look(self) -> None:
        """Tell who waits for what is committed now; of those who asked before the last commit of all began, all."""
        covered = self._covered
        if not any(turn <= covered for turn in self._open):
            ready = [reported for turn, reported in self._awaited if turn < covered]
            self._awaited = [each for each in self._awaited if each[0] >= covered]
            for reported in ready:
                reported(True)

    def now(
        self,
        queues: Sequence[KafkaQueue],
        done: Callable[[KafkaFailure | None], None],
        *,
        clean: Collection[KafkaQueue] = (),
    ) -> None:
        """Commit queues whether anything changed or not.

        Args:
            queues: Which.
            done: Told how it ended.
            clean: Those of which no client has a message any more.
        """
        self._turn += 1
        turn = self._turn
        self._open.add(turn)
        stands = {queue: self._stand(queue) for queue in queues}
        commits: dict[KafkaQueue, Commit] = {}
        named: dict[KafkaQueue, Named | None] = {}

        def made(queue: KafkaQueue, commit: Commit, blob: Named | None) -> None:
            commits[queue], named[queue] = commit, blob
            if len(commits) == len(queues):
                self._send(turn, stands, commits, named, done)

        if not queues:
            self._send(turn, {}, {}, {}, done)
        for queue in queues:
            self._make(queue, clean=queue in clean, made=made)

    def _send(
        self,
        turn: int,
        stands: Mapping[KafkaQueue, Stand],
        commits: Mapping[KafkaQueue, Commit],
        named: Mapping[KafkaQueue, Named | None],
        done: Callable[[KafkaFailure | None], None],
    ) -> None:
        sent = self._lease.now()
        # While a blob was written a partition may have gone, or a later commit of it been sent.
        here = [queue for queue in commits if not queue.gone and self._turns.get(queue, 0) <= turn]
        if not here:
            self._scheduler.call_soon(self._overtaken, turn, done)
            return
        self._turns.update(dict.fromkeys(here, turn))
        for queue in here:
            self._note(queue, commits[queue])

        def answered(failure: KafkaFailure | None) -> None:
            self._open.discard(turn)
            if failure is None:
                self._stands.update({queue: stands[queue] for queue in here})
                for queue in here:
                    self._confirm(queue, commits[queue])
                self._lease.extend(sent)
                for queue in here:
                    self._blobs.committed(queue.place, named[queue])
                self._metrics.counter(COMMITS, self._group).add()
            else:
                self._metrics.counter(COMMIT_ERRORS, self._group, failure.code).add()
                if failure.code == TOO_LONG:
                    self._shorten(max(len(commits[queue].metadata) for queue in here))
                if failure.fenced or any(queue not in self._queues() for queue in here):
                    # What was released without its last commit, or is another's.
                    self.unsettle()
            done(failure)
            self._answered(failure)
            self._look()
            self._hurry()

        self.member.commit([commits[queue] for queue in here], answered, soon=bool(self._awaited))

    def _overtaken(self, turn: int, done: Done) -> None:
        """End a commit of which nothing was sent: the answers to later ones say whose the partitions are."""
        self._open.discard(turn)
        done(KafkaFailure("OVERTAKEN", "the partition was lost, or a later commit of it was sent"))
        self._look()
        self._hurry()

    def _shorten(self, refused: int) -> None:
        """Make shorter texts: the brokers' limit (offset.metadata.max.bytes) is below a text of this length."""
        if refused > 0:
            self._room = min(self._room, refused * 3 // 4)
            self._limited_log.note("kafka_commit_text_refused", self._group, characters=refused, next=self._room)

    def said(self, queue: KafkaQueue) -> Sequence[Said]:
        """Return what Kafka may have of a queue: its last commit that has succeeded, and those that were sent since."""
        return self._said.get(queue, ())

    def _note(self, queue: KafkaQueue, commit: Commit) -> None:
        said = self._said.setdefault(queue, [])
        if (commit.offset, commit.metadata) not in said[-1:]:
            said.append((commit.offset, commit.metadata))
            del said[1:-SAID_MAX]

    def _confirm(self, queue: KafkaQueue, commit: Commit) -> None:
        said = self._said.get(queue, [])
        if (arrived := (commit.offset, commit.metadata)) in said:
            del said[: said.index(arrived)]

    def forget(self, queues: Collection[KafkaQueue]) -> None:
        """Forget queues that are the member's no more."""
        for queue in queues:
            queue.gone = True
            self._said.pop(queue, None)
            self._stands.pop(queue, None)
            self._turns.pop(queue, None)

    def _tick(self) -> None:
        now = self._lease.now()
        if self._under_way is not None:
            return
        queues = self._queues()
        changed = [queue for queue in queues if self._stands.get(queue) != self._stand(queue)]
        if not changed and now - self._sent >= self._lease.renew_after:
            changed = list(queues)
        if not changed:
            if self._awaited:
                self._turn += 1
                self._covered = self._turn
                self._look()
            return
        self._sent = now
        mark = self._under_way = object()
        # Where no answer comes, as from a cluster that is gone, another try is made.
        self._patience.after(self._lease.renew_after * 2)

        turn = self._tick_turn = self._turn + 1

        def done(failure: KafkaFailure | None) -> None:
            if failure is None:
                self._covered = max(self._covered, turn)
            if self._under_way is mark:
                self._forget()

        self.now(changed, done)

    def _give_up(self) -> None:
        # What it holds the next one has, too.
        self._open.discard(self._tick_turn)
        self._forget()

    def _forget(self) -> None:
        self._under_way = None
        self._patience.cancel()

    def _stand(self, queue: KafkaQueue) -> Stand:
        tracker = self._tracker_of(queue)
        failures = tracker.failures
        mark = hash(tuple(failures.items())) if failures else 0
        return tracker.watermark, tracker.ahead, mark

    def _make(
        self, queue: KafkaQueue, *, clean: bool, made: Callable[[KafkaQueue, Commit, Named | None], None]
    ) -> None:
        """Make the commit of a queue; where its text has no room, once the blob is written."""
        tracker = self._tracker_of(queue)
        # What is finished meanwhile is the next commit's.
        leader_epoch = queue.leader_epoch
        offset, ranges, failures = tracker.watermark, tracker.finished_ranges(), dict(tracker.failures)
        text, whole = "", not (ranges or failures)
        if self._room >= TEXT_MIN:
            text, whole = encode(offset, ranges, failures, clean=clean, topic_id=queue.topic_id or "", room=self._room)
        if whole or self._room < NAMED_MIN:
            if not whole:
                self._metrics.counter(CUT, self._group).add()
            made(queue, Commit(queue.topic, queue.queue_id, offset, text, leader_epoch), None)
            return
        room, topic_id = self._room, queue.topic_id or ""
        long, entire = encode(offset, ranges, failures, clean=clean, topic_id=topic_id, room=BLOB_MAX)

        def written(blob: Named | None) -> None:
            if blob is None or not entire:
                self._metrics.counter(CUT, self._group).add()
            said = text
            if blob is not None:
                said = encode_named(offset, ranges, failures, clean=clean, blob=blob, topic_id=topic_id, room=room)
            made(queue, Commit(queue.topic, queue.queue_id, offset, said, leader_epoch), blob)

        seconds = min(BLOB_SECONDS_MAX, self._lease.renew_after)
        self._blobs.write(queue.place, offset, long, written, seconds=seconds)
