"""A message published through the admin port: checked as a producer's, stored, followed by its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.query import at_offset
from broker.runtime.async_steps import run_async
from conf.loader import loads
from proxy.node.reload import Reloader
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.publish import PublishBody, publish_changes
from proxy.operate.live_node import LiveNode
from proxy.operate.lookups.message_way import WayStep, way
from proxy.operate.views.changes import PublishResult
from tests.insides import opened_of
from tests.patient import Consumer, until
from tests.running_node import RunningNode

YAML = """
topics:
  orders: {queues: 1}
  closed: {enabled: false}
groups:
  - group: billing
    topics: [{topic: orders, actions: [Async, PullServer], maxRetry: 0, retryIntervals: [60000]}]
"""


def publish(node: RunningNode, **fields: Any) -> PublishResult:
    """Publish as the admin port does, on the node's thread."""
    [change] = publish_changes(node.node)

    async def run() -> PublishResult:
        made: PublishResult = await change.run(PublishBody(**fields))  # type: ignore[misc]
        return made

    return node.wait_for(run())


def view_of(node: RunningNode) -> LiveNode:
    """Return what the admin port sees of a node."""
    return LiveNode(node.node, Reloader(node.node, lambda: loads(YAML)))


def steps_of(node: RunningNode, offset: int) -> list[tuple[str, str]]:
    """Return the way of a message of `orders`: what happened, and in which group."""

    async def run() -> list[WayStep]:
        message = at_offset(opened_of(node.node).store, "orders", 0, offset)
        groups = view_of(node).in_groups(topic="orders", queue=0, offset=offset)
        return list(await run_async(way(opened_of(node.node).store, message, groups)))

    return [(each.what, each.group) for each in node.wait_for(run())]


def test_message_is_published_and_its_way_is_shown(tmp_path: Path) -> None:
    """Sent and stored, ready, delivered, then finished as a dead letter."""
    with RunningNode(YAML, tmp_path) as node:
        made = publish(node, topic="orders", body="{}", key="k1", tag="t", properties={"colour": "red"})
        assert (made.queue, made.offset) == (0, 0)
        assert ("stored", "") in steps_of(node, 0)
        with Consumer(node.consumer, "billing") as consumer:
            [message] = consumer.pull(patience_ms=5_000)
            assert (message.key, message.properties["colour"]) == ("k1", "red")
            assert steps_of(node, 0)[-1] == ("delivered", "billing")
            consumer.fail(message)
        until(lambda: ("failed", "billing") in steps_of(node, 0), "its failure")


def test_message_with_a_delay_waits_without_a_place(tmp_path: Path) -> None:
    """Its id finds it; it has no queue and no offset yet."""
    with RunningNode(YAML, tmp_path) as node:
        made = publish(node, topic="orders", body="{}", delay_ms=3_600_000)
        assert (made.queue, made.offset) == (None, None)
        assert made.id


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"topic": "closed", "body": "{}"}, "disabled"),
        ({"topic": "orders", "body": ""}, "body is empty"),
        ({"topic": "none", "body": "{}"}, "no topic"),
        ({"topic": "orders", "body": "{}", "properties": {"DELAY": "1"}}, "reserved"),
        ({"topic": "orders", "body": "{}", "delay_ms": 1, "delay_level": 1}, "exclude"),
        ({"topic": "orders", "body": "\ud800"}, "UTF-8"),
    ],
)
def test_message_is_checked_as_a_producers(fields: dict[str, Any], text: str, tmp_path: Path) -> None:
    """The same rules, and the sentence that a producer gets."""
    with RunningNode(YAML, tmp_path) as node, pytest.raises(ChangeRefused, match=text):
        publish(node, **fields)


def test_body_stays_out_of_log_and_audit_trail() -> None:
    """They get its length."""
    noted = PublishBody(topic="orders", body="secret", properties={"token": "secret"}).noted
    assert "secret" not in str(noted)


def test_retention_of_a_topic_names_the_file_that_is_deleted_next(tmp_path: Path) -> None:
    """A log of one file has none."""
    with RunningNode(YAML, tmp_path) as node:
        publish(node, topic="orders", body="{}")

        async def run() -> Any:
            return view_of(node).topic_retention("orders")

        found = node.wait_for(run())
        assert (found.file, found.losses, found.log_bytes > 0) == (None, {}, True)
