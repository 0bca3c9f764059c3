"""Messages that are stuck: heads that hold others of their key up, and whatever has failed and is not finished yet.

Cold path: it looks at every job that was read, which are a hundred thousand at most per subscription (D15).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.errors import DamagedRecord, RecordGone
from broker.format.properties import find_property
from broker.format.record import split
from broker.runtime.seams import Clock
from broker.store import Store
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.stats import stuck_since
from upstream.delivery.subscription import Subscription
from upstream.job import UpstreamJob, text_of
from upstream.state import State

DEAD_LETTER_REFUSED = "dead letter refused"
"""State of a BURYING job whose dead letter the store has not taken; it is tried again every second."""
_LEAVING = (State.BURYING, State.UNDECIDED, State.HELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckMessage:
    """A message that holds others up, or has failed.

    Attributes:
        topic: Topic that it stands in: of what failed and came again the group's retry topic (docs/retries.md).
        key: Order key; None for an unordered message.
        message_id: UNIQ_KEY; None when the record cannot be read.
        state: A state of docs/delivery.md, or DEAD_LETTER_REFUSED.
        attempts: Deliveries of this process, or failed attempts over restarts, whichever is more.
        holder: Address of the client that has it, else None.
        reason: Of its last failure; "" while there is none that this process knows of.
        since_ms: When it first failed or, while it has not, went out; wall clock.
        due_ms: When it comes again by itself: its retry, or the timeout of its holder; None when neither is set.
        waiting: Messages behind it.
    """

    topic: str
    key: str | None
    queue_id: int
    qid: str
    offset: int
    message_id: str | None
    state: str
    attempts: int
    holder: str | None
    since_ms: int
    due_ms: int | None
    waiting: int
    reason: str = ""


def stuck_messages(
    group: ConsumerGroup, *, store: Store, clock: Clock, count_max: int
) -> tuple[list[StuckMessage], int]:
    """Return the longest stuck messages of a group, the oldest first, and how many there are in all."""
    reader = _Reader(store, clock)
    found = [
        (reader.since(job), job, subscription)
        for lane in group.lanes()
        if (subscription := group.generation_of(lane)) is not None
        for job in lane.live.values()
        if _is_stuck(job)
    ]
    found.sort(key=lambda each: each[0])
    return [reader.read(job, subscription, since) for since, job, subscription in found[:count_max]], len(found)


def _is_stuck(job: UpstreamJob) -> bool:
    if job.state in (State.WAITING, State.FINISHED, State.ABANDONED):
        return False
    return job.successor is not None or job.history is not None or job.state in _LEAVING


class _Reader:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._now = clock.monotonic()
        self._wall_us = clock.wall_us()

    def since(self, job: UpstreamJob) -> float:
        """Monotonic seconds."""
        return stuck_since(job, self._now)

    def read(self, job: UpstreamJob, subscription: Subscription, since: float) -> StuckMessage:
        delivery = job.delivery
        return StuckMessage(
            topic=job.topic,
            key=text_of(job.key),
            queue_id=job.queue_id,
            qid=job.qid,
            offset=job.offset,
            message_id=self._message_id(job),
            state=self._state(job, subscription),
            attempts=max(job.deliveries, job.attempts),
            holder=delivery.holder.address if delivery is not None else None,
            since_ms=self._to_wall(since),
            due_ms=self._due_ms(job, subscription),
            waiting=_waiting_behind(job),
            reason=job.history.reason if job.history is not None else "",
        )

    @staticmethod
    def _state(job: UpstreamJob, subscription: Subscription) -> str:
        refused = job.state is State.BURYING and subscription.outcomes.burial_refused(job)
        return DEAD_LETTER_REFUSED if refused else job.state.value

    def _due_ms(self, job: UpstreamJob, subscription: Subscription) -> int | None:
        if job.delivery is not None:
            return self._to_wall(job.delivery.deadline)
        if job.history is not None and (job.state is State.RETRYING or subscription.gate_holder is job):
            return job.history.due_wall_ms
        return None

    def _message_id(self, job: UpstreamJob) -> str | None:
        try:
            unique_key = find_property(split(self._store.read(job.physical, job.size))[1], b"UNIQ_KEY")
        except (DamagedRecord, RecordGone):
            return None
        return None if unique_key is None else unique_key.decode("utf-8", "replace")

    def _to_wall(self, moment: float) -> int:
        return (self._wall_us - round((self._now - moment) * 1_000_000)) // 1000


def _waiting_behind(job: UpstreamJob) -> int:
    count, behind = 0, job.successor
    while behind is not None:
        count += behind.state is State.WAITING
        behind = behind.successor
    return count
