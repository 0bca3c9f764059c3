"""Changes to the topics of an open store: made, widened, typed, deleted; each is durable before it shows (D6, D11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import structlog

from broker.checkpointer import Checkpointer
from broker.commit_log import CommitLog
from broker.errors import NO_SPACE, DiskFull, StoreError, StoreFailed
from broker.message_type import MessageType
from broker.metrics import Metrics
from broker.store_metrics import REFUSED
from broker.topics import Topic, Topics, check_wanted

_FILE_BYTES = 4096

logger = structlog.get_logger()


class Owner(Protocol):
    """What is asked of the store."""

    root: str
    failed: StoreFailed | None

    def flush(self) -> None:
        """Write, sync and show what is staged."""
        ...


class TopicChanges:
    """Makes, widens, types and deletes topics of one store."""

    def __init__(
        self,
        owner: Owner,
        *,
        log: CommitLog,
        topics: Topics,
        checkpointer: Checkpointer,
        metrics: Metrics,
        fail: Callable[[str, OSError], StoreError],
    ) -> None:
        """Set up.

        Args:
            owner: The store.
            log: Its log.
            topics: Its topics, loaded before the first change.
            checkpointer: Told when the last checkpoint names a deleted topic.
            metrics: Counts refusals.
            fail: Stops the store's write side for good and returns the error that says so.
        """
        self._owner = owner
        self._log = log
        self._topics = topics
        self._checkpointer = checkpointer
        self._metrics = metrics
        self._fail = fail

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
            StoreFailed: The store has failed, or fails with this write.
        """
        self._check_whole()
        check_wanted(name, queues)
        known = self._topics.by_name.get(name)
        before = 0 if known is None else len(known.queues)
        if before < queues:
            # Memory grows only once the files say so.
            try:
                with self._writing():
                    self._topics.lives.revive(name)
                    self._topics.save((name, queues))
            except DiskFull:
                if not system or name in self._topics.lives.deleted:
                    raise
                # Dead letters must not wait for a full disk: their records name the topic, so that recovery finds it
                # in the log, and the file is written with the next change or start that has room.
                logger.warning("topic_file_postponed_disk_full", topic=name)
        topic = self._topics.grow(name, queues)
        if self._topics.lives.of(name).bases:
            with self._writing():
                for queue in topic.queues[before:]:
                    queue.cut_files()
                    queue.sync()
        topic.system = topic.system or system
        return topic

    def set_types(self, types: Mapping[str, MessageType]) -> None:
        """Give topics their message types, all of them in one write; durable when this returns.

        A type decides what is published from now on; what is stored stays as it is.

        Raises:
            KeyError: There is no such topic; nothing has changed.
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
        """Delete a topic: its queues go now, its records with their log files; durable when this returns.

        A topic made again under the name goes on with the queue offsets where this one ended (D11), so that what
        anybody remembers of them never names another message.

        Raises:
            KeyError: There is no such topic.
            DiskFull: There is no room for the note; nothing has changed.
            StoreFailed: The store has failed, or fails with this.
        """
        topic = self._topics.by_name[name]
        self._owner.flush()
        self._check_whole()
        self._checkpointer.settle()
        with self._writing():
            # What is said of the log's end must hold after a power loss, too.
            self._log.sync()
            self._topics.lives.bury(name, self._log.visible_end, [queue.max_offset for queue in topic.queues])
        del self._topics.by_name[name]
        self._checkpointer.outdate()
        try:
            self._topics.save()
            for queue in topic.queues:
                queue.remove_files()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise self._fail("deleting a topic", error) from error
            # It is deleted all the same; the next opening does the rest.
            logger.warning("topic_deletion_left_to_next_start", topic=name, error=str(error))

    def finish(self, log_end: int) -> None:
        """Do, at the end of a recovery, what a stop left of a deletion. Raises OSError."""
        self._topics.lives.cut(log_end)
        for name in self._topics.lives.deleted:
            if name in self._topics.by_name:
                self._topics.lives.revive(name)
                continue
            for queue in self._topics.files_of(name):
                queue.remove_files()

    def _check_whole(self) -> None:
        if self._owner.failed is not None:
            raise self._owner.failed

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in NO_SPACE:
                self._metrics.counter(REFUSED, "disk_full").add()
                raise DiskFull(self._owner.root, _FILE_BYTES) from error
            raise self._fail("writing the topic file", error) from error
