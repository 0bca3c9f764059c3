"""Where the logs of a member's partitions begin and end, and what they lost: by retention, or since a log went back.

Kafka sends offsets in order. So a log went back, or is another one, where what comes is below what came before, where
its end is lower than it was, or where the partition was missing meanwhile. Each leader of a partition has a higher
epoch than those before; by these the client finds since where a log is another one (KIP-320), and it is read again from
there. Without epochs, and where the topic is another one, all of it is.

librdkafka remembers the highest epoch of a partition's leader. A topic that is created again begins at 0, and after a
restart of a broker what is remembered is above: the leader refuses every fetch, and the client tries again without end
or report. A new client reads it.

Single topics of a group may be missing, denied, without a leader, or have a log that went back. What the cluster says
of one topic says nothing of the others: their state and their lag stay known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from broker.runtime.seams import Clock
from upstream.kafka.commits.metadata import encode
from upstream.kafka.link import Assignment, KafkaFailure, KafkaPartition, KafkaRecord, LogBounds
from upstream.kafka.positions.stream import PartitionStream
from upstream.kafka.topics import KafkaQueue
from upstream.progress.progress import Progress
from upstream.progress.tracker import OffsetTracker

SHOWN_SECONDS = 3_600.0
"""How long the finding of a log that went back stays."""
OPEN_SECONDS = 10.0
"""A transaction that is open for longer is a finding."""
WHOLE = -1
"""In the place of a partition: all of the topic."""
_LEADERLESS = "LEADER_NOT_AVAILABLE"

_SENTENCES = {
    "UNKNOWN_TOPIC_OR_PART": "the cluster does not have topic {topic}; create it, or remove it from the group",
    "TOPIC_AUTHORIZATION_FAILED": "the cluster does not allow this node to read topic {topic}; grant Read and Describe",
    _LEADERLESS: "a partition of topic {topic} has no leader; look at the brokers",
}
_SAME = {
    "UNKNOWN_TOPIC": "UNKNOWN_TOPIC_OR_PART",
    "UNKNOWN_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "UNKNOWN_TOPIC_ID": "UNKNOWN_TOPIC_OR_PART",
    "NOT_LEADER_FOR_PARTITION": _LEADERLESS,
    "LEADER_UNKNOWN": _LEADERLESS,
}


def _kind(failure: KafkaFailure) -> str:
    return _SAME.get(failure.code, failure.code)


def is_missing(failure: KafkaFailure) -> bool:
    """Whether the cluster says that it does not have a topic or partition."""
    return _kind(failure) == "UNKNOWN_TOPIC_OR_PART"


class _OpenTransaction(NamedTuple):
    offset: int
    records: int
    since: float
    wall_ms: int


class TopicTroubles:
    """Those of one group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[KafkaPartition, KafkaFailure] = {}
        self._back: dict[str, tuple[int, float]] = {}
        """Messages lost by topic, and when."""
        self._open: dict[KafkaPartition, _OpenTransaction] = {}

    def heard(self, failures: Mapping[KafkaPartition, KafkaFailure]) -> list[KafkaFailure]:
        """Note every failure that the cluster reports of partitions; returns the new ones."""
        return self._note(
            {each: failure for each, failure in self._places.items() if each.partition == WHOLE}, failures
        )

    def heard_topics(self, failures: Mapping[str, KafkaFailure]) -> list[KafkaFailure]:
        """Note every failure that the cluster reports of whole topics; returns the new ones."""
        whole = {KafkaPartition(topic, WHOLE): failure for topic, failure in failures.items()}
        return self._note({each: failure for each, failure in self._places.items() if each.partition != WHOLE}, whole)

    def _note(
        self, kept: dict[KafkaPartition, KafkaFailure], failures: Mapping[KafkaPartition, KafkaFailure]
    ) -> list[KafkaFailure]:
        before = {(place.topic, _kind(failure)) for place, failure in self._places.items()}
        self._places = {**kept, **failures}
        new = {(place.topic, _kind(failure)): failure for place, failure in failures.items()}
        return [failure for key, failure in new.items() if key not in before]

    def went_back(self, topic: str, lost: int) -> None:
        """Note that a log of a topic is shorter than the group's position."""
        earlier, _ = self._back.get(topic, (0, 0.0))
        self._back[topic] = (earlier + lost, self._clock.monotonic())

    def open_transactions(self, ends: Iterable[LogBounds]) -> None:
        """Note in which partitions a transaction is open: nothing at or above its first record can be read."""
        for place, _, high, stable in ends:
            before = self._open.pop(place, None)
            if stable < high:
                known = before is not None and before.offset == stable
                since = before.since if before is not None and known else self._clock.monotonic()
                wall_ms = before.wall_ms if before is not None and known else self._clock.wall_ms()
                self._open[place] = _OpenTransaction(stable, high - stable, since, wall_ms)

    def given_up(self, places: Iterable[KafkaPartition]) -> None:
        """Forget partitions that this member does not have any more."""
        for place in places:
            self._open.pop(place, None)
            self._places.pop(place, None)

    def forget(self) -> None:
        """The member has left: what the cluster said of topics is unknown."""
        self._places.clear()
        self._open.clear()

    def of(self, topic: str) -> str | None:
        """Return what keeps all of a topic from being read; None: nothing."""
        for place, failure in self._places.items():
            if place.topic == topic and _kind(failure) != _LEADERLESS:
                return _sentence(topic, failure)
        return None

    def texts(self) -> dict[str, str]:
        """Return the topics with a trouble, each with a sentence."""
        since = self._clock.monotonic() - SHOWN_SECONDS
        found = {
            topic: f"a log of topic {topic} was truncated, or the topic was created again; {lost} messages were lost"
            for topic, (lost, at) in self._back.items()
            if at >= since
        }
        long = self._clock.monotonic() - OPEN_SECONDS
        found |= {place.topic: _waits(place, each) for place, each in self._open.items() if each.since <= long}
        return found | {place.topic: _sentence(place.topic, failure) for place, failure in self._places.items()}


