"""What clients answer: successes and fails by offset, current, late, repeated or unknown (D9, D12, D13).

Whether a result is of the present delivery, `upstream.delivery.crossing` decides. A success of another one finishes the
offset all the same; the key waits for the present delivery's answer or timeout. A fail counts for the present delivery
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from upstream.delivery import job_loops
from upstream.delivery.crossing import is_of_only, is_of_present
from upstream.delivery.subscription import Subscription
from upstream.history import History
from upstream.job import Holder, Lane, UpstreamJob
from upstream.retry.reasons import clean_reason
from upstream.state import Event, State, move

_new = tuple.__new__
_LEAVING = (State.BURYING, State.SENDING, State.UNDECIDED)


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


class Result(NamedTuple):
    """One client's result for one queue.

    Attributes:
        success: Offsets that were consumed.
        fail: Offsets that were not.
        holder: Who says it.
        deliveries: By offset the number of the delivery that is answered, 0 where it is not in there; None where the
            client knows no numbers.
        reasons: By offset what the client says about a failure: bytes of anybody's, for people.
    """

    success: Sequence[int]
    fail: Sequence[int]
    holder: Holder
    deliveries: dict[int, int] | None = None
    reasons: dict[int, bytes] | None = None

    def number(self, offset: int) -> int | None:
        """Number of the delivery of which it is, None where nobody says."""
        return None if self.deliveries is None else self.deliveries.get(offset, 0)

    def failure(self, offset: int) -> str:
        """Say who failed an offset, and why, as far as that is known."""
        said = "" if self.reasons is None else clean_reason(self.reasons.get(offset, b""))
        return f"failed by {self.holder.address}" + (f": {said}" if said else "")


def apply_result(subscription: Subscription | None, lane: Lane, result: Result) -> Applied:
    """Apply one result to one queue of a generation: successes first, then fails (R44).

    Never raises for what a client sent. Without a generation successes of earlier deliveries count.
    """
    success, fail, holder, deliveries, _ = result
    if subscription is None:
        return _apply_idle(lane, result)
    done: list[int] = []
    slow: list[int] = []
    at, found = 0, (done, slow)
    if holder.heard < holder.carried:
        # A reply with messages had not left when this was sent: each answer is looked at by itself.
        slow += success
        at = len(success)
    order = subscription.order if not subscription.outcomes.draining else None
    last: UpstreamJob | None = None
    while at < len(success):
        before = len(done)
        at, delivery, ended = job_loops.settle(
            success, at, lane, holder, order, subscription.make_ready, found, deliveries
        )
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
        outcome = _succeed_slowly(subscription, lane, offset, result)
        finished += outcome == "finished"
        repeated += outcome == "repeated"
        ignored += outcome == "ignored"
    for offset in fail:
        if _fail(subscription, lane, offset, result):
            failed += 1
        else:
            ignored += 1
    subscription.pump()
    return _new(Applied, (finished, repeated, failed, ignored))


def _apply_idle(lane: Lane, result: Result) -> Applied:
    """No generation runs (between two, or disabled): successes of earlier deliveries still count."""
    finished = repeated = ignored = 0
    for offset in result.success:
        unknown = not 0 <= offset < lane.queue.max_offset or offset >= lane.uncertain_until
        if unknown or lane.tracker.undecided.get(offset):
            ignored += 1
            continue
        if lane.tracker.finish(offset):
            finished += 1
        else:
            repeated += 1
        _note_answer(lane, offset, result)
    for offset in result.fail:
        if 0 <= offset < lane.queue.max_offset and lane.tracker.is_finished(offset):
            _note_answer(lane, offset, result, fail=True)
    return Applied(finished, repeated, 0, ignored + len(result.fail))


def _note_answer(lane: Lane, offset: int, result: Result, *, fail: bool = False) -> None:
    """Take note of an answer for a message whose job, if there is one, is not out: its adopted delivery may end.

    A fail ends none of an unfinished message: it would come again uncounted.
    """
    number = result.number(offset)
    delivery = None if fail and not lane.tracker.is_finished(offset) else lane.adopted.get(offset)
    present = is_of_present(lane, offset, delivery, result.holder, number)
    if delivery is not None and (present or (not fail and is_of_only(delivery, result.holder, number))):
        del lane.adopted[offset]


def _succeed_slowly(subscription: Subscription, lane: Lane, offset: int, result: Result) -> str:
    """Apply a success that is not the present holder's plain answer: `finished`, `repeated` or `ignored`."""
    job = lane.live.get(offset)
    if job is None:
        return _succeed_unread(subscription, lane, offset, result)
    if job.state is State.HELD:
        if is_of_present(lane, offset, job.delivery, result.holder, result.number(offset)):
            # Finished by an earlier delivery's success; this is the answer that its key waited for.
            subscription.outcomes.let_go(job)
        subscription.counters.repeated.value += 1
        return "repeated"
    if job.state in _LEAVING or offset in lane.apart:
        return _succeed_leaving(subscription, lane, offset, result, job)
    if job.state is State.FINISHED:
        subscription.counters.late.value += 1
        return "finished"
    if not job.deliveries and offset >= lane.uncertain_until:
        subscription.counters.stale("never_delivered").add()
        return "ignored"
    subscription.counters.late.value += 1
    _succeed_late(subscription, job, result)
    return "finished"


