"""Moving a group's offsets through the admin port: shown first (dry run), then done for all queues in one piece.

A running subscription is drained first, as by a reload: nothing more is handed out, what is out is answered or times
out, and so no key runs twice at once. Then the positions are reset, durably, in one new segment of the ack journal
(D10), and a new generation reads on from there. With `force` it waits for no client. However a reset ends, its topic is
read and handed out again; other changes are made while it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from broker.queues.topics import retry_topic
from conf.moments import check_moment
from lag.samples import EventKind
from proxy.access.rules import Permission
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.operate.changes.desk import ASKER, Change, ChangeBody, ChangeRefused, others_first
from proxy.operate.changes.groups import QueueId, need_ready
from proxy.operate.views.changes import ResetResult
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.subscription import Subscription
from upstream.embedded.queues import EmbeddedQueues
from upstream.operate.positions import (
    PositionTarget,
    PositionUnknown,
    TargetRefused,
    plan_move,
    plan_moves,
    trackers_of,
)
from upstream.progress.progress import Progress
from upstream.progress.tracker import OffsetTracker
from upstream.source import Times
from upstream.views import Move

WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.02
_KAFKA_SECONDS = 15.0
"""A question to Kafka waits 5 s for its answer, behind others."""


class ResetBody(ChangeBody, frozen=True):
    """Where to move a group on a topic, or on one queue of it: exactly one of the targets is given."""

    group: str
    topic: str
    queue: QueueId | None = None
    to: Literal["earliest", "latest"] | None = None
    to_offset: Annotated[int, msgspec.Meta(ge=0)] | None = None
    to_time_ms: int | None = None
    shift_by: int | None = None
    dry_run: bool = True
    force: bool = False
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=300)] = WAIT_SECONDS

    def __post_init__(self) -> None:
        if self.to_time_ms is not None:
            check_moment(self.to_time_ms)

    @property
    def target(self) -> PositionTarget:
        """The target asked for."""
        return PositionTarget(offset=self.to_offset, time_ms=self.to_time_ms, shift=self.shift_by, end=self.to)


def offset_changes(node: Node) -> list[Change]:
    """Return the changes of offsets."""
    desk = _Offsets(node)
    return [
        Change(
            name="reset_offsets",
            path="/api/offsets/reset",
            action=Permission.OPERATE,
            on=lambda body: (body.group,),
            run=desk.reset,
            body=ResetBody,
        )
    ]


class _Offsets:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: set[tuple[str, str]] = set()
        """Groups and topics for which a reset waits."""

    async def reset(self, body: ResetBody) -> ResetResult:
        opened = need_ready(self._node)
        if not body.target.is_one:
            raise ChangeRefused(400, "Pass exactly one of toOffset, toTimeMs, to (earliest, latest), shiftBy.")
        if body.topic == retry_topic(body.group) and self._reads_retries(body.group):
            text = (
                f"Group {body.group} also reads its retry topic and cannot be reset there while it runs. "
                "Use `groups retry`, `skip` or `dead-letter`, or `offsets reset --data` while the node is "
                "stopped."
            )
            raise ChangeRefused(409, text)
        trackers = self._trackers(body, opened)
        found = await self._found_in_kafka(body)
        if found is not None:
            # While the cluster was asked, partitions may have come or gone.
            trackers = self._trackers(body, opened)
        moves = self._plan(trackers, body, opened, found)
        group = self._node.in_force.groups.get(body.group)
        if body.dry_run or not any(move.changes for move in moves):
            return self._result(body, moves, group, changed=False)
        if (body.group, body.topic) in self._waiting:
            raise ChangeRefused(
                409, f"Another reset of {body.group} on {body.topic} is running; try again when it has finished."
            )
        if group is None or not group.has_topic(body.topic):
            return self._result(body, self._move(trackers, body, opened, found), group, changed=True)
        done: list[Move] = []
        self._waiting.add((body.group, body.topic))
        try:
            await self._drain(group, body)
            # Planned again: while it drained, the group continued.
            group.restart_topic(body.topic, lambda: done.extend(self._move(trackers, body, opened, found)))
        finally:
            self._waiting.discard((body.group, body.topic))
            # What drains still was not started again: nothing was reset.
            group.undrain_topic(body.topic)
        self._node.turns.request()
        return self._result(body, done, group, changed=True)

    def _reads_retries(self, name: str) -> bool:
        """Whether a group that runs reads its retry topic."""
        configured = self._node.in_force.config.groups.values()
        return any(each.group == name and any(topic.retry_topic for topic in each.topics) for each in configured)

    def _read_by(self, group: str, opened: Opened) -> tuple[Progress, Times]:
        """The trackers and queues of a group: of one that reads from Kafka its own, of all others the store's."""
        kafka = self._node.parts.kafka_groups.of(group)
        return (opened.progress, EmbeddedQueues(opened.store)) if kafka is None else (kafka.progress, kafka)

    def _trackers(self, body: ResetBody, opened: Opened) -> Mapping[int, OffsetTracker]:
        """The group's trackers on the topic by queue."""
        if self._node.in_force.leaving_group(body.group) is not None:
            raise ChangeRefused(409, f"Group {body.group} was removed and still drains; try again when it has drained.")
        try:
            progress, times = self._read_by(body.group, opened)
            unread = opened.store.topics.get(body.topic) if body.topic == retry_topic(body.group) else None
            if unread is not None and self._node.parts.kafka_groups.of(body.group) is None:
                # What RocketMQ's consumers failed waits there, of a group that may never have read it.
                for queue in unread.queues:
                    progress.tracker(body.group, body.topic, queue.queue_id, first_offset=lambda: 0)
            return trackers_of(progress, times, body.group, body.topic, body.queue)
        except PositionUnknown as unknown:
            raise ChangeRefused(404, str(unknown)) from unknown

    async def _found_in_kafka(self, body: ResetBody) -> Mapping[int, int] | None:
        """Ask Kafka where a moment is; None where there is nothing to ask. Raises ChangeRefused: it did not answer."""
        kafka = self._node.parts.kafka_groups.of(body.group)
        if body.to_time_ms is None or kafka is None:
            return None
        answer: asyncio.Future[Mapping[int, int] | None] = asyncio.get_running_loop().create_future()

        def reported(offsets: Mapping[int, int] | None) -> None:
            if not answer.done():
                answer.set_result(offsets)

        kafka.offsets_from(body.topic, body.to_time_ms, reported)
        found = None
        with contextlib.suppress(TimeoutError):
            async with others_first():
                found = await asyncio.wait_for(answer, _KAFKA_SECONDS)
        if found is None:
            raise ChangeRefused(
                503, "Kafka does not report an offset for that time; nothing was reset. Try again later."
            )
        return found

    def _plan(
        self, trackers: Mapping[int, OffsetTracker], body: ResetBody, opened: Opened, found: Mapping[int, int] | None
    ) -> list[Move]:
        if found is not None:
            return [plan_move(tracker, found[queue]) for queue, tracker in trackers.items() if queue in found]
        _, times = self._read_by(body.group, opened)
        try:
            return plan_moves(trackers, body.target, times)
        except TargetRefused as refusal:
            raise ChangeRefused(400, str(refusal)) from refusal

    def _move(
        self, trackers: Mapping[int, OffsetTracker], body: ResetBody, opened: Opened, found: Mapping[int, int] | None
    ) -> list[Move]:
        """Reset what has to be, all in one flush of the journal."""
        (progress, _), notes = self._read_by(body.group, opened), self._node.recording.recorder.notes
        # A partition of Kafka may have gone to another node while the topic drained.
        here = {
            queue: each
            for queue, each in trackers.items()
            if progress.trackers.get((each.group, each.topic, queue)) is each
        }
        moves = self._plan(here, body, opened, found)
        for move in moves:
            if move.changes:
                progress.reset(trackers[move.queue], move.to)
                detail = f"from {move.start} to {move.to} by {ASKER.get()}"
                notes.add(EventKind.RESET, body.group, body.topic, queue=move.queue, detail=detail)
        # The new generation reads on in this turn, and only from what is durable: the loop waits for the disk.
        self._node.turns.make_durable(opened)
        return moves

    async def _drain(self, group: ConsumerGroup, body: ResetBody) -> None:
        """Wait until nothing of the topic is out.

        Raises:
            ChangeRefused: Something still is after the time given, or things are otherwise by then (409), or the node
                takes no changes any more (503); then the topic is to continue as it was.
        """
        draining = group.drain_topic(body.topic)
        if draining is None or body.force:
            return
        async with others_first():
            drained = await self._is_drained(draining, body)
        if self._node.state == "failed":
            need_ready(self._node)
        if self._node.in_force.groups.get(body.group) is not group or not group.has_topic(body.topic):
            text = (
                f"{body.group} was removed, or no longer subscribes to {body.topic}; nothing was reset. Try "
                "again later."
            )
            raise ChangeRefused(409, text)
        if draining.outcomes.stopped or self._node.state != "ready":
            raise ChangeRefused(409, "The subscription was restarted during the reset; nothing was reset. Try again.")
        if not drained:
            text = (
                f"Messages of {body.topic} are still in flight with clients after {body.wait_seconds:g} s; "
                "nothing was reset. Pass more waitSeconds, stop the clients, or use force: then they may "
                "be processed concurrently with others of their key."
            )
            raise ChangeRefused(409, text)

    async def _is_drained(self, draining: Subscription, body: ResetBody) -> bool:
        """Wait until nothing is out, the time given is over, or nothing more is to be waited for; return which."""
        clock = self._node.runtime.clock
        deadline = clock.monotonic() + body.wait_seconds
        while not draining.drained:
            if draining.outcomes.stopped or self._node.state != "ready" or clock.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    def _result(self, body: ResetBody, moves: list[Move], group: ConsumerGroup | None, *, changed: bool) -> ResetResult:
        queues = [] if group is None else [each for each in group.group_queues() if each.topic == body.topic]
        out = {each.queue_id: each.in_flight for each in queues}
        return ResetResult(
            group=body.group,
            topic=body.topic,
            dry_run=body.dry_run,
            changed=changed,
            queues=[replace(move, in_flight=out.get(move.queue, 0)) for move in moves],
        )