def _waits(place: KafkaPartition, found: _OpenTransaction) -> str:
    since = datetime.fromtimestamp(found.wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"topic {place.topic}: open transaction since {since}; the {found.records} offsets of partition "
        f"{place.partition} from {found.offset} cannot be read before it ends"
    )


def _sentence(topic: str, failure: KafkaFailure) -> str:
    known = _SENTENCES.get(_kind(failure))
    return f"topic {topic}: {failure}" if known is None else f"{known.format(topic=topic)} ({failure.code})"


WENT_BACK = declare(
    "pyddmq_kafka_logs_went_back_total",
    "Partitions whose log ends before the position of the group, or whose topic was created again.",
    ("group",),
)

UNREAD_SECONDS = 75.0
"""A fetch takes 60 s at most (`socket.timeout.ms`)."""
ANEW_SECONDS = 10.0
"""Likewise of a topic that was created again, where most likely the client refuses the new leader."""
SHORT_LOOKS = 10
"""A log is so often found to be too short before its client is not waited for any more."""
_LOOK_SECONDS_MAX = 2.0
"""Ends are asked for each second. A longer gap counts so much: the cluster was away, or the node was stopped."""


class Unread:
    """The partitions of one member of which nothing comes, although the cluster answers that there is more."""

    def __init__(self) -> None:
        self._seen: dict[KafkaPartition, tuple[int, float, float]] = {}
        """By partition: up to where it was read, for how long it has been so, and when that was looked at."""
        self._anew: set[KafkaPartition] = set()
        self._tried: set[KafkaPartition] = set()
        """A new client was made for these, and nothing came since: another one would not help."""

    def looked(self, stream: PartitionStream, end: int, now: float) -> None:
        """Note where the log of a stream ends, as far as it may be read."""
        place, reached = stream.queue.place, stream.reached
        before, seconds, at = self._seen.get(place, (reached, 0.0, now))
        if reached >= end or reached > before >= 0:
            self._tried.discard(place)
            self._anew.discard(place)
        if stream.rests or not 0 <= reached < end:
            self.gone([place])
        else:
            seconds += min(now - at, _LOOK_SECONDS_MAX)
            self._seen[place] = reached, seconds if reached == before else 0.0, now

    def begins_anew(self, place: KafkaPartition) -> None:
        """Note that the topic of a partition was created again."""
        self._anew.add(place)

    def gone(self, places: Iterable[KafkaPartition]) -> None:
        """Forget partitions that this member does not have any more."""
        for place in places:
            self._seen.pop(place, None)

    def due(self) -> dict[KafkaPartition, int]:
        """Return the partitions for which a new client is to be made, with where they stand; each once."""
        found = {
            place: reached
            for place, (reached, seconds, _) in self._seen.items()
            if seconds >= (ANEW_SECONDS if place in self._anew else UNREAD_SECONDS) and place not in self._tried
        }
        self._tried.update(found)
        return found


