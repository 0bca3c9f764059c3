"""What tests ask of Kafka by its own administration, and a producer as other programs have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition, admin

from bench.servers import kafka

SECONDS = 60
_ADMIN: Any = admin


def _admin(address: str) -> Any:
    return _ADMIN.AdminClient({"bootstrap.servers": address})


def make_topic(address: str, name: str, partitions: int, settings: Mapping[str, str]) -> None:
    """Create a topic with these settings, `_` for `.` in their names."""
    kafka.make_topic(address, name, partitions, {key.replace("_", "."): value for key, value in settings.items()})


def add_partitions(address: str, name: str, total: int) -> None:
    """Give a topic more partitions."""
    admin = _admin(address)
    admin.create_partitions([_ADMIN.NewPartitions(name, total)])[name].result(SECONDS)


def delete_records(address: str, name: str, partition: int, before: int) -> None:
    """Delete what is below an offset, as retention does."""
    where = TopicPartition(name, partition, before)
    admin = _admin(address)  # Its answers are none once it is gone.
    admin.delete_records([where])[where].result(SECONDS)


def delete_topic(address: str, name: str) -> None:
    """Delete a topic."""
    admin = _admin(address)
    admin.delete_topics([name])[name].result(SECONDS)


def topic_names(address: str) -> set[str]:
    """All topics."""
    return set(_admin(address).list_topics(timeout=SECONDS).topics)


def committed(address: str, group: str, topic: str, partition: int = 0) -> tuple[int, str | None]:
    """What a group has committed."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    [found] = consumer.committed([TopicPartition(topic, partition)], timeout=SECONDS)
    consumer.close()
    return found.offset, found.metadata


def commit_plainly(address: str, group: str, topic: str, offset: int) -> None:
    """Commit as another program does that is no member."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def stored_records(address: str, topic: str, partitions: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield partition, offset and value of all records that a topic holds."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reads-all", "enable.auto.commit": False})
    try:
        for partition in range(partitions):
            offset, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS)
            consumer.assign([TopicPartition(topic, partition, offset)])
            while offset < end:
                [message] = consumer.consume(1, SECONDS)
                found = message.offset()
                if message.error() is None and found is not None:
                    yield partition, found, message.value() or b""
                    offset = found + 1
    finally:
        consumer.close()


def protocol_of(address: str, group: str) -> str:
    """Return the group protocol that a group has at present."""
    admin = _admin(address)
    return str(admin.describe_consumer_groups([group])[group].result(SECONDS).type.name).lower()


def plain_producer(address: str, **settings: Any) -> Any:
    """A producer of another program."""
    return Producer({"bootstrap.servers": address, **settings})


def send_plainly(address: str, topic: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Append records as another program does."""
    producer = plain_producer(address)
    for each in records:
        producer.produce(topic, **each)
    assert producer.flush(SECONDS) == 0, "records were not taken"
