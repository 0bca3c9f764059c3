"""The life of a job as a table: state -> event -> next state. docs/states.md says what each state means.

Cold paths move a job with `move(job, event)`, which trips an assertion on a step that the table does not have. The
paths that run for every message assign a state that was looked up here once, at import (`next_state`), so that they
cannot disagree with the table either.
"""

from __future__ import annotations

import enum
from typing import Protocol


class JobState(enum.Enum):
    """The state of a job."""

    # Members are single objects: hashing them by identity spares a Python call per look-up.
    __hash__ = object.__hash__

    READ = "read"
    """Read from its queue, before the order gate."""
    WAITING = "waiting"
    """Behind an earlier job of its key; light, without a permit (D15)."""
    READY = "ready"
    """First of its key; waits for a permit and a rate token."""
    RUNNING = "running"
    """In an action, or with code that will resume or finish it (ASYNCHRONIZED)."""
    BUFFERED = "buffered"
    """In the pull buffer, to be taken by the next pull."""
    OUT = "out"
    """Handed to a client, unanswered, its timeout not passed: in flight (D12)."""
    RETRYING = "retrying"
    """Waits for the due time of its next attempt, in its place of the key."""
    BURYING = "burying"
    """On its way to the dead-letter topic; the key waits until that record is durable (D16)."""
    SENDING = "sending"
    """On its way to the group's retry topic; finished where it is when that record is durable (D37)."""
    STOPPED = "stopped"
    """Out of attempts, and kept for an operator (onExhausted): its key waits, and perhaps its queue. No permit."""
    UNDECIDED = "undecided"
    """The disk failed while its dead letter or retry was written: the log says after a restart whether that is there.
    Nothing becomes of it until then, and its key waits; a success counts where nothing but a dead letter may be."""
    HELD = "held"
    """Finished by a late success, or expired, while a client has it; the key waits for a client's answer or timeout, or
    for the action that has it."""
    FINISHED = "finished"
    """Over: its offset is finished and its key released."""
    ABANDONED = "abandoned"
    """Its generation ended; the message is read again by the next one."""


WITHOUT_PERMIT = (JobState.READ, JobState.WAITING, JobState.READY, JobState.STOPPED, JobState.UNDECIDED)
"""States in which a job holds no permit."""


class JobEvent(enum.Enum):
    """What happens to a job."""

    __hash__ = object.__hash__

    QUEUE_BEHIND = "queue behind key"
    """The order gate found an earlier job of the same key."""
    PASS_GATE = "pass gate"
    """The order gate found the key free, or the job has no key."""
    RELEASE = "release"
    """The job before it in its key has ended."""
    ADMIT = "admit"
    """A permit and a rate token were there."""
    OFFER = "offer"
    """PullServer put it into the pull buffer."""
    TAKE = "take"
    """A pull took it."""
    SUCCEED = "succeed"
    """A success that completes it: the current holder's, an action's, or any while no client has it."""
    SUCCEED_LATE = "succeed late"
    """A success of an earlier delivery while a newer one is out, or while an action has the job."""
    RETRY = "retry"
    """Failed with attempts left: it will come again."""
    COME_BACK = "come back"
    """Timed out with attempts left, given back uncounted, or (RETRYING) due again for the pull buffer."""
    RERUN = "rerun"
    """Due again for its actions."""
    DEAD_LETTER = "dead letter"
    """Out of attempts, or nothing can process it, or an operator gave it up."""
    STOP = "stop"
    """Out of attempts, or found so after a restart, where the group has its key or queue wait for an operator."""
    WITHDRAW = "withdraw"
    """Its queue is stopped: it leaves the pull buffer, and its permit, until an operator has the queue continue."""
    SEND_BACK = "send back"
    """Failed with attempts left, and no other client may still answer for it: to the retry topic."""
    COMPLETE = "complete"
    """The dead-letter record is durable, or the retry's, or (HELD) its holder answered, timed out or was abandoned, or
    (UNDECIDED) a success has finished it meanwhile."""
    SKIP = "skip"
    """Its record cannot be read (damaged or gone), or an operator passed over it: finished and counted."""
    SYNC_FAILS = "the sync fails"
    """The record that takes its place was appended, and the disk failed before it was known to be durable."""
    HOLD = "hold"
    """Its turn comes, and a delivery of an earlier generation is still out although the message is finished."""
    LEAVE = "leave"
    """Its turn comes, and the record that takes its place, appended by an earlier generation, is not known durable."""
    EXPIRE = "expire"
    """Its log file is deleted by retention: counted as lost, or (tried or out) a dead letter by now (D29)."""
    ABANDON = "abandon"
    """Its generation ends."""


