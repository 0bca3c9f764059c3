"""Where all groups of a Kafka cluster stand, round by round, as samples for the lag journal.

As kafka-consumer-groups has it: a row for each partition that a group has committed or that a member of it has, the
end with what is not committed yet, a position that is absent where nothing was committed. What is unknown in a
round is not known in its samples (null), and never 0: then the rules say UNKNOWN.

Kafka does not say how old messages are, so the record at the committed offset is read where something is behind, and
the last one; each once. A round reads `READS_MAX` of them and waits `READ_SECONDS` at most; those that had no turn come
first in the next round, and until then their moments are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from broker.runtime.seams import Clock
from lag.samples import EventKind, LagEvent, QueueKey, QueueSample
from lag.varints import VALUE_MAX
from proxy.recording.timestamps import plausible
from upstream.kafka.all_groups import CommittedPosition, Survey, Surveyed
from upstream.kafka.commits.metadata import decode
from upstream.kafka.link import KafkaPartition

READS_MAX = 200
"""Records that a round reads."""
READ_SECONDS = 2.0

_Row = tuple[str, KafkaPartition]
"""Group and partition."""


@dataclass(slots=True)
class _ClusterRowState:
    """What is known of one row from the rounds before.

    Attributes:
        start: First offset.
        committed: The committed offset.
        moved_ms: When it was seen to have risen.
        asked_ms: When a member had the partition.
        expired: What retention took unfinished.
    """

    start: int | None = None
    committed: int | None = None
    moved_ms: int | None = None
    asked_ms: int | None = None
    expired: int = 0


@dataclass(frozen=True, slots=True)
class ClusterRound:
    """What one round found.

    Attributes:
        time_ms: When it began, wall clock.
        queues: All rows, by group, topic and partition.
        events: Rows that left.
        untold: Groups whose positions are not known in this round, sorted.
        incomplete: Why the list of groups is not complete, so that groups that were never seen may be missing too;
            None: it is complete.
    """

    time_ms: int
    queues: list[tuple[QueueKey, QueueSample]] = field(default_factory=list)
    events: list[LagEvent] = field(default_factory=list)
    unreported: list[str] = field(default_factory=list)
    incomplete: str | None = None


class ClusterSampler:
    """Samples one cluster."""

    def __init__(
        self, survey: Survey, clock: Clock, *, cluster: str, node: str, wanted: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Set up.

        Args:
            survey: Asks the cluster.
            clock: Dates what was read.
            cluster: Name of the cluster in the samples.
            node: Who records, in the samples.
            wanted: Says of a group whether it is recorded.
        """
        self._survey = survey
        self._clock = clock
        self._cluster = cluster
        self._node = node
        self._wanted = wanted
        self._seen: dict[_Row, _ClusterRowState] = {}
        self._moments: dict[tuple[KafkaPartition, int], int | None] = {}
        """Of records that were read; None: its timestamp is not plausible."""
        self._passed_over: dict[tuple[KafkaPartition, int], int] = {}
        """Records that were asked for and not read, each with how many rounds ago that began."""

    def recall(self, group: str, topic: str, queue: int, sample: QueueSample) -> None:
        """Take what a recorder before this one noted of a row: counts of what was lost continue."""
        row = group, KafkaPartition(topic, queue)
        start = sample.start if sample.start is not None or row not in self._seen else self._seen[row].start
        self._seen[row] = _ClusterRowState(start, sample.committed, sample.moved_ms, sample.asked_ms, sample.expired)

    def round(self) -> ClusterRound:
        """Look once. Raises KafkaFailure: the cluster cannot be reached, or refuses; nothing is known then."""
        listed, incomplete = self._survey.group_names()
        names = [name for name in listed if self._wanted(name)]
        # Committed offsets before ends: a lag is never below what it was.
        groups = self._survey.groups(names)
        if incomplete is not None:
            # The coordinator of a group that is not listed is away: the group is not deleted.
            names = sorted({*names, *(name for name, _ in self._seen)})
        unreported = [name for name in names if name not in groups]
        before: dict[str, list[KafkaPartition]] = {name: [] for name in unreported}
        for name, place in self._seen:
            if name in before:
                before[name].append(place)
        places = {place for each in groups.values() for place in (*each.committed, *each.members)}
        places.update(*before.values())
        ends = self._survey.ends(sorted(places))
        found = ClusterRound(self._clock.wall_ms(), unreported=unreported, incomplete=incomplete)
        rows: dict[_Row, Surveyed | None] = {}
        for name in names:
            reported = groups.get(name)
            known = before[name] if reported is None else (*reported.committed, *reported.members)
            rows |= {(name, place): reported for place in sorted(set(known))}
        moments = self._read({row: reported for row, reported in rows.items() if reported is not None}, ends)
        for row, reported in rows.items():
            name, place = row
            key = QueueKey(cluster=self._cluster, node=self._node, group=name, topic=place.topic, queue=place.partition)
            if reported is None:
                found.queues.append((key, QueueSample(time_ms=found.time_ms, expired=self._seen[row].expired)))
            else:
                found.queues.append((key, self._sample(row, reported, ends.get(place), moments, found.time_ms)))
        for name, place in sorted(set(self._seen) - set(rows)):
            del self._seen[name, place]
            event = LagEvent(
                time_ms=found.time_ms, kind=EventKind.LEFT, group=name, topic=place.topic, queue=place.partition
            )
            found.events.append(event)
        return found

    def unknown(self) -> ClusterRound:
        """Return a round in which nothing is known: all that was known before is not known now."""
        found = ClusterRound(self._clock.wall_ms())
        for (name, place), seen in sorted(self._seen.items()):
            key = QueueKey(cluster=self._cluster, node=self._node, group=name, topic=place.topic, queue=place.partition)
            found.queues.append((key, QueueSample(time_ms=found.time_ms, expired=seen.expired)))
        return found

    def _sample(
        self,
        row: _Row,
        reported: Surveyed,
        bounds: tuple[int, int] | None,
        moments: Mapping[tuple[KafkaPartition, int], int | None],
        time_ms: int,
    ) -> QueueSample:
        place = row[1]
        standing = reported.committed.get(place)
        members = len(reported.members.get(place, ()))
        # A client may commit any number; a journal has those of 63 bits.
        committed = None if standing is None else min(standing.offset, VALUE_MAX - 1)
        start, end = bounds or (None, None)
        seen = self._seen.setdefault(row, _ClusterRowState())
        if committed is not None and seen.committed is not None and committed > seen.committed:
            seen.moved_ms = time_ms
        if members:
            seen.asked_ms = time_ms
        if start is not None and committed is not None and start > committed:
            if seen.start is not None:
                seen.expired += max(0, start - max(seen.start, committed))
            elif not seen.expired:
                seen.expired = start - committed  # Deleted before the recording began.
        seen.start = start if start is not None else seen.start
        seen.committed = committed
        finished, retrying = _ahead(standing)
        oldest = None if start is None or committed is None else max(start, committed)
        return QueueSample(
            time_ms=time_ms,
            start=start,
            end=end,
            committed=committed,
            finished=finished,
            expired=seen.expired,
            retrying=retrying,
            committed_ms=None if oldest is None else moments.get((place, oldest)),
            end_ms=None if end is None else moments.get((place, end - 1)),
            moved_ms=seen.moved_ms,
            answered_ms=seen.moved_ms,
            asked_ms=seen.asked_ms,
            holders=members,
        )

    def _read(
        self, rows: Mapping[_Row, Surveyed], ends: Mapping[KafkaPartition, tuple[int, int]]
    ) -> Mapping[tuple[KafkaPartition, int], int | None]:
        """Return the moments of the records at which groups stand and of the last ones, as far as they are known."""
        wanted: dict[tuple[KafkaPartition, int], int] = {}
        for (_, place), reported in rows.items():
            standing, bounds = reported.committed.get(place), ends.get(place)
            if standing is None or bounds is None:
                continue
            start, end = bounds
            oldest = max(start, standing.offset)
            if oldest < end:
                wanted[place, oldest] = 0
                wanted.setdefault((place, end - 1), 1)
        self._moments = {each: moment for each, moment in self._moments.items() if each in wanted}
        missing = [each for each in wanted if each not in self._moments]
        missing.sort(key=lambda each: (-self._passed_over.get(each, 0), wanted[each], each))
        self._passed_over = {each: self._passed_over.get(each, 0) + 1 for each in missing}
        left = missing[:READS_MAX]
        until = self._clock.monotonic() + READ_SECONDS
        while left and (seconds := until - self._clock.monotonic()) > 0:
            # One of a partition at a time: that is how they are read.
            now: dict[KafkaPartition, int] = {}
            for place, offset in left:
                now.setdefault(place, offset)
            found = self._survey.moments(now, seconds)
            time_ms = self._clock.wall_ms()
            self._moments |= {(place, now[place]): plausible(moment, time_ms) for place, moment in found.items()}
            left = [(place, offset) for place, offset in left if now.get(place) != offset]
        return self._moments


def _ahead(standing: CommittedPosition | None) -> tuple[int, int]:
    """Return how many are finished above a committed offset and how many wait for a retry, as a node of ours says."""
    if standing is None:
        return 0, 0
    known = decode(standing.metadata, standing.offset)
    return sum(end - start for start, end in known.ranges), len(known.failures)
