"""Where a real Kafka says that partitions end and a group stands: open transactions, commits above what may be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conf.models import GroupConfig
from tests.kafka.topics import (
    add_partitions,
    commit_plainly,
    delete_records,
    delete_topic,
    make_topic,
    plain_producer,
    send_plainly,
    topic_names,
)
from tests.kafka_world import Clients, Heard
from upstream.kafka.link import Commit, KafkaPartition, LogBounds
from upstream.kafka.subscriptions import Subscriptions, subscribed
from upstream.kafka_client.member import LibrdkafkaMember

pytestmark = pytest.mark.long

MakeTopic = Callable[..., str]
REFRESH = {"topic.metadata.refresh.interval.ms": 200}


def test_end_is_the_high_watermark_above_an_open_transaction(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Beside it the end of what may be read; a commit between the two is kept, and reading ends there."""
    name = topic()
    clients.send(name, [b"before"])
    producer = plain_producer(address, **{"transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, value=b"open", partition=0)
    assert producer.flush(60) == 0
    clients.send(name, [b"behind"] * 7)
    group, place = f"g-{name}", KafkaPartition(name, 0)
    member, heard = clients.joined(group, [name])
    given = heard.given[place]
    assert (given.high, given.readable_end, given.is_beyond) == (1, 1, False), "as long as nothing is committed"
    bounds: list[LogBounds] = []
    member.ends([place], lambda found, _: bounds.extend(found))
    clients.until(lambda: bounds, "bounds")
    assert bounds == [(place, 0, 9, 1)]
    assert clients.commit(member, Commit(name, 0, 5, "text")) is None
    clients.leave(member)
    member, heard = clients.joined(group, [name])
    given = heard.given[place]
    assert (given.high, given.readable_end, given.committed, given.is_beyond) == (9, 1, 5, False)
    producer.commit_transaction(60)
    clients.ended(heard, place, 10)
    assert heard.values() == [b"behind"] * 4


SINCE_MS = 1_700_000_000_000
WHERE: dict[str, dict[str, Any]] = {
    "first": {},
    "last": {"consumeFromWhere": "last"},
    "timestamp": {"consumeFromWhere": "timestamp", "consumeTimestamp": SINCE_MS + 5_000},
}
COMMITS = {"none": None, "below": 1, "inside": 4, "above the last stable offset": 7, "above the end": 40}


def _config(where: str, *names: str) -> GroupConfig:
    return GroupConfig.model_validate({"group": "g", "topics": [{"topic": name, **WHERE[where]} for name in names]})


def _joined(
    clients: Clients, group: str, config: GroupConfig, count: int, **settings: Any
) -> tuple[LibrdkafkaMember, Heard]:
    """Return a member of a group that has its partitions."""
    member, heard = clients.joined(group, subscribed(config), **settings)
    clients.until(lambda: len(heard.given) == count, "all partitions")
    return member, heard


@pytest.mark.parametrize("where", WHERE)
def test_known_partition_continues_at_its_commit(where: str, clients: Clients, topic: MakeTopic, address: str) -> None:
    """By what a real Kafka says of every place where a commit may be."""
    names = {commit: topic(retention_ms="-1") for commit in COMMITS}
    group = f"g-{names['none']}"
    producer = plain_producer(address, **{"transactional.id": group})
    producer.init_transactions(60)
    producer.begin_transaction()
    for commit, name in names.items():
        records = [{"value": b"v", "partition": 0, "timestamp": SINCE_MS + 1_000 * number + 1} for number in range(9)]
        send_plainly(address, name, records[:6])
        producer.produce(name, **records[6])
        assert producer.flush(60) == 0
        send_plainly(address, name, records[7:])
        delete_records(address, name, 0, 2)
        if (offset := COMMITS[commit]) is not None:
            commit_plainly(address, group, name, offset)
    config = _config(where, *names.values())
    _, heard = _joined(clients, group, config, len(names))
    subscriptions = Subscriptions(config)
    begins = {"first": 2, "last": 6, "timestamp": 5}[where]
    starts = {commit: subscriptions.start_of(heard.given[KafkaPartition(name, 0)]) for commit, name in names.items()}
    assert starts == {
        "none": begins,
        "below": 2,
        "inside": 4,
        "above the last stable offset": 7,
        "above the end": begins,
    }
    beyond = [commit for commit, name in names.items() if heard.given[KafkaPartition(name, 0)].is_beyond]
    assert beyond == ["above the end"]
    producer.abort_transaction(60)


@pytest.mark.parametrize("node", ["running", "started", "taking over"])
@pytest.mark.parametrize("appears", ["partition added", "topic of an expression", "topic created again"])
def test_what_appears_while_the_group_exists_is_read_from_its_first_record(
    appears: str, node: str, clients: Clients, topic: MakeTopic, address: str
) -> None:
    """Also with `consumeFromWhere: last`; a topic that was created again while no node ran is one of a new group."""
    name = topic()
    group = f"g-{name}"
    config = _config("last", f"^{name}.*" if appears == "topic of an expression" else name)
    member, heard = _joined(clients, group, config, 1, librdkafka=REFRESH)
    assert clients.commit(member, Commit(name, 0, 0, "")) is None
    if node == "started":
        clients.leave(member)
    place = {"partition added": KafkaPartition(name, 1), "topic of an expression": KafkaPartition(f"{name}-b", 0)}.get(
        appears, KafkaPartition(name, 0)
    )
    if appears == "partition added":
        add_partitions(address, name, 2)
    else:
        if appears == "topic created again":
            delete_topic(address, name)
            clients.until(lambda: name not in topic_names(address), "it to be gone")
            if node != "started":
                clients.until(lambda: not heard.given, "the member to hear of it")
        make_topic(address, place.topic, 1, {})
    send_plainly(address, place.topic, [{"value": b"v", "partition": place.partition}] * 3)
    if node == "taking over":
        clients.leave(member)
    if node != "running":
        _, heard = clients.joined(group, subscribed(config), librdkafka=REFRESH)
    clients.until(lambda: place in heard.given, "what is new")
    is_new_group = appears == "topic created again" and node != "running"
    given = heard.given[place]
    assert (given.committed, given.appeared) == (None, not is_new_group)
    assert Subscriptions(config).start_of(given) == (3 if is_new_group else 0)
