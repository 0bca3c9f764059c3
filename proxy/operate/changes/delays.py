"""What an operator may do to messages of the delay levels through the admin port: cancel them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec

from broker.format.message import LogMessage
from broker.query import by_unique_key
from broker.scheduled.cancelling import CancelEffect, run_query
from broker.scheduled.delay.cancel import CANCEL_TOPIC
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.store import Store
from proxy.access.rules import Permission
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.operate.changes.desk import Change, ChangeBody, ChangeRefused
from proxy.operate.changes.groups import need_ready
from proxy.operate.changes.steps import (
    CANCELS_MAX,
    OUTCOMES,
    MessageName,
    by_owner,
    named_in_kafka,
    run_steps,
    topics_of,
)
from proxy.operate.lookups.waiting_in_kafka import NamedInKafka, WaitingInKafka
from proxy.operate.moments import moment_text
from proxy.operate.views.changes import CancelResult, CancelsResult

_RECORDS_MAX = 256
UNKNOWN = "unknown: no delay level has this message, or its records were deleted (`timers list` shows timed messages)"


class DelayCancelBody(ChangeBody, frozen=True):
    """Messages to cancel."""

    messages: Annotated[list[MessageName], msgspec.Meta(min_length=1, max_length=CANCELS_MAX)]


def delay_changes(node: Node) -> list[Change]:
    """Return the changes of delayed messages."""
    return [
        Change(
            name="cancel_delays",
            path="/api/delays/cancel",
            action=Permission.OPERATE,
            on=lambda body: topics_of(body.messages),
            run=partial(_cancel, node),
            body=DelayCancelBody,
        )
    ]


async def _cancel(node: Node, body: DelayCancelBody) -> CancelsResult:
    opened = need_ready(node)
    results: list[CancelResult] = []
    in_kafka = WaitingInKafka(node.in_force.config, node.parts.kafka.waiting)
    # All are looked for before the first is cancelled: what is refused has changed nothing.
    looked = [
        (name.id, named_in_kafka(in_kafka, name.id, name.topic) or await _look(opened.store, name))
        for name in body.messages
    ]
    for name, found in looked:
        if isinstance(found, NamedInKafka):
            results.append(await by_owner(in_kafka.change(found)))
            continue
        topic, record = found
        outcome = CancelEffect.UNKNOWN
        if topic:
            outcome = await run_steps(opened.delays.cancelling(topic, name))
        results.append(await _reported(opened, name, topic, record, outcome))
    return CancelsResult(results=results)


async def _look(store: Store, name: MessageName) -> tuple[str, LogMessage | None]:
    """Topic of a message, "" when nothing waits or waited under its id, and its newest record in a level."""
    found = []
    for where in (SCHEDULE_TOPIC, CANCEL_TOPIC):
        if where in store.topics:
            found += await run_steps(run_query(by_unique_key(store, where, name.id, limit=_RECORDS_MAX)))
    topics = sorted({each.properties.get("REAL_TOPIC", "") for each in found})
    if name.topic is None and len(topics) > 1:
        text = f"{name.id}: messages of several topics have this id ({', '.join(topics)}); pass the topic."
        raise ChangeRefused(400, text)
    topic = name.topic or (topics[0] if topics else "")
    mine = [each for each in found if each.topic == SCHEDULE_TOPIC and each.properties.get("REAL_TOPIC") == topic]
    return topic, max(mine, key=lambda each: each.physical, default=None)


async def _reported(
    opened: Opened, name: str, topic: str, record: LogMessage | None, outcome: CancelEffect
) -> CancelResult:
    due_ms = None if record is None else _due_ms(opened.delays, record)
    due = "" if due_ms is None else f"; it was due at {moment_text(due_ms)}"
    text = {CancelEffect.CANCELLED: f"cancelled{due}", CancelEffect.UNKNOWN: UNKNOWN}.get(outcome)
    if text is None:
        text = f"too late: {await _delivered(opened.store, name, topic)}"
    return CancelResult(id=name, topic=topic, outcome=OUTCOMES[outcome], due_ms=due_ms, text=f"{name}: {text}")


async def _delivered(store: Store, name: str, topic: str) -> str:
    """When and where a message was delivered."""
    found = []
    if topic in store.topics:
        found = await run_steps(run_query(by_unique_key(store, topic, name, limit=1)))
    if not found:
        return "it was delivered, and its record was deleted"
    [one] = found
    return f"delivered at {moment_text(one.store_ms)}: topic {topic}, queue {one.queue_id}, offset {one.offset}"


def _due_ms(delays: Delays, record: LogMessage) -> int | None:
    """When it is due, as its unit says; None of one whose unit is gone."""
    level = delays.levels.get(record.queue_id + 1)
    if level is None or not level.queue.min_offset <= record.offset < level.queue.max_offset:
        return None
    [(_, _, due_ms)] = level.queue.read(record.offset, 1)
    return due_ms
