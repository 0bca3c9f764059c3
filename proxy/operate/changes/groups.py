"""What an operator may do to groups through the admin port: pause and resume, and end stuck messages by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeVar

import msgspec

from broker.log.durability import AwaitedSteps, saved
from broker.queues.topics import retry_topic
from broker.runtime.file_writes import Steps
from lag.samples import EventKind
from proxy.access.rules import Permission
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.operate.changes.desk import ASKER, Change, ChangeBody, ChangeRefused
from proxy.operate.changes.steps import durable, run_steps
from proxy.operate.views.changes import HeadResult, PauseResult
from proxy.recording.in_force import InForce
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.pauses import PauseConflict
from upstream.job import UpstreamJob, text_of
from upstream.operate import heads
from upstream.operate.heads import Handled, Head, HeadRefused
from upstream.state import JobState

Result = TypeVar("Result")
QueueId = Annotated[int, msgspec.Meta(ge=0)]
Offset = Annotated[int, msgspec.Meta(ge=0)]


class PauseBody(ChangeBody, frozen=True):
    """A group, or one topic of it."""

    group: str
    topic: str | None = None


class HeadBody(ChangeBody, frozen=True):
    """A message of a group, as the operator saw it; `key` is checked when given, `force` takes it from who has it."""

    group: str
    topic: str
    queue: QueueId
    offset: Offset
    key: str | None = None
    force: bool = False


def group_changes(node: Node) -> list[Change]:
    """Return the changes of groups."""
    desk = _Groups(node)
    of_group = partial(Change, action=Permission.OPERATE, on=lambda body: (body.group,))
    return [
        of_group(name="pause", path="/api/groups/pause", body=PauseBody, run=desk.pause),
        of_group(name="resume", path="/api/groups/resume", body=PauseBody, run=desk.resume),
        of_group(name="retry_message", path="/api/groups/retry", body=HeadBody, run=desk.retry),
        of_group(name="skip_message", path="/api/groups/skip", body=HeadBody, run=desk.skip),
        of_group(name="dead_letter_message", path="/api/groups/dead-letter", body=HeadBody, run=desk.dead_letter),
    ]


def need_ready(node: Node) -> Opened:
    """Return what a node has open; refuse changes while it starts, drains or has failed.

    Raises:
        ChangeRefused: It does (503).
    """
    opened = node.opened
    if opened is None or node.state != "ready":
        why = node.failure or "Try again when /readyz reports ready."
        raise ChangeRefused(503, f"The node is {node.state}. {why}")
    return opened


def group_of(in_force: InForce, name: str) -> ConsumerGroup:
    """Return a configured group.

    Raises:
        ChangeRefused: There is none of that name (404), or it has been taken out and still drains (409).
    """
    group = in_force.groups.get(name)
    if group is None:
        if in_force.leaving_group(name) is not None:
            raise ChangeRefused(409, f"Group {name} was removed from the configuration and still drains.")
        raise ChangeRefused(404, f"Group {name!r} does not exist; `pyddmq groups` lists all groups.")
    return group


def need_topic(group: ConsumerGroup, topic: str) -> None:
    """Refuse a topic that a group does not subscribe.

    Raises:
        ChangeRefused: It does not (404).
    """
    if not group.has_topic(topic):
        known = ", ".join(group.topic_names()) or "none"
        raise ChangeRefused(404, f"Group {group.name} does not subscribe to topic {topic!r}; it has: {known}.")


class _Groups:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def pause(self, body: PauseBody) -> PauseResult:
        opened = self._checked(body)
        writing = opened.pauses.pausing(body.group, body.topic, who=ASKER.get())
        return await self._keep(EventKind.PAUSE, body, opened, writing)

    async def resume(self, body: PauseBody) -> PauseResult:
        opened = self._checked(body)
        try:
            return await self._keep(EventKind.RESUME, body, opened, opened.pauses.resuming(body.group, body.topic))
        except PauseConflict as conflict:
            raise ChangeRefused(409, str(conflict)) from conflict

    async def _keep(self, kind: EventKind, body: PauseBody, opened: Opened, writing: Steps[bool]) -> PauseResult:
        """Have pauses written, beside the loop; they hold for the group from then on."""
        node, paused = self._node, []
        changed = await run_steps(_written(saved(opened.store.writes, writing)))
        if changed:
            node.recording.recorder.notes.add(kind, body.group, body.topic or "", detail=f"by {ASKER.get()}")
        # A reload may have taken it out while the pause was written.
        if (group := node.in_force.groups.get(body.group)) is not None:
            group.apply_pauses()
            paused = [name for name in group.topic_names() if opened.pauses.of(body.group, name) is not None]
        node.turns.request()
        return PauseResult(group=body.group, changed=changed, paused_topics=paused)

    def _checked(self, body: PauseBody) -> Opened:
        opened = need_ready(self._node)
        group = group_of(self._node.in_force, body.group)
        if body.topic is not None:
            need_topic(group, body.topic)
        return opened

    async def retry(self, body: HeadBody) -> HeadResult:
        opened, group, head = self._head(body)
        clock = self._node.runtime.clock
        handled = _handle(lambda: heads.retry_now(head, force=body.force, progress=group.node.progress, clock=clock))
        await durable(opened)
        return _handled(head.job, handled)

    def skip(self, body: HeadBody) -> HeadResult:
        opened, group, head = self._head(body)
        # Its key continues in this turn, and only with what is durable: the loop waits for the disk.
        handled = _handle(lambda: heads.skip(head, force=body.force, progress=group.node.progress))
        self._node.turns.make_durable(opened)
        return _handled(head.job, handled)

    async def dead_letter(self, body: HeadBody) -> HeadResult:
        opened, _, head = self._head(body)
        handled = _handle(lambda: heads.dead_letter(head, force=body.force, who=ASKER.get()))
        await durable(opened)
        if head.job.state is JobState.BURYING:
            text = (
                "The store does not accept the dead letter now, for example on a full disk. The node "
                "retries every second and the key waits; `skip` ends the wait."
            )
            raise ChangeRefused(503, text)
        return _handled(head.job, handled)

    def _head(self, body: HeadBody) -> tuple[Opened, ConsumerGroup, Head]:
        opened = need_ready(self._node)
        group = group_of(self._node.in_force, body.group)
        if body.topic != retry_topic(group.name):
            need_topic(group, body.topic)
        group_queue = group.group_queue(body.topic, body.queue, body.offset)
        if group_queue is None:
            raise ChangeRefused(404, f"Topic {body.topic} has no queue {body.queue}, or the group has not started it.")
        return opened, group, _handle(lambda: heads.find_head(group, group_queue, body.offset, key=body.key))


def _written(steps: AwaitedSteps[bool]) -> AwaitedSteps[bool]:
    try:
        return (yield from steps)
    except OSError as error:
        why = error.strerror or error
        text = (
            f"The change could not be written ({why}). It is not in force here, but may be after a restart; check then."
        )
        raise ChangeRefused(503, text) from error


def _handle(act: Callable[[], Result]) -> Result:
    try:
        return act()
    except HeadRefused as refusal:
        raise ChangeRefused(409, str(refusal)) from refusal


def _handled(job: UpstreamJob, handled: Handled) -> HeadResult:
    return HeadResult(
        changed=handled.changed,
        text=handled.text,
        topic=job.topic,
        queue=job.queue_id,
        offset=job.offset,
        key=text_of(job.key),
    )
