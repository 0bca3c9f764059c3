"""What clients answer: successes and fails by offset, current, late, repeated or unknown (D9, D12, D13).

Whether a result is of the present delivery, `upstream.delivery.answer_matching` decides. A success of another one
finishes the offset all the same; the key waits for the present delivery's answer or timeout. A fail counts for the
present delivery only.

Why the two differ: a success says that the work was done, which stays true for any client, so that to
deliver again would only repeat it. A fail says that one attempt did not work, and the present one may still. The key
must wait in the first case, since the present holder may be at work on the message while the next one of the key ran
beside it (D40).

Most answers are of the present delivery and in its order. These go through `job_loops.finish` in one call, up to the
first that is anything else; that one, and all of an answer that may have crossed a delivery on the wire, are looked
at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from upstream.delivery.subscription import Subscription
from upstream.history import JobHistory
from upstream.job import DeliveredBatch, GroupQueue, UpstreamJob
from upstream.message_holder import Holder
from upstream.state import JobEvent, JobState, move
from upstream.waiting import job_loops

# Whose answer it is: that of the present delivery of a message, or of an earlier one (D12, D40).
#
# DDMQ's results name an offset and no delivery (W3). A client that says which delivery it answers is taken at its
# word. Of any other, an answer is of the present delivery unless that cannot be known: it came over another connection
# than the delivery went to, the reply with the delivery had not left when the client sent it, or a delivery of the
# same message to the same client ended without an answer, which this may be. Each such delivery takes one answer for
# itself, so that the key of a message waits for as many answers as a client may still give, or for the timeout.


def is_of_present(
    group_queue: GroupQueue, offset: int, delivery: DeliveredBatch | None, holder: Holder, number: int | None
) -> bool:
    """Whether an answer is of the present delivery of a message; else it is taken for that of an earlier one.

    Args:
        group_queue: The queue.
        offset: What is answered.
        delivery: The present delivery; None while the message is not out.
        holder: Who answers.
        number: Of the delivery that is answered, as the client says; None where it says none.
    """
    if number is not None:
        if delivery is not None and delivery.number == number:
            return True
        _take(group_queue, offset, lambda earlier: earlier.number == number)
        return False
    if _take(group_queue, offset, lambda earlier: speaks_for(holder, earlier.holder)):
        return False
    if delivery is None or not speaks_for(holder, delivery.holder):
        return False
    return delivery.holder is not holder or delivery.reply <= holder.heard


# After a power loss under `flush: async`, or where a Kafka log has become another one, an offset names another message
# than before, and a client may still answer the one that is gone. The numbers of deliveries distinguish them. A client
# without numbers is not believed about what another one has, for as long as such answers are likely.


def is_of_another(
    group_queue: GroupQueue, offset: int, delivery: DeliveredBatch | None, result: Result, now: float | None
) -> bool:
    """Whether an answer is to a message that had the offset before, or may be.

    Args:
        group_queue: The queue.
        offset: What is answered.
        delivery: The present delivery; None while the message is not out.
        result: The answer.
        now: Monotonic seconds; None while no generation runs.
    """
    if group_queue.reused_from is None or offset < group_queue.reused_from:
        return False
    number = result.number(offset)
    if number is not None:
        return not 0 < group_queue.first_number <= number <= group_queue.last_number
    if now is None or now >= group_queue.reused_until or group_queue.tracker.is_finished(offset):
        return False
    deliveries = [*group_queue.unanswered.get(offset, ()), *(() if delivery is None else (delivery,))]
    return not any(speaks_for(result.holder, each.holder) for each in deliveries)


def is_of_only(delivery: DeliveredBatch, holder: Holder, number: int | None, *, certain: bool = False) -> bool:
    """Whether a success from another client can only be of the present delivery: there was no other.

    Args:
        delivery: The present delivery.
        holder: Who answers.
        number: As for `is_of_present`.
        certain: The message is known to have been handed out once.
    """
    return number is None and delivery.holder is not holder and (certain or not delivery.number)


def speaks_for(holder: Holder, held_by: Holder) -> bool:
    """Whether it is the holder, or its client over a new connection after the old one closed (S2 re-sends results)."""
    return held_by is holder or (held_by.closed and _client(held_by) == _client(holder))


def _client(holder: Holder) -> str:
    return holder.address.rpartition(":")[0]


def _take(group_queue: GroupQueue, offset: int, of: Callable[[DeliveredBatch], bool]) -> bool:
    """Give an answer to the earliest unanswered delivery that it may be of; whether there is one."""
    unanswered = group_queue.unanswered.get(offset, [])
    for place, earlier in enumerate(unanswered):
        if of(earlier):
            del unanswered[place]
            if not unanswered:
                del group_queue.unanswered[offset]
            return True
    return False


# Reasons that clients give for failures: untrusted bytes, made fit for records, pages and terminals.

REASON_CHARS_MAX = 300
"""What is kept of a reason."""


def clean_reason(said: bytes) -> str:
    """Return one line of printable text: what is not UTF-8 is replaced, other characters become spaces.

    What is longer than `REASON_CHARS_MAX` ends in an ellipsis.
    """
    text = said.decode("utf-8", "replace")
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 1] + "…"


_new = tuple.__new__
_LEAVING = (JobState.BURYING, JobState.SENDING, JobState.UNDECIDED)


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
        reasons: By offset what the client says about a failure: untrusted bytes, for people.
    """

    success: Sequence[int]
    fail: Sequence[int]
    holder: Holder
    deliveries: dict[int, int] | None = None
    reasons: dict[int, bytes] | None = None

    def number(self, offset: int) -> int | None:
        """Number of the delivery of which it is, None where the client does not say."""
        return None if self.deliveries is None else self.deliveries.get(offset, 0)

    def failure(self, offset: int) -> str:
        """Say who failed an offset, and why, as far as that is known."""
        said = "" if self.reasons is None else clean_reason(self.reasons.get(offset, b""))
        return f"failed by {self.holder.address}" + (f": {said}" if said else "")


