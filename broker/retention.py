"""Retention: old log files go, oldest first, in steps that a kill may interrupt anywhere (D29).

A log file is due by age (of its last record), by the size of the log, or by the use of the disk. It goes only when

- the checkpoint covers records behind it: so the last file never goes, and recovery never begins in what is gone;
- every `RetentionHold` has put what is pending in it elsewhere. One may need many steps, and the file waits for it;
  it may not refuse: nothing pins a file for good but a disk that takes no append.

One file goes like this:

1. `relocate` of every hold, until all of them say in one turn of the loop that nothing pending is left.
2. In that turn the file is deleted; queues begin at their first unit whose record is kept, in memory.
3. Its folder is synced, then holds are notified (`dropped`).
4. The next checkpoint says where queues begin, too.
5. Queue files and index files that hold nothing any more are deleted, never the last ones.

A disk without a free byte takes no checkpoint, and without one no file could go that would make room. Then the space
that is set aside for the broker's own records is given back until the checkpoint is written (`SegmentSpace.give_back`).

Nothing of this holds the loop while the disk syncs, but for one case: where a group is about to lose messages that
no consumer received, the sync of 3 is made in the turn of 2. Else one of them could be handed out in between, and be
gone.

A stop after 2 is mended when the store is opened: queues are moved up to the smallest log offset. A stop after 4 leaves
queue files that opening deletes. Offsets never start again: a queue that lost everything continues where it was.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Protocol

import structlog

from broker.errors import DamagedRecord, StoreFailed
from broker.format.record import store_timestamp
from broker.log.arrivals import Arrivals
from broker.log.commit_log import CommitLog
from broker.log.durability import AwaitedSteps, WriteSide, saved, writing_nothing
from broker.log.scan import scan
from broker.log.segment_space import SegmentSpace
from broker.opening.checkpointer import Checkpointer
from broker.queues.consume_queue import ConsumeQueue, Unit
from broker.queues.topics import DEAD_LETTER_PREFIX, Topic, Topics
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite
from broker.runtime.file_writes import at_once as run_at_once
from broker.runtime.steps import StepsEnd, run_now, step
from broker.runtime.store_metrics import DEAD_LETTERS_DELETED, RETAINED_OUT, RETENTION_WAITS

RELOCATED_PER_STEP = 256
"""Messages that a hold puts again in one step, so that the loop does other things in between."""

_LOOKS_PER_STEP = 32
"""Queues that one step looks at: some milliseconds where each has messages."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """When log files go; None is never.

    Attributes:
        age_ms: A file whose last record is older.
        log_bytes: The oldest file while the log's files take more.
        disk_ratio: The oldest file while more of the disk is used (0 to 1), if no hold needs anything in it.
        disk_ratio_forced: The same, needed or not.
    """

    age_ms: int | None = None
    log_bytes: int | None = None
    disk_ratio: float | None = None
    disk_ratio_forced: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpiringSegment:
    """A log file that is about to go.

    Attributes:
        start: Its first commit-log offset.
        end: One past its last.
        last_ms: Store timestamp of its last record, or of the first one behind it; None when neither can be read.
        minimums: By (topic, queue id), the first queue offset that is kept; only queues that lose something.
        reason: `age`, `size` or `disk`; empty while it is not due.
    """

    start: int
    end: int
    last_ms: int | None
    minimums: Mapping[tuple[str, int], int]
    reason: str = ""


class RetentionLeft(NamedTuple):
    """What is left until a record goes; None where no such limit is set.

    `seconds` is a lower bound, `bytes` what may be written to the disk until then, `share` the smaller of the two as a
    part of its limit (1.0 to 0.0).
    """

    seconds: float | None
    bytes: int | None
    share: float | None


class Relocation(Enum):
    """How far a hold is with a file."""

    DONE = "done"
    """Nothing pending is left in it."""
    LOSES = "loses"
    """The same, but it has messages that were not delivered yet, and that are lost with it."""
    MORE = "more"
    """Some was put elsewhere, and more is left."""
    BLOCKED = "blocked"
    """Nothing can be done now: the disk takes no append."""


class RetentionHold(Protocol):
    """Somebody who still needs records: groups with unfinished messages, and whatever keeps messages for later."""

    def needs(self, expiring: ExpiringSegment) -> bool:
        """Whether anything in the file is still needed, pending or only unread."""

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        """Put what is pending in the file elsewhere, durably, at most `count_max` messages of it.

        It is called again, and the file waits, until it is DONE (or LOSES) without having waited for anything.
        """

    def dropped(self, expiring: ExpiringSegment) -> None:
        """Take notice that the file is gone and that queues begin at `expiring.minimums`."""


class Retention:
    """Deletes the log files of one store; see the module's docstring.

    Attributes:
        limits: May be replaced at any time.
        holds: Asked in this order.
        waiting: The file that waits for a hold, or None.
        blocked: It waits since the disk takes no append.
    """

    def __init__(
        self,
        writes: WriteSide,
        *,
        log: CommitLog,
        topics: Topics,
        checkpointer: Checkpointer,
        space: SegmentSpace,
        arrivals: Arrivals,
        runtime: Runtime,
    ) -> None:
        self.limits = RetentionLimits()
        self.holds: list[RetentionHold] = []
        self.waiting: ExpiringSegment | None = None
        self.blocked = False
        self._writes = writes
        self._root = writes.root
        self._log = log
        self._topics = topics
        self._checkpointer = checkpointer
        self._space = space
        self._arrivals = arrivals
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._oldest: ExpiringSegment | None = None
        self._files_due = False

    def step(self) -> bool:
        """`steps` at once; the calling thread waits for the disk."""
        return run_now(self.steps())

    def steps(self) -> AwaitedSteps[bool]:
        """Do a bounded piece of what is due, in steps; at most one log file goes. One at a time.

        Returns:
            Whether there may be more to do at once; else call it again in about a second. False after a failure.
        """
        if self._is_over:
            return False
        try:
            if self._space.is_given_back and not self._checkpointer.is_postponed:
                self._space.take_back()
            if self._files_due and not self._checkpointer.outdated:
                yield from self._drop_queue_files()
            return (yield from self._drop_oldest())
        except OSError as error:
            if not self._is_over:
                self._writes.fail("deleting an old file", error)
        except StoreFailed:
            # It has its line in the log.
            pass
        return False

    def _drop_oldest(self) -> AwaitedSteps[bool]:
        expiring = yield from self._due()
        if expiring is None:
            self.waiting, self.blocked = None, False
            return False
        outcome = yield from self._relocated(expiring)
        self.blocked = outcome is Relocation.BLOCKED
        # A hold's append may have failed the store.
        if self._is_over:
            return False
        if outcome in (Relocation.MORE, Relocation.BLOCKED):
            if self.waiting is None or self.waiting.start != expiring.start:
                self._metrics.counter(RETENTION_WAITS).add()
            self.waiting = expiring
            return outcome is Relocation.MORE
        self.waiting = None
        yield from self._drop(expiring, at_once=outcome is Relocation.LOSES)
        return True

    def _relocated(self, expiring: ExpiringSegment) -> AwaitedSteps[Relocation]:
        """Ask the holds until none of them had to wait: then what all of them said holds now."""
        while True:
            waited, loses = False, False
            for hold in self.holds:
                steps = hold.relocate(expiring, RELOCATED_PER_STEP)
                while not isinstance(made := step(steps), StepsEnd):
                    waited = True
                    yield made
                    if self._is_over:
                        return Relocation.BLOCKED
                if made.result in (Relocation.MORE, Relocation.BLOCKED):
                    return made.result
                loses |= made.result is Relocation.LOSES
            if not waited and self._writes.file_writes.are_idle:
                return Relocation.LOSES if loses else Relocation.DONE
            if not waited:
                # A checkpoint may be under way, which is about what goes.
                yield from saved(self._writes, writing_nothing())

    @property
    def _is_over(self) -> bool:
        return self._writes.closed or self._writes.failed is not None

    # What is due

    def _due(self) -> Generator[None, None, ExpiringSegment | None]:
        """Return the oldest file if it may and must go; where it may not for a full disk alone, make room for that."""
        limits = self.limits
        if limits == RetentionLimits():
            return None
        expiring = yield from self._looking_at_oldest()
        if expiring is None or self._is_over:
            return None
        reason = self._reason(expiring, limits)
        if not reason:
            return None
        if self._checkpointer.end <= expiring.end:
            # Recovery would begin in what is gone.
            if self._checkpointer.is_postponed:
                self._space.give_back()
            return None
        if reason != expiring.reason:
            expiring = self._oldest = replace(expiring, reason=reason)
        return expiring

    def _reason(self, expiring: ExpiringSegment, limits: RetentionLimits) -> str:
        last_ms = expiring.last_ms
        if limits.age_ms and last_ms is not None and self._is_older(expiring.end - 1, last_ms, limits.age_ms):
            return "age"
        if limits.log_bytes and self.log_bytes > limits.log_bytes:
            return "size"
        if not limits.disk_ratio and not limits.disk_ratio_forced:
            return ""
        used = self.disk_ratio
        if limits.disk_ratio_forced and used > limits.disk_ratio_forced:
            return "disk"
        if limits.disk_ratio and used > limits.disk_ratio and not any(each.needs(expiring) for each in self.holds):
            return "disk"
        return ""

    def _is_older(self, physical: int, store_ms: int, age_ms: int) -> bool:
        return self._arrivals.stored_ms(physical, store_ms) + age_ms <= self._clock.wall_ms()

    @property
    def log_bytes(self) -> int:
        """Bytes that the log's files take on disk."""
        return len(self._log.segments) * self._log.segment_bytes

    @property
    def disk_ratio(self) -> float:
        """Part of the disk that is used, 0 to 1, as df shows it."""
        total = self._disk.total_bytes(self._root)
        return 1 - self._disk.free_bytes(self._root) / total if total else 0.0

    @property
    def next_file(self) -> ExpiringSegment | None:
        """The file that is deleted next; None while there is only one."""
        return run_now(self._looking_at_oldest())

    def _looking_at_oldest(self) -> Generator[None, None, ExpiringSegment | None]:
        """Look at the oldest file, once, in steps; None while it is the last."""
        number = min(self._log.segments, default=None)
        if number is None:
            return None
        start = number * self._log.segment_bytes
        end = start + self._log.segment_bytes
        # Behind `end` there is a record.
        if self._log.visible_end <= end:
            return None
        if self._oldest is None or self._oldest.start != start:
            self._oldest = yield from self._looking_at(start, end)
        return self._oldest

    def _looking_at(self, start: int, end: int) -> Generator[None, None, ExpiringSegment]:
        """Look at a file behind which there is a record, in steps: some queues at a time."""
        minimums: dict[tuple[str, int], int] = {}
        last: Unit = (0, 0, 0)
        queues = [(topic, queue) for topic in self._topics.by_name.values() for queue in topic.queues]
        for number, (topic, queue) in enumerate(queues, start=1):
            if number % _LOOKS_PER_STEP == 0:
                yield
            if self._topics.by_name.get(topic.name) is not topic:
                continue  # It was deleted meanwhile, and its files with it.
            first = queue.first_at(end)
            if first > queue.min_offset:
                minimums[queue.topic, queue.queue_id] = first
                # Of the last ones in the file the furthest.
                last = max(last, queue.read(first - 1, 1)[0])
        return ExpiringSegment(start=start, end=end, last_ms=self._last_ms(last, start, end), minimums=minimums)

    def _last_ms(self, last: Unit, start: int, end: int) -> int | None:
        """Store timestamp of the last record of a file, whose unit is given, or of the first one behind the file."""
        if start <= last[0] < end:
            try:
                return store_timestamp(self._log.read(last[0], last[1]))
            except DamagedRecord:
                pass
        following = next(scan(self._log, end), None)
        return None if following is None else following.store_ms

    # Steps

    def _drop(self, expiring: ExpiringSegment, *, at_once: bool) -> AwaitedSteps[None]:
        if at_once:
            run_at_once(self._disk, self._dropping(expiring))
        else:
            yield from saved(self._writes, self._dropping(expiring))
            if self._is_over:
                return
        for hold in self.holds:
            hold.dropped(expiring)

    def _dropping(self, expiring: ExpiringSegment) -> FileWrite:
        """Delete a file, and have queues begin behind it, in one step; then make that durable."""
        # Under `async` what was put again of it is not on the disk yet.
        self._writes.commit.make_durable()
        number = expiring.start // self._log.segment_bytes
        self._log.remove(number)
        self._begin_behind(expiring)
        yield self._log.folder
        self._log.forget(number)

    def _begin_behind(self, expiring: ExpiringSegment) -> None:
        self._oldest = None
        self._checkpointer.outdate()
        self._files_due = True
        messages = 0
        for (name, queue_id), minimum in expiring.minimums.items():
            topic = self._topics.by_name.get(name)
            if topic is None or queue_id >= len(topic.queues) or topic.queues[queue_id].min_offset >= minimum:
                continue  # It was deleted meanwhile, and maybe made again.
            queue = topic.queues[queue_id]
            count = minimum - queue.min_offset
            queue.min_offset = minimum
            messages += count
            if name.startswith(DEAD_LETTER_PREFIX):
                self._metrics.counter(DEAD_LETTERS_DELETED, name.removeprefix(DEAD_LETTER_PREFIX)).add(count)
        self._metrics.counter(RETAINED_OUT, expiring.reason).add()
        log.info(
            "log_file_deleted",
            root=self._root,
            start=expiring.start,
            end=expiring.end,
            messages=messages,
            reason=expiring.reason,
        )

    def _drop_queue_files(self) -> AwaitedSteps[None]:
        self._files_due = False
        queues = [(topic, queue) for topic in self._topics.by_name.values() for queue in topic.queues]
        for number, (topic, queue) in enumerate(queues, start=1):
            if number % _LOOKS_PER_STEP == 0:
                # Most have nothing to delete, and wait for nothing.
                yield None
            yield from saved(self._writes, self._dropping_files(topic, queue))
            if self._is_over:
                return
        yield from saved(self._writes, self._dropping_index_files())

    def _dropping_files(self, topic: Topic, queue: ConsumeQueue) -> FileWrite:
        # Of a topic that is deleted meanwhile all files go.
        if self._topics.by_name.get(topic.name) is topic:
            yield from queue.dropping_files()

    def _dropping_index_files(self) -> FileWrite:
        yield from self._checkpointer.index.dropping_before(self._log.min_offset)

    # What would go

    def end_under(self, limits: RetentionLimits) -> int:
        """Return the commit-log offset up to which files would go at once under other limits.

        `disk_ratio` takes no file that a group needs, and is left out.

        Raises:
            OSError: The log or a queue's file cannot be read.
        """
        segment_bytes, end = self._log.segment_bytes, self._log.min_offset
        numbers = sorted(self._log.segments)
        total = self._disk.total_bytes(self._root) if limits.disk_ratio_forced else 0
        used = total - self._disk.free_bytes(self._root) if total else 0
        for place, number in enumerate(numbers):
            start, behind = number * segment_bytes, (number + 1) * segment_bytes
            if self._log.visible_end <= behind:
                break
            is_over_size = bool(limits.log_bytes) and (len(numbers) - place) * segment_bytes > (limits.log_bytes or 0)
            # As if the files before this one were deleted already.
            is_over_disk = total > 0 and (used - place * segment_bytes) / total > (limits.disk_ratio_forced or 0)
            if not (is_over_size or is_over_disk or self._is_aged(start, behind, limits)):
                break
            end = behind
        # Whole files go, oldest first, and never the one that is written to.
        assert end == self._log.min_offset or end < self._log.visible_end, "the file that is written to stays"
        return end

    def _is_aged(self, start: int, end: int, limits: RetentionLimits) -> bool:
        """Whether the last record of a file is too old. The first one behind the file, if it is, says so for less."""
        if not limits.age_ms:
            return False
        following = next(scan(self._log, end), None)
        if following is not None and self._is_older(end - 1, following.store_ms, limits.age_ms):
            return True
        last_ms = run_now(self._looking_at(start, end)).last_ms
        return last_ms is not None and self._is_older(end - 1, last_ms, limits.age_ms)

    # What is left

    def left(self, physical: int, stored_ms: int) -> RetentionLeft:
        """Tell how long a record stays.

        Args:
            physical: Its commit-log offset.
            stored_ms: Its store timestamp.
        """
        limits = self.limits
        seconds: float | None = None
        shares: list[float] = []
        if limits.age_ms:
            stored_ms = self._arrivals.stored_ms(physical, stored_ms)
            seconds = max(0.0, (stored_ms + limits.age_ms - self._clock.wall_ms()) / 1000)
            shares.append(min(1.0, seconds * 1000 / limits.age_ms))
        rooms: list[tuple[int, int]] = []
        segment_bytes = self._log.segment_bytes
        # The file of the record goes when all before it are gone and that is not enough.
        before = max(0, physical // segment_bytes * segment_bytes - self._log.min_offset)
        if limits.log_bytes:
            rooms.append((limits.log_bytes - self.log_bytes + before, limits.log_bytes))
        if limits.disk_ratio_forced:
            total = self._disk.total_bytes(self._root)
            room = int(limits.disk_ratio_forced * total) - (total - self._disk.free_bytes(self._root))
            # What the log has now could all go: its bytes belong to the room.
            rooms.append((room + before, room + self.log_bytes))
        for room, limit in rooms:
            shares.append(min(1.0, max(0.0, room / limit)) if limit > 0 else 0.0)
        room_left = max(0, min(room for room, _ in rooms)) if rooms else None
        return RetentionLeft(seconds, room_left, min(shares) if shares else None)
