"""The parts of a store below its appends: made, recovered, checkpointed, closed and abandoned as one."""

from __future__ import annotations

from collections.abc import Generator

from broker.feature import OpenedFeatures
from broker.log.arrivals import Arrivals
from broker.log.commit_log import CommitLog
from broker.log.durability import WriteSide
from broker.log.group_commit import CommitDriver
from broker.log.segment_space import SegmentSpace
from broker.opening.checkpointer import Checkpointer
from broker.opening.damage import DamagedPlaces
from broker.opening.opening import open_log, raised, recovered, report
from broker.opening.recovery import RecoveryFacts, RecoveryProgress
from broker.opening.store_json import AbortFile
from broker.opening.unit_check import UnitChecker
from broker.options import StoreOptions
from broker.queues.topics import Topics
from broker.retention import Retention
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrites
from broker.runtime.seams import Lock
from broker.runtime.store_metrics import UNREADABLE
from broker.topic_changes import TopicChanges


class StoreParts:
    """The log, the queues and what tends them, of one store.

    Attributes:
        log: The commit log.
        writes: All through which it writes.
        topics: Topics and their queues.
        checkpointer: Writes queue tails and checkpoints.
        index: Finds records by key.
        topic_changes: Makes and deletes topics.
        segment_space: Claims log segments.
        retention: Deletes old log files.
        limited_log: One line per kind of skip or damage and minute.
        file_writes: State files of all parts that are saved in steps, one after the other.
    """

    def __init__(
        self,
        root: str,
        *,
        options: StoreOptions,
        given: OpenedFeatures,
        runtime: Runtime,
        lock: Lock,
        driver: CommitDriver | None,
        arrivals: Arrivals,
        damage: DamagedPlaces,
    ) -> None:
        """Make the parts; no file is touched before `recover`.

        Args:
            root: The store's folder.
            options: File sizes and the like.
            given: The features that it is opened with.
            runtime: Where its files are, time, counts.
            lock: The store's lock, held; `release` gives it back.
            driver: Whose turns flush the store.
            arrivals: When its records came.
            damage: Notes what is damaged.
        """
        disk = runtime.disk
        self._root, self._options, self._disk, self._metrics, self._lock = root, options, disk, runtime.metrics, lock
        self._given = given
        self._abort = AbortFile(root, disk=disk)
        self.limited_log = runtime.limited_log
        self.file_writes = FileWrites(disk, runtime.syncs)
        self.log = CommitLog(
            root,
            disk=disk,
            segment_bytes=options.segment_bytes,
            finish_writes=self.file_writes.finish,
            unreadable=lambda start, end: self._report_unreadable("commitlog", f"offset {start}", 1),
        )
        self.topics = Topics(
            root,
            disk=disk,
            clock=runtime.clock,
            queue_file_units=options.queue_file_units,
            queue_files_max=options.queue_files_max,
            unreadable=self._report_unreadable,
            admit=lambda name: given.check(root, topics=(name,)),
        )
        self.checkpointer = Checkpointer(
            root, options, self.log, self.topics, runtime=runtime, file_writes=self.file_writes
        )
        self.index = self.checkpointer.index
        self.writes = WriteSide(
            root,
            self.log,
            syncing=options.flush == "sync",
            runtime=runtime,
            driver=driver,
            file_writes=self.file_writes,
            before_write=lambda: self.topic_changes.write_opened(),  # noqa: PLW0108 - made below
            on_failure=self.index.stop,
        )
        self.topic_changes = TopicChanges(
            self.writes,
            log=self.log,
            topics=self.topics,
            checkpointer=self.checkpointer,
            runtime=runtime,
        )
        self.segment_space = SegmentSpace(
            root,
            log=self.log,
            runtime=runtime,
            fail=self.writes.fail,
            file_writes=self.file_writes,
            published=given.published,
        )
        self.retention = Retention(
            self.writes,
            log=self.log,
            topics=self.topics,
            checkpointer=self.checkpointer,
            space=self.segment_space,
            arrivals=arrivals,
            runtime=runtime,
        )
        self._checker = UnitChecker(
            self.log, runtime=runtime, codes=given.unit_codes, fail=self.writes.fail, met=damage.met
        )

    def _report_unreadable(self, kind: str, where: str, count: int) -> None:
        self._metrics.counter(UNREADABLE, kind).add(count)
        self.limited_log.note("disk_gives_no_bytes", "", count, kind=kind, file=kind, where=where)

    def recover(self) -> Generator[RecoveryProgress, None, RecoveryFacts]:
        """Open and recover everything in steps of bounded work; return what was found.

        Nothing is changed before the second step.

        Raises:
            StoreError: As `Store.open`.
            OSError: A file cannot be read or written.
        """
        older = open_log(self._root, self._options, log=self.log, disk=self._disk, given=self._given)
        for _ in self.topics.loading():
            yield RecoveryProgress(0, 0)
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
        self.segment_space.set_aside()
        return facts

    def close(self, *, last_record: int, store_ms: int) -> None:
        """Make everything that is visible durable and mark the store as closed well; `release` is still to come.

        Args:
            last_record: Physical offset of the last visible record, -1 for none.
            store_ms: Latest store timestamp.

        Raises:
            OSError: A file cannot be written.
        """
        self.file_writes.finish()
        self.topic_changes.write_opened()
        self.log.sync()
        self.index.close()
        self.checkpointer.write(last_record=last_record, store_ms=store_ms)
        if self.checkpointer.end == self.log.visible_end:
            self._abort.remove()

    def release(self) -> None:
        """Close the files and give the lock back; nothing is written."""
        self.file_writes.abandon()
        self.index.release()
        self.log.close()
        self.topics.close()
        self._lock.release()
