"""What groups still need of a log file that retention is about to delete, and what becomes of it (D29, promise 6).

| a message that the group has not finished | before the file goes |
| --- | --- |
| was tried and failed, or is out, or in an action | to the group's dead letters as `expired`; the file waits |
| is on its way to the dead letters, or to the retry topic | the file waits |
| is in the retry topic, read or not | as what was tried |
| was never delivered | lost: counted per group, logged, shown |
| is in a dead-letter topic | lost, tried or not: there is no dead letter of a dead letter (D16) |

The dead letters are durable, and their origins finished in the ack journal, durably, before the file goes. Between its
append and that a message is `expiring` (`OffsetTracker`): it may still be answered, or fail once more, and what it
failed for has it neither dead-lettered a second time nor sent back. What is lost
is finished after it went: a kill in between finds those messages gone and counts them when it starts (`Progress`), and
no offset ever passes a message that is still there. A key whose earlier messages went continues with its next one;
while a client still holds such a message the key waits for its answer or timeout, as after a late success (D12).

Groups that are no longer configured are treated alike: what they tried is kept, the rest is counted (D6).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.java import tags_code
from broker.format.record import reconsume_times
from broker.log.durability import AwaitedSteps, all_durable, saved
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.queues.topics import dead_letter_topic
from broker.retention import ExpiringSegment, Relocation
from broker.retry.dead_letter import dead_letter, is_dead_letter_topic
from broker.retry.puts import is_retry_topic
from broker.runtime.bundle import Runtime
from broker.runtime.steps import run_now
from broker.store import Store
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.stats import StatsReader
from upstream.embedded.queues import EmbeddedQueues
from upstream.figures.counters import SubscriptionCounters
from upstream.job import GroupQueue, UpstreamJob
from upstream.progress.progress import Progress, ProgressFailed
from upstream.progress.reconcile import names_of
from upstream.progress.tracker import OffsetTracker
from upstream.progress.tracker_table import Key
from upstream.state import JobEvent, JobState, move

LOOK_AHEAD_SECONDS = 30.0
NEAR_SHARE = 0.1
"""Part of a limit; a group whose oldest message has less left is logged."""
_CHUNK_UNITS = 1024
_QUEUES_AT_ONCE = 64
"""Queues that are looked at in one step, in some milliseconds: each may take a read of its file and of the log."""
_LEAVING = (JobState.BURYING, JobState.SENDING, JobState.UNDECIDED)
_WITH_SOMEBODY = (JobState.OUT, JobState.RUNNING)
_WAITS_MAX = 8
"""How often a file waits beside the loop while groups continue working in it; then the loop waits for the disk once,
since else each of its messages would be given out, and be a dead letter as well."""
_ENDED_AT_ONCE = (
    JobState.READ,
    JobState.WAITING,
    JobState.READY,
    JobState.BUFFERED,
    JobState.RETRYING,
    JobState.STOPPED,
)


class _ExpiredMessage(NamedTuple):
    """A message that is put into the dead letters, as `dead_letter` names it."""

    topic: str
    queue_id: int
    offset: int
    physical: int
    attempts: int


class Expiry:
    """The groups' `broker.retention.RetentionHold`."""

    def __init__(
        self,
        store: Store,
        progress: Progress,
        runtime: Runtime,
        groups: Callable[[], Iterable[ConsumerGroup]],
    ) -> None:
        """Set up; enter it in `store.retention.holds`.

        Args:
            store: The broker.
            progress: Trackers of all groups.
            runtime: Wall and monotonic time; counts and log lines.
            groups: Tells the configured groups, those that leave included.
        """
        self._store = store
        self._times = EmbeddedQueues(store)
        self._progress = progress
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._groups = groups
        self._unwanted: dict[Key, int] = {}
        self._kept: dict[Key, int] | None = None
        """What was unfinished in the file when the ack journal was synced last, by tracker."""
        self._waits = 0
        self._looked_at = runtime.clock.monotonic()

    # The retention hold

    def needs(self, expiring: ExpiringSegment) -> bool:
        """Whether a configured group has not finished something in the file."""
        group_queues = self._group_queues()
        return any(key in group_queues for key, _, _ in self._behind(expiring))

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        """Put what was tried or is out into the dead letters; see `RetentionHold.relocate`."""
        group_queues = self._group_queues()
        left, waits = count_max, False
        for key, tracker, minimum in self._behind(expiring):
            if is_dead_letter_topic(tracker.topic):
                continue
            group_queues_of = group_queues.get(key, [])
            waits |= any(
                job.state in _LEAVING and offset < minimum
                for each in group_queues_of
                for offset, job in each.live.items()
            )
            for offset in _pending(tracker, group_queues_of, minimum)[:left]:
                left -= 1
                if waits or not self._dead_letter(tracker, _group_queue_of(group_queues_of, offset), offset, expiring):
                    waits = True
                    break
        if waits or not left:
            yield from all_durable(self._store.writes)
            return Relocation.BLOCKED if waits else Relocation.MORE
        if left < count_max:
            yield from self._wait(all_durable(self._store.writes))
        try:
            yield from self._synced(expiring)
        except ProgressFailed:
            return Relocation.BLOCKED
        self._count_unwanted(expiring, self._group_queues())
        return Relocation.LOSES if self.needs(expiring) else Relocation.DONE

    def _synced(self, expiring: ExpiringSegment) -> AwaitedSteps[None]:
        """Have durable in the ack journal what is finished in the file; nothing where that did not change since."""
        unfinished = {key: tracker.unfinished(minimum) for key, tracker, minimum in self._behind(expiring)}
        if self._kept != unfinished:
            yield from self._wait(saved(self._store.writes, self._progress.syncing()))
            self._kept = unfinished

    def _wait(self, steps: AwaitedSteps[None]) -> AwaitedSteps[None]:
        """Wait for the disk, beside the loop as far as _WAITS_MAX allows."""
        self._waits += 1
        if self._waits > _WAITS_MAX:
            run_now(steps)
        else:
            yield from steps

    def dropped(self, expiring: ExpiringSegment) -> None:
        """Move the groups past what is gone, and say what they lost."""
        self._waits, self._kept = 0, None
        group_queues = self._group_queues()
        touched = []
        for key, tracker, minimum in list(self._behind(expiring)):
            first = tracker.watermark
            lost = tracker.finish_range(first, minimum) - self._unwanted.get(key, 0)
            if lost > 0:
                self._progress.lost(tracker, lost)
                self._limited_log.note(
                    "messages_lost_to_retention",
                    **names_of(tracker),
                    first_offset=first,
                    last_offset=minimum - 1,
                    reason=expiring.reason,
                    count=lost,
                )
            group_queues_of = group_queues.get(key, [])
            if group_queues_of and lost > 0:
                self._counters(tracker).skipped("expired").add(lost)
            for group_queue in group_queues_of:
                _leave(group_queue, minimum)
                touched.append(group_queue)
        self._unwanted.clear()
        _pump(touched)

    def _behind(self, expiring: ExpiringSegment) -> Iterator[tuple[Key, OffsetTracker, int]]:
        """Trackers with something unfinished in the file, and the first offset that their queue keeps."""
        for key, tracker in self._progress.trackers.items():
            minimum = expiring.minimums.get((tracker.topic, tracker.queue_id), 0)
            if tracker.watermark < minimum and tracker.topic in self._store.topics:
                yield key, tracker, minimum

    def _group_queues(self, name: str | None = None) -> dict[Key, list[GroupQueue]]:
        """Group queues per tracker, of one group or all: one, but for a retry topic one per topic that it holds."""
        found: dict[Key, list[GroupQueue]] = {}
        for group in self._groups():
            for group_queue in group.group_queues() if name in (None, group.name) else ():
                found.setdefault((group.name, group_queue.topic, group_queue.queue_id), []).append(group_queue)
        return found

    def _counters(self, tracker: OffsetTracker) -> SubscriptionCounters:
        return SubscriptionCounters(self._metrics, tracker.group, tracker.topic)

    # To the dead letters

    def _dead_letter(
        self, tracker: OffsetTracker, group_queue: GroupQueue | None, offset: int, expiring: ExpiringSegment
    ) -> bool:
        """Append one message's dead letter; False when the store takes none now."""
        queue = self._queue(tracker)
        try:
            physical, size, _ = queue.read(offset, 1)[0]
            record = self._store.read(physical, size)
            failure = tracker.failures.get(offset)
            job = None if group_queue is None else group_queue.live.get(offset)
            attempts = max(sum(failure[:3]) if failure else 0, job.attempts if job else 0, _earlier(tracker, record))
            origin = _ExpiredMessage(tracker.topic, tracker.queue_id, offset, physical, attempts)
            reason = _reason(job, expiring, self._store.retention.limits.age_ms)
            action = job.failed_action if job else ""
            put, born_ms, host = dead_letter(self._store, tracker.group, origin, reason, record, action=action)
            position: list[int] = []
            done = partial(self._dead_lettered, tracker, offset, position)
            position.append(self._store.append([put], born_ms=born_ms, born_host=host, done=done)[0].offset)
            tracker.expiring.add(offset)
        except (DamagedRecord, RecordGone, IndexError):
            tracker.finish(offset)
            self._counters(tracker).skipped("damaged").add()
            _complete(group_queue, offset)
        except StoreError as error:
            self._limited_log.note("dead_letter_refused", **names_of(tracker), offset=offset, error=str(error))
            self._counters(tracker).refused.add()
            return False
        return True

    def _dead_lettered(
        self, tracker: OffsetTracker, offset: int, position: list[int], error: StoreError | None
    ) -> None:
        if error is not None:
            # Until a restart it is unknown whether the record is there: it counts as being on its way.
            return
        tracker.expiring.discard(offset)
        self._progress.dead_lettered(tracker, offset)
        self._progress.dead_letters_done(dead_letter_topic(tracker.group), 0, position[0] + 1)
        self._counters(tracker).dead_letters("expired").add()
        self._limited_log.note("message_dead_lettered", **names_of(tracker), offset=offset, reason="expired")
        # As they are now: the group may have begun again.
        group_queues = self._group_queues(tracker.group).get((tracker.group, tracker.topic, tracker.queue_id), [])
        group_queue = _group_queue_of(group_queues, offset)
        _complete(group_queue, offset)
        _pump([] if group_queue is None else [group_queue])

    def _queue(self, tracker: OffsetTracker) -> ConsumeQueue:
        return self._store.topics[tracker.topic].queues[tracker.queue_id]

    # Counting

    def _count_unwanted(self, expiring: ExpiringSegment, group_queues: Mapping[Key, list[GroupQueue]]) -> None:
        """Count, while units can be read, unfinished messages whose tag the group does not want: they are no loss."""
        self._unwanted.clear()
        for key, tracker, minimum in self._behind(expiring):
            group_queue = next(iter(group_queues.get(key, [])), None)
            tags = (
                group_queue.subscription.config.wanted_tags
                if group_queue is not None and group_queue.subscription is not None
                else None
            )
            if tags is not None and not is_retry_topic(tracker.topic):
                codes = {tags_code(tag.encode()) for tag in tags}
                self._unwanted[key] = sum(
                    size == FILLER_SIZE or code not in codes
                    for offset, size, code in _units(self._queue(tracker), tracker.watermark, minimum)
                    if not tracker.is_finished(offset)
                )

    def unfinished_below(self, end: int, is_wanted: Callable[[str, str], bool]) -> dict[str, int]:
        """Count the messages before a commit-log offset that groups have not finished, by group.

        Messages whose tag a group does not want count until it has read past them.

        Args:
            end: The commit-log offset.
            is_wanted: Whether a group counts in a topic.

        Raises:
            OSError: A queue's file cannot be read.
        """
        counts: dict[str, int] = {}
        firsts: dict[tuple[str, int], int] = {}
        for tracker in list(self._progress.trackers.values()):
            topic = self._store.topics.get(tracker.topic)
            if topic is None or tracker.queue_id >= len(topic.queues) or not is_wanted(tracker.group, tracker.topic):
                continue
            place = tracker.topic, tracker.queue_id
            if place not in firsts:
                firsts[place] = topic.queues[tracker.queue_id].first_at(end)
            count = tracker.unfinished(firsts[place])
            if count:
                counts[tracker.group] = counts.get(tracker.group, 0) + count
        return counts

    # Told before

    def looking_ahead(self) -> Generator[None, None, None]:
        """Say in the log, every 30 s, which groups are near to losing messages; in steps, about once a second."""
        now = self._clock.monotonic()
        if now - self._looked_at < LOOK_AHEAD_SECONDS:
            return
        self._looked_at, number = now, 0
        for group in self._groups():
            reader = StatsReader(times=self._times, clock=self._clock)
            for group_queue in group.group_queues():
                number += 1
                if number % _QUEUES_AT_ONCE == 0:
                    yield
                queue = reader.queue(group_queue)
                if queue.expires_share is not None and queue.expires_share < NEAR_SHARE:
                    self._limited_log.note(
                        "messages_near_deletion",
                        group.name,
                        queue.lag,
                        topic=group_queue.topic,
                        queue=group_queue.queue_id,
                        offset=queue.committed,
                        seconds_left=queue.expires_seconds,
                        bytes_left=queue.expires_bytes,
                    )


