"""What `upstream.kafka.link` says of the producer and the reader, on a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.kafka.server import KafkaServer
from tests.kafka.topics import make_topic, plain_producer, send_plainly, topic_names
from tests.kafka_world import Clients
from upstream.kafka.link import Commit, KafkaFailure, KafkaPartition, KafkaRecord

pytestmark = pytest.mark.long

MakeTopic = Callable[..., str]
Sent = list[tuple[KafkaFailure | None, int, int]]

JAVA = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107}  # fmt: skip
"""Keys and their murmur2, from Kafka's own UtilsTest."""


def test_key_chooses_the_partition_that_java_chooses(clients: Clients, topic: MakeTopic) -> None:
    """toPositive(murmur2(key)) % partitions; a partition that is named is taken; headers arrive."""
    name = topic(7)
    producer = clients.client().producer()
    sent: Sent = []
    headers = [("a", b"1"), ("a", b"\xff"), ("n", None)]
    for key in JAVA:
        producer.produce(name, None, key, b"v", headers, lambda *each: sent.append(each))
    producer.produce(name, 5, b"21", b"v", (), lambda *each: sent.append(each))
    clients.until(lambda: len(sent) == len(JAVA) + 1, "acknowledgements")
    assert all(failure is None and offset >= 0 for failure, _, offset in sent)
    _, heard = clients.joined(f"g-{name}", [name])
    clients.until(lambda: len(heard.got) == len(JAVA) + 1, "records")
    found = {each.key: each.partition for each in heard.got if each.headers}
    assert found == {key: (hashed & 0x7FFFFFFF) % 7 for key, hashed in JAVA.items()}
    assert [list(each.headers) for each in heard.got].count(headers) == len(JAVA)
    assert producer.partitions(name) == 7
    producer.close(5)


def test_topic_that_is_not_there_is_refused_and_not_made(clients: Clients, topic: MakeTopic, address: str) -> None:
    """The brokers would make it (auto.create.topics.enable); once it is there it takes records."""
    missing = f"{topic()}-missing"
    producer = clients.client().producer()
    sent: Sent = []
    producer.produce(missing, None, None, b"v", (), lambda *each: sent.append(each))
    assert producer.partitions(missing) is None
    clients.until(lambda: sent, "a refusal")
    assert sent[0][0] is not None
    assert (sent[0][0].code, sent[0][0].unknown) == ("UNKNOWN_TOPIC_OR_PART", False)
    assert missing not in topic_names(address)
    make_topic(address, missing, 2, {})
    clients.until(lambda: producer.partitions(missing) == 2, "the topic")
    producer.produce(missing, 1, None, b"v", (), lambda *each: sent.append(each))
    clients.until(lambda: len(sent) == 2, "an acknowledgement")
    assert sent[1] == (None, 1, 0)
    producer.close(5)


def test_record_that_is_too_large_is_refused(clients: Clients, topic: MakeTopic) -> None:
    """By the broker, also above librdkafka's own limit: never unknown."""
    name = topic(max_message_bytes="1000")
    producer = clients.client().producer()
    sent: Sent = []
    for size in (2_000, 2_000_000):
        producer.produce(name, 0, None, b"x" * size, (), lambda *each: sent.append(each))
    clients.until(lambda: len(sent) == 2, "refusals")
    for failure, _, _ in sent:
        assert failure is not None
        assert (failure.code, failure.unknown) == ("MSG_SIZE_TOO_LARGE", False)
    producer.close(5)
    with pytest.raises(KafkaFailure, match="closed"):
        producer.produce(name, 0, None, b"x", (), lambda *each: sent.append(each))


def read(clients: Clients, place: KafkaPartition, offsets: Sequence[int]) -> list[KafkaRecord]:
    """Read again."""
    reader = clients.client().reader()
    found: list[Sequence[KafkaRecord]] = []
    reader.fetch(place, offsets, lambda records, _: found.append(records))
    clients.until(lambda: found, "records")
    reader.close()
    return list(found[0])


def test_records_are_read_again_where_they_are(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Any offsets, near and far; what is not there is left out; a partition that is not there has none."""
    name = topic(2)
    send_plainly(address, name, [{"value": b"%d" % each, "partition": 0} for each in range(5000)])
    assert [each.offset for each in read(clients, KafkaPartition(name, 0), [3, 4, 77, 4900, 4999, 6000])] == [
        3,
        4,
        77,
        4900,
        4999,
    ]
    assert read(clients, KafkaPartition(name, 0), [4242])[0].value == b"4242"
    assert read(clients, KafkaPartition(name, 1), [0]) == []
    reader = clients.client().reader()
    found: list[Sequence[KafkaRecord]] = []
    for offsets in ([10, 20], [15], [4000], [1]):
        reader.fetch(KafkaPartition(name, 0), offsets, lambda records, _: found.append(records))
    clients.until(lambda: len(found) == 4, "all of it")
    assert sorted([each.offset for each in got] for got in found) == [[1], [10, 20], [15], [4000]]
    reader.close()


def test_aborted_record_is_not_read_again(clients: Clients, topic: MakeTopic, address: str) -> None:
    """A reader sees what members see."""
    name = topic()
    producer = plain_producer(address, **{"transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, value=b"taken back", partition=0)
    producer.flush(60)
    producer.abort_transaction(60)
    assert read(clients, KafkaPartition(name, 0), [0]) == []


def test_sends_and_members_survive_a_restart_of_the_broker(killable: KafkaServer) -> None:
    """Killed and started again: what was sent meanwhile arrives once and in order; the member goes on by itself."""
    clients, name = Clients(killable.address), "restarted"
    make_topic(killable.address, name, 1, {})
    soon = {"reconnect.backoff.max.ms": 500}
    member, heard = clients.joined(f"g-{name}", [name], session_timeout=45_000, librdkafka=soon)
    producer = clients.client(librdkafka={"message.timeout.ms": 240_000, **soon}).producer()
    sent: Sent = []
    producer.produce(name, 0, None, b"0", (), lambda *each: sent.append(each))
    clients.until(lambda: heard.got, "the first")
    killable.kill()
    for each in range(1, 100):
        producer.produce(name, 0, None, b"%d" % each, (), lambda *each: sent.append(each))
    clients.until(lambda: heard.troubles, "a trouble")
    assert heard.troubles[0] is not None
    assert heard.troubles[0].code == "ALL_BROKERS_DOWN"
    ended: list[KafkaFailure | None] = []
    member.commit([Commit(name, 0, 1, "while it was away")], ended.append)
    killable.start()
    clients.until(lambda: len(heard.got) == 100, "all")
    assert heard.values() == [b"%d" % each for each in range(100)]
    clients.until(lambda: len(sent) == 100, "all answers")
    assert [failure for failure, _, _ in sent] == [None] * 100
    clients.until(lambda: heard.troubles[-1] is None, "the end of the trouble")
    clients.until(lambda: ended, "the commit's end")
    assert clients.commit(member, Commit(name, 0, 100, "")) is None
    producer.close(5)
    clients.end()
