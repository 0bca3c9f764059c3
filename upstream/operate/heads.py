"""What an operator does by hand to a job that is stuck: retry it now, give it up to the dead letters, or pass over it.

The operator names a message by topic, queue and offset, having seen it as the first of its key; it is looked for again
here, and where another message comes first by now nothing is done (`HeadRefused`). A job that is out with a client, or
in an action, is left alone unless the operator insists (`force`). Then its holder may still be at work on it: the next
of its key goes out beside it, which promise 3 excludes otherwise. A success that still comes counts (D12), or finds
the offset finished.

Order is kept: a message that is passed over is journaled, durably, before the next of its key is released, and one that
is dead-lettered releases its key when its dead letter is durable (D16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from upstream.figures.endings import MessageEnding
from upstream.job import GroupQueue, UpstreamJob, text_of
from upstream.progress.tracker import FailureKind
from upstream.state import WITHOUT_PERMIT, JobEvent, JobState, move

if TYPE_CHECKING:
    from broker.runtime.seams import Clock
    from upstream.delivery.group import ConsumerGroup
    from upstream.delivery.subscription import Subscription
    from upstream.progress.progress import Progress


_UNDECIDED = (
    "The disk failed while its dead letter or retry was written. After a restart the node knows whether it "
    "was stored; no command is possible before."
)
_LEAVING = (JobState.BURYING, JobState.UNDECIDED)
_SENDING = "It is being moved to the retry topic; then it is finished here and delivered again from there."


class HeadRefused(Exception):
    """The message is not where the operator saw it, or is not to be touched now; nothing was done."""


class Handled(NamedTuple):
    """What was done to a message.

    Attributes:
        changed: Whether anything was; False when it is already as it was to become.
        text: A sentence for the operator.
    """

    changed: bool
    text: str


class Head(NamedTuple):
    """An unfinished job that waits behind no other, and the generation that has it."""

    job: UpstreamJob
    subscription: Subscription


def find_head(group: ConsumerGroup, group_queue: GroupQueue, offset: int, *, key: str | None = None) -> Head:
    """Return the unfinished job at `offset` that waits behind no other.

    Args:
        group: Its group.
        group_queue: Its queue.
        offset: Its offset.
        key: If given, the order key that it must have.

    Raises:
        HeadRefused: The job does not exist now.
    """
    subscription = group.generation_of(group_queue)
    if subscription is None or subscription.draining:
        raise HeadRefused(
            f"The subscription of topic {group_queue.topic} starts, drains or has ended; try again later."
        )
    job = group_queue.live.get(offset)
    if job is None or job.state in (JobState.FINISHED, JobState.ABANDONED):
        raise HeadRefused(_why_absent(group, group_queue, offset))
    found = text_of(job.key)
    if key is not None and found != key:
        raise HeadRefused(f"Offset {offset} of queue {group_queue.queue_id} has the order key {found!r}, not {key!r}.")
    if job.state is JobState.WAITING:
        head = _head_of(subscription, job)
        where = f": queue {head.queue_id}, offset {head.offset}" if head is not None else ""
        raise HeadRefused(f"Offset {offset} waits for an earlier message of key {found!r}{where}; select that message.")
    return Head(job, subscription)


def _why_absent(group: ConsumerGroup, group_queue: GroupQueue, offset: int) -> str:
    queue = group_queue.queue
    if not queue.min_offset <= offset < queue.max_offset:
        held = f"offsets {queue.min_offset} to {queue.max_offset - 1}"
        is_empty = queue.min_offset == queue.max_offset
        return f"Queue {group_queue.queue_id} of {queue.topic} has {'no message' if is_empty else held}."
    if group_queue.tracker.is_finished(offset):
        return (
            f"Offset {offset} of queue {group_queue.queue_id} is already finished.{_where_retried(group, group_queue)}"
        )
    return f"Offset {offset} of queue {group_queue.queue_id} has not been read yet, and blocks no other message."


def _where_retried(group: ConsumerGroup, group_queue: GroupQueue) -> str:
    """Where to look for a message that has failed, for a subscription that sends those to the group's retry topic."""
    subscription = group_queue.subscription
    if subscription is None or not subscription.config.retry_topic:
        return ""
    name = group.retry_topic
    return (
        f" If it failed, it is delivered again from {name}: `pyddmq timers list --topic '{name}'` lists "
        "waiting messages, `timers reschedule ID --at now` delivers one now, `timers cancel ID` ends it. "
        "Once it is delivered, select it with that topic, as `groups stuck` shows it."
    )


