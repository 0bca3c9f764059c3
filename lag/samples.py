"""What is known of one queue of one group at one moment: the input of all lag rules, and the row of the lag journal.

A node records a `QueueSample` for each queue that a group subscribes to, by default every 10 s. The rules (`lag.rules`)
look at nothing else, so that a live node, the command line and Spark, which reads samples from journals or Parquet,
come to the same verdict.

Null means "not known", never 0. Offsets count from 0; an *end* is the offset that the next message gets. Moments
(`..._ms`) are Unix milliseconds of the recording node's wall clock. "Message time" is when a message could first be
consumed: its store time, or, of a delayed one or a timer, the moment at which it was due.

Fields come in the order in which they are written; a later version adds fields at the end, each with a default.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueKey:
    """Whose sample it is.

    Attributes:
        cluster: Name of the cluster; the node's name where it is alone.
        node: Name of the node that recorded it.
        group: The consumer group.
        topic: The topic.
        queue: Number of the queue.
    """

    cluster: str
    node: str
    group: str
    topic: str
    queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample:
    """One queue of one group at one moment.

    Attributes:
        time_ms: When it was read; queues of one snapshot are read one after the other.
        start: First offset that is kept. Null, with all else that needs reading the queue: it could not be read.
        end: Offset that the next message gets. Read after `committed`, so that lag is never below what it was.
        committed: First offset not known to be finished; null: the group never committed here.
        finished: Messages finished above `committed`, in any order.
        expired: Messages that retention took before the group had finished them, since the queue was created; durable.
        started: Offset up to which messages were handed out or taken up; null: unknown. At least `committed`.
        in_flight: Messages out with clients or in actions.
        waiting: Messages read that wait behind another of their key.
        retrying: Messages that failed and wait for their next attempt.
        dead_letters: Messages of this queue that became dead letters, since the queue was created.
        start_ms: Message time at `start`.
        committed_ms: Message time at the oldest unfinished message, which is at `committed` or above.
        started_ms: Message time at `started`.
        end_ms: Message time of the last message, at `end` - 1.
        moved_ms: When `committed` last rose, or the group first committed; null: not since the node knows.
        answered_ms: When a client last answered for a message of this queue, success or fail, or committed.
        asked_ms: When a client of the group last pulled, answered or held a message of this subscription, in any queue,
            or an action took from it; null: never.
        holders: Clients that hold a message of this queue, or pull the subscription now.
        held_key: Order key (plain, hashed or withheld, as configured) whose first message has held others up, or
            has failed, for longest; null: none.
        held_since_ms: When that message first failed, or was first handed out where it did not.
        held_offset: Its offset.
        held_attempts: How often it was tried.
        held_reason: Its last failure, one line of 200 characters at most; null: none known.
        paused: The group or subscription is disabled by an operator.
        limited: A rate limit held messages back since the sample before.
        pushing: The pipeline ends in an action that sends messages on: its target answers, and no client.
        matched: Share of the messages in `committed`..`end` that the subscription's filter takes, 0.0 to 1.0; null:
            no filter, or not estimated.
        skipped: Messages that an operator skipped or dead-lettered, since the node began; they are finished too.
        failing: Messages of the subscription, over all its queues, that have failed and are not finished.
        succeeded_ms: When a message of the subscription, in any queue, last succeeded; null: not since the node knows.
        out_offset: The message that a client or action has had for longest without an answer, if for a minute or more.
        out_client: The client or action that has it: a client by its address, and its name where it gives one.
        out_since_ms: When it was handed out.
        sink_server: The server that a sink of the subscription waits for; null: none.
        sink_reason: The last failure of that server, as one line.
        sink_since_ms: Since when the sink waits.
        base: Offset at which the topic's present life begins; it rises when the topic is emptied or made again.
    """

    time_ms: int
    start: int | None = None
    end: int | None = None
    committed: int | None = None
    finished: int = 0
    expired: int = 0
    started: int | None = None
    in_flight: int = 0
    waiting: int = 0
    retrying: int = 0
    dead_letters: int = 0
    start_ms: int | None = None
    committed_ms: int | None = None
    started_ms: int | None = None
    end_ms: int | None = None
    moved_ms: int | None = None
    answered_ms: int | None = None
    asked_ms: int | None = None
    holders: int = 0
    held_key: str | None = None
    held_since_ms: int | None = None
    held_offset: int | None = None
    held_attempts: int = 0
    held_reason: str | None = None
    paused: bool = False
    limited: bool = False
    pushing: bool = False
    matched: float | None = None
    skipped: int = 0
    failing: int = 0
    succeeded_ms: int | None = None
    out_offset: int | None = None
    out_client: str | None = None
    out_since_ms: int | None = None
    sink_server: str | None = None
    sink_reason: str | None = None
    sink_since_ms: int | None = None
    base: int | None = None


SAMPLE_FIELDS: Final = tuple(field.name for field in fields(QueueSample))
"""Names of a sample's fields, in the order in which they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledSample:
    """What waits in a node by its own time, at one moment.

    Attributes:
        time_ms: When it was read.
        kind: `timer`, `delay` (one per level) or `half`.
        topic: Topic that the messages go to; "" over all topics; `<cluster>:<waiting topic>` of those in Kafka.
        level: Delay level; 0 of others.
        pending: Messages that are not delivered, or not decided.
        overdue: Those of them whose moment has passed; of halves those that a check is due for.
        oldest_due_ms: When the earliest of the overdue was due; null: none is.
        oldest_ms: Store time of the oldest pending one; null: none, or unknown.
    """

    time_ms: int
    kind: str
    topic: str = ""
    level: int = 0
    pending: int = 0
    overdue: int = 0
    oldest_due_ms: int | None = None
    oldest_ms: int | None = None


class EventKind(Enum):
    """What happened to a node or group that a report must know to judge samples around it."""

    START = "start"
    STOP = "stop"
    RELOAD = "reload"
    PAUSE = "pause"
    RESUME = "resume"
    RESET = "reset"
    RETENTION = "retention"
    LEFT = "left"
    """A group or queue that was recorded is no longer: deleted, or no longer configured."""
    CLOCK = "clock"
    """The wall clock was stepped; `detail` says by how many milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagEvent:
    """One event in the journal.

    Attributes:
        time_ms: When.
        kind: What.
        group: The group that it is about; "" the node.
        topic: The topic; "" all.
        queue: The queue; -1 all.
        detail: One line for people, 200 characters at most: who asked, from which offset to which.
    """

    time_ms: int
    kind: EventKind
    group: str = ""
    topic: str = ""
    queue: int = -1
    detail: str = ""
