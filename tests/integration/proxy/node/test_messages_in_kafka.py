"""Messages of topics in Kafka, looked for by an operator of a node before a simulated cluster."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, cast

import pytest
from aiohttp.web import HTTPForbidden

from broker.query import NotFound, QueryRefused
from broker.runtime.steps import StepsEnd, step
from conf.sections.access import AccessConfig, AccessRule
from proxy.access.rights import Rights
from proxy.access.rules import Rules
from proxy.admin.console.templating import environment
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.publish import PublishBody, publish_changes
from proxy.operate.lookups import messages_in_kafka
from proxy.operate.lookups.masks import TopicMask
from proxy.operate.lookups.messages_in_kafka import ClusterUnavailable, KafkaMessageSearch
from proxy.operate.views.changes import PublishResult
from proxy.operate.views.messages import MessagesAnswer, MessageView
from tests.console_page import call_of, page_at
from tests.integration.proxy.node.test_kafka_node import YAML, World
from upstream.kafka.link import KafkaPartition, KafkaRecord, ScanFound

MASKED = YAML.replace("{brokerCluster: main}", "{brokerCluster: main, mask: [$.card, phone, KEYS]}")


def world_with(records: int, yaml: str = YAML, *, gap: int | None = 0) -> World:
    """A world whose topic has so many records, a second apart, in turn in both partitions."""
    world = World(yaml)
    world.run(1)
    for number in range(records):
        world.kafka.append(
            KafkaPartition("invoices", number % 2),
            b"k%d" % number,
            json.dumps({"n": number, "card": f"secret-{number}"}).encode(),
            [("phone", b"1%d" % number), ("phone", b"2%d" % number), ("colour", b"blue")],
            gap=gap,
        )
        world.run(1)
    return world


def find(world: World, **given: object) -> MessagesAnswer:
    """Look."""
    names = {name.rstrip("_"): str(value) for name, value in given.items()}
    answer = _run(world, world.view.messages_in_kafka({"topic": "invoices", **names}))
    assert isinstance(answer, MessagesAnswer)
    return answer


def _run(world: World, work: Awaitable[Any]) -> Any:
    task = world.loop.create_task(cast("Coroutine[Any, Any, Any]", work))
    world.loop.run(task.done, seconds=60)
    return task.result()


def places(found: MessagesAnswer) -> list[tuple[int, int]]:
    """Partitions and offsets."""
    return [(each.queue, each.offset) for each in found.messages]


def all_of(world: World, **given: object) -> list[MessageView]:
    """Look until the end, request after request."""
    found: list[MessageView] = []
    cursor: dict[str, object] = {}
    while True:
        answer = find(world, **given, **cursor)
        found += answer.messages
        if answer.cursor is None:
            return found
        assert cursor.get("cursor") != answer.cursor, "a request gets further"
        cursor = {"cursor": answer.cursor}


def test_message_is_found_by_offset_time_key_and_text() -> None:
    """In bodies, keys and properties; of one partition or all."""
    world = world_with(6)
    one = find(world, queue=1, offset=1).messages[0]
    assert (one.cluster, one.queue, one.offset, one.key, one.physical) == ("main", 1, 1, "k3", -1)
    assert one.properties == {"KEYS": "k3", "phone": "13", "phone#2": "23", "colour": "blue"}
    assert places(find(world)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert places(find(world, queue=1, offset=1, limit=9)) == [(1, 1), (1, 2)]
    for given in ({"key": "k4"}, {"text": "secret-4"}, {"text": "k4"}, {"text": "24"}):
        assert places(find(world, **given)) == [(0, 2)], given
    assert len(find(world, text="colour").messages) == 6
    stamps = {each.key: each.store_ms for each in find(world).messages}
    assert [each.key for each in find(world, from_=stamps["k1"], to=stamps["k4"]).messages] == ["k2", "k1", "k3"]


def test_message_that_is_not_there_is_not_another_one() -> None:
    """An offset in a gap or behind the end; a partition, a topic that does not exist."""
    world = world_with(4, gap=1)
    for queue, offset in ((0, 0), (0, 99), (7, 0)):
        with pytest.raises(NotFound):
            find(world, queue=queue, offset=offset)
    world.kafka.delete("invoices")
    with pytest.raises(NotFound, match="cluster main: topic invoices does not exist"):
        find(world)


def test_search_goes_on_where_a_request_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks through so many bytes, and says how much of the log is done; together they find each message once."""
    world = world_with(20)
    monkeypatch.setattr(messages_in_kafka, "TEXT_BYTES", 200)
    first = find(world, text="secret")
    assert 0 < len(first.messages) < 20
    assert 0 < cast(float, first.share) < 1
    assert [each.key for each in all_of(world, text="secret", limit=2)] == [
        *(f"k{each}" for each in range(0, 20, 2)),
        *(f"k{each}" for each in range(1, 20, 2)),
    ]
    assert [each.key for each in all_of(world, text="secret-13")] == ["k13"]


