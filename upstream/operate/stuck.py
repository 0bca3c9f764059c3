"""Messages that are stuck: heads that hold others of their key up, and whatever has failed and is not finished yet.

Cold path: it looks at every job that was read, which are a hundred thousand at most per subscription (D15).
"""

from __future__ import annotations

from msgspec.structs import asdict

from broker.runtime.seams import Clock
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.stats import JobReader
from upstream.delivery.subscription import Subscription
from upstream.job import UpstreamJob
from upstream.state import State
from upstream.views import StuckMessage

DEAD_LETTER_REFUSED = "dead letter refused"
"""State of a BURYING job whose dead letter the store has not taken; it is tried again every second."""
_LEAVING = (State.BURYING, State.UNDECIDED, State.HELD)


def stuck_messages(group: ConsumerGroup, *, clock: Clock, count_max: int) -> tuple[list[StuckMessage], int]:
    """Return the longest stuck messages of a group, the oldest first, and how many there are in all."""
    reader = JobReader(clock)
    found = [
        (job, subscription)
        for group_queue in group.group_queues()
        if (subscription := group.generation_of(group_queue)) is not None
        for job in group_queue.live.values()
        if _is_stuck(job)
    ]
    found.sort(key=lambda each: reader.since(each[0]))
    return [_message(group, job, subscription, reader) for job, subscription in found[:count_max]], len(found)


def _is_stuck(job: UpstreamJob) -> bool:
    if job.state in (State.WAITING, State.FINISHED, State.ABANDONED):
        return False
    call = job.group_queue.calls.get(job.offset)
    if call is not None and call.late:
        return True
    return job.successor is not None or job.history is not None or job.state in _LEAVING


def _message(group: ConsumerGroup, job: UpstreamJob, subscription: Subscription, reader: JobReader) -> StuckMessage:
    known = asdict(reader.stuck(job))
    if job.state in (State.BURYING, State.UNDECIDED) and subscription.outcomes.leaving.is_refused(job):
        known["state"] = DEAD_LETTER_REFUSED
    due_ms = None
    if job.delivery is not None:
        due_ms = reader.to_wall(job.delivery.deadline)
    elif job.history is not None and (job.state is State.RETRYING or subscription.gate_holder is job):
        due_ms = job.history.due_wall_ms
    return StuckMessage(**known, group=group.name, queue=job.queue_id, id=subscription.message_id(job), due_ms=due_ms)
