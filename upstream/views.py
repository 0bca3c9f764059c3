"""What an operator is shown of consumer groups: figures, stuck messages, positions; see `broker.views`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from broker.views import View


class QueueLag(View, frozen=True, kw_only=True):
    """How far a group is in one queue.

    Attributes:
        qid: The queue, as clients name it.
        committed: First offset not known to be finished: the next one to read (R72).
        produced: End of the queue: the offset of the next message.
        lag: Messages between the two.
        lag_seconds: Age of the message at the committed offset; 0 when the lag is 0.
        expires_seconds: Seconds until retention deletes that message by age, at the earliest; null without a lag or
            such a limit.
        expires_bytes: Bytes that may be written until it is deleted for space; null likewise.
        expires_share: What is left of the nearer of the two limits, 1.0 to 0.0; null likewise.
    """

    qid: str
    committed: int
    produced: int
    lag: int
    lag_seconds: float
    expires_seconds: float | None = None
    expires_bytes: int | None = None
    expires_share: float | None = None


class StuckKey(View, frozen=True, kw_only=True):
    """An order key whose first message holds others up (D15), or a message that fails again and again.

    Attributes:
        key: The order key; null for an unordered message.
        topic: Topic of the message; after a failure the group's retry topic (docs/retries.md).
        qid: Its queue, as clients name it.
        offset: Its offset.
        attempts: Deliveries of this process, or failed attempts over restarts, the larger of both.
        holder: Address of the client that has it; null while none has.
        holder_client: What that client says of itself, its library and version: at most 64 characters, not to be relied
            on; null where it says nothing.
        since_ms: When it first failed, as far as this process knows, or, while it has not, went out.
        waiting: How many wait behind it; null where that is not counted.
        state: Where it is: a state of docs/delivery.md, or `dead letter refused`: the store does not take the record
            now (full disk), and it is tried again every second.
        reason: Of its last failure; null while none is known.
        earlier: Whether it had failed before `since_ms`, in an earlier process or generation.
    """

    key: str | None
    topic: str
    qid: str
    offset: int
    attempts: int
    holder: str | None
    holder_client: str | None = None
    since_ms: int
    waiting: int | None = None
    state: str = "retrying"
    reason: str | None = None
    earlier: bool = False


class StuckMessage(StuckKey, frozen=True, kw_only=True):
    """A message that holds others of its key up, or has failed and is not finished.

    Attributes:
        group: The group.
        queue: Number of the queue.
        id: Its id (UNIQ_KEY); null when the record cannot be read.
        due_ms: When it is redelivered: its retry, or the timeout of its holder; null when neither is set.
    """

    group: str
    queue: int
    id: str | None
    due_ms: int | None


class Delivery(View, frozen=True, kw_only=True):
    """One message in flight: delivered and not answered, before its timeout (D12).

    Attributes:
        topic: Its topic.
        qid: Its queue, as clients name it.
        offset: Its offset.
        holder: Address of the client that has it.
        holder_client: What that client says of itself; null where it says nothing.
        since_ms: When it was delivered.
    """

    topic: str
    qid: str
    offset: int
    holder: str
    holder_client: str | None = None
    since_ms: int


class TargetView(View, frozen=True, kw_only=True):
    """A URL that messages are pushed to (docs/actions-push.md).

    Attributes:
        url: The URL, without its query.
        state: closed (it is in), open (it is out) or half-open (a request probes it).
        failures: Failures in a row.
        failed_total: Failures since the subscription began.
        since_ms: When the present failures began; null without any.
        probe_ms: When it may be probed; null while it is not out.
        reason: Of its last failure; null: none yet.
    """

    url: str
    state: str
    failures: int = 0
    failed_total: int = 0
    since_ms: int | None = None
    probe_ms: int | None = None
    reason: str | None = None


class PushView(View, frozen=True, kw_only=True):
    """What an action that pushes is at.

    Attributes:
        action: Its name.
        out: Requests that are out.
        rate: Requests per second that are allowed; null: no limit.
        slow: Requests that cost ten yet, because the receiver asked to slow down.
        held: Messages that wait for the rate.
        held_since_ms: Since when some do without a break; null while none does.
        urls: Where it pushes to.
    """

    action: str
    out: int = 0
    rate: float | None = None
    slow: int = 0
    held: int = 0
    held_since_ms: int | None = None
    urls: Sequence[TargetView] = ()


class SinkView(View, frozen=True, kw_only=True):
    """A server that a sink waits for, or that refuses some of its messages for now (docs/sinks.md).

    Attributes:
        action: Name of the sink.
        server: The server.
        since_ms: When the first try failed.
        reason: Of the last failure.
        messages_alone: Whether only some messages wait, and the sink writes the others.
    """

    action: str
    server: str
    since_ms: int
    reason: str
    messages_alone: bool = False


class StuckCall(View, frozen=True, kw_only=True):
    """A message in a call of an action that runs beyond its time limit (D45).

    Attributes:
        action: The action.
        qid: The message's queue, as clients name it.
        offset: Its offset.
        since_ms: When the call began.
        limit_ms: Its time limit.
    """

    action: str
    qid: str
    offset: int
    since_ms: int
    limit_ms: int


class SubscriptionView(View, frozen=True, kw_only=True):
    """A group on one topic.

    Attributes:
        topic: The topic.
        state: running, draining, starting, waiting (`owner` consumes its queues, D36) or stopped.
        lag: Messages not yet finished, over all queues; null while that is not known (`unknown`).
        lag_seconds: Age of the oldest of them; null likewise.
        in_flight: Messages in flight with clients.
        waiting: How many wait behind another of their key.
        buffered: How many the next pull gets.
        retrying: How many wait for their next attempt.
        burying: How many are on their way to the dead letters.
        in_calls: How many are in a call of an async or blocking action.
        calls_stuck_total: Number of these in a call that runs beyond its time limit.
        calls_stuck: Those, the longest first.
        reading_stopped: Whether reading is paused because too many messages wait for their keys (`maxWaitingPerTopic`).
        throttled: The limits that hold messages back now, each by its setting and value; empty: none does.
        owner: The consumer inside the program that has the queues for this group (docs/consumers.md); null without one.
        paused_since_ms: Since when an operator has the group or this topic paused; null when it is not.
        paused_by: From which address.
        lost: Messages that retention deleted before the group received them, over restarts.
        lost_at_ms: When that last happened; null: never.
        expires_seconds: Seconds until retention deletes the oldest unfinished message by age, at the earliest; null
            without a lag or such a limit.
        expires_bytes: Bytes that may be written until it is deleted for space; null likewise.
        expires_share: What is left of the nearer of the two limits, 1.0 to 0.0; null likewise.
        queues: By queue.
        failing_total: Messages that have failed five times or more and are not finished.
        failing: Those of them with the most attempts.
        stopped_total: Messages out of attempts that wait for an operator (`onExhausted`).
        stopped: Those of them that have waited longest.
        dead_letters_refused: Messages whose dead letter the store refuses.
        problem: Why the subscription does not start; null when it does.
        unknown: Why it is not known how far the group is, such as a Kafka cluster that has not answered; null: it is.
        stuck_keys_total: Keys whose first message holds others up.
        stuck_keys: Those that have done so longest, the longest first.
        push: What its action that pushes is at; null where none does.
        sinks: Servers that its sinks wait for now; empty: none.
    """

    topic: str
    state: str
    lag: int | None = 0
    lag_seconds: float | None = 0.0
    in_flight: int = 0
    waiting: int = 0
    buffered: int = 0
    retrying: int = 0
    burying: int = 0
    in_calls: int = 0
    calls_stuck_total: int = 0
    calls_stuck: Sequence[StuckCall] = ()
    reading_stopped: bool = False
    throttled: Sequence[str] = ()
    owner: str | None = None
    paused_since_ms: int | None = None
    paused_by: str | None = None
    lost: int = 0
    lost_at_ms: int | None = None
    expires_seconds: float | None = None
    expires_bytes: int | None = None
    expires_share: float | None = None
    queues: Sequence[QueueLag]
    failing_total: int = 0
    failing: Sequence[StuckKey] = ()
    stopped_total: int = 0
    stopped: Sequence[StuckKey] = ()
    dead_letters_refused: int = 0
    problem: str | None = None
    unknown: str | None = None
    stuck_keys_total: int = 0
    stuck_keys: Sequence[StuckKey] = ()
    push: PushView | None = None
    sinks: Sequence[SinkView] = ()


def running_text(topic: SubscriptionView) -> str:
    """Return a subscription's state as people read it, with the limits that hold its messages back now."""
    if topic.paused_since_ms is not None:
        return "paused"
    if topic.unknown is not None and topic.state == "running":
        return topic.unknown
    return f"{topic.state}, at {', '.join(topic.throttled)}" if topic.throttled else topic.state