def test_open_and_aborted_transactions_are_not_found() -> None:
    """Only what consumers may read; and no group of the cluster learns of a search."""
    world = world_with(2)
    place = KafkaPartition("invoices", 0)
    for name in ("aborted", "open"):
        world.kafka.append(place, b"k", name.encode(), gap=0, transaction=name)
        if name == "aborted":
            world.kafka.end(name, commit=False)
            world.kafka.append(place, b"k", b"between", gap=0)
    groups = {name: dict(each.committed) for name, each in world.kafka.groups.items()}
    assert [each.body for each in find(world, queue=0, key="k").messages] == ["between"]
    assert {name: dict(each.committed) for name, each in world.kafka.groups.items()} == groups


def test_masked_values_are_neither_shown_nor_found() -> None:
    """Also those of a header that repeats; a dead-letter topic hides what any topic hides."""
    world = world_with(2, MASKED)
    one = find(world, queue=1, offset=0).messages[0]
    assert one.body == '{"n":1,"card":"***"}'
    assert one.properties == {"KEYS": "***", "phone": "***", "phone#2": "***", "colour": "blue"}
    assert one.masked == ["$.card", "KEYS", "phone"]
    for text in ("secret-1", "k1", "21"):
        assert find(world, text=text).messages == []
    assert len(find(world, text='"n":1').messages) == 1
    with pytest.raises(QueryRefused, match="keys of topic invoices are masked"):
        find(world, key="k1")
    world.kafka.append(KafkaPartition("billing.DLQ", 0), b"k1", b'{"card": 1}', [("phone", b"21")])
    letter = find(world, topic="billing.DLQ").messages[0]
    assert (letter.body, letter.key, letter.properties["phone"]) == ('{"card":"***"}', "***", "***")


def test_dead_letters_of_a_topic_that_is_configured_are_masked_as_well() -> None:
    """As it is to be consumed; its own mask holds, too."""
    yaml = MASKED.replace("topics:\n", "topics:\n  billing.DLQ: {brokerCluster: main, mask: [colour]}\n", 1)
    world = world_with(0, yaml)
    headers = [("phone", b"21"), ("colour", b"blue")]
    world.kafka.append(KafkaPartition("billing.DLQ", 0), b"k1", b'{"card": 1}', headers)
    letter = find(world, topic="billing.DLQ").messages[0]
    assert (letter.body, letter.key) == ('{"card":"***"}', "***")
    assert (letter.properties["phone"], letter.properties["colour"]) == ("***", "***")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"physical": 1}, "no commit-log offset"),
        ({"offset": 1}, "pass the queue"),
        ({"cursor": 7}, "invalid cursor '7'"),
        ({"queue": "x"}, "queue must be an integer"),
        ({"body": "all"}, "none, cut or whole"),
        ({"from_": "2h", "to": "3h"}, "swap them"),
        ({"colour": "blue"}, "unknown parameter 'colour'"),
    ],
)
def test_wrong_parameters_are_refused(given: dict[str, object], said: str) -> None:
    """With what would be right."""
    with pytest.raises(QueryRefused, match=said):
        find(world_with(0), **given)


def test_cluster_that_does_not_respond_is_named() -> None:
    """After the client's patience."""
    world = world_with(1)
    world.kafka.down = True
    with pytest.raises(ClusterUnavailable, match="Kafka cluster main: the cluster cannot be reached"):
        find(world)


def test_tail_continues_at_the_end_of_each_partition() -> None:
    """Nothing is found at first; then what was written since, in all partitions, once, with a filter too."""
    world = world_with(4)
    begin = find(world, cursor="end")
    assert (begin.messages, begin.cursor) == ([], "0-2.1-2")
    assert find(world, cursor="end", queue=1).cursor == "1-2"
    for number in (4, 5, 6):
        world.kafka.append(KafkaPartition("invoices", number % 2), b"k%d" % number, b"secret-%d" % number, gap=0)
    found = find(world, cursor=begin.cursor)
    assert (places(found), found.cursor, found.share) == ([(0, 2), (0, 3), (1, 2)], "0-4.1-3", 1.0)
    assert find(world, cursor=found.cursor).messages == []
    part = find(world, cursor=begin.cursor, limit=1)
    assert (places(part), part.cursor) == ([(0, 2)], "0-3.1-2")
    assert cast(float, part.share) < 1
    filtered = find(world, cursor=begin.cursor, text="secret-6")
    assert (places(filtered), filtered.cursor) == ([(0, 3)], "0-4.1-3")


def test_tail_shows_an_open_transaction_when_it_is_committed() -> None:
    """And nothing behind it is passed over meanwhile."""
    world = world_with(2)
    cursor = find(world, cursor="end").cursor
    place = KafkaPartition("invoices", 0)
    world.kafka.append(place, b"k", b"open", gap=0, transaction="one")
    world.kafka.append(place, b"k", b"behind", gap=0)
    found = find(world, cursor=cursor)
    assert found.messages == []
    world.kafka.end("one", commit=True)
    assert [each.body for each in find(world, cursor=found.cursor).messages] == ["open", "behind"]