def _head_of(subscription: Subscription, waiting: UpstreamJob) -> UpstreamJob | None:
    """The first job of a waiting job's key."""
    jobs = (job for group_queue in subscription.group_queues for job in group_queue.live.values())
    return next((job for job in jobs if job.key == waiting.key and job.state is not JobState.WAITING), None)


def retry_now(head: Head, *, force: bool, progress: Progress, clock: Clock) -> Handled:
    """Make the next attempt due now; the attempts so far stay counted.

    Raises:
        HeadRefused: It is out or in an action and `force` is not given, or its dead letter is being written.
    """
    job, subscription = head
    outcomes = subscription.outcomes
    if job.state is JobState.RETRYING or subscription.gate_holder is job:
        _journal_due_now(job, progress, clock)
        if job.state is JobState.RETRYING:
            outcomes.retry_now(job)
        else:
            subscription.reopen_gate()
        return Handled(True, "Its wait has ended: the next pull receives it.")
    if job.state is JobState.OUT:
        holder = _insist(job, force)
        job.group_queue.note_unanswered(job.offset, outcomes.leave_delivery(job))
        outcomes.put_back([job])
        return Handled(
            True, f"It was taken back from {holder}: the next pull receives it. A success from there still counts."
        )
    if job.state is JobState.STOPPED:
        outcomes.stops.try_again(job)
        subscription.pump()
        return Handled(True, "It is retried, with all of its attempts.")
    if job.state is JobState.HELD:
        return _let_go(head, force)
    if job.state is JobState.BURYING:
        raise HeadRefused("It is out of attempts and its dead letter is being written; `skip` can still end it.")
    if job.state is JobState.SENDING:
        raise HeadRefused(_SENDING)
    if job.state is JobState.UNDECIDED:
        raise HeadRefused(_UNDECIDED)
    if job.state is JobState.RUNNING:
        raise HeadRefused(
            "An action is processing it; it is delivered again if the action fails. `skip` or `dead-letter` end it."
        )
    if job.group_queue.stopped:
        offset = min(outcomes.stops.queues[job.group_queue])
        raise HeadRefused(f"Its queue is blocked by the message at offset {offset}; select that one.")
    return Handled(False, "It does not wait: the next pull receives it, as far as concurrency and rate allow.")


def _journal_due_now(job: UpstreamJob, progress: Progress, clock: Clock) -> None:
    """So that a restart does not wait either."""
    failure = job.group_queue.tracker.failures.get(job.offset)
    now_ms = clock.wall_ms()
    if job.history is not None:
        job.history.due_wall_ms = now_ms
    for kind in FailureKind if failure is not None else ():
        if failure is not None and failure.count(kind):
            progress.fail(job.group_queue.tracker, job.offset, kind=kind, count=failure.count(kind), due_wall_ms=now_ms)


def skip(head: Head, *, force: bool, progress: Progress) -> Handled:
    """Finish a message without a dead letter: counted, journaled durably, and only then its key continues.

    Raises:
        HeadRefused: It is out or in an action and `force` is not given, or its dead letter is being written.
        ProgressFailed: The journal cannot be written; the message may come again.
    """
    job, subscription = head
    if job.state is JobState.HELD:
        return _let_go(head, force)
    text = _may_end(head, force)
    job.group_queue.tracker.finish(job.offset)
    job.group_queue.skipped += 1
    progress.sync()
    held_permit = job.state not in WITHOUT_PERMIT
    held_gate = _take_out(head)
    move(job, JobEvent.SKIP)
    subscription.counters.skipped("operator").add()
    subscription.outcomes.latency.ended(job, MessageEnding.SKIPPED)
    subscription.outcomes.over(job, held_permit=held_permit)
    _go_on(subscription, held_gate)
    return Handled(True, f"It is finished without a dead letter.{text}")


