"""The parts of a store below its appends: made, recovered, checkpointed, closed and let go of as one."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from broker import topic_changes
from broker.errors import StoreFailed
from broker.feature import Given
from broker.log.commit_log import CommitLog
from broker.log.segment_space import Room
from broker.log.walk import Walked, walk
from broker.opening.checkpointer import Checkpointer
from broker.opening.opening import open_log, raised, recovered, report
from broker.opening.recovery import RecoveryFacts, RecoveryProgress
from broker.opening.store_json import AbortFile
from broker.opening.unit_check import UnitChecker
from broker.options import StoreOptions
from broker.queues.topics import Topics
from broker.retention import Retention
from broker.runtime.file_writes import Savings
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import Notices
from broker.runtime.seams import Clock, Disk, Lock
from broker.runtime.store_metrics import UNREADABLE
from broker.topic_changes import TopicChanges


class Owner(topic_changes.Owner, Protocol):
    """What is asked of the store."""

    options: StoreOptions
    savings: Savings

    @property
    def closed(self) -> bool:
        """Its files are given back."""
        ...

    def fail(self, what: str, cause: OSError) -> StoreFailed:
        """Stop the write side for good; return the error that says so."""
        ...


class StoreParts:
    """The log, the queues and what tends them, of one store.

    Attributes:
        log: The commit log.
        topics: Topics and their queues.
        checkpointer: Writes queue tails and checkpoints.
        index: Finds records by key.
        topic_changes: Makes and deletes topics.
        room: Claims log segments.
        retention: Deletes old log files.
        notices: One line per kind of skip or damage and minute.
        savings: State files of all parts that are saved in steps, one after the other.
    """

    def __init__(self, owner: Owner, *, given: Given, disk: Disk, clock: Clock, metrics: Metrics, lock: Lock) -> None:
        """Make the parts; no file is touched before `recover`.

        Args:
            owner: The store; its `root` and `options` are set.
            given: The features that it is opened with.
            disk: Where its files are.
            clock: Time for checkpoints, retention and notices.
            metrics: Counts what the parts do.
            lock: The store's lock, held; `release` gives it back.
        """
        root, options = owner.root, owner.options
        self._root, self._options, self._disk, self._metrics, self._lock = root, options, disk, metrics, lock
        self._given = given
        self._abort = AbortFile(root, disk=disk)
        self.notices = Notices(clock)
        self.savings = Savings(disk)
        self.log = CommitLog(root, disk=disk, segment_bytes=options.segment_bytes)
        self.log.settle = self.savings.finish
        self.topics = Topics(root, disk=disk, clock=clock, queue_file_units=options.queue_file_units)
        self.topics.unreadable = self._told_unreadable
        self.topics.admit = lambda name: given.check(root, topics=(name,))
        self.log.pages.unreadable = lambda start, end: self._told_unreadable("commitlog", f"offset {start}", 1)
        self.checkpointer = Checkpointer(
            root,
            options,
            self.log,
            self.topics,
            disk=disk,
            clock=clock,
            notices=self.notices,
            metrics=metrics,
            savings=self.savings,
        )
        self.index = self.checkpointer.index
        self.topic_changes = TopicChanges(
            owner,
            log=self.log,
            topics=self.topics,
            checkpointer=self.checkpointer,
            disk=disk,
            metrics=metrics,
            fail=owner.fail,
        )
        self.room = Room(
            root,
            log=self.log,
            disk=disk,
            metrics=metrics,
            notices=self.notices,
            fail=owner.fail,
            savings=self.savings,
            published=given.published,
        )
        self.retention = Retention(
            owner,
            log=self.log,
            topics=self.topics,
            checkpointer=self.checkpointer,
            disk=disk,
            clock=clock,
            metrics=metrics,
        )
        self._checker = UnitChecker(
            self.log, metrics=metrics, notices=self.notices, codes=given.unit_codes, fail=owner.fail
        )

    def _told_unreadable(self, kind: str, where: str, count: int) -> None:
        self._metrics.counter(UNREADABLE, kind).add(count)
        self.notices.note("disk_gives_no_bytes", "", count, kind=kind, file=kind, where=where)

    def recover(self) -> Generator[RecoveryProgress, None, RecoveryFacts]:
        """Open and recover everything in steps of bounded work; return what was found.

        Nothing is changed before the second step.

        Raises:
            StoreError: As `Store.open`.
            OSError: A file cannot be read or written.
        """
        older = open_log(self._root, self._options, log=self.log, disk=self._disk, given=self._given)
        self.topics.load()
        yield RecoveryProgress(0, 0)
        facts = yield from recovered(
            self._root,
            self.log,
            self.topics,
            abort=self._abort,
            checkpoint=self.checkpointer.load(),
            disk=self._disk,
            given=self._given,
        )
        self.log.chill(facts.scanned_from)
        self.topics.check_with(self._checker.check)
        self.topic_changes.finish(facts.end, facts.deleted)
        self.topics.save_if_changed()
        if older:
            yield from raised(self._root, self.log, self.topics, disk=self._disk)
        report(self._root, facts, self._options, self._metrics)
        for feature in self._given.features:
            if feature.note_marked is not None:
                feature.note_marked(self._root, facts.marked.get(feature.mark, ()), disk=self._disk)
        self.checkpointer.open_index(clean=facts.clean)
        self.checkpointer.write(last_record=facts.last_record, store_ms=facts.store_ms)
        self.room.set_aside()
        return facts

    def walk(self, start: int, records_max: int) -> tuple[list[Walked], int]:
        """Read so many visible records from a commit-log offset on (`broker.log.walk`). Raises OSError."""
        return walk(self.log, start, self.log.visible_end, records_max=records_max)

    def close(self, *, last_record: int, store_ms: int) -> None:
        """Make everything that is visible durable and mark the store as closed well; `release` is still to come.

        Args:
            last_record: Physical offset of the last visible record, -1 for none.
            store_ms: Latest store timestamp.

        Raises:
            OSError: A file cannot be written.
        """
        self.savings.finish()
        self.log.sync()
        self.index.close()
        self.checkpointer.write(last_record=last_record, store_ms=store_ms)
        if self.checkpointer.end == self.log.visible_end:
            self._abort.remove()

    def release(self) -> None:
        """Close the files and give the lock back; nothing is written."""
        self.savings.abandon()
        self.index.release()
        self.log.close()
        self.topics.close()
        self._lock.release()