def _succeed_late(subscription: Subscription, job: UpstreamJob, result: Result) -> None:
    state, lane, holder = job.state, job.lane, result.holder
    outcomes = subscription.outcomes
    delivery, number = job.delivery, result.number(job.offset)
    if state is State.OUT and delivery is not None:
        present = is_of_present(lane, job.offset, delivery, holder, number)
        certain = job.deliveries == 1 and job.offset >= lane.uncertain_until
        if present or is_of_only(delivery, holder, number, certain=certain):
            outcomes.leave_delivery(job)
            outcomes.succeed(job)
            return
    if state in (State.OUT, State.RUNNING):
        # Its key waits for the present delivery, or for the action that has it.
        move(job, Event.SUCCEED_LATE)
        lane.tracker.finish(job.offset)
        subscription.counters.finished.value += 1
    elif state in (State.BUFFERED, State.RETRYING):
        if state is State.BUFFERED:
            subscription.buffer.forget(job)
        outcomes.succeed(job)
    else:
        # READ, WAITING or READY: delivered before a restart or reload, and not yet its turn again.
        _note_answer(lane, job.offset, result)
        if job.offset not in lane.adopted:
            outcomes.succeed_unstarted(job)
            return
        # Somebody else has it: when its turn comes, its key waits for that one.
        lane.apart.add(job.offset)
        lane.tracker.finish(job.offset)
        subscription.counters.finished.value += 1
        if job.history is None:
            job.history = History(subscription.now())


def _succeed_leaving(subscription: Subscription, lane: Lane, offset: int, result: Result, job: UpstreamJob) -> str:
    """Apply a success for what is on its way out of its queue, or was left unsettled by an earlier generation.

    What is sent back was failed by who had it, and nobody else has it: the fail stands. A message on its way to the
    dead letters is finished by a success, so that it never comes again even if its record is not there after a failed
    disk; where that is there, it is in the dead letters besides, as if the success had come a moment later.
    """
    tracker, counters, outcomes = lane.tracker, subscription.counters, subscription.outcomes
    _note_answer(lane, offset, result)
    if tracker.is_finished(offset):
        counters.repeated.value += 1
        return "repeated"
    if tracker.undecided.get(offset):
        counters.stale("sent_back").add()
        return "ignored"
    counters.late.value += 1
    if job.state is State.BURYING and outcomes.withdraw_burial(job):
        return "finished"
    tracker.finish(offset)
    counters.finished.value += 1
    if job.state is State.UNDECIDED:
        outcomes.apart.settle(job)
    return "finished"


def _succeed_unread(subscription: Subscription, lane: Lane, offset: int, result: Result) -> str:
    """Apply a success without a job: finished before, not yet read again after a restart, or unknown."""
    if not 0 <= offset < lane.queue.max_offset:
        subscription.counters.stale("unknown_offset").add()
        return "ignored"
    if lane.tracker.is_finished(offset):
        _note_answer(lane, offset, result)
        subscription.counters.repeated.value += 1
        return "repeated"
    if offset >= lane.uncertain_until:
        subscription.counters.stale("never_delivered").add()
        return "ignored"
    if lane.tracker.undecided.get(offset):
        subscription.counters.stale("sent_back").add()
        return "ignored"
    _note_answer(lane, offset, result)
    if offset in lane.adopted:
        # Somebody else has it: its key waits for that one.
        lane.apart.add(offset)
    else:
        lane.forget(offset)
    lane.tracker.finish(offset)
    lane.check_until = max(lane.check_until, offset + 1)
    subscription.counters.late.value += 1
    subscription.counters.finished.value += 1
    return "finished"


def _fail(subscription: Subscription, lane: Lane, offset: int, result: Result) -> bool:
    """Whether a fail counted."""
    job = lane.live.get(offset)
    delivery = None if job is None else job.delivery
    if delivery is None:
        _note_answer(lane, offset, result, fail=True)
    present = delivery is not None and is_of_present(lane, offset, delivery, result.holder, result.number(offset))
    if job is None or not present:
        known = 0 <= offset < lane.queue.max_offset
        finished = known and lane.tracker.is_finished(offset)
        reason = "already_finished" if finished else "stale_fail" if known else "unknown_offset"
        subscription.counters.stale(reason).add()
        return False
    if job.state is State.HELD:
        # Finished by an earlier delivery's success; this is the answer that its key waited for.
        subscription.outcomes.let_go(job)
        subscription.counters.stale("already_finished").add()
        return False
    if job.state is not State.OUT:
        subscription.counters.stale("stale_fail").add()
        return False
    subscription.outcomes.leave_delivery(job)
    subscription.outcomes.fail(job, result.failure(offset))
    return True