def _group_queue_of(group_queues: Sequence[GroupQueue], offset: int) -> GroupQueue | None:
    """The group queue that has a message; the first where none has read it."""
    has = (group_queue for group_queue in group_queues if offset in group_queue.live or offset in group_queue.adopted)
    return next(has, group_queues[0] if group_queues else None)


def _earlier(tracker: OffsetTracker, record: memoryview) -> int:
    """Failures before a message was sent back; what a retry topic holds was tried."""
    return reconsume_times(record) if is_retry_topic(tracker.topic) else 0


def _pending(tracker: OffsetTracker, group_queues: Iterable[GroupQueue], minimum: int) -> list[int]:
    """Unfinished offsets below `minimum` that were tried, or that a client has now; ascending."""
    found = {offset for offset in tracker.failures if offset < minimum}
    if is_retry_topic(tracker.topic):
        found.update(range(tracker.watermark, minimum))
    for group_queue in group_queues:
        found.update(offset for offset in group_queue.adopted if offset < minimum)
        found.update(
            offset for offset, job in group_queue.live.items() if offset < minimum and job.state in _WITH_SOMEBODY
        )
        leaving = {
            offset for offset in found if offset in group_queue.live and group_queue.live[offset].state in _LEAVING
        }
        found -= leaving
    return sorted(offset for offset in found if not tracker.is_finished(offset))


