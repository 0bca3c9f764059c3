"""A batch of the group commit: what one flush takes and is shown at one moment, and how far it is.

`broker.log.group_commit` has its way and the reasons; here are its states and its invariants.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, auto

from broker.errors import StoreError
from broker.log.commit_log import CommitLog
from broker.log.put import Done
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.topics import Topic


class BatchState(IntEnum):
    """How far a batch is; see the table of `broker.log.group_commit`.

    Numbers: an `Enum` has a hash in Python.
    """

    STAGED = auto()
    WRITTEN = auto()
    DURABLE = auto()
    SHOWN = auto()
    REPORTED = auto()
    FAILED = auto()


STAGED, WRITTEN, DURABLE, SHOWN, REPORTED, FAILED = BatchState
# Looked up once: by its class each takes as long as a call in Python 3.11, and a batch enters four.

_NEXT = {
    STAGED: {WRITTEN, FAILED},
    WRITTEN: {DURABLE, SHOWN, FAILED},
    DURABLE: {SHOWN, FAILED},
    SHOWN: {REPORTED},
    FAILED: {REPORTED},
    REPORTED: set[BatchState](),
}


class CommitBatch:
    """What one flush takes and is shown at one moment.

    Attributes:
        state: How far it is.
        start: Commit-log offset at which it begins: the end of the batch before.
        end: Commit-log offset behind its last record.
        last_record: That of its last record.
        dones: Callbacks of the appends.
        not_before_ms: When it may be shown, ms since the epoch; 0 for at once.
        not_before: That moment in monotonic seconds, as the clocks were when it was named.
        is_last: It is the last of its flush.
    """

    __slots__ = (
        "_queues",
        "_topics",
        "dones",
        "end",
        "is_last",
        "last_record",
        "not_before",
        "not_before_ms",
        "start",
        "state",
    )

    def __init__(
        self,
        dones: list[Done],
        touched: dict[ConsumeQueue, Topic],
        *,
        start: int,
        end: int,
        last_record: int,
        not_before_ms: int,
        not_before: float,
    ) -> None:
        """Take what is staged.

        Args:
            dones: As the attribute.
            touched: Queues that got units, and their topics.
            start: As the attribute.
            end: As the attribute.
            last_record: As the attribute.
            not_before_ms: As the attribute.
            not_before: As the attribute.
        """
        assert start <= last_record < end or start == end, "a batch is of the records between its start and its end"
        self.state = STAGED
        self.start, self.end, self.last_record = start, end, last_record
        self.dones = dones
        self.not_before_ms, self.not_before = not_before_ms, not_before
        self.is_last = False
        self._queues = [(queue, queue.next_offset) for queue in touched]
        self._topics = dict.fromkeys(touched.values())

    def go_on(self, state: BatchState) -> None:
        """Enter another state."""
        assert state in _NEXT[self.state], f"a batch goes from {self.state.name} to {state.name}"
        self.state = state

    def show(self, log: CommitLog) -> None:
        """Make it visible."""
        self.go_on(SHOWN)
        assert log.visible_end <= self.end, "what may be read of the log only grows"
        log.visible_end = self.end
        for queue, offset in self._queues:
            assert queue.max_offset <= offset, "what may be read of a queue only grows"
            queue.max_offset = offset

    def fail(self) -> None:
        """Drop its units; those staged behind them as well."""
        self.go_on(FAILED)
        for queue, _ in self._queues:
            queue.forget_staged()

    def report(self, error: StoreError | None) -> Exception | None:
        """Call the `done`s, then without an error the listeners; return the first exception of one of them."""
        assert (error is None) == (self.state is SHOWN), "only shown batches complete without an error"
        self.go_on(REPORTED)
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


def report_all(batches: Iterable[CommitBatch], error: StoreError | None) -> Exception | None:
    """`report` for each of them; returns the first exception."""
    raised = None
    for batch in batches:
        failure = batch.report(error)
        raised = raised or failure
    return raised