def topic_page(world: World, topic: str = "invoices", rights: Rights | None = None) -> str:
    """What the page of a topic shows."""
    view = _run(world, page_at("/topic").view(call_of(world.view, {"topic": topic}, rights=rights)))
    return environment().get_template("topic.html").render(view=view)


def test_page_of_a_topic_shows_the_newest_messages_and_where_a_tail_begins() -> None:
    """With its partitions and groups; retention is Kafka's."""
    world = world_with(50)
    shown = topic_page(world)
    assert 'data-end="0-25.1-25"' in shown
    assert [f"secret-{number}" in shown for number in (29, 30, 49)] == [False, True, True]
    assert "in Kafka cluster main" in shown
    assert "billing</a>" in shown
    assert "Retention" not in shown
    world.kafka.delete("invoices")
    assert "topic invoices does not exist" in topic_page(world)
    world.kafka.down = True
    shown = topic_page(world)
    assert "the cluster cannot be reached" in shown
    assert ("billing</a>" in shown, 'id="tail"' in shown) == (True, False)


def publish(world: World, **body: Any) -> PublishResult:
    """Publish a message as the page of its topic does."""
    [change] = publish_changes(world.node)
    result = _run(world, cast("Awaitable[Any]", change.run(PublishBody(topic="invoices", body="{}", **body))))
    assert isinstance(result, PublishResult)
    return result


def test_message_is_published_to_a_topic_in_kafka() -> None:
    """With key, tag and properties; the answer has its partition and offset."""
    world = world_with(0)
    made = publish(world, key="k", tag="blue", properties={"x": "y"})
    assert made.queue is not None
    assert made.offset is not None
    [found] = find(world, queue=made.queue, offset=made.offset).messages
    assert (found.key, found.tag, found.properties["x"], found.unique_key) == ("k", "blue", "y", made.id)
    assert 'id="publish"' in topic_page(world)
    world.kafka.partitions("billing.DLQ", 1)
    assert 'id="publish"' not in topic_page(world, "billing.DLQ")


def test_publish_that_kafka_refuses_says_why() -> None:
    """Nothing is stored; delays need the waiting topics."""
    world = world_with(0)
    world.kafka.limits["invoices"] = 1
    with pytest.raises(ChangeRefused, match="Kafka cluster main"):
        publish(world)
    with pytest.raises(ChangeRefused, match="delays and transactions on cluster main are not configured"):
        publish(world, delay_ms=1_000)
    assert find(world).messages == []


def page(world: World, rights: Rights | None = None, **query: str) -> str:
    """What the page of messages shows."""
    call = call_of(world.view, {"topic": "invoices", **query}, rights=rights)
    view = _run(world, page_at("/message").view(call))
    return environment().get_template("message.html").render(view=view)


def test_page_shows_messages_of_kafka() -> None:
    """The list, one message with what the group does with it, and a search that goes on."""
    world = world_with(4)
    assert page(world).count("<tr><td") == 4
    one = page(world, queue="0", offset="1")
    assert "topic invoices of Kafka cluster main, partition 0, offset 1" in one
    assert "&#34;card&#34;: &#34;secret-2&#34;" in one
    assert "billing</a>" in one
    assert "no message at offset 9" in page(world, queue="0", offset="9")
    world.kafka.down = True
    assert "the cluster cannot be reached" in page(world)


def test_page_continues_a_search_without_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a link, with how much is searched."""
    world = world_with(8)
    monkeypatch.setattr(messages_in_kafka, "TEXT_BYTES", 60)
    found = page(world, text="secret-7")
    assert "25% of the log is searched" in found
    assert "cursor=0%3A2" in found
    assert "secret-7" in page(world, text="secret-7", cursor="1:3").split("<tbody>")[1]


def test_page_hides_bodies_from_who_may_not_read_them() -> None:
    """And refuses a search in them."""
    world = world_with(2)
    rule = AccessRule.model_validate({"principals": ["v"], "view": ["invoices"]})
    viewer = Rights("v", Rules(AccessConfig(rules=[rule])), way="token")
    found = page(world, viewer)
    assert "secret" not in found
    assert found.count("<tr><td") == 2
    assert "The body is hidden" in page(world, viewer, queue="0", offset="0")
    for refused in ({"text": "secret"}, {"topic": "billing.DLQ"}):
        with pytest.raises(HTTPForbidden):
            page(world, viewer, **refused)


def test_loop_goes_on_while_what_was_found_is_described() -> None:
    """Masks take their time: a search finds up to 16 MiB of messages in one request."""
    body = json.dumps({"card": "secret", "more": "x" * 200_000}).encode()
    records = [KafkaRecord("invoices", 0, number, 5, b"k", body, []) for number in range(12)]

    async def scan(_: object) -> ScanFound:
        return ScanFound(records, None, 1.0)

    mask = TopicMask(paths=("$.card",))
    search = KafkaMessageSearch("main", {"topic": "invoices", "text": "x"}, now_ms=5, mask=mask)
    steps = cast("Generator[None, None, MessagesAnswer]", search.found(scan).__await__())
    turns = 0
    while not isinstance(made := step(steps), StepsEnd):
        turns += 1
    assert len(made.result.messages) == 12
    assert turns >= 4
