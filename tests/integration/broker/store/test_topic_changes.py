"""Topics made, widened and deleted on a running node: at once for producers and groups, and kept over restarts."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.options import StoreOptions
from broker.views import View
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.topics import DeletionBody, TopicBody, topic_changes
from proxy.operate.views.changes import DeletionResult, TopicResult
from pyddmq import SendRefused
from tests.insides import opened_of
from tests.patient import PATIENCE_SECONDS, Consumer, Producer, until
from tests.running_node import RunningNode

FIRST = StoreOptions().queue_file_units
"""First offset of a topic that was made again after less than a queue file of messages."""
YAML = """
node: {drainSeconds: 1}
topics:
  orders: {}
  fixed: {queues: 2}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], timeout: 60000}
"""
SUBSCRIBED = YAML + "      - {topic: extra, actions: [Async, PullServer], timeout: 60000}\n"
LISTED = SUBSCRIBED.replace("  orders: {}", "  orders: {}\n  extra: {}")


def run(node: RunningNode, name: str, body: Any) -> Any:
    """Make a change as the admin port does, on the node's thread."""

    async def change() -> View:
        [found] = [each for each in topic_changes(node.node) if each.name == name]
        answer = found.run(body)
        return await answer if inspect.isawaitable(answer) else answer

    return node.wait_for(change())


def create(node: RunningNode, topic: str, queues: int) -> TopicResult:
    """POST /api/topics."""
    made: TopicResult = run(node, "create_topic", TopicBody(topic=topic, queues=queues))
    return made


def alter(node: RunningNode, topic: str, queues: int) -> TopicResult:
    """POST /api/topics/alter."""
    altered: TopicResult = run(node, "alter_topic", TopicBody(topic=topic, queues=queues))
    return altered


def delete(node: RunningNode, topic: str, confirm: str | None = None, *, force: bool = False) -> DeletionResult:
    """DELETE /api/topics."""
    gone: DeletionResult = run(node, "delete_topic", DeletionBody(topic=topic, confirm=confirm or topic, force=force))
    return gone


def refused(change: Callable[[], object]) -> tuple[int, str]:
    """Status and sentence of a refusal."""
    with pytest.raises(ChangeRefused) as error:
        change()
    return error.value.status, error.value.text


def test_topic_made_by_hand_takes_messages_also_after_a_restart(tmp_path: Path) -> None:
    """It is not in the configuration and served all the same; a reload leaves it alone."""
    for _ in range(2):
        with RunningNode(YAML, tmp_path) as node:
            if "made" not in opened_of(node.node).store.topics:
                assert len(create(node, "made", 3).queues) == 3
            assert node.reload(YAML.replace("drainSeconds: 1", "drainSeconds: 2")).accepted
            with Producer(node.producer) as producer:
                producer.send("made", b"x")
    with RunningNode(YAML, tmp_path) as node:
        assert sum(queue.max_offset for queue in opened_of(node.node).store.topics["made"].queues) == 2


def test_new_queues_are_there_at_once_for_producers_and_parked_pulls(tmp_path: Path) -> None:
    """A pull that waits gets the first message of a queue that did not exist when it began to wait."""
    with RunningNode(YAML, tmp_path) as node:
        before = len(opened_of(node.node).store.topics["orders"].queues)
        got: list[Any] = []
        with Consumer(node.consumer, "billing") as consumer, Producer(node.producer) as producer:
            waiting = threading.Thread(target=lambda: got.append(next(consumer.messages())))
            waiting.start()
            until(lambda: node.call(lambda: node.node.in_force.groups["billing"].stats().parked_pulls), "the pull")
            assert len(alter(node, "orders", before + 2).queues) == before + 2
            producer.send("orders", b"new", partition_id=before + 1)
            waiting.join(PATIENCE_SECONDS)
        assert got[0].body == b"new"
        assert got[0].qid.endswith(f"_{before + 1}")


def test_queues_never_get_fewer_and_the_configuration_comes_first(tmp_path: Path) -> None:
    """Each refusal says why and what to do; nothing has changed."""
    with RunningNode(YAML, tmp_path) as node:
        assert refused(lambda: alter(node, "orders", 1))[0] == 409
        status, text = refused(lambda: alter(node, "fixed", 4))
        assert status == 409
        assert "topics.fixed.queues: 2" in text
        assert refused(lambda: alter(node, "nowhere", 4))[0] == 404
        assert refused(lambda: create(node, "orders", 4))[0] == 409
        assert refused(lambda: create(node, "%DLQ%x", 1))[0] == 400
        assert refused(lambda: create(node, "a b", 1))[0] == 400
        assert sorted(opened_of(node.node).store.topics) == ["fixed", "orders"]


