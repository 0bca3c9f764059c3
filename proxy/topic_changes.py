"""Topics made, widened and deleted through the admin port; what the store does stands in `broker.topic_changes`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from broker.errors import MessageRefused
from broker.topics import DEAD_LETTER_PREFIX, QUEUES_MAX, Topic, is_system
from proxy.admin.changes import Change, ChangeBody, ChangeRefused, Document
from proxy.group_changes import need_ready
from proxy.node import Node

Queues = Annotated[int, msgspec.Meta(ge=1, le=QUEUES_MAX)]


class TopicBody(ChangeBody, frozen=True):
    """A topic and how many queues it is to have."""

    topic: str
    queues: Queues


class DeletionBody(ChangeBody, frozen=True):
    """A topic, its name once more, and whether one that the configuration lists is to be emptied."""

    topic: str
    confirm: str
    force: bool = False


def topic_changes(node: Node) -> list[Change]:
    """Return the changes of topics."""
    desk = _Topics(node)
    return [
        Change(name="create_topic", path="/api/topics", body=TopicBody, run=desk.create),
        Change(name="alter_topic", path="/api/topics/alter", body=TopicBody, run=desk.alter),
        Change(name="delete_topic", path="/api/topics", method="DELETE", body=DeletionBody, run=desk.delete),
    ]


class _Topics:
    def __init__(self, node: Node) -> None:
        self._node = node

    def create(self, body: TopicBody) -> Document:
        node = self._node
        need_ready(node)
        if body.topic in node.store.topics:
            raise ChangeRefused(409, f"There is a topic {body.topic} already; `pyddmq topics alter` gives it queues.")
        if is_system(body.topic):
            raise ChangeRefused(400, f"{body.topic} is a name of the broker's own; choose another.")
        try:
            topic = node.store.create_topic(body.topic, body.queues)
        except MessageRefused as error:
            raise ChangeRefused(400, f"{error}.") from error
        node.store.topic_changes.serve(body.topic)
        node.ports.publish(node.config)
        return _state(topic)

    def alter(self, body: TopicBody) -> Document:
        node = self._node
        need_ready(node)
        topic = self._found(body.topic)
        if topic.system:
            raise ChangeRefused(409, f"{body.topic} is a topic of the broker's own; it keeps its queues.")
        if body.queues < len(topic.queues):
            text = (
                f"Topic {body.topic} has {len(topic.queues)} queues and can only get more: messages of queues that go "
                "would be lost to all groups, and keys would move to other queues."
            )
            raise ChangeRefused(409, text)
        settings = node.config.topics.get(body.topic)
        if settings is not None and settings.queues is not None and settings.queues < body.queues:
            text = (
                f"The configuration says topics.{body.topic}.queues: {settings.queues}. Say {body.queues} there and "
                "reload; otherwise the next reload would be refused."
            )
            raise ChangeRefused(409, text)
        node.store.create_topic(body.topic, body.queues)
        node.ports.publish(node.config)
        return _state(topic)

    def delete(self, body: DeletionBody) -> Document:
        node = self._node
        need_ready(node)
        topic = self._found(body.topic)
        if body.confirm != body.topic:
            raise ChangeRefused(400, f"Not confirmed: `confirm` must be the topic's name, {body.topic!r}.")
        self._refuse_needed(topic)
        listed = body.topic in node.config.topics
        if listed and not body.force:
            text = (
                f"The configuration lists topic {body.topic}: take it out and reload first, or say force; then it is "
                "emptied, and there again at once."
            )
            raise ChangeRefused(409, text)
        messages = sum(queue.max_offset - queue.min_offset for queue in topic.queues)
        node.store.topic_changes.delete(body.topic)
        node.ports.publish(node.config)
        return {"topic": body.topic, "deleted": not listed, "emptied": listed, "messages": messages}

    def _refuse_needed(self, topic: Topic) -> None:
        """Refuse the deletion of what a group or the broker works with."""
        node = self._node
        for group in (*node.groups.values(), *node.leaving):
            if any(each.topic == topic.name for each in group.config.topics):
                text = f"Group {group.name} subscribes topic {topic.name}: take the subscription out and reload first."
                raise ChangeRefused(409, text)
        if topic.name.startswith(DEAD_LETTER_PREFIX):
            name = topic.name.removeprefix(DEAD_LETTER_PREFIX)
            if name in node.groups or any(group.name == name for group in node.leaving):
                raise ChangeRefused(409, f"Group {name} puts its dead letters there: take the group out first.")
        elif topic.system:
            raise ChangeRefused(409, f"{topic.name} is a topic of the broker's own; it cannot be deleted.")

    def _found(self, name: str) -> Topic:
        topic = self._node.store.topics.get(name)
        if topic is None:
            raise ChangeRefused(404, f"There is no topic {name!r}; `pyddmq topics` lists all.")
        return topic


def _state(topic: Topic) -> Document:
    queues = [{"queue": queue.queue_id, "min": queue.min_offset, "max": queue.max_offset} for queue in topic.queues]
    return {"topic": topic.name, "queues": queues}
