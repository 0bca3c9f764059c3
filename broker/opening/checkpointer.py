"""What a running store writes in the background: queue tails and checkpoints.

A checkpoint is of the moment at which it begins. Its steps continue beside the loop (`broker.runtime.file_writes`), and
what becomes visible meanwhile is for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.index.index import Index
from broker.log.commit_log import CommitLog
from broker.opening.store_json import CheckpointFile, QueueCheckpoint
from broker.options import StoreOptions
from broker.queues.consume_queue import ConsumeQueue, syncing
from broker.queues.topics import Topic, Topics
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import AT_ONCE, TURN, FileWrite, FileWrites, can_wait
from broker.runtime.store_metrics import CHECKPOINTS, FILES_DAMAGED, FILES_DELETED

LOG_BYTES_MAX = 16 << 20
"""Log growth after which queue tails and checkpoint are written: bounds what recovery scans."""
INTERVAL_SECONDS = 10.0
_QUEUES_AT_ONCE_MAX = 16
"""Queues whose files are made and synced side by side: about 8 ms of one step where each is new."""


class Checkpointer:
    """Writes the checkpoints of one store. A full disk postpones its work and is no failure.

    Attributes:
        end: Log end that the last checkpoint covers, -1 before the first.
        is_under_way: One was begun and has not ended.
        is_postponed: The last one found the disk full.
        index: The index, saved with the checkpoint.
    """

    def __init__(
        self,
        root: str,
        options: StoreOptions,
        log: CommitLog,
        topics: Topics,
        *,
        runtime: Runtime,
        file_writes: FileWrites,
    ) -> None:
        self.index = Index(root, log=log, options=options, runtime=runtime, finish_writes=file_writes.finish)
        disk, clock, metrics = runtime.disk, runtime.clock, runtime.metrics
        self._root = root
        # Their files stay open until they are synced: half of those that may be open.
        self._queues_at_once = max(1, min(_QUEUES_AT_ONCE_MAX, options.queue_files_max // 2))
        self._file_writes = file_writes
        self._log = log
        self._topics = topics
        self._clock = clock
        self._limited_log = runtime.limited_log
        self._metrics = metrics
        self._written = metrics.counter(CHECKPOINTS)
        self._file = CheckpointFile(root, disk=disk)
        self._at = self._looked_at = clock.monotonic()
        self._index_ms = -1
        self._topics_deleted = False
        """Whether the topic file was deleted by another program, and is to be written again."""
        self._changes = self._changes_written = 0
        self.end = -1
        self.is_under_way = False
        self.is_postponed = False

    def load(self) -> QueueCheckpoint | None:
        """Return the last checkpoint, None when there is none that can be read."""
        checkpoint = self._file.load()
        if self._file.damaged:
            self._metrics.counter(FILES_DAMAGED, "pyddmq/checkpoint.json").add()
            self._limited_log.note("checkpoint_damaged", path=f"{self._root}/pyddmq/checkpoint.json")
        return checkpoint

    def open_index(self, *, clean: bool) -> None:
        """Take stock of the index files once the log is recovered. Raises OSError: no checkpoint can be read."""
        self.index.open(clean=clean, index_ms=self._file.index_ms())

    @property
    def outdated(self) -> bool:
        """Whether queues begin later than the last checkpoint says, or are gone."""
        return self._changes != self._changes_written

    def outdate(self) -> None:
        """Have the next checkpoint say where queues begin now."""
        self._changes += 1

    def finish(self) -> None:
        """End the one that is under way; before files that it may be about are removed."""
        self._file_writes.finish()

    @property
    def due(self) -> bool:
        """Whether the log has grown by 16 MiB since the last checkpoint, or at all within 10 s, or lost files.

        So it is when the topic file was deleted, which is looked for every 10 s.

        An index that was saved since counts as growth.
        """
        grown = self._log.visible_end - self.end
        now = self._clock.monotonic()
        if now - self._looked_at >= INTERVAL_SECONDS and not self._topics_deleted:
            self._looked_at = now
            self._topics_deleted = self._topics.is_file_deleted
            if self._topics_deleted:
                self._metrics.counter(FILES_DELETED, "config/topics.json").add()
        return (
            self.outdated
            or self._topics_deleted
            or self.index.is_save_due
            or grown >= LOG_BYTES_MAX
            or ((grown > 0 or self.index.saved_ms != self._index_ms) and now - self._at >= INTERVAL_SECONDS)
        )

    def write(self, *, last_record: int, store_ms: int) -> None:
        """Write queue tails, sync them, then the checkpoint; everything visible must be durable in the log already.

        Args:
            last_record: Physical offset of the last visible record, -1 for none.
            store_ms: Latest store timestamp.

        Raises:
            OSError: Another failure than a full disk.
        """
        self._file_writes.now(self._writing(last_record=last_record, store_ms=store_ms))

    def begin(self, moment: Callable[[], tuple[int, int]], failed: Callable[[str, OSError], object]) -> None:
        """`write` beside the loop.

        Args:
            moment: Makes what is visible durable, and returns the arguments of `write`. Raises OSError.
            failed: Told of another failure than a full disk.
        """
        self.is_under_way = True
        self._file_writes.add(self._writing_some_time(moment, failed))

    def _writing_some_time(
        self, moment: Callable[[], tuple[int, int]], failed: Callable[[str, OSError], object]
    ) -> FileWrite:
        try:
            last_record, store_ms = moment()
            yield from self._writing(last_record=last_record, store_ms=store_ms)
        except OSError as error:
            failed("writing the checkpoint", error)
        finally:
            self.is_under_way = False

    def _writing(self, *, last_record: int, store_ms: int) -> FileWrite:
        log_end, changes = self._log.visible_end, self._changes
        topics = list(self._topics.by_name.values())
        queues = {topic.name: [[queue.min_offset, queue.max_offset] for queue in topic.queues] for topic in topics}
        try:
            if len(topics) > AT_ONCE:
                yield TURN
            if self._topics_deleted or self._topics.opened_bytes:
                yield from self._topics.writing()
                self._topics_deleted = False
            yield from self._writing_tails(topics)
            yield from self.index.writing()
            if log_end != self.end or changes != self._changes_written or self.index.saved_ms != self._index_ms:
                saved_ms = self.index.saved_ms
                yield from self._file.writing(
                    QueueCheckpoint(
                        log_end=log_end, last_record=last_record, store_ms=store_ms, queues=queues, index_ms=saved_ms
                    )
                )
                self._index_ms = saved_ms
        except OSError as error:
            if not can_wait(error):
                raise
            self._limited_log.note("checkpoint_postponed_disk_full", root=self._root)
            self.is_postponed = True
            return
        self.is_postponed = False
        self.end, self._changes_written = log_end, changes
        self._at = self._clock.monotonic()
        self._written.add()

    def _writing_tails(self, topics: Sequence[Topic]) -> FileWrite:
        """Write the tails of all queues; some are synced side by side, since each sync may take long."""
        unsynced: list[ConsumeQueue] = []
        for number, topic in enumerate(topics, start=1):
            if number % AT_ONCE == 0:
                yield TURN
            for queue in topic.queues:
                queue.write_tail()
                if queue.is_unsynced:
                    unsynced.append(queue)
                if len(unsynced) == self._queues_at_once:
                    yield from syncing(unsynced)
                    unsynced.clear()
        yield from syncing(unsynced)
