"""Topics made, widened, typed and deleted through the admin port; `broker.topic_changes` says what the store does."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec

from broker.errors import MessageRefused
from broker.format.message_type import MessageType
from broker.queues.topics import DEAD_LETTER_PREFIX, QUEUES_MAX, Topic, is_system
from broker.runtime.steps import run_now
from broker.store import Store
from proxy.access.rules import NODE, Permission
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.node.views import by_group
from proxy.operate.changes.desk import Change, ChangeBody, ChangeRefused
from proxy.operate.changes.groups import need_ready
from proxy.operate.changes.steps import run_steps
from proxy.operate.lookups.in_kafka import InKafka
from proxy.operate.views.changes import DeletionResult, TopicResult
from proxy.operate.views.topics import ranges

Queues = Annotated[int, msgspec.Meta(ge=1, le=QUEUES_MAX)]


class TopicBody(ChangeBody, frozen=True):
    """A topic, how many queues it is to have, and maybe its message type."""

    topic: str
    queues: Queues
    message_type: MessageType | None = None


class TopicAlteration(ChangeBody, frozen=True):
    """A topic and what of it changes; None stays as it is."""

    topic: str
    queues: Queues | None = None
    message_type: MessageType | None = None


class DeletionBody(ChangeBody, frozen=True):
    """A topic, its name once more, and whether one that the configuration lists is to be emptied."""

    topic: str
    confirm: str
    force: bool = False


def topic_changes(node: Node) -> list[Change]:
    """Return the changes of topics."""
    desk = _Topics(node)
    # The list of topics concerns all users: the right to operate one is not enough to create or delete topics.
    of_node = partial(Change, action=Permission.ADMINISTER, on=lambda _: (NODE,))
    return [
        of_node(name="create_topic", path="/api/topics", body=TopicBody, run=desk.create),
        of_node(name="alter_topic", path="/api/topics/alter", body=TopicAlteration, run=desk.alter),
        of_node(name="delete_topic", path="/api/topics", method="DELETE", body=DeletionBody, run=desk.delete),
    ]


class _Topics:
    def __init__(self, node: Node) -> None:
        self._node = node

    def create(self, body: TopicBody) -> TopicResult:
        opened = need_ready(self._node)
        store = opened.store
        if body.topic in store.topics:
            raise ChangeRefused(409, f"Topic {body.topic} already exists; `pyddmq topics alter` adds queues.")
        self._check_not_in_kafka(body.topic)
        if is_system(body.topic):
            raise ChangeRefused(400, f"{body.topic} is reserved by the broker; choose another name.")
        try:
            topic = store.create_topic(body.topic, body.queues)
        except MessageRefused as error:
            raise ChangeRefused(400, f"{error}.") from error
        if body.message_type is not None:
            store.topic_changes.set_types({body.topic: body.message_type})
        store.topic_changes.serve(body.topic)
        opened.ports.publish(self._node.in_force.config)
        return _state(topic)

    def alter(self, body: TopicAlteration) -> TopicResult:
        opened = need_ready(self._node)
        store = opened.store
        topic = self._found(body.topic, store)
        if body.queues is None and body.message_type is None:
            raise ChangeRefused(400, "Nothing to change: pass `queues`, `messageType` or both.")
        if topic.system:
            raise ChangeRefused(409, f"{body.topic} is an internal topic of the broker; it cannot be changed.")
        if body.queues is not None:
            self._check_queues(topic, body.queues)
        if body.message_type is not None:
            self._check_type(topic, body.message_type)
        if body.queues is not None:
            store.create_topic(body.topic, body.queues)
        if body.message_type is not None:
            store.topic_changes.set_types({body.topic: body.message_type})
        opened.ports.publish(self._node.in_force.config)
        return _state(topic)

    def _check_queues(self, topic: Topic, queues: int) -> None:
        """Refuse fewer queues than there are, and more than the configuration says."""
        name = topic.name
        if queues < len(topic.queues):
            text = (
                f"Topic {name} has {len(topic.queues)} queues, and the number can only grow: messages of "
                "removed queues would be lost to all groups, and keys would move to other queues."
            )
            raise ChangeRefused(409, text)
        settings = self._node.in_force.config.topics.get(name)
        if settings is not None and settings.queues is not None and settings.queues < queues:
            text = (
                f"The configuration has topics.{name}.queues: {settings.queues}. Change it to {queues} and "
                "reload; otherwise the next reload would be refused."
            )
            raise ChangeRefused(409, text)

    def _check_type(self, topic: Topic, wanted: MessageType) -> None:
        """Refuse another type than the configuration says."""
        settings = self._node.in_force.config.topics.get(topic.name)
        if settings is not None and settings.message_type not in (None, wanted):
            text = (
                f"The configuration has topics.{topic.name}.messageType: {settings.message_type}. Change it "
                f"to {wanted} and reload; otherwise the next reload would undo the change."
            )
            raise ChangeRefused(409, text)

    async def delete(self, body: DeletionBody) -> DeletionResult:
        opened, in_force = need_ready(self._node), self._node.in_force
        topic = self._found(body.topic, opened.store)
        if body.confirm != body.topic:
            losses = opened.retaining.losses_with(body.topic)
            unfinished = f" Unfinished: {by_group(losses)}." if losses else ""
            text = f"Not confirmed: `confirm` must be the topic's name, {body.topic!r}.{unfinished}"
            raise ChangeRefused(400, text)
        self._refuse_needed(topic, opened)
        listed = body.topic in in_force.config.topics
        if listed and not body.force:
            text = (
                f"The configuration lists topic {body.topic}: remove it there and reload first, or pass "
                "force; then the topic is emptied, and continues to exist."
            )
            raise ChangeRefused(409, text)
        messages = 0

        def last_look() -> None:
            # While it waited for the disk a reload may have come, and messages.
            nonlocal messages
            self._refuse_needed(topic, opened)
            messages = sum(queue.max_offset - queue.min_offset for queue in topic.queues)
            opened.ports.close(body.topic)

        steps = opened.store.topic_changes.deleting(body.topic, before=last_look)
        try:
            if listed:
                # It is there again in the same turn, so that no publish finds it gone; the loop waits for the disk.
                run_now(steps)
            else:
                await run_steps(steps)
        finally:
            if self._node.state == "ready":
                opened.ports.publish(in_force.config)
        return DeletionResult(topic=body.topic, deleted=not listed, emptied=listed, messages=messages)

    def _refuse_needed(self, topic: Topic, opened: Opened) -> None:
        """Refuse the deletion of what a group or the broker works with."""
        in_force = self._node.in_force
        self._node.let_drained_go(opened.progress)
        for group in in_force.groups.values():
            if any(each.topic == topic.name for each in group.config.topics):
                text = f"Group {group.name} subscribes to topic {topic.name}; remove the subscription and reload first."
                raise ChangeRefused(409, text)
        for group in in_force.all_groups():
            if group.works_on(topic.name):
                out = sum(each.in_flight for each in group.stats().topics if each.topic == topic.name)
                text = (
                    f"Group {group.name} no longer subscribes to topic {topic.name}, but {out} of its "
                    "messages are in flight with clients; try again when they are answered or timed out."
                )
                raise ChangeRefused(409, text)
        if topic.name.startswith(DEAD_LETTER_PREFIX):
            name = topic.name.removeprefix(DEAD_LETTER_PREFIX)
            if name in in_force.groups:
                raise ChangeRefused(409, f"Group {name} writes its dead letters there; remove the group first.")
            if in_force.leaving_group(name) is not None:
                raise ChangeRefused(409, f"Group {name} was removed and still drains; try again when it has drained.")
        elif topic.system:
            raise ChangeRefused(409, f"{topic.name} is an internal topic of the broker; it cannot be deleted.")

    def _found(self, name: str, store: Store) -> Topic:
        topic = store.topics.get(name)
        if topic is None:
            self._check_not_in_kafka(name)
            raise ChangeRefused(404, f"Topic {name!r} does not exist; `pyddmq topics` lists all topics.")
        return topic

    def _check_not_in_kafka(self, name: str) -> None:
        if (elsewhere := InKafka(self._node.in_force.config).topic(name)) is not None:
            raise ChangeRefused(409, elsewhere)


def _state(topic: Topic) -> TopicResult:
    return TopicResult(topic=topic.name, message_type=topic.message_type.value, queues=ranges(topic))