class FetcherView(View, frozen=True, kw_only=True):
    """A client of a low-level group: its fetches hold queues, whose messages no other client of the group receives.

    Attributes:
        id: The name by which it fetches (consumerId).
        address: Address of its last fetch.
        since_ms: When it fetched first.
        fetched_ms: When it fetched last.
        queues: What it owns: `topic qid` of each.
    """

    id: str
    address: str
    since_ms: int
    fetched_ms: int
    queues: Sequence[str]


class GroupView(View, frozen=True, kw_only=True):
    """A consumer group.

    Attributes:
        group: Its name.
        parked_pulls: Pulls that wait for a message.
        buffered_bytes: Bytes of messages that the next pulls get.
        topics: What it subscribes, topic by topic, and its retry topic.
        in_flight_total: Messages in flight with clients.
        in_flight: Those that have been out longest, the oldest first.
        fetchers: Of a low-level group, its clients and what they own; empty for any other.
    """

    group: str
    parked_pulls: int = 0
    buffered_bytes: int = 0
    topics: Sequence[SubscriptionView]
    in_flight_total: int = 0
    in_flight: Sequence[Delivery] = ()
    fetchers: Sequence[FetcherView] = ()


class Position(View, frozen=True, kw_only=True):
    """Offsets of a group in one queue.

    Attributes:
        group: The group.
        topic: The topic.
        queue: Number of the queue.
        min: First offset that the queue holds.
        committed: First offset not known to be finished.
        finished_above: Offsets finished above it.
        next: Next offset to be read.
        max: End of the queue: the offset of the next message.
        lag: Unfinished messages.
        oldest_ms: When the message at the committed offset was stored; null without one, or if it cannot be read.
    """

    group: str
    topic: str
    queue: int
    min: int
    committed: int
    finished_above: int
    next: int
    max: int
    lag: int
    oldest_ms: int | None


