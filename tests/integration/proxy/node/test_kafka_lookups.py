"""Commands and lookups of a node for topics, messages and dead letters that are in Kafka."""

from __future__ import annotations

from collections.abc import Coroutine
from inspect import isawaitable
from typing import Any, cast

import pytest

from conf import Config, loads
from proxy.operate import answers
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.topics import DeletionBody, TopicAlteration, TopicBody, topic_changes
from proxy.operate.lookups.in_kafka import InKafka
from tests.insides import opened_of
from tests.integration.proxy.node.test_kafka_node import World

CONFIG = loads("""
kafka:
  main: {bootstrapServers: "a:9092"}
topics:
  orders: {queues: 1}
  invoices: {brokerCluster: main}
  "^bills-.*": {brokerCluster: main}
groups:
  - group: billing
    topics: [{topic: invoices}]
  - {group: local, topics: [{topic: orders}]}
""").config


def _run(world: World, name: str, body: Any) -> Any:
    """Make a change, and return its result or raise as it does."""
    changes = topic_changes(world.node)
    [change] = [each for each in changes if each.name == name]
    result = change.run(body)
    if not isawaitable(result):
        return result
    task = world.loop.create_task(cast("Coroutine[Any, Any, Any]", result))
    world.loop.run(task.done, seconds=60)
    return task.result()


def test_topics_in_kafka_are_listed_with_their_partitions() -> None:
    """Beside those of the store, once the cluster has said how many there are."""
    world = World()
    world.run(3)
    answer = answers.topics(world.view, limit=100)
    assert answer is not None
    assert [(each.topic, each.cluster, each.partitions) for each in answer.in_kafka] == [("invoices", "main", 2)]
    assert "invoices" not in [each.topic for each in answer.topics]
    one = answers.topics(world.view, limit=100, name="invoices")
    assert one is not None
    assert (len(one.topics), len(one.in_kafka)) == (0, 1)
    assert answers.topics(world.view, limit=100, name="none-such") is None


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("create_topic", TopicBody(topic="invoices", queues=2)),
        ("alter_topic", TopicAlteration(topic="invoices", queues=2)),
        ("delete_topic", DeletionBody(topic="invoices", confirm="invoices")),
    ],
)
def test_topic_in_kafka_is_not_changed_from_here(name: str, body: Any) -> None:
    """The refusal names the cluster and the tool, and the store gets no topic of the name."""
    world = World()
    world.run(3)
    with pytest.raises(ChangeRefused, match=r"is in Kafka cluster main.*kafka-topics.sh --bootstrap-server"):
        _run(world, name, body)
    assert "invoices" not in opened_of(world.node).store.topics


def test_sentences_name_what_is_in_kafka_and_nothing_else() -> None:
    """Listed topics, those that fit an expression, and dead letters."""
    found = InKafka(CONFIG)
    for topic in ("invoices", "bills-2026", "billing.DLQ"):
        assert f"--topic {topic}" in str(found.topic(topic))
        assert found.cluster_of(topic) == "main"
    for topic in ("orders", "local.DLQ", "none-such"):
        assert found.topic(topic) is None
        assert found.cluster_of(topic) is None
    assert "pass their topic" in str(found.other_messages())
    assert [found.cluster_of_letters(each) for each in ("billing", "local", "none-such")] == ["main", None, None]
    assert [each.topic for each in found.all_letters()] == ["billing.DLQ"]
    alone = InKafka(loads("topics: {orders: {queues: 1}}").config)
    assert alone.other_messages() is None


def test_lookups_of_a_topic_do_not_ask_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be ten thousand, and a live tail asks every two seconds."""
    asked: list[str] = []
    cluster_of_group = Config.cluster_of_group

    def noted(config: Config, group: str) -> str | None:
        asked.append(group)
        return cluster_of_group(config, group)

    monkeypatch.setattr(Config, "cluster_of_group", noted)
    text = "kafka: {main: {bootstrapServers: 'h:1'}}\ntopics:\n"
    text += "".join(f"  t{number}: {{brokerCluster: main}}\n" for number in range(50))
    text += "groups:\n"
    text += "".join(f"  - {{group: g{number}, topics: [{{topic: t{number}}}]}}\n" for number in range(50))
    found = InKafka(loads(text).config)
    asked.clear()
    assert found.cluster_of("none-such") is None
    assert not found.has_letters("t7")
    assert asked == []
    assert found.readers("t7") == ["g7"]
    assert found.cluster_of("g7.DLQ") == "main"
    assert set(asked) == {"g7"}


def test_masks_are_made_once_for_a_configuration() -> None:
    """Each search asks for them, and a download for each message."""
    world = World()
    assert world.view.masks is world.view.masks
    before = world.view.masks
    world.node.in_force.config = loads("topics: {orders: {queues: 1, mask: [KEYS]}}").config
    assert world.view.masks is not before
    assert "KEYS" in world.view.masks.of("orders").names