def test_deletion_is_confirmed_and_refused_while_somebody_needs_the_topic(tmp_path: Path) -> None:
    """The name again; no subscription; not listed, unless it is only to be emptied; nothing of the broker's own."""
    with RunningNode(YAML, tmp_path) as node:
        node.call(lambda: opened_of(node.node).store.create_topic("%DLQ%billing", 1, system=True))
        node.call(lambda: opened_of(node.node).store.create_topic("SCHEDULE_TOPIC_XXXX", 1, system=True))
        assert refused(lambda: delete(node, "nowhere"))[0] == 404
        assert refused(lambda: delete(node, "fixed", "fixxed"))[0] == 400
        assert "billing subscribes" in refused(lambda: delete(node, "orders", force=True))[1]
        assert "lists topic fixed" in refused(lambda: delete(node, "fixed"))[1]
        assert "dead letters" in refused(lambda: delete(node, "%DLQ%billing"))[1]
        assert "internal topic" in refused(lambda: delete(node, "SCHEDULE_TOPIC_XXXX"))[1]
        with Producer(node.producer) as producer:
            producer.send("fixed", b"x", partition_id=1)
            assert delete(node, "fixed", force=True) == DeletionResult(
                topic="fixed", deleted=False, emptied=True, messages=1
            )
            # Emptied: there again at once, and offsets go on in the next file of its queue.
            assert producer.send("fixed", b"y", partition_id=1).offset == FIRST


def test_deleted_topic_takes_no_messages_and_stays_away(tmp_path: Path) -> None:
    """After a kill too; nobody serves it until it is made again."""
    with RunningNode(YAML, tmp_path) as node:
        create(node, "made", 1)
        with Producer(node.producer, resends=0) as producer:
            producer.send("made", b"x")
            assert delete(node, "made").messages == 1
            with pytest.raises(SendRefused) as error:
                producer.send("made", b"y")
            assert error.value.code == 14
        node.kill()
    with RunningNode(YAML, tmp_path) as node:
        assert "made" not in opened_of(node.node).store.topics
        create(node, "made", 1)
        assert node.call(lambda: opened_of(node.node).store.topics["made"].queues[0].min_offset) == FIRST


@pytest.mark.parametrize("whole_group", [False, True], ids=["subscription", "group"])
def test_subscription_taken_out_lets_the_topic_go(tmp_path: Path, *, whole_group: bool) -> None:
    """By a reload, then at once when nothing is out; else once that is answered, which the refusal says."""
    without = YAML.partition("groups:")[0] if whole_group else YAML
    with RunningNode(LISTED, tmp_path) as node, Producer(node.producer) as producer:
        with Consumer(node.consumer, "billing", topic="extra") as consumer:
            producer.send("extra", b"one", partition_id=0)
            message = next(consumer.messages())
            assert "billing subscribes" in refused(lambda: delete(node, "extra"))[1]
            assert node.reload(without).accepted
            status, text = refused(lambda: delete(node, "extra"))
            assert (status, "1 of its messages are in flight" in text) == (409, True)
            assert "extra" in opened_of(node.node).store.topics
            consumer.ack(message)
            assert consumer.flush()
        # The answer of one who had it before the reload counts.
        assert node.call(lambda: opened_of(node.node).progress.trackers["billing", "extra", 0].watermark) == 1
        assert delete(node, "extra").deleted
        assert "extra" not in opened_of(node.node).store.topics
    with RunningNode(without, tmp_path) as node:
        assert "extra" not in opened_of(node.node).store.topics


def test_topic_with_nothing_out_goes_right_after_the_reload(tmp_path: Path) -> None:
    """Both when one subscription and when the whole group was taken out."""
    for number, text in enumerate((YAML, YAML.partition("groups:")[0])):
        with RunningNode(LISTED, tmp_path / str(number)) as node:
            assert node.reload(text).accepted
            assert delete(node, "extra").deleted


def test_group_that_knew_the_earlier_topic_reads_the_new_one(tmp_path: Path) -> None:
    """Subscribed, taken out, deleted, made again, subscribed again in one process: only the new message comes."""
    with RunningNode(LISTED, tmp_path) as node:
        with Producer(node.producer) as producer, Consumer(node.consumer, "billing", topic="extra") as consumer:
            producer.send("extra", b"old one", partition_id=0)
            producer.send("extra", b"old two", partition_id=0)
            messages = consumer.messages()
            first = next(messages)
            consumer.ack(first)
            consumer.flush()
        assert node.reload(YAML).accepted

        def served() -> bool:
            return any(each.topic == "extra" for each in node.node.in_force.groups["billing"].stats().topics)

        until(lambda: not node.call(served), "the group to leave the topic")
        delete(node, "extra")
        assert node.reload(LISTED).accepted
        with Producer(node.producer) as producer, Consumer(node.consumer, "billing", topic="extra") as consumer:
            assert producer.send("extra", b"new", partition_id=0).offset == FIRST
            message = next(consumer.messages())
            assert (message.body, message.offset) == (b"new", FIRST)
            consumer.ack(message)
            assert consumer.flush()
    with RunningNode(LISTED, tmp_path) as node:
        tracker = opened_of(node.node).progress.trackers["billing", "extra", 0]
        assert tracker.watermark == FIRST + 1
