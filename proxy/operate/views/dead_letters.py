"""Dead letters, and what a redrive did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType

from broker.views import View
from proxy.operate.views.messages import MessageView


class RedrivenView(View, frozen=True, kw_only=True):
    """When and as what a dead letter was redriven last; null where that is not known any more.

    Attributes:
        at_ms: When.
        topic: To which topic.
        queue: To which queue of it.
        offset: Offset of the message that was sent.
        id: Its offsetMsgId.
    """

    at_ms: int | None
    topic: str | None
    queue: int | None
    offset: int | None
    id: str | None


class DeadLetterView(View, frozen=True, kw_only=True):
    """One dead letter; if its record is damaged or deleted, only its offset.

    Attributes:
        queue: Queue of the dead-letter topic.
        offset: Its offset there.
        readable: Whether its record can be read.
        id: Its offsetMsgId; in Kafka its partition and offset, such as `0:17`.
        unique_key: UNIQ_KEY of the message.
        key: The message's key; "" without one.
        tags: Its tags; "" without any.
        topic: Topic that it came from; "" when that is not known.
        origin_queue: Queue of that topic; null when that is not known.
        reason: Why it was dead-lettered.
        action: Name of the action that failed last, `PullServer` for a client; "" when that is not known.
        attempts: Failed attempts.
        died_ms: When it was dead-lettered.
        born_ms: When its producer made it.
        body_bytes: Size of its body, in bytes.
        cut: Whether user properties had to go when it died.
        redriven: Its last redrive; null without one.
    """

    queue: int
    offset: int
    readable: bool
    id: str | UnsetType = UNSET
    unique_key: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    tags: str | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    origin_queue: int | UnsetType | None = UNSET
    reason: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    died_ms: int | UnsetType = UNSET
    born_ms: int | UnsetType = UNSET
    body_bytes: int | UnsetType = UNSET
    cut: bool | UnsetType = UNSET
    redriven: RedrivenView | UnsetType | None = UNSET


class DeadLetterLine(DeadLetterView, frozen=True, kw_only=True):
    """A line of a download: a dead letter.

    Attributes:
        message: Its record with the whole body; absent where bodies are not requested, or it cannot be read.
    """

    message: MessageView | UnsetType = UNSET


class DeadLettersAnswer(View, frozen=True, kw_only=True):
    """A page of a group's dead letters.

    Attributes:
        now_ms: Now, by the node's wall clock.
        group: The group.
        looked_at: How many were looked at for the page.
        cursor: Where the next page begins; null after the last one.
        dead_letters: The requested ones, the oldest first.
    """

    now_ms: int
    group: str
    looked_at: int
    cursor: str | None
    dead_letters: Sequence[DeadLetterView]


class DeadLetterGroup(View, frozen=True, kw_only=True):
    """A group that has a dead-letter topic.

    Attributes:
        group: The group.
        dead_letters: Dead letters that are there now.
        ever_total: Dead letters that were there ever.
        first_ms: When the first one that is there died; null without one.
        last_ms: When the last one died; null without one.
    """

    group: str
    dead_letters: int
    ever_total: int
    first_ms: int | None
    last_ms: int | None


class LettersInKafka(View, frozen=True, kw_only=True):
    """Where the dead letters of a group over Kafka are.

    Attributes:
        group: Its name.
        cluster: Name of its cluster.
        topic: Their topic there.
    """

    group: str
    cluster: str
    topic: str


class DeadLetterGroupsAnswer(View, frozen=True, kw_only=True):
    """Groups that have dead letters.

    Attributes:
        now_ms: Now, by the node's wall clock.
        groups: By name.
        in_kafka: Groups over Kafka, whose dead letters are not counted here.
    """

    now_ms: int
    groups: Sequence[DeadLetterGroup]
    in_kafka: Sequence[LettersInKafka] = ()


class DeadLetterKind(View, frozen=True, kw_only=True):
    """Dead letters of one topic, reason and action.

    Attributes:
        topic: Topic that they came from.
        reason: Why they were dead-lettered, without the client's port.
        action: Name of the action that failed last; "" when that is not known.
        count: How many.
        redriven: How many of them were redriven.
    """

    topic: str
    reason: str
    action: str
    count: int
    redriven: int


class DeadLetterFigures(DeadLetterGroup, frozen=True, kw_only=True):
    """A group's dead letters, counted.

    Attributes:
        now_ms: Now, by the node's wall clock.
        unreadable: Those whose record is damaged or deleted.
        redriven: Those that were redriven.
        kinds: By topic, reason and action, the most frequent first; 50 of them, and the others as one.
        actions: How many by action that failed last, the most frequent first.
    """

    now_ms: int
    unreadable: int
    redriven: int
    kinds: Sequence[DeadLetterKind]
    actions: Mapping[str, int]


class RedriveTarget(View, frozen=True, kw_only=True):
    """Where a dead letter goes.

    Attributes:
        topic: To which topic.
        queue: To which queue of it; absent in Kafka where the key decides.
        offset: Offset of the message; absent when it is only shown, or the queue is.
        id: Its offsetMsgId; absent when it is only shown, and in Kafka.
    """

    topic: str
    queue: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    id: str | UnsetType = UNSET


class RedriveOutcome(DeadLetterView, frozen=True, kw_only=True):
    """Outcome of one dead letter; a refused one stays in its place.

    Attributes:
        outcome: `redriven`, `would_redrive`, `already` or `refused`.
        target: Where it went, or would go; absent of others.
        kind: Of a refused one: `origin_unknown`, `no_topic`, `system_topic`, `message_type`, `unstorable` or
            `unreadable`; absent of others.
        why: Why it was refused; absent of others.
    """

    outcome: str
    target: RedriveTarget | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    why: str | UnsetType = UNSET


class RedriveResult(View, frozen=True, kw_only=True):
    """What a page of a redrive did.

    Attributes:
        group: The group.
        dry_run: Whether it was only shown.
        looked_at: How many dead letters were looked at.
        redriven: How many were sent.
        would_redrive: How many would be sent.
        already: How many were passed over, since they were redriven before.
        refused: How many were refused.
        stopped: Why the store takes nothing now (full disk); the page ends there. Null when it takes them.
        cursor: Where the next page begins; null after the last one.
        results: Those that were wanted.
    """

    group: str
    dry_run: bool
    looked_at: int
    redriven: int
    would_redrive: int
    already: int
    refused: int
    stopped: str | None
    cursor: str | None
    results: Sequence[RedriveOutcome]