def dead_letter(head: Head, *, force: bool, who: str) -> Handled:
    """Give a message up to the group's dead letters; its key continues when that record is durable.

    To be followed by the end of the turn; a job that is BURYING after it could not be written yet and is tried again.

    Args:
        head: The message.
        force: Also when it is out or in an action.
        who: Stands in the record's reason.

    Raises:
        HeadRefused: It is out or in an action and `force` is not given, is on its way there already, or is a dead
            letter itself (D16).
    """
    job, subscription = head
    if subscription.outcomes.leaving.is_dead_letter(job):
        raise HeadRefused("It is itself a dead letter, and dead letters have no dead letters; `skip` finishes it.")
    if job.state is JobState.HELD:
        raise HeadRefused("It is already finished; its key waits for the result of its present holder. See `skip`.")
    if job.state is JobState.BURYING or (
        job.state is JobState.UNDECIDED and subscription.outcomes.leaving.is_refused(job)
    ):
        raise HeadRefused("It is already being moved to the dead letters, as soon as the store accepts the record.")
    text = _may_end(head, force)
    held_gate = _take_out(head)
    subscription.outcomes.give_up(job, f"abandoned by an operator at {who}")
    _go_on(subscription, held_gate)
    return Handled(True, f"It is now a dead letter.{text}")


def _may_end(head: Head, force: bool) -> str:
    """Refuse to end a job that a client has, unless forced; returns a remark about that."""
    job, subscription = head
    if job.state is JobState.OUT:
        return f" {_insist(job, force)} had it and may still be processing it."
    if job.state is JobState.RUNNING:
        if not force:
            raise HeadRefused(
                "An action is processing it. Pass `force` to end it anyway; the work of the action is lost."
            )
        return " An action had it and may still be processing it."
    if job.state is JobState.SENDING:
        raise HeadRefused(_SENDING)
    if job.state in _LEAVING and not subscription.outcomes.leaving.is_refused(job):
        text = "Its dead letter is being written; then it is finished."
        raise HeadRefused(text if job.state is JobState.BURYING else _UNDECIDED)
    return ""


def _insist(job: UpstreamJob, force: bool) -> str:
    """Return the address of a job's holder; refuse without `force`."""
    holder = job.delivery.holder.address if job.delivery is not None else "an action"
    if not force:
        raise HeadRefused(
            f"It is in flight with {holder}, which may still answer. Pass `force` to take it back; then the "
            "next of its key may be processed concurrently."
        )
    return holder


def _take_out(head: Head) -> bool:
    """Take a job that is about to end out of where it is; returns whether it held the order gate."""
    job, subscription = head
    held_gate = subscription.gate_holder is job
    if job.state is JobState.OUT:
        subscription.outcomes.leave_delivery(job)
    elif job.state is JobState.BUFFERED:
        subscription.buffer.forget(job)
    elif job.state is JobState.RETRYING:
        subscription.outcomes.forget_wait(job)
    elif job.state in _LEAVING:
        subscription.outcomes.leaving.call_off(job)
    return held_gate


def _go_on(subscription: Subscription, held_gate: bool) -> None:
    """Use what a job's end has freed."""
    if held_gate:
        subscription.reopen_gate()
    subscription.pump()


def _let_go(head: Head, force: bool) -> Handled:
    """Let the key of a finished job continue although its present holder has not answered."""
    job, subscription = head
    holder = _insist(job, force)
    subscription.outcomes.let_go(job)
    subscription.pump()
    return Handled(True, f"It was already finished; its key no longer waits for {holder}.")
