"""Changes to the topics of an open store: made, widened, typed, deleted; each is durable before it shows (D6, D11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import structlog

from broker.errors import NO_SPACE, DiskFull
from broker.format.message_type import MessageType
from broker.log.commit_log import CommitLog
from broker.log.durability import AwaitedSteps, WriteSide, all_durable, saved, writing_nothing
from broker.opening.checkpointer import Checkpointer
from broker.queues.topic_lives import NO_LIFE
from broker.queues.topics import Topic, Topics, check_wanted, is_system
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import AT_ONCE, FileWrite, at_once, can_wait
from broker.runtime.steps import run_now
from broker.runtime.store_metrics import REFUSED

_FILE_BYTES = 4096
_GROWN_AT_ONCE = 256
"""Queues of topics that are made in one step in memory, about a millisecond."""
_WAITS_MAX = 8
"""How often a deletion waits beside the loop while the topic is published to; then the loop waits for the disk."""

logger = structlog.get_logger()


def _nothing() -> None:
    """Do nothing."""


def _is_staged(topic: Topic) -> bool:
    """Whether a message of a topic is staged, or on its way to the disk."""
    return any(queue.next_offset > queue.max_offset for queue in topic.queues)


class TopicChanges:
    """Makes, widens, types and deletes topics of one store."""

    def __init__(
        self,
        writes: WriteSide,
        *,
        log: CommitLog,
        topics: Topics,
        checkpointer: Checkpointer,
        runtime: Runtime,
    ) -> None:
        """Set up.

        Args:
            writes: The store's write side.
            log: Its log.
            topics: Its topics, loaded before the first change.
            checkpointer: Told when the last checkpoint names a deleted topic.
            runtime: Its disk has their files, its metrics count refusals.
        """
        self._writes = writes
        self._log = log
        self._topics = topics
        self._checkpointer = checkpointer
        self._disk = runtime.disk
        self._is_writing = False
        """A write of the topic file is under way beside the loop."""
        self._metrics = runtime.metrics

    @property
    def served(self) -> list[str]:
        """Topics that take publishes although no configuration lists them."""
        return self._topics.lives.served

    def create(self, name: str, queues: int, *, system: bool = False) -> Topic:
        """Return the topic, made or grown so that it has at least `queues` queues; durable when this returns.

        Args:
            name: 1 to 127 of the characters `%|a-zA-Z0-9_-`.
            queues: 1 to 1024; a smaller number than the topic has changes nothing (D6).
            system: Clients may not publish to it.

        Raises:
            MessageRefused: The name is not allowed.
            ValueError: `queues` is out of range.
            DiskFull: There is no room for the topic file.
            FeatureMissing: The topic is that of a feature which the store was opened without.
            StoreFailed: The store has failed, or fails with this write.
        """
        self._check_whole()
        check_wanted(name, queues)
        queues = max(queues, self._topics.planned.get(name, 0))
        known = self._topics.by_name.get(name)
        if known is None:
            self._topics.admit(name)
        before = 0 if known is None else len(known.queues)
        if before < queues or name in self._topics.unsaved:
            # Memory grows only once the files say so.
            try:
                with self._writing():
                    self._topics.lives.revive([name])
                    self._topics.save({name: queues})
            except DiskFull:
                if not system:
                    raise
                self._postpone([name])
        topic = self._grow(name, queues)
        topic.system = topic.system or system
        return topic

    def open(self, name: str, queues: int) -> Topic:
        """`create` for a topic that is about to get a record: it is appended to the topics before the log is written.

        So those that are opened in one turn share a write. A full disk postpones it: recovery finds the topic in the
        log, with as many queues as have records.

        Raises:
            As `create`, except DiskFull.
        """
        self._check_whole()
        topics = self._topics
        check_wanted(name, queues)
        known = topics.by_name.get(name)
        if name in topics.planned or topics.lives.of(name) is not NO_LIFE:
            # What is known of an earlier life has to be durable before its queues are used.
            return self.create(name, queues)
        if known is not None and len(known.queues) >= queues:
            return known
        topic = topics.grow(name, queues)
        topics.unsaved.add(name)
        return topic

    def write_opened(self) -> None:
        """Make durable which topics `open` has made since. Raises OSError, unless the disk is full."""
        topics = self._topics
        if not topics.unsaved:
            return
        if self._is_writing or topics.is_writing:
            self._writes.file_writes.finish()
        try:
            topics.append_opened()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._postpone(topics.unsaved)
            topics.unsaved.clear()

    def making(self, wanted: Mapping[str, int]) -> AwaitedSteps[None]:
        """`create` for many topics, in steps and with one write of the topic file; durable when this ends.

        Args:
            wanted: Queues by name; topics that have as many are left as they are.

        Raises:
            MessageRefused, ValueError, FeatureMissing: As `create`, for the first topic that is refused; none is made.
            DiskFull: The topic file does not fit; no topic is created, except where all are the broker's own.
            StoreFailed: The store has failed, or fails with this write.
        """
        topics = self._topics
        self._check_whole()
        grown = {}
        for number, (name, queues) in enumerate(wanted.items(), start=1):
            if number % AT_ONCE == 0:
                yield None
            check_wanted(name, queues)
            known = topics.by_name.get(name)
            if known is None:
                topics.admit(name)
            if known is None or len(known.queues) < queues:
                grown[name] = queues
        if not grown:
            return
        try:
            with self._writing():
                yield from saved(self._writes, self._growing(grown))
        except DiskFull:
            if not all(map(is_system, grown)):
                raise
            self._postpone(grown)
            topics.planned.update(grown)
        steps = 0
        for name, queues in grown.items():
            # Else it was deleted or widened while this waited.
            if name in topics.planned:
                steps += queues
                self._grow(name, queues)
            if steps >= _GROWN_AT_ONCE:
                steps = 0
                yield None

    def _postpone(self, names: Iterable[str]) -> None:
        """Let topics of the broker's own be made without the file; raises DiskFull where that cannot be.

        Dead letters must not wait for a full disk: their records name the topic, so that recovery finds it in the log,
        and the file is written with the next change or start that has room.
        """
        deleted = set(self._topics.lives.deleted)
        for name in names:
            if name in deleted:
                raise DiskFull(self._writes.root, _FILE_BYTES)
            logger.warning("topic_file_postponed_disk_full", topic=name)

    def _growing(self, grown: Mapping[str, int]) -> FileWrite:
        self._is_writing = True
        try:
            yield from self._topics.lives.reviving(grown)
            yield from self._topics.writing(grown)
        finally:
            self._is_writing = False
        # Memory follows in steps; another write of the file that comes between has these topics, too.
        self._topics.planned.update(grown)

    def _grow(self, name: str, queues: int) -> Topic:
        """Make or widen in memory what the topic file has."""
        known = self._topics.by_name.get(name)
        before = 0 if known is None else len(known.queues)
        topic = self._topics.grow(name, queues)
        if self._topics.lives.of(name).bases:
            with self._writing():
                for queue in topic.queues[before:]:
                    queue.cut_files()
                    queue.sync()
        return topic

    def set_types(self, types: Mapping[str, MessageType]) -> None:
        """Give topics their message types, all of them in one write; durable when this returns.

        A type decides what is published from now on; what is stored stays as it is.

        Raises:
            KeyError: The topic does not exist; nothing has changed.
            DiskFull: There is no room for the topic file; nothing has changed.
            StoreFailed: The store has failed, or fails with this write.
        """
        self._check_whole()
        for name in types:
            self._topics.by_name[name]
        changed = {name: wanted for name, wanted in types.items() if self._topics.said_type(name) != wanted}
        if changed:
            with self._writing():
                self._topics.save(types=changed)

    def serve(self, name: str) -> None:
        """Have a topic take publishes although no configuration lists it; durable when this returns.

        Raises:
            DiskFull, StoreFailed: It cannot be written.
        """
        self._check_whole()
        with self._writing():
            self._topics.lives.serve(name)

    def delete(self, name: str) -> None:
        """`deleting` at once, after all that is staged; the calling thread waits for the disk. Raises the same."""
        self._topics.by_name[name]
        self._writes.commit.flush()
        run_now(self.deleting(name))

    def deleting(self, name: str, *, before: Callable[[], object] = _nothing) -> AwaitedSteps[None]:
        """Delete a topic in steps: its queues go, its records with their log files; durable when this ends.

        A topic made again under the name continues with the queue offsets where this one ended (D11), so that what
        a client remembers of them never names another message. A creation while this is under way waits for it.

        Args:
            name: Its name.
            before: Called in the step that takes the topic out, before it does. From there on no caller may append to
                its queues, by whatever was looked up before. What it raises ends the deletion, and nothing has changed.

        Raises:
            KeyError: The topic does not exist.
            DiskFull: There is no room for the note; nothing has changed.
            StoreFailed: The store has failed, or fails with this.
        """
        topic = self._topics.by_name[name]
        yield from self._untouched(topic)
        self._check_whole()
        if self._topics.by_name.get(name) is not topic:
            raise KeyError(name)
        before()
        with self._writing():
            # What is said of the log's end must hold after a power loss, too.
            self._writes.commit.make_durable()
            yield from saved(self._writes, self._taking_out(topic))

    def _untouched(self, topic: Topic) -> AwaitedSteps[None]:
        """Wait until nothing of a topic is on its way to the disk, and no checkpoint that may be about its files."""
        for _ in range(_WAITS_MAX):
            staged = _is_staged(topic)
            if not staged and self._writes.file_writes.are_idle:
                return
            if staged:
                yield from all_durable(self._writes)
            yield from saved(self._writes, writing_nothing())
        for _ in range(_WAITS_MAX):
            self._writes.commit.flush()
            if not _is_staged(topic):
                break
        self._writes.file_writes.finish()

    def _taking_out(self, topic: Topic) -> FileWrite:
        topics, name = self._topics, topic.name
        del topics.by_name[name]
        topics.planned.pop(name, None)
        self._is_writing = True
        try:
            yield from topics.lives.deleting(name, self._log.visible_end, [queue.max_offset for queue in topic.queues])
        except OSError:
            topics.by_name[name] = topic
            self._is_writing = False
            raise
        self._checkpointer.outdate()
        try:
            yield from topics.writing()
            for queue in topic.queues:
                yield from queue.removing_files()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise self._writes.fail("deleting a topic", error) from error
            # It is deleted all the same; the next opening does the rest.
            logger.warning("topic_deletion_left_to_next_start", topic=name, error=str(error))
        finally:
            self._is_writing = False

    def finish(self, log_end: int, deleted: Mapping[str, Sequence[int]]) -> None:
        """Do, at the end of a recovery, what a stop left of a deletion, an older version, or RocketMQ.

        Args:
            log_end: Where the log ends.
            deleted: Topics that RocketMQ has deleted, and where each of their queues ended.

        Raises:
            OSError: A file cannot be written.
        """
        self._topics.lives.cut(log_end)
        for name, ends in deleted.items():
            if not self._topics.lives.of(name).deleted:
                at_once(self._disk, self._topics.lives.deleting(name, log_end, ends))
                logger.warning("topic_deleted_by_others", topic=name, queues=len(ends), ends=list(ends))
        for name in self._topics.lives.align(self._is_unused):
            topic = self._topics.by_name.get(name)
            for queue in topic.queues if topic is not None else []:
                base = self._topics.lives.base(name, queue.queue_id)
                if queue.max_offset == queue.base_offset < base:
                    queue.begin_life(base, void_from=self._topics.lives.of(name).end(queue.queue_id))
        for name in self._topics.lives.deleted:
            if name in self._topics.by_name:
                self._topics.lives.revive([name])
                continue
            for queue in self._topics.files_of(name):
                at_once(self._disk, queue.removing_files())

    def _is_unused(self, name: str, queue_id: int) -> bool:
        """Whether a queue of a topic that was made again has no message yet."""
        topic = self._topics.by_name.get(name)
        if topic is None or queue_id >= len(topic.queues):
            return topic is None
        return topic.queues[queue_id].max_offset == topic.queues[queue_id].base_offset

    def _check_whole(self) -> None:
        if self._is_writing or self._topics.is_writing:
            # Its files are written in steps, and the rest of them are made now.
            self._writes.file_writes.finish()
        if self._writes.failed is not None:
            raise self._writes.failed

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if can_wait(error):
                self._metrics.counter(REFUSED, "disk_full").add()
                raise DiskFull(self._writes.root, _FILE_BYTES) from error
            raise self._writes.fail("writing the topic file", error) from error
