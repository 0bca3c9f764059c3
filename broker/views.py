"""What an operator is shown of the broker: one record per view, made where the facts are, encoded as it is.

The admin port's JSON, the console, the command line and tests share these; docs/admin-shapes.md is made from them.
JSON has the fields' names in camelCase. Moments (`..._ms`) are Unix milliseconds of the node's wall clock. What has no
value is null; a field that is `msgspec.UNSET` is left out. A field that a later version adds
has a default, so that its command line reads an earlier node.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all views."""


class QueueRange(View, frozen=True, kw_only=True):
    """The offsets that a queue holds.

    Attributes:
        queue: Number of the queue.
        min: First offset that it holds.
        max: Its end: the offset of the next message.
    """

    queue: int
    min: int
    max: int


class DelayLevelView(View, frozen=True, kw_only=True):
    """One delay level.

    Attributes:
        level: Its number.
        delay_ms: Its delay; null for a store that no node has open, since the configuration says it.
        pending: Messages that are not delivered.
        refused: Those of them whose delivery was refused (docs/delays.md).
        oldest_ms: When the first of them was stored; null when nothing is pending, or it cannot be read.
        next_due_ms: When the next one is due, refused ones excluded; null without any.
        late_ms: How long that has been due; 0 while it is not.
    """

    level: int
    delay_ms: int | None
    pending: int = 0
    refused: int = 0
    oldest_ms: int | None = None
    next_due_ms: int | None = None
    late_ms: int = 0


class WaitingMessage(View, frozen=True, kw_only=True):
    """A message that waits and is not delivered.

    Attributes:
        topic: Topic that it goes to.
        queue: Queue of that topic; null when its record does not say.
        id: Its id (UNIQ_KEY).
        key: Its key; "" without one.
        stored_ms: When it was stored.
        due_ms: When it is due.
        refused_because: Why its topic refused it; null when it did not.
        tries: How often it was refused.
    """

    topic: str
    queue: int | None
    id: str
    key: str
    stored_ms: int
    due_ms: int
    refused_because: str | None = None
    tries: int = 0


class DelayedMessage(WaitingMessage, frozen=True, kw_only=True):
    """A message that waits in a delay level.

    Attributes:
        level: Its level.
        offset: Offset in the level's queue.
    """

    level: int
    offset: int


class LoopView(View, frozen=True, kw_only=True):
    """What a loop's next message says of it (docs/loops.md).

    Attributes:
        id: Id of the loop.
        made: Deliveries that were made.
        left: Deliveries that it may still make.
        interval: Seconds between two.
        expire_ms: When it ends.
    """

    id: str
    made: int
    left: int
    interval: int
    expire_ms: int


class TimerView(WaitingMessage, frozen=True, kw_only=True):
    """A timer that is pending.

    Attributes:
        delay_id: DDMQ's id of what `sendDelaySync` stored; null of others.
        rolls: How often it went round the wheel.
        loop: The loop that it is of; null of others.
        physical: Commit-log offset of its record.
    """

    delay_id: str | None
    rolls: int
    loop: LoopView | None
    physical: int


class TopicTimers(View, frozen=True, kw_only=True):
    """Timers of one topic.

    Attributes:
        topic: The topic.
        pending: How many are pending.
    """

    topic: str
    pending: int


class TimerStage(View, frozen=True, kw_only=True):
    """One stage of the timers' work (docs/timers.md).

    Attributes:
        stage: Its name.
        depth: Timers that wait before it.
        ms: Milliseconds at work since the start.
        count: Timers that passed since the start.
        paused: Whether an operator halted it.
    """

    stage: str
    depth: int
    ms: float
    count: int
    paused: bool


class TimerStatus(View, frozen=True, kw_only=True):
    """All timers of a store.

    Attributes:
        now_ms: Now, by the node's wall clock.
        pending_total: Timers that are not delivered.
        entering: Those behind them that are stored and not in the wheel yet; they are not listed.
        refused: Those whose delivery was refused.
        next_due_ms: When the next one is due that was not refused; null when none is due within some seconds.
        late_ms: How long that has been due; 0 while it is not.
        topics: By topic, the most first.
        stages: All five.
    """

    now_ms: int
    pending_total: int = 0
    entering: int = 0
    refused: int = 0
    next_due_ms: int | None = None
    late_ms: int = 0
    topics: Sequence[TopicTimers] = ()
    stages: Sequence[TimerStage] = ()


class TransactionView(View, frozen=True, kw_only=True):
    """A transaction's half message.

    Attributes:
        state: `undecided` or `discarded`; for a requested one also `committed`, `rolledBack`, `decided` (long ago),
            `moved` (stored again, or discarded) or `resumed`.
        id: Its id (UNIQ_KEY).
        handle: Decides it; "" for a discarded one.
        offset: Offset in the half queue; for a discarded one in the discard queue.
        topic: Topic that its message goes to.
        queue: Queue of that topic.
        group: Producer group.
        key: Its message's key; "" without one.
        checks: Checks so far.
        check_out: Whether a producer has a check of it now.
        remark: The words with which a producer last left it undecided; a stop forgets them.
        born_ms: When its producer made it, by the producer's clock.
        stored_ms: When it was stored.
        bytes: Size of its record, in bytes.
        physical: Commit-log offset of its record.
    """

    state: str
    id: str
    handle: str
    offset: int
    topic: str
    queue: int
    group: str
    key: str
    checks: int
    check_out: bool
    remark: str
    born_ms: int
    stored_ms: int
    bytes: int
    physical: int