class Move(View, frozen=True, kw_only=True):
    """What moving a group's position in one queue means.

    Attributes:
        queue: Number of the queue.
        start: Its committed offset before.
        to: Where it is moved to: everything from there on is delivered, nothing below it.
        skipped: Unfinished messages that are not delivered any more.
        repeated: Finished messages that are delivered again: below `from`, and those finished above it.
        finished_above_forgotten: How many of `repeated` were finished above `from`.
        in_flight: Messages of the queue in flight with clients.
    """

    queue: int
    start: int = msgspec.field(name="from")
    to: int
    skipped: int
    repeated: int
    finished_above_forgotten: int
    in_flight: int = 0

    @property
    def changes(self) -> bool:
        """Whether anything would be different."""
        return self.to != self.start or self.finished_above_forgotten > 0


WHEREABOUTS = {
    "retrying": "waits for its retry",
    "buffered": "ready, waits for a client to pull it",
    "ready": "ready, waits for a permit or the rate",
    "running": "in an action",
    "stopped": "out of attempts, waits for an operator",
    "burying": "on its way to the dead letters",
    "sending": "on its way to the retry topic",
    "undecided": "its dead letter or retry may be stored; the next start finds out",
    "held": "finished, its key waits for the result of its holder",
    "dead letter refused": "its dead letter was refused and is retried",
}
"""Where the first job of a key is while no client has it, by its state."""


def holder_text(address: str, client: str | None) -> str:
    """Return a client's address as people read it, with what it says of itself."""
    return f"{address} ({client})" if client else address


def whereabouts(state: str) -> str:
    """Say where a job is that no client has."""
    return WHEREABOUTS.get(state, state)
