"""Dead letters: messages that ran out of attempts or that nothing can process go to `%DLQ%<group>` (D16, D17).

The durable record in that topic is the commit point. Only when the store reports it does the origin count as finished
and its key go on. A refused append (disk full) is tried again; the key waits, visibly. Where the disk fails after the
append nobody can tell whether the record is there: the message stays as it is, and its key waits, until a restart. Then
the records that the ack journal does not know yet finish their origins.

What a record holds stands in `broker.retry.dead_letter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.record import prepared_offset, topic_of
from broker.queues.topics import DEAD_LETTER_PREFIX, dead_letter_topic
from broker.retry.dead_letter import dead_letter, is_dead_letter_topic
from broker.runtime.seams import Handle, Scheduler
from broker.store import Store
from upstream.job import UpstreamJob
from upstream.progress.progress import Begin, Origin, Progress
from upstream.state import State

if TYPE_CHECKING:
    from broker.queues.consume_queue import ConsumeQueue


Settled = Callable[[UpstreamJob, str | None], None]
"""Told that a burial is over: with None, or with `damaged` or `gone`; or with UNDECIDED that the disk has failed."""

UNDECIDED = "undecided"
"""Whether the record is there is not known before a restart."""

RETRY_SECONDS = 1.0
"""How long a refused append waits; space may be free again by then (D5)."""
_SCAN_UNITS = 1024


class DeadLetters:
    """The dead-letter topic of one group.

    Attributes:
        unsettled: Jobs whose record is not durable yet.
    """

    def __init__(self, group: str, *, store: Store, progress: Progress, scheduler: Scheduler) -> None:
        self.group = group
        self._store = store
        self._progress = progress
        self._scheduler = scheduler
        self._refused: list[tuple[UpstreamJob, str, Settled]] = []
        self._timer: Handle | None = None
        self.unsettled = 0

    def bury(self, job: UpstreamJob, reason: str, settled: Settled) -> bool:
        """Append a BURYING job's message to the dead-letter topic.

        Args:
            job: The job.
            reason: Sentence for the record.
            settled: Called once, with None when the record is durable and the journal entry staged, or with
                `damaged` or `gone` when the message cannot be read any more, or with UNDECIDED. Not called for a
                withdrawn job.

        Returns:
            Whether the store took the append; otherwise it is tried again after RETRY_SECONDS.
        """
        self.unsettled += 1
        return self._append(job, reason, settled)

    def refused(self, job: UpstreamJob) -> bool:
        """Whether the store has not taken a job's record; it is tried again every RETRY_SECONDS."""
        return any(each is job for each, _, _ in self._refused)

    def withdraw(self, job: UpstreamJob) -> bool:
        """Give up a burial whose append was refused so far; False when it is under way already."""
        for place, (each, _, _) in enumerate(self._refused):
            if each is job:
                del self._refused[place]
                self.unsettled -= 1
                return True
        return False

    def stop(self) -> None:
        """Forget what was refused: those messages are read again by the next process or generation."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.unsettled -= len(self._refused)
        self._refused.clear()

    def _append(self, job: UpstreamJob, reason: str, settled: Settled) -> bool:
        tracker = job.lane.tracker
        if job.offset in tracker.expiring or job.offset in tracker.undecided:
            # Retention has appended its dead letter, or an earlier generation has; with that one it ends.
            self._postpone(job, reason, settled)
            return True
        try:
            record = self._store.read(job.physical, job.size)
            put, born_ms, host = dead_letter(self._store, self.group, job, reason, record)
            # The position is known when `append` returns, which is before `done` runs.
            position: list[int] = []
            done = partial(self._done, job, settled, position)
            position.append(self._store.append([put], born_ms=born_ms, born_host=host, done=done)[0].offset)
            tracker.undecided[job.offset] = False
        except (DamagedRecord, RecordGone) as error:
            self.unsettled -= 1
            settled(job, "damaged" if isinstance(error, DamagedRecord) else "gone")
            return True
        except StoreError:
            self._postpone(job, reason, settled)
            return False
        return True

    def _done(self, job: UpstreamJob, settled: Settled, position: list[int], error: StoreError | None) -> None:
        if error is not None:
            settled(job, UNDECIDED)
            return
        self.unsettled -= 1
        job.lane.tracker.undecided.pop(job.offset, None)
        self._progress.dead_lettered(job.lane.tracker, job.offset)
        self._progress.dead_letters_settled(dead_letter_topic(self.group), 0, position[0] + 1)
        settled(job, None)

    def _postpone(self, job: UpstreamJob, reason: str, settled: Settled) -> None:
        self._refused.append((job, reason, settled))
        if self._timer is None:
            self._timer = self._scheduler.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        refused, self._refused = self._refused, []
        for job, reason, settled in refused:
            if job.state is State.BURYING and job.lane.tracker.is_finished(job.offset):
                self.unsettled -= 1
                settled(job, None)
            elif job.state is State.BURYING:
                self._append(job, reason, settled)
            else:
                self.unsettled -= 1


def read_origin(store: Store, record: memoryview) -> Origin | None:
    """Which message a dead letter finishes; None for one of RocketMQ's, or where that message is no longer kept.

    Nothing that a producer could write is believed: the group is that of the topic, and the message is the record that
    this one replaces (D27).

    Raises:
        DamagedRecord: The bytes are no record.
    """
    replaced = prepared_offset(record)
    name = topic_of(record).decode("utf-8", "replace")
    if not replaced or not is_dead_letter_topic(name):
        return None
    entry = store.record_at(max(replaced, 0))
    if entry is None:
        return None
    origin = entry.topic.decode("utf-8", "replace")
    return Origin(name.removeprefix(DEAD_LETTER_PREFIX), origin, entry.queue_id, entry.queue_offset, max(replaced, 0))


def recover_dead_letters(group: str, *, store: Store, progress: Progress, begin: Begin) -> int:
    """Finish the messages of a group whose dead letters exist although the ack journal does not know it (D16).

    To be called after a restart, before the group reads anything. `begin`: as for `Progress.mark_dead_lettered_from`.

    Returns:
        How many there were.
    """
    name = dead_letter_topic(group)
    topic = store.topics.get(name)
    if topic is None:
        return 0
    found = 0
    for queue in topic.queues:
        start = progress.scan_position(name, queue.queue_id)
        if start < queue.max_offset:
            origins = _read_origins(store, queue, start)
            found += progress.mark_dead_lettered_from(name, queue.queue_id, queue.max_offset, origins, begin=begin)
    return found


def _read_origins(store: Store, queue: ConsumeQueue, start: int) -> Iterator[Origin]:
    """Origins of the dead letters of one queue from `start` on; unreadable ones are left out."""
    offset = max(start, queue.min_offset)
    while offset < queue.max_offset:
        units = queue.read(offset, _SCAN_UNITS)
        for physical, size, _ in units:
            try:
                origin = read_origin(store, store.read(physical, size))
            except (DamagedRecord, RecordGone):
                continue
            if origin is not None:
                yield origin
        offset += len(units)


__all__ = ["DeadLetters", "Settled", "dead_letter", "is_dead_letter_topic", "read_origin", "recover_dead_letters"]
