"""What a flush takes to the disk: what it is, how far its syncs are, and who is told when they have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.errors import StoreError
from broker.log.commit_log import CommitLog
from broker.log.put import Done
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.topics import Topic
from broker.runtime.seams import Syncing, Syncs


class Flight:
    """What one flush took of what was staged and is shown at one moment; the last of several has the sync.

    Attributes:
        dones: Who is told.
        is_last: It is the last of its flush.
        last_record: Commit-log offset of its last record.
        not_before_ms: When it may be shown, ms since the epoch; 0 for at once (`broker.log.landed`).
    """

    __slots__ = ("_end", "_error", "_queues", "_syncing", "_topics", "dones", "is_last", "last_record", "not_before_ms")

    def __init__(
        self,
        dones: list[Done],
        touched: dict[ConsumeQueue, Topic],
        *,
        end: int,
        last_record: int,
        not_before_ms: int = 0,
    ) -> None:
        """Take it.

        Args:
            dones: As the attribute.
            touched: Queues that got units, and their topics.
            end: Commit-log offset behind its last record.
            last_record: As the attribute.
            not_before_ms: As the attribute.
        """
        self.dones = dones
        self._queues = [(queue, queue.next_offset) for queue in touched]
        self._topics = dict.fromkeys(touched.values())
        self._end = end
        self._syncing: Syncing | None = None
        self._error: OSError | None = None
        self.last_record = last_record
        self.not_before_ms = not_before_ms
        self.is_last = False

    def show(self, log: CommitLog) -> None:
        """Make visible what it took."""
        log.visible_end = self._end
        for queue, offset in self._queues:
            queue.max_offset = offset

    def forget(self) -> None:
        """Drop the units that it took; those staged behind them as well."""
        for queue, _ in self._queues:
            queue.forget_staged()

    def sync(self, log: CommitLog, syncs: Syncs, done: Callable[[OSError | None], None]) -> None:
        """Sync in the background what is unsynced, one file after the other, the oldest first; then `done` is told.

        The order keeps a power loss from leaving a later file whole behind a torn one.
        """
        segment = log.unsynced
        if segment is None:
            self._syncing = None
            done(None)
            return

        def synced(error: OSError | None) -> None:
            if error is not None:
                self._syncing, self._error = None, error
                done(error)
                return
            log.synced(segment)
            self.sync(log, syncs, done)

        self._syncing = syncs.begin(segment.file, synced)

    def wait(self) -> None:
        """Wait until all that `sync` began has ended. Raises OSError: one of them failed."""
        while self._syncing is not None:
            # Its end begins the next, if any.
            syncing, self._syncing = self._syncing, None
            syncing.wait()
        if self._error is not None:
            raise self._error

    def tell(self, error: StoreError | None) -> Exception | None:
        """Call the `done`s, then without an error the listeners; return the first exception of one of them."""
        raised = None
        for done in self.dones:
            try:
                done(error)
            except Exception as failure:
                raised = raised or failure
        if error is None:
            for topic in self._topics:
                for listener in topic.listeners:
                    try:
                        listener()
                    except Exception as failure:
                        raised = raised or failure
        return raised


def tell_all(flights: Iterable[Flight], error: StoreError | None) -> None:
    """`tell` for each of them; raises the first exception after all were told."""
    raised = None
    for flight in flights:
        failure = flight.tell(error)
        raised = raised or failure
    if raised is not None:
        raise raised
