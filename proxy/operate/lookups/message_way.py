"""The way of one message: where it waited, where it was stored, what each group did with it, its dead letters."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from broker.format.message import LogMessage
from broker.format.numbers import whole_number
from broker.query import KeyQuery, Searchable
from broker.queues.topics import DEAD_LETTER_PREFIX
from broker.retry.letters import Letter
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.views import View
from proxy.operate.moments import moment_text
from proxy.operate.views.messages import MessageView
from upstream.views import WHEREABOUTS, holder_text

_RECORDS_MAX = 256
_MARK = "TIMER_DEL_UNIQKEY"


class MessageInGroup(View, frozen=True, kw_only=True):
    """What a group does with one message.

    Attributes:
        group: The group.
        state: `finished`, `not read yet`, or the state of its delivery.
        holder: Address of the client that has it; null without one.
        holder_client: What that client says of itself; null for nothing.
        held_ms: Since when the client has it; null without one.
        attempts: Failed attempts that this process knows of.
        since_ms: When it failed first; null: it did not.
        due_ms: When the next attempt, or the client's answer, is due; null for neither.
        reason: Why it failed last; null: not known.
    """

    group: str
    state: str
    holder: str | None = None
    holder_client: str | None = None
    held_ms: int | None = None
    attempts: int = 0
    since_ms: int | None = None
    due_ms: int | None = None
    reason: str | None = None


class WayStep(View, frozen=True, kw_only=True):
    """One step of a message's way.

    Attributes:
        at_ms: When; null: not known.
        what: What happened.
        text: Details.
        group: Of which group; "": of none.
        tone: `OK`, `WARN`, `ERR` or "".
        topic: Topic of the record; "" for none.
        queue: Its queue there.
        offset: Its offset there.
    """

    at_ms: int | None
    what: str
    text: str
    group: str = ""
    tone: str = ""
    topic: str = ""
    queue: int = 0
    offset: int = 0


def way(
    store: Searchable, message: LogMessage, groups: Sequence[MessageInGroup]
) -> Generator[None, None, Sequence[WayStep]]:
    """Return what happened to a message, the oldest first, in steps of bounded work.

    Args:
        store: Where its records are.
        message: The message.
        groups: What the groups of its topic do with it.

    Raises:
        OSError: A file cannot be read.
    """
    found = [message]
    if message.unique_key:
        origin = message.properties.get("REAL_TOPIC", message.topic)
        names = [origin, TIMER_TOPIC, SCHEDULE_TOPIC, *(DEAD_LETTER_PREFIX + each.group for each in groups)]
        topics = [store.topics[name] for name in dict.fromkeys(names) if name in store.topics]
        query = KeyQuery(store, topics, message.unique_key, unique=True, limit=_RECORDS_MAX)
        yield from query.steps()
        found += [each for each in query.found if each.physical != message.physical and _is_of(each, origin)]
    steps = [WayStep(at_ms=message.born_ms, what="sent", text="by the producer's clock")]
    steps += [_stored(each) for each in found]
    return _in_order(steps, groups)


def way_in_kafka(message: MessageView, groups: Sequence[MessageInGroup]) -> Sequence[WayStep]:
    """Return what happened to a message in Kafka, the oldest first; its dead letters are not looked for."""
    text = (
        f"topic {message.topic} of Kafka cluster {message.cluster}, partition {message.queue}, offset {message.offset}"
    )
    return _in_order([WayStep(at_ms=message.store_ms or None, what="stored", text=text)], groups)


def _in_order(steps: Sequence[WayStep], groups: Sequence[MessageInGroup]) -> Sequence[WayStep]:
    """Return steps with those of groups; what a group does comes last: its moments may be unknown."""
    steps = [*steps, *(step for each in groups for step in _in_group(each))]
    return sorted(steps, key=lambda each: (each.at_ms is None, each.at_ms or 0))


def _is_of(record: LogMessage, origin: str) -> bool:
    """Whether a record with the same unique key belongs to the message's topic."""
    if record.topic.startswith(DEAD_LETTER_PREFIX):
        return Letter(queue_id=record.queue_id, offset=record.offset, message=record).topic in ("", origin)
    return record.topic == origin or record.properties.get("REAL_TOPIC") == origin


def _stored(record: LogMessage) -> WayStep:
    what, group, tone = "stored", "", ""
    text = f"topic {record.topic}, queue {record.queue_id}, offset {record.offset}"
    if record.topic == TIMER_TOPIC:
        due_ms = whole_number(record.properties.get("TIMER_DELIVER_MS"))
        what, text = "waits in the timers", "" if due_ms is None else f"due at {moment_text(due_ms)}"
        if _MARK in record.properties:
            what, text = "cancelled", "or moved to another time"
    elif record.topic == SCHEDULE_TOPIC:
        what, text = "waits in a delay level", f"level {record.queue_id + 1}"
    elif record.topic.startswith(DEAD_LETTER_PREFIX):
        letter = Letter(queue_id=record.queue_id, offset=record.offset, message=record)
        group = record.topic.removeprefix(DEAD_LETTER_PREFIX)
        what, text, tone = "dead letter", f"after {letter.attempts} failed attempts: {letter.reason}", "ERR"
    return WayStep(
        at_ms=record.store_ms,
        what=what,
        text=text,
        group=group,
        tone=tone,
        topic=record.topic,
        queue=record.queue_id,
        offset=record.offset,
    )


def _in_group(each: MessageInGroup) -> list[WayStep]:
    steps = []
    if each.attempts:
        due = "" if not each.due_ms else f"; the next attempt is due at {moment_text(each.due_ms)}"
        text = f"{each.attempts} failed attempts, the last: {each.reason or 'no reason known'}{due}"
        steps.append(WayStep(at_ms=each.since_ms, what="failed", text=text, group=each.group, tone="WARN"))
    if each.holder is not None:
        text = f"to {holder_text(each.holder, each.holder_client)}"
        if each.due_ms:
            text += f"; an answer is due by {moment_text(each.due_ms)}"
        steps.append(WayStep(at_ms=each.held_ms, what="delivered", text=text, group=each.group))
    else:
        tone = "OK" if each.state == "finished" else ""
        steps.append(
            WayStep(at_ms=None, what=each.state, text=WHEREABOUTS.get(each.state, ""), group=each.group, tone=tone)
        )
    return steps