class LogWatch:
    """That of one member.

    Attributes:
        troubles: What is wrong with single topics.
        unread: Partitions of which nothing comes.
    """

    def __init__(
        self,
        group: str,
        *,
        owned: Mapping[KafkaPartition, KafkaQueue],
        streams: Mapping[KafkaQueue, PartitionStream],
        progress: Progress,
        runtime: Runtime,
        ask: Callable[[], None],
        begin_anew: Callable[[KafkaQueue, Callable[[int | None], Assignment]], None],
    ) -> None:
        """Set up.

        Args:
            group: Its name.
            owned: The member's partitions.
            streams: What arrived of them.
            progress: How far they are.
            runtime: Time, counts and log lines.
            ask: Asks for ends, which `heard` is called with.
            begin_anew: Gives a partition again, by an assignment that is made from the offset of the group's moment.
        """
        self.troubles = TopicTroubles(runtime.clock)
        self.unread = Unread()
        self._group = group
        self._owned = owned
        self._streams = streams
        self._progress = progress
        self._runtime = runtime
        self._ask = ask
        self._begin_anew = begin_anew
        self._waiting: dict[KafkaQueue, list[Callable[[], None]]] = {}

    def log(self, failures: Sequence[KafkaFailure]) -> None:
        """Write new troubles of topics to the log."""
        for failure in failures:
            self._runtime.limited_log.note("kafka_trouble", self._group, kind=failure.code, error=str(failure))

    def given(self, queue: KafkaQueue) -> None:
        """Count what a log lost while no node of the group had the partition."""
        if queue.expired:
            self.expired(self._tracker(queue), queue.expired)
        if queue.assignment.is_beyond or queue.is_cut:
            self._went_back(queue, queue.assignment.high, 0)
        if queue.missing:
            self._ask()

    def expired(self, tracker: OffsetTracker, count: int) -> None:
        """Count messages that retention took before the group had finished them."""
        self._progress.lost(tracker, count)
        self._runtime.limited_log.note(
            "messages_lost_to_retention", self._group, topic=tracker.topic, queue=tracker.queue_id, messages=count
        )

    def after_bounds(self, queue: KafkaQueue, then: Callable[[], None]) -> None:
        """Call `then` once the cluster has said where the log of a partition begins; never of one that goes first."""
        self._waiting.setdefault(queue, []).append(then)
        self._ask()

    def gone(self, queues: Sequence[KafkaQueue]) -> None:
        """Forget partitions that this member does not have any more."""
        self.troubles.given_up([queue.place for queue in queues])
        self.unread.gone([queue.place for queue in queues])
        for queue in queues:
            self._waiting.pop(queue, None)

    def nothing_comes(self) -> bool:
        """Whether nothing comes of some partition that has more; it is logged, and once for each."""
        due = self.unread.due()
        for place, offset in due.items():
            self._runtime.limited_log.note(
                "kafka_partition_unread", self._group, topic=place.topic, queue=place.partition, offset=offset
            )
        return bool(due)

    def goes_back(self, queue: KafkaQueue, offset: int) -> bool:
        """Whether what comes of a partition is below what came before; then its ends are asked for."""
        if self._streams[queue].goes_back(offset):
            self._doubt(queue, offset)
        return queue.doubted

    def differs(self, queue: KafkaQueue, records: Sequence[KafkaRecord]) -> bool:
        """Whether one of these, which was finished when the partition was given, is of a later leader than that one."""
        end, leader_epoch = queue.claimed
        if leader_epoch >= 0 and records[0].offset < end:
            for each in records:
                if each.offset < end and each.leader_epoch > leader_epoch:
                    self._doubt(queue, each.offset)
                    break
        return queue.doubted

    def _doubt(self, queue: KafkaQueue, offset: int) -> None:
        queue.diverged = offset if queue.diverged is None else min(queue.diverged, offset)
        if not queue.doubted:
            queue.doubted = True
            self._ask()

    def heard(
        self,
        known: Mapping[KafkaQueue, int],
        ends: Sequence[LogBounds],
        failures: Mapping[KafkaPartition, KafkaFailure],
    ) -> None:
        """Note ends, and which logs became shorter since these were asked for, when they ended as `known` says."""
        # Of those that went meanwhile nothing is heard any more that would end a trouble.
        failures = {place: failure for place, failure in failures.items() if place in self._owned}
        self.log(self.troubles.heard(failures))
        for place, failure in failures.items():
            if is_missing(failure):
                self._owned[place].missing, self._owned[place].is_back = True, False
        self.troubles.open_transactions(ends)
        for place, low, high, stable in ends:
            queue = self._owned.get(place)
            if queue is None or queue not in known:
                continue
            if queue.missing and queue.topic_id and not queue.is_other:
                # A broker that was restarted does not know its topics for a moment: the id says which one it is.
                queue.is_back = True
                continue
            is_short = high < self._standing(queue, known[queue])
            queue.short_looks = queue.short_looks + 1 if is_short else 0
            if queue.missing or queue.doubted or (is_short and self._is_given_up(queue)):
                self._lose_all(queue, low, high, stable)
            elif is_short:
                continue  # Its client is about to find since where the log is another.
            elif high < known[queue]:
                # What was lost this node had not read yet.
                lost, queue.max_offset = queue.max_offset - high, high
                self._progress.lost(self._tracker(queue), lost)
                self._went_back(queue, high, lost)
            else:
                queue.min_offset = max(queue.min_offset, low)
                queue.max_offset = max(queue.max_offset, high)
                self.unread.looked(self._streams[queue], stable, self._runtime.clock.monotonic())
                for then in self._waiting.pop(queue, ()):
                    then()

    @staticmethod
    def _is_given_up(queue: KafkaQueue) -> bool:
        """Whether the client will not find since where a log that is too short is another one (KIP-320)."""
        return queue.leader_epoch < 0 or queue.short_looks > SHORT_LOOKS

    def _standing(self, queue: KafkaQueue, known: int) -> int:
        """Return up to where a log was read when its end was asked for, at least."""
        return min(known, max(self._streams[queue].reached, self._tracker(queue).watermark))

    def _lose_all(self, queue: KafkaQueue, low: int, high: int, stable: int) -> None:
        """Read a log that went back from where it is another; where that is not known as one without a commit.

        What clients have of it is not this log's, so their answers finish nothing.
        """
        tracker = self._tracker(queue)
        if queue.diverged is not None and queue.leader_epoch >= 0 and not queue.missing:
            self._go_back(queue, LogBounds(queue.place, low, high, stable), max(low, queue.diverged))
            return
        lost = tracker.unfinished(queue.max_offset)
        # All records of a topic that was created again came while the group existed.
        appeared = queue.missing
        if lost:
            self._progress.lost(tracker, lost)
        self._went_back(queue, high, lost)
        found = partial(
            Assignment, *queue.place, low, high, None, "", stable=stable, appeared=appeared, reused_from=low
        )
        self._begin_anew(queue, found)

    def _go_back(self, queue: KafkaQueue, bounds: LogBounds, start: int) -> None:
        """Forget what is finished from an offset on, since the records there are others."""
        tracker = self._tracker(queue)
        lost = max(0, tracker.unfinished(queue.max_offset) - tracker.unfinished(start))
        if lost:
            self._progress.lost(tracker, lost)
        self._went_back(queue, bounds.high, lost)
        committed = min(tracker.watermark, start)
        ranges = [(first, min(end, start)) for first, end in tracker.finished_ranges() if first < start]
        failures = {offset: failure for offset, failure in tracker.failures.items() if offset < start}
        text, _ = encode(committed, ranges, failures, clean=True, topic_id=queue.topic_id or "")
        found = Assignment(
            *queue.place,
            bounds.low,
            bounds.high,
            committed,
            text,
            None,
            bounds.stable,
            leader_epoch=queue.leader_epoch,
            reused_from=start,
        )
        self._begin_anew(queue, lambda _: found)

    def _went_back(self, queue: KafkaQueue, end: int, lost: int) -> None:
        self._runtime.metrics.counter(WENT_BACK, self._group).add()
        self.troubles.went_back(queue.topic, lost)
        self._runtime.limited_log.note(
            "kafka_log_went_back", self._group, topic=queue.topic, queue=queue.queue_id, end=end, lost=lost
        )

    def _tracker(self, queue: KafkaQueue) -> OffsetTracker:
        return self._progress.trackers[self._group, queue.topic, queue.queue_id]
