"""What clients answer: successes and fails by offset, current, late, repeated or unknown (D9, D12, D13).

Acks carry no delivery token (W3), so the connection decides. A result from the connection that holds the delivery is
current. A success from another one finishes the offset all the same; the key goes on at once only when that success
can have been of no other delivery than the present one. A fail counts for the present delivery only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from upstream import job_loops
from upstream.job import UpstreamJob
from upstream.lane import Delivery, Holder, Lane
from upstream.state import Event, State, move
from upstream.subscription import Subscription

_new = tuple.__new__


class Applied(NamedTuple):
    """What became of the offsets of one result."""

    finished: int = 0
    """Successes that finished their offset."""
    repeated: int = 0
    """Successes of offsets that were finished already."""
    failed: int = 0
    """Fails that counted for the present delivery."""
    ignored: int = 0
    """Offsets that changed nothing; counted by reason."""

    @property
    def counted(self) -> bool:
        """Whether anything was taken: what `submit` answers (D13). A result without offsets has nothing to refuse."""
        return bool(self.finished or self.repeated or self.failed) or not self.ignored


def apply_result(lane: Lane, success: Sequence[int], fail: Sequence[int], holder: Holder) -> Applied:
    """Apply one result to one queue: successes first, then fails (R44). Never raises for what a client sent."""
    subscription = lane.subscription
    if subscription is None:
        return _apply_idle(lane, success, fail)
    done: list[int] = []
    slow: list[int] = []
    order = subscription.order if not subscription.outcomes.draining else None
    last: UpstreamJob | None = None
    at, found = 0, (done, slow)
    while at < len(success):
        before = len(done)
        at, delivery, ended = job_loops.settle(success, at, lane, holder, order, subscription.make_ready, found)
        if delivery is not None:
            last = ended
            delivery.open -= len(done) - before
            if not delivery.open:
                subscription.deadlines.close(delivery)
    if done:
        lane.tracker.finish_many(done)
        if last is not None:
            lane.tracker.place = last.offset, last.physical
        subscription.permits.release(len(done))
        subscription.counters.finished.value += len(done)
    if not slow and not fail:
        subscription.pump()
        return _new(Applied, (len(done), 0, 0, 0))
    finished, repeated, failed, ignored = len(done), 0, 0, 0
    for offset in slow:
        outcome = _succeed_slowly(subscription, lane, offset, holder)
        finished += outcome == "finished"
        repeated += outcome == "repeated"
        ignored += outcome == "ignored"
    for offset in fail:
        if _fail(subscription, lane, offset, holder):
            failed += 1
        else:
            ignored += 1
    subscription.pump()
    return _new(Applied, (finished, repeated, failed, ignored))


def _apply_idle(lane: Lane, success: Sequence[int], fail: Sequence[int]) -> Applied:
    """No generation runs (between two, or disabled): successes of earlier deliveries still count."""
    finished = repeated = ignored = 0
    for offset in success:
        if not 0 <= offset < lane.queue.max_offset or offset >= lane.uncertain_until:
            ignored += 1
        elif lane.tracker.finish(offset):
            lane.adopted.pop(offset, None)
            finished += 1
        else:
            repeated += 1
    return Applied(finished, repeated, 0, ignored + len(fail))


def _succeed_slowly(subscription: Subscription, lane: Lane, offset: int, holder: Holder) -> str:
    """Apply a success that is not the present holder's plain answer: `finished`, `repeated` or `ignored`."""
    job = lane.live.get(offset)
    if job is None:
        return _succeed_unread(subscription, lane, offset)
    if job.state is State.HELD:
        if job.delivery is not None and job.delivery.holder is holder:
            _let_go(subscription, job)
        subscription.counters.repeated.value += 1
        return "repeated"
    if job.state is State.SENDING or (job.state is State.BURYING and not subscription.outcomes.withdraw_burial(job)):
        # Its retry or dead letter is being written; the offset is finished with it.
        subscription.counters.repeated.value += 1
        return "repeated"
    if job.state is State.FINISHED:
        subscription.counters.late.value += 1
        return "finished"
    if not job.deliveries and offset >= lane.uncertain_until:
        subscription.counters.stale("never_delivered").add()
        return "ignored"
    subscription.counters.late.value += 1
    _succeed_late(subscription, job)
    return "finished"


def _succeed_late(subscription: Subscription, job: UpstreamJob) -> None:
    state, lane = job.state, job.lane
    outcomes = subscription.outcomes
    if state is State.OUT:
        if job.deliveries == 1 and job.offset >= lane.uncertain_until:
            # Handed out once and never before: the success is of this delivery, whatever connection brought it.
            outcomes.leave_delivery(job)
            outcomes.succeed(job)
            return
        move(job, Event.SUCCEED_LATE)
        lane.tracker.finish(job.offset)
        subscription.counters.finished.value += 1
    elif state is State.RUNNING:
        # An action has it; when that settles, the offset is found finished.
        lane.tracker.finish(job.offset)
        subscription.counters.finished.value += 1
    elif state in (State.BUFFERED, State.RETRYING):
        if state is State.BUFFERED:
            subscription.buffer.forget(job)
        outcomes.succeed(job)
    else:
        # READ, WAITING or READY: delivered before a restart, and not yet its turn again.
        outcomes.succeed_unstarted(job)


def _succeed_unread(subscription: Subscription, lane: Lane, offset: int) -> str:
    """Apply a success without a job: finished before, not yet read again after a restart, or unknown."""
    if not 0 <= offset < lane.queue.max_offset:
        subscription.counters.stale("unknown_offset").add()
        return "ignored"
    if lane.tracker.is_finished(offset):
        subscription.counters.repeated.value += 1
        return "repeated"
    if offset >= lane.uncertain_until:
        subscription.counters.stale("never_delivered").add()
        return "ignored"
    lane.tracker.finish(offset)
    lane.adopted.pop(offset, None)
    lane.check_until = max(lane.check_until, offset + 1)
    subscription.counters.late.value += 1
    subscription.counters.finished.value += 1
    return "finished"


def _fail(subscription: Subscription, lane: Lane, offset: int, holder: Holder) -> bool:
    """Whether a fail counted."""
    job = lane.live.get(offset)
    delivery = None if job is None else job.delivery
    if job is None or delivery is None or not _may_fail(delivery, holder):
        known = 0 <= offset < lane.queue.max_offset
        finished = known and lane.tracker.is_finished(offset)
        reason = "already_finished" if finished else "stale_fail" if known else "unknown_offset"
        subscription.counters.stale(reason).add()
        return False
    if job.state is State.HELD:
        # Finished by an earlier delivery's success; this is the answer that its key waited for.
        _let_go(subscription, job)
        subscription.counters.stale("already_finished").add()
        return False
    if job.state is not State.OUT:
        subscription.counters.stale("stale_fail").add()
        return False
    subscription.outcomes.leave_delivery(job)
    subscription.outcomes.fail(job, f"failed by {holder.address}")
    return True


def _may_fail(delivery: Delivery, holder: Holder) -> bool:
    """Whether it is the holder, or its client over a new connection after the old one closed (S2 re-sends results)."""
    held_by = delivery.holder
    return held_by is holder or (held_by.closed and _client(held_by) == _client(holder))


def _client(holder: Holder) -> str:
    return holder.address.rpartition(":")[0]


def _let_go(subscription: Subscription, job: UpstreamJob) -> None:
    """Let a HELD job's key go on: its present holder answered."""
    subscription.outcomes.leave_delivery(job)
    move(job, Event.SETTLE)
    subscription.outcomes.over(job)