def apply_result(subscription: Subscription | None, group_queue: GroupQueue, result: Result) -> Applied:
    """Apply one result to one queue of a generation: successes first, then fails (R44).

    Never raises for what a client sent. Without a generation successes of earlier deliveries count.
    """
    success, fail, holder, deliveries, _ = result
    if subscription is None:
        return _apply_idle(group_queue, result)
    group_queue.answered_at = subscription.now()
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
        at, delivery, ended = job_loops.finish(
            success, at, group_queue, holder, order, subscription.make_ready, found, deliveries
        )
        if delivery is not None:
            last = ended
            delivery.open -= len(done) - before
            subscription.outcomes.latency.finished(delivery, done[before:])
            if not delivery.open:
                subscription.deadlines.close(delivery)
    if done:
        group_queue.tracker.finish_many(done)
        if last is not None:
            group_queue.tracker.place = last.offset, last.physical
        subscription.permits.release(len(done))
        subscription.counters.finished.value += len(done)
    if not slow and not fail:
        subscription.pump()
        return _new(Applied, (len(done), 0, 0, 0))
    finished, repeated, failed, ignored = len(done), 0, 0, 0
    for offset in slow:
        outcome = _succeed_slowly(subscription, group_queue, offset, result)
        finished += outcome == "finished"
        repeated += outcome == "repeated"
        ignored += outcome == "ignored"
    for offset in fail:
        if _fail(subscription, group_queue, offset, result):
            failed += 1
        else:
            ignored += 1
    subscription.pump()
    return _new(Applied, (finished, repeated, failed, ignored))


def _apply_idle(group_queue: GroupQueue, result: Result) -> Applied:
    """No generation runs (between two, or disabled): successes of earlier deliveries still count."""
    finished = repeated = ignored = 0
    for offset in result.success:
        unknown = not 0 <= offset < group_queue.queue.max_offset or offset >= group_queue.uncertain_until
        if (
            unknown
            or is_of_another(group_queue, offset, None, result, None)
            or group_queue.tracker.undecided.get(offset)
        ):
            ignored += 1
            continue
        if group_queue.tracker.finish(offset):
            finished += 1
        else:
            repeated += 1
        _note_answer(group_queue, offset, result)
    for offset in result.fail:
        if 0 <= offset < group_queue.queue.max_offset and group_queue.tracker.is_finished(offset):
            _note_answer(group_queue, offset, result, fail=True)
    return Applied(finished, repeated, 0, ignored + len(result.fail))


def _note_answer(group_queue: GroupQueue, offset: int, result: Result, *, fail: bool = False) -> None:
    """Take note of an answer for a message whose job, if there is one, is not out: its adopted delivery may end.

    A fail ends none of an unfinished message: it would come again uncounted.
    """
    number = result.number(offset)
    delivery = None if fail and not group_queue.tracker.is_finished(offset) else group_queue.adopted.get(offset)
    present = is_of_present(group_queue, offset, delivery, result.holder, number)
    if delivery is not None and (present or (not fail and is_of_only(delivery, result.holder, number))):
        del group_queue.adopted[offset]


def _succeed_slowly(subscription: Subscription, group_queue: GroupQueue, offset: int, result: Result) -> str:
    """Apply a success that is not the present holder's plain answer: `finished`, `repeated` or `ignored`."""
    job = group_queue.live.get(offset)
    if is_of_another(group_queue, offset, None if job is None else job.delivery, result, subscription.now()):
        subscription.counters.stale("another_message").add()
        return "ignored"
    if job is None:
        return _succeed_unread(subscription, group_queue, offset, result)
    if job.state is JobState.HELD:
        if is_of_present(group_queue, offset, job.delivery, result.holder, result.number(offset)):
            # Finished by an earlier delivery's success; this is the answer that its key waited for.
            subscription.outcomes.let_go(job)
        subscription.counters.repeated.value += 1
        return "repeated"
    if job.state in _LEAVING or offset in group_queue.apart:
        return _succeed_leaving(subscription, group_queue, offset, result, job)
    if job.state is JobState.FINISHED:
        subscription.counters.late.value += 1
        return "finished"
    if not job.deliveries and offset >= group_queue.uncertain_until:
        subscription.counters.stale("never_delivered").add()
        return "ignored"
    subscription.counters.late.value += 1
    _succeed_late(subscription, job, result)
    return "finished"