_NOBODY_HAS_IT = {
    JobEvent.SUCCEED: JobState.FINISHED,
    JobEvent.DEAD_LETTER: JobState.BURYING,
    JobEvent.SKIP: JobState.FINISHED,
    JobEvent.EXPIRE: JobState.FINISHED,
    JobEvent.ABANDON: JobState.ABANDONED,
}
"""How a job may end that no client and no action has, wherever it waits."""

TABLE: dict[JobState, dict[JobEvent, JobState]] = {
    JobState.READ: {
        JobEvent.QUEUE_BEHIND: JobState.WAITING,
        JobEvent.PASS_GATE: JobState.READY,
        **_NOBODY_HAS_IT,
    },
    JobState.WAITING: {
        JobEvent.RELEASE: JobState.READY,
        JobEvent.SUCCEED: JobState.FINISHED,
        JobEvent.EXPIRE: JobState.FINISHED,
        JobEvent.ABANDON: JobState.ABANDONED,
    },
    JobState.READY: {
        JobEvent.ADMIT: JobState.RUNNING,
        JobEvent.HOLD: JobState.HELD,
        JobEvent.LEAVE: JobState.UNDECIDED,
        **_NOBODY_HAS_IT,
    },
    JobState.RUNNING: {
        JobEvent.OFFER: JobState.BUFFERED,
        JobEvent.TAKE: JobState.OUT,
        JobEvent.SUCCEED: JobState.FINISHED,
        JobEvent.SUCCEED_LATE: JobState.HELD,
        JobEvent.RETRY: JobState.RETRYING,
        JobEvent.SEND_BACK: JobState.SENDING,
        JobEvent.DEAD_LETTER: JobState.BURYING,
        JobEvent.STOP: JobState.STOPPED,
        JobEvent.SKIP: JobState.FINISHED,
        JobEvent.ABANDON: JobState.ABANDONED,
    },
    JobState.BUFFERED: {
        JobEvent.TAKE: JobState.OUT,
        JobEvent.WITHDRAW: JobState.READY,
        **_NOBODY_HAS_IT,
    },
    JobState.OUT: {
        JobEvent.SUCCEED: JobState.FINISHED,
        JobEvent.SUCCEED_LATE: JobState.HELD,
        JobEvent.RETRY: JobState.RETRYING,
        JobEvent.SEND_BACK: JobState.SENDING,
        JobEvent.COME_BACK: JobState.BUFFERED,
        JobEvent.DEAD_LETTER: JobState.BURYING,
        JobEvent.STOP: JobState.STOPPED,
        JobEvent.SKIP: JobState.FINISHED,
        JobEvent.EXPIRE: JobState.HELD,
        JobEvent.ABANDON: JobState.ABANDONED,
    },
    JobState.RETRYING: {
        JobEvent.COME_BACK: JobState.BUFFERED,
        JobEvent.RERUN: JobState.RUNNING,
        **_NOBODY_HAS_IT,
    },
    JobState.STOPPED: {
        JobEvent.COME_BACK: JobState.BUFFERED,
        JobEvent.RERUN: JobState.RUNNING,
        **_NOBODY_HAS_IT,
    },
    JobState.BURYING: {
        JobEvent.COMPLETE: JobState.FINISHED,
        JobEvent.SUCCEED: JobState.FINISHED,
        JobEvent.SKIP: JobState.FINISHED,
        JobEvent.SYNC_FAILS: JobState.UNDECIDED,
        JobEvent.ABANDON: JobState.ABANDONED,
    },
    JobState.SENDING: {
        JobEvent.COMPLETE: JobState.FINISHED,
        JobEvent.SYNC_FAILS: JobState.UNDECIDED,
        JobEvent.ABANDON: JobState.ABANDONED,
    },
    JobState.UNDECIDED: {
        JobEvent.COMPLETE: JobState.FINISHED,
        JobEvent.SKIP: JobState.FINISHED,
        JobEvent.ABANDON: JobState.ABANDONED,
    },
    JobState.HELD: {
        JobEvent.COMPLETE: JobState.FINISHED,
        JobEvent.ABANDON: JobState.ABANDONED,
    },
    JobState.FINISHED: {},
    JobState.ABANDONED: {},
}


def next_state(state: JobState, event: JobEvent) -> JobState:
    """Return the state after `event`.

    Raises:
        KeyError: The table has no such step.
    """
    return TABLE[state][event]


class Moved(Protocol):
    """What has a state here: a job."""

    state: JobState
    offset: int


def move(job: Moved, event: JobEvent) -> None:
    """Take a job to its next state; a step that is not in the table is a bug and trips an assertion."""
    steps = TABLE[job.state]
    assert event in steps, f"offset {job.offset}: {event.name} in {job.state.name}"
    job.state = steps[event]
