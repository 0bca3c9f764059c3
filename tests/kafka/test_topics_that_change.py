"""Topics of a real Kafka that are small, deleted, created again, or lose their beginning."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.kafka.topics import add_partitions, delete_topic, make_topic, topic_names
from tests.kafka_world import Clients
from upstream.kafka.link import KafkaFailure, KafkaPartition
from upstream.kafka_client.producer import LibrdkafkaProducer

pytestmark = pytest.mark.long


MakeTopic = Callable[..., str]


def _send(clients: Clients, producer: LibrdkafkaProducer, name: str, *sizes: int) -> list[str]:
    """Send records of these sizes together; returns what became of each."""
    ended: list[str] = []

    def done(failure: KafkaFailure | None, partition: int, offset: int) -> None:
        ended.append("stored" if failure is None else failure.code)

    for size in sizes:
        producer.produce(name, 0, None, bytes(size), (), done)
    clients.until(lambda: len(ended) == len(sizes), "records to be decided")
    return ended


def test_records_that_fit_alone_are_stored_whatever_the_batch(clients: Clients, topic: MakeTopic) -> None:
    """The topic's limit is the only one: below it and above librdkafka's own."""
    producer = clients.client().producer()
    small = topic(max_message_bytes="10000")
    assert sorted(_send(clients, producer, small, *[3_000] * 8, 20_000)) == ["MSG_SIZE_TOO_LARGE", *["stored"] * 8]
    large = topic(max_message_bytes="4000000")
    assert _send(clients, producer, large, 3_000_000) == ["stored"]
    producer.close(5)


def test_deleted_topic_is_refused_and_not_made_again(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Neither by sends nor by what librdkafka asks meanwhile."""
    name, producer = topic(), clients.client(librdkafka={"topic.metadata.refresh.interval.ms": 1_000}).producer()
    assert _send(clients, producer, name, 10) == ["stored"]
    delete_topic(address, name)
    clients.until(lambda: name not in topic_names(address), "it to be gone")
    began = time.monotonic()
    codes = [_send(clients, producer, name, 10)[0] for _ in range(3)]
    assert all(code in {"UNKNOWN_PARTITION", "UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"} for code in codes), codes
    assert time.monotonic() - began < 9, "within the timeout of a send"
    until = time.monotonic() + 3
    clients.until(lambda: time.monotonic() > until, "refreshes")
    assert name not in topic_names(address)
    producer.close(1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_ends_of_what_is_there_are_told_beside_what_is_missing(
    protocol: str, clients: Clients, topic: MakeTopic, address: str
) -> None:
    """A deleted topic hides no other, and one that is created again has its new end."""
    gone, there = topic(), topic()
    for name in (gone, there):
        clients.send(name, [b"a", b"b"])
    member, heard = clients.joined(f"g-{gone}", [gone, there], group_protocol=protocol)
    clients.until(lambda: len(heard.values()) == 4, "records")
    delete_topic(address, gone)
    places = [KafkaPartition(gone, 0), KafkaPartition(there, 0)]
    reported: list[list[tuple[KafkaPartition, int, int, int]]] = []
    asked_at = [0.0]

    def ask(wanted: list[tuple[KafkaPartition, int, int, int]]) -> bool:
        # At the moment of a change there may be no answer: it is asked again.
        if time.monotonic() > asked_at[0] + 0.5:
            asked_at[0] = time.monotonic()
            member.ends(places, lambda ends, _: reported.append(list(ends)))
        return wanted in reported

    clients.until(lambda: ask([(places[1], 0, 2, 2)]), "the ends of what is there")
    make_topic(address, gone, 1, {})
    clients.until(lambda: ask([(places[0], 0, 0, 0), (places[1], 0, 2, 2)]), "the new end")


def test_ends_are_told_once_a_partition_that_was_gone_is_there_again(
    clients: Clients, topic: MakeTopic, address: str
) -> None:
    """For three minutes librdkafka remembers that it was not, and gives the ends of no other partition either."""
    name = topic(2)
    member, _ = clients.joined(f"g-{name}", [name])
    delete_topic(address, name)
    clients.until(lambda: name not in topic_names(address), "it to be gone")
    make_topic(address, name, 1, {})
    reported: list[int] = []

    def there() -> int:
        member.ends([KafkaPartition(name, 0), KafkaPartition(name, 1)], lambda ends, _: reported.append(len(ends)))
        until = time.monotonic() + 0.5
        clients.until(lambda: time.monotonic() > until, "answers")
        return reported[-1] if reported else 0

    clients.until(lambda: there() == 1, "the end of the one that is there")
    add_partitions(address, name, 2)
    began = time.monotonic()
    clients.until(lambda: there() == 2, "the ends of both")
    assert time.monotonic() - began < 60
