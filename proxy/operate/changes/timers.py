"""What an operator may do to timers through the admin port: cancel, reschedule, and halt the stages of their work."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from broker.log.durability import AwaitedSteps
from broker.query import QueryRefused
from broker.runtime.async_steps import run_async
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring.cancel import cancelling_delay
from broker.scheduled.timer.cancel import Rescheduled
from broker.scheduled.timer.handle import RecallHandle
from broker.scheduled.timer.names import slot_of
from broker.scheduled.timer.puts import TimedPuts
from broker.scheduled.timer.stages import TimerPipelineStage
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from conf.moments import check_moment
from proxy.access.rules import EVERYTHING, NODE, Permission
from proxy.node.node import Node
from proxy.operate.changes.desk import Change, ChangeBody, ChangeRefused
from proxy.operate.changes.groups import need_ready
from proxy.operate.changes.steps import (
    CANCELS_MAX,
    OUTCOMES,
    MessageName,
    Name,
    by_owner,
    named_in_kafka,
    run_steps,
    topics_of,
)
from proxy.operate.lookups.timer_lookup import UNKNOWN, TimerLookup, TimerState
from proxy.operate.lookups.waiting_in_kafka import NamedInKafka, WaitingInKafka
from proxy.operate.moments import moment_text
from proxy.operate.views.changes import CancelResult, CancelsResult, RescheduleResult, StagesResult

RESCHEDULED_BEFORE = "rescheduledBefore"
"""Outcome for an id that a timer had before it was given another moment: nothing was changed."""


class TimerCancelBody(ChangeBody, frozen=True):
    """Timers to cancel."""

    timers: Annotated[list[MessageName], msgspec.Meta(min_length=1, max_length=CANCELS_MAX)]


class RescheduleBody(ChangeBody, frozen=True):
    """A timer, and the moment that it is to have, ms since the epoch."""

    id: Name
    deliver_at_ms: int
    topic: str | None = None

    def __post_init__(self) -> None:
        check_moment(self.deliver_at_ms)


class StageBody(ChangeBody, frozen=True):
    """A stage by its name, or `all`."""

    stage: str


def timer_changes(node: Node) -> list[Change]:
    """Return the changes of timers."""
    desk = _Timers(node)
    of_topics = partial(Change, action=Permission.OPERATE)
    of_node = partial(Change, action=Permission.ADMINISTER, on=lambda _: (NODE,))
    return [
        of_topics(
            name="cancel_timers",
            path="/api/timers/cancel",
            on=lambda body: topics_of(body.timers),
            body=TimerCancelBody,
            run=desk.cancel,
        ),
        of_topics(
            name="reschedule_timer",
            path="/api/timers/reschedule",
            on=lambda body: (body.topic or EVERYTHING,),
            body=RescheduleBody,
            run=desk.reschedule,
        ),
        of_node(name="pause_timers", path="/api/timers/pause", body=StageBody, run=desk.pause),
        of_node(name="resume_timers", path="/api/timers/resume", body=StageBody, run=desk.resume),
    ]


class _Timers:
    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def _in_kafka(self) -> WaitingInKafka:
        return WaitingInKafka(self._node.in_force.config, self._node.parts.kafka.waiting)

    async def cancel(self, body: TimerCancelBody) -> CancelsResult:
        opened = need_ready(self._node)
        # All are looked for before the first is cancelled: what is refused has changed nothing.
        looked = [await self._named(opened.store, name) for name in body.timers]
        results: list[CancelResult] = []
        for found in looked:
            if isinstance(found, NamedInKafka):
                results.append(await by_owner(self._in_kafka.change(found)))
                continue
            outcome = CancelEffect.UNKNOWN
            if found.topic:
                outcome = await run_steps(_cancelling(opened.timers, found))
            results.append(await self._reported(opened.store, found, outcome))
        return CancelsResult(results=results)

    async def _named(self, store: Store, name: MessageName) -> NamedInKafka | TimerLookup:
        return named_in_kafka(self._in_kafka, name.id, name.topic) or await self._look(store, name.id, name.topic)

    async def _reported(self, store: Store, found: TimerLookup, outcome: CancelEffect) -> CancelResult:
        """Say what a cancel did; of one that came too late also when and where the message was delivered."""
        if outcome is CancelEffect.TOO_LATE and found.delivery is None:
            # It was delivered in the very turn of the cancel.
            found = await self._look(store, found.unique_key, found.topic)
        moved = outcome is CancelEffect.CANCELLED and found.state is TimerState.RESCHEDULED
        due = "" if found.due_ms is None else f"; it was due at {moment_text(found.due_ms)}"
        text = {
            CancelEffect.CANCELLED: found.text() if moved else f"cancelled{due}",
            CancelEffect.TOO_LATE: f"too late: {found.text()}",
            CancelEffect.UNKNOWN: UNKNOWN,
        }[outcome]
        return CancelResult(
            id=found.unique_key,
            topic=found.topic,
            outcome=RESCHEDULED_BEFORE if moved else OUTCOMES[outcome],
            due_ms=found.due_ms,
            new_id=found.successor.unique_key if moved and found.successor is not None else None,
            text=f"{found.unique_key}: {text}",
        )

    async def reschedule(self, body: RescheduleBody) -> RescheduleResult:
        opened = need_ready(self._node)
        if (named := named_in_kafka(self._in_kafka, body.id, body.topic)) is not None:
            return await by_owner(self._in_kafka.change(named, body.deliver_at_ms))
        found = await self._look(opened.store, body.id, body.topic)
        rescheduled = Rescheduled(CancelEffect.UNKNOWN, "")
        if found.topic:
            rescheduled = await run_steps(opened.timers.rescheduling(found.topic, found.unique_key, body.deliver_at_ms))
        outcome, new_id = rescheduled
        if outcome is CancelEffect.CANCELLED and not new_id and found.occurrence and found.delivery:
            # A move to a moment that was over has delivered it, and DDMQ's id is that of the message.
            outcome = CancelEffect.TOO_LATE
        reported = asdict(await self._reported(opened.store, found, outcome))
        if not new_id:
            return RescheduleResult(**reported)
        text = f"{found.unique_key}: rescheduled to {moment_text(body.deliver_at_ms)}"
        handle = self._handle(opened.store, found.topic, new_id, body.deliver_at_ms)
        reported |= {"outcome": "rescheduled", "text": text, "new_id": new_id}
        return RescheduleResult(**reported, handle=handle)

    def _handle(self, store: Store, topic: str, unique_key: str, due_ms: int) -> str:
        slot = slot_of(due_ms, store.waiting(TimedPuts).options.precision_ms)
        return str(RecallHandle(topic, self._node.in_force.config.node.broker_name, slot + 1, unique_key))

    async def _look(self, store: Store, name: str, topic: str | None) -> TimerLookup:
        try:
            found = TimerLookup(store, name, topic, broker_name=self._node.in_force.config.node.broker_name)
            await run_async(found.steps())
        except QueryRefused as refusal:
            raise ChangeRefused(400, f"{name}: {refusal}.") from refusal
        return found

    def pause(self, body: StageBody) -> StagesResult:
        timers, stages = self._stages(body)
        changed = any(timers.stages.runs(stage) for stage in stages)
        for stage in stages:
            timers.pause(stage)
        return _paused(timers, changed)

    def resume(self, body: StageBody) -> StagesResult:
        timers, stages = self._stages(body)
        changed = not all(timers.stages.runs(stage) for stage in stages)
        for stage in stages:
            timers.resume(stage)
        return _paused(timers, changed)

    def _stages(self, body: StageBody) -> tuple[Timers, list[TimerPipelineStage]]:
        timers = need_ready(self._node).timers
        if body.stage == "all":
            return timers, list(TimerPipelineStage)
        try:
            return timers, [TimerPipelineStage(body.stage)]
        except ValueError:
            names = ", ".join(stage.value for stage in TimerPipelineStage)
            raise ChangeRefused(404, f"Stage {body.stage!r} does not exist; use one of {names}, or all.") from None


def _cancelling(timers: Timers, found: TimerLookup) -> AwaitedSteps[CancelEffect]:
    if found.occurrence is None:
        return timers.cancelling(found.topic, found.unique_key)
    return cancelling_delay(timers, found.topic, found.occurrence)


def _paused(timers: Timers, changed: bool) -> StagesResult:
    paused = timers.stages.paused
    return StagesResult(changed=changed, paused_stages=[stage.value for stage in TimerPipelineStage if stage in paused])