def _reason(job: UpstreamJob | None, expiring: ExpiringSegment, age_ms: int | None) -> str:
    limit = {"size": "the size of the log", "disk": "the use of the disk"}.get(expiring.reason)
    if limit is None:
        limit = f"its age of {(age_ms or 0) / 3_600_000:g} h"
    earlier = f"; before: {job.history.reason}" if job is not None and job.history and job.history.reason else ""
    return f"expired: deleted by retention for {limit} before it was finished{earlier}"


def _units(queue: ConsumeQueue, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Offset, size and tags code of units, not compared with their records: that would read the whole file."""
    checker, queue.checker = queue.checker, None
    try:
        start = max(start, queue.min_offset)
        while start < end:
            for _, size, code in queue.read(start, min(_CHUNK_UNITS, end - start)):
                yield start, size, code
                start += 1
    finally:
        queue.checker = checker


def _complete(group_queue: GroupQueue | None, offset: int) -> None:
    """End the job of a message that is a dead letter now; one that a client has keeps its key for it."""
    if group_queue is None:
        return
    group_queue.adopted.pop(offset, None)
    group_queue.check_until = max(group_queue.check_until, offset + 1)
    job = group_queue.live.get(offset)
    if job is None:
        group_queue.unanswered.pop(offset, None)
        return
    if job.state is JobState.OUT:
        move(job, JobEvent.EXPIRE)
    elif job.state in _ENDED_AT_ONCE:
        job.subscription.expire(job)


def _leave(group_queue: GroupQueue, minimum: int) -> None:
    """End every job below `minimum` without a holder."""
    group_queue.check_until = max(group_queue.check_until, minimum)
    for offset in [each for each in group_queue.adopted if each < minimum]:
        del group_queue.adopted[offset]
    for offset in [each for each in group_queue.unanswered if each < minimum and each not in group_queue.live]:
        del group_queue.unanswered[offset]
    for job in [job for offset, job in group_queue.live.items() if offset < minimum and job.state in _ENDED_AT_ONCE]:
        job.subscription.expire(job)


def _pump(group_queues: Iterable[GroupQueue]) -> None:
    """Let the subscriptions of these group queues continue."""
    for subscription in dict.fromkeys(group_queue.subscription for group_queue in group_queues):
        if subscription is not None:
            subscription.pump()