def _succeed_late(subscription: Subscription, job: UpstreamJob, result: Result) -> None:
    state, group_queue, holder = job.state, job.group_queue, result.holder
    outcomes = subscription.outcomes
    delivery, number = job.delivery, result.number(job.offset)
    if state is JobState.OUT and delivery is not None:
        present = is_of_present(group_queue, job.offset, delivery, holder, number)
        certain = job.deliveries == 1 and job.offset >= group_queue.uncertain_until
        if present or is_of_only(delivery, holder, number, certain=certain):
            outcomes.leave_delivery(job)
            outcomes.succeed(job)
            return
    if state in (JobState.OUT, JobState.RUNNING):
        # Its key waits for the present delivery, or for the action that has it.
        move(job, JobEvent.SUCCEED_LATE)
        group_queue.tracker.finish(job.offset)
        outcomes.count_finished(job)
    elif state in (JobState.BUFFERED, JobState.RETRYING, JobState.STOPPED):
        if state is JobState.BUFFERED:
            subscription.buffer.forget(job)
        outcomes.succeed(job)
    else:
        # READ, WAITING or READY: delivered before a restart or reload, and not yet its turn again.
        _note_answer(group_queue, job.offset, result)
        if job.offset not in group_queue.adopted and job.offset not in group_queue.calls:
            outcomes.succeed_unstarted(job)
            return
        # Somebody else has it: when its turn comes, its key waits for that one.
        group_queue.apart.add(job.offset)
        group_queue.tracker.finish(job.offset)
        outcomes.count_finished(job)
        if job.history is None:
            job.history = JobHistory(subscription.now())


def _succeed_leaving(
    subscription: Subscription, group_queue: GroupQueue, offset: int, result: Result, job: UpstreamJob
) -> str:
    """Apply a success for what is on its way out of its queue, or was left undecided by an earlier generation.

    What is sent back was failed by its holder, and no other client has it: the fail counts. A message on its way to the
    dead letters is finished by a success, so that it never comes again even if its record is not there after a failed
    disk; where that is there, it is in the dead letters besides, as if the success had come a moment later.
    """
    tracker, counters, outcomes = group_queue.tracker, subscription.counters, subscription.outcomes
    _note_answer(group_queue, offset, result)
    if tracker.is_finished(offset):
        counters.repeated.value += 1
        return "repeated"
    if tracker.undecided.get(offset):
        counters.stale("sent_back").add()
        return "ignored"
    counters.late.value += 1
    if job.state is JobState.BURYING and outcomes.withdraw_dead_letter(job):
        return "finished"
    tracker.finish(offset)
    outcomes.count_finished(job)
    if job.state is JobState.UNDECIDED:
        outcomes.apart.complete(job)
    return "finished"


def _succeed_unread(subscription: Subscription, group_queue: GroupQueue, offset: int, result: Result) -> str:
    """Apply a success without a job: finished before, not yet read again after a restart, or unknown."""
    if not 0 <= offset < group_queue.queue.max_offset:
        subscription.counters.stale("unknown_offset").add()
        return "ignored"
    if group_queue.tracker.is_finished(offset):
        _note_answer(group_queue, offset, result)
        subscription.counters.repeated.value += 1
        return "repeated"
    if offset >= group_queue.uncertain_until:
        subscription.counters.stale("never_delivered").add()
        return "ignored"
    if group_queue.tracker.undecided.get(offset):
        subscription.counters.stale("sent_back").add()
        return "ignored"
    _note_answer(group_queue, offset, result)
    if offset in group_queue.adopted or offset in group_queue.calls:
        # Somebody else has it: its key waits for that one.
        group_queue.apart.add(offset)
    else:
        group_queue.forget(offset)
    group_queue.tracker.finish(offset)
    group_queue.check_until = max(group_queue.check_until, offset + 1)
    subscription.counters.late.value += 1
    subscription.counters.finished.value += 1
    return "finished"


def _fail(subscription: Subscription, group_queue: GroupQueue, offset: int, result: Result) -> bool:
    """Whether a fail counted."""
    job = group_queue.live.get(offset)
    delivery = None if job is None else job.delivery
    if delivery is None:
        _note_answer(group_queue, offset, result, fail=True)
    present = delivery is not None and is_of_present(
        group_queue, offset, delivery, result.holder, result.number(offset)
    )
    if job is None or not present:
        known = 0 <= offset < group_queue.queue.max_offset
        finished = known and group_queue.tracker.is_finished(offset)
        reason = "already_finished" if finished else "stale_fail" if known else "unknown_offset"
        subscription.counters.stale(reason).add()
        return False
    if job.state is JobState.HELD:
        # Finished by an earlier delivery's success; this is the answer that its key waited for.
        subscription.outcomes.let_go(job)
        subscription.counters.stale("already_finished").add()
        return False
    if job.state is not JobState.OUT:
        subscription.counters.stale("stale_fail").add()
        return False
    subscription.outcomes.leave_delivery(job)
    subscription.outcomes.fail(job, result.failure(offset))
    return True
