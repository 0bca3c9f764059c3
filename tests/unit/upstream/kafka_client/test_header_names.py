"""Names of headers that are not UTF-8, as another program writes them: read, and written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.conftest import need_module
from tests.fakes.kafka.raw import MockKafka
from tests.kafka_world import Clients
from upstream.kafka.headers import decode
from upstream.kafka.link import KafkaFailure, KafkaPartition, KafkaRecord


@pytest.fixture
def kafka() -> MockKafka:
    """A broker of librdkafka's own."""
    broker = MockKafka(need_module("confluent_kafka", "pip install 'pyddmq[kafka]'"))
    broker.make_topic("t")
    return broker


@pytest.fixture
def clients(kafka: MockKafka) -> Iterator[Clients]:
    """Clients of it."""
    found = Clients(kafka.address)
    try:
        yield found
    finally:
        found.end()


def test_member_and_reader_go_on_over_names_that_are_not_utf8(kafka: MockKafka, clients: Clients) -> None:
    """The name comes in Base64; of several in one record the first one's is known."""
    kafka.append("t", b"one", [(b"a\xff", b"x"), (b"z", b"3")])
    kafka.append("t", b"several", [(b"ok", b"1"), (b"\xfe", b"2"), (b"b\xff", None), (b"z", b"3")])
    kafka.append("t", b"after", [])
    member, heard = clients.joined("g", ["t"])
    clients.until(lambda: len(heard.got) == 4, "records")
    assert heard.values() == [b"first", b"one", b"several", b"after"]
    assert list(heard.got[1].headers) == [("base64;Yf8=", b"x"), ("z", b"3")]
    assert list(heard.got[2].headers) == [("ok", b"1"), ("base64;/g==", b"2"), ("", None), ("z", b"3")]
    assert decode(heard.got[1]).properties == {"base64;Yf8=": "x", "z": "3"}
    reader = clients.client().reader()
    again: list[list[object]] = []

    def take(records: Sequence[KafkaRecord], _gaps: Sequence[tuple[int, int]]) -> None:
        again.append([each.headers for each in records])

    reader.fetch(KafkaPartition("t", 0), [1], take)
    clients.until(lambda: again, "the record again")
    assert again == [[heard.got[1].headers]]
    reader.close()
    clients.leave(member)


def test_name_is_written_again_by_its_text(clients: Clients) -> None:
    """Librdkafka's package writes no other names: half a surrogate does not end the process, nor 0x00 the name."""
    headers = [("base64;Yf8=", b"x"), ("ä", b"y"), ("\udcff", b"half"), ("TAGS\x00", b"z"), ("é\x00", b"z")]
    ended: list[KafkaFailure | None] = []
    producer = clients.client().producer()
    producer.produce("t", 0, None, b"v", headers, lambda failure, *_: ended.append(failure))
    clients.until(lambda: ended, "the report")
    producer.close(5)
    assert ended == [None]
    member, heard = clients.joined("g", ["t"])
    clients.until(lambda: len(heard.got) == 2, "the record")
    assert [name for name, _ in heard.got[1].headers] == [
        "base64;Yf8=", "ä", "base64;7bO/", "base64;VEFHUwA=", "base64;w6kA"
    ]  # fmt: skip
    clients.leave(member)
