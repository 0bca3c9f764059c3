"""Results of changes; that of a reload is in `proxy.node.views`."""

from __future__ import annotations

from collections.abc import Sequence

from broker.views import QueueRange, View
from proxy.node.views import by_group
from upstream.views import Move


class GroupLoss(View, frozen=True, kw_only=True):
    """Messages of a group that a change would delete.

    Attributes:
        group: The group.
        messages: How many it has not finished.
    """

    group: str
    messages: int


class LossesAnswer(View, frozen=True, kw_only=True):
    """What a change would delete at once.

    Attributes:
        groups: Groups that would lose messages, by name.
    """

    groups: Sequence[GroupLoss]

    @property
    def sentence(self) -> str:
        """The counts by group, for people; empty when no group loses a message."""
        return by_group({each.group: each.messages for each in self.groups})


class PauseResult(View, frozen=True, kw_only=True):
    """What a pause, or its end, did.

    Attributes:
        group: The group.
        changed: Whether anything changed; a repeated request is not an error.
        paused_topics: Topics of the group that are paused now.
    """

    group: str
    changed: bool
    paused_topics: Sequence[str]


class HeadResult(View, frozen=True, kw_only=True):
    """What was done to a stuck message.

    Attributes:
        changed: Whether anything was; false when it is ready for the next pull already.
        text: A sentence that says what.
        topic: Topic of the message.
        queue: Its queue.
        offset: Its offset.
        key: Its order key; null for an unordered message.
    """

    changed: bool
    text: str
    topic: str
    queue: int
    offset: int
    key: str | None


class ResetResult(View, frozen=True, kw_only=True):
    """What a reset of offsets did, or would do.

    Attributes:
        group: The group.
        topic: The topic.
        dry_run: Whether it was only shown.
        changed: Whether anything was moved.
        queues: Queue by queue.
    """

    group: str
    topic: str
    dry_run: bool
    changed: bool
    queues: Sequence[Move]


class PublishResult(View, frozen=True, kw_only=True):
    """A message as it was published.

    Attributes:
        id: Its UNIQ_KEY.
        topic: Its topic.
        queue: Its queue; null for a message that waits.
        offset: Its offset; null for a message that waits.
    """

    id: str
    topic: str
    queue: int | None
    offset: int | None


class TopicResult(View, frozen=True, kw_only=True):
    """A topic as it was made, or altered.

    Attributes:
        topic: Its name.
        message_type: Which messages it takes.
        queues: By number.
    """

    topic: str
    message_type: str
    queues: Sequence[QueueRange]


class DeletionResult(View, frozen=True, kw_only=True):
    """What a deletion of a topic did.

    Attributes:
        topic: Its name.
        deleted: Whether it was deleted.
        emptied: Whether it is there again, empty, since the configuration lists it.
        messages: How many messages went.
    """

    topic: str
    deleted: bool
    emptied: bool
    messages: int


class CancelResult(View, frozen=True, kw_only=True):
    """What became of a message that was to be cancelled.

    Attributes:
        id: Its id (UNIQ_KEY).
        topic: Its topic; "" when it is not known.
        outcome: `cancelled`, `tooLate`, `unknown`, or of a timer `rescheduledBefore`; of a reschedule `rescheduled`.
        due_ms: When it is, or was, due; null when that is not known.
        new_id: Its id since it was rescheduled; null when it was not.
        text: A sentence that says what became of it.
    """

    id: str
    topic: str
    outcome: str
    due_ms: int | None
    new_id: str | None = None
    text: str


class CancelsResult(View, frozen=True, kw_only=True):
    """What became of messages that were to be cancelled.

    Attributes:
        results: In the order asked.
    """

    results: Sequence[CancelResult]


class RescheduleResult(CancelResult, frozen=True, kw_only=True):
    """What became of a timer that was to have another moment.

    Attributes:
        handle: Of the new timer; null when nothing was changed.
    """

    handle: str | None = None


class StagesResult(View, frozen=True, kw_only=True):
    """What a pause of stages of the timers' work, or its end, did.

    Attributes:
        changed: Whether anything did.
        paused_stages: Stages that are halted now; a restart resumes all.
    """

    changed: bool
    paused_stages: Sequence[str]


class ResumptionResult(View, frozen=True, kw_only=True):
    """A discarded transaction that is undecided again.

    Attributes:
        id: The requested id.
        topic: Topic that its message goes to.
        group: Producer group.
    """

    id: str
    topic: str
    group: str


class DecisionResult(ResumptionResult, frozen=True, kw_only=True):
    """A transaction that was decided.

    Attributes:
        state: `commit` or `rollback`.
        already: Whether it had been decided so before.
        was_discarded: Whether it had been discarded; it was resumed first.
    """

    state: str
    already: bool
    was_discarded: bool
