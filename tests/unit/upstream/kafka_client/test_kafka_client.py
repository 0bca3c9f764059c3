"""The client by librdkafka's mock cluster: joins, sends, offsets. What only a real Kafka shows: tests/kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from tests.conftest import need_module
from tests.kafka_world import Clients, Heard
from upstream.kafka.link import Commit, Gap, KafkaFailure, KafkaPartition, KafkaRecord


@pytest.fixture
def clients() -> Iterator[Clients]:
    """Clients of a cluster that lives in a producer."""
    package = need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
    host = package.Producer({"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = host.list_topics(timeout=60).brokers.values()
    found = Clients(",".join(f"{each.host}:{each.port}" for each in brokers))
    # The mock makes topics of any name, with four partitions, when a producer asks.
    host.produce("t", value=b"first", partition=0)
    assert host.flush(60) == 0
    try:
        yield found
    finally:
        found.end()


def test_member_reads_commits_and_finds_it_again(clients: Clients) -> None:
    """Offset and text of the commit come back with the assignment; the end is told."""
    clients.send("t", [b"a", None, b"b"])
    member, heard = clients.joined("g", ["t"])
    clients.ended(heard, KafkaPartition("t", 0), 4)
    assert heard.values(0) == [b"first", b"a", None, b"b"]
    assert clients.commit(member, Commit("t", 0, 3, "text"), Commit("t", 1, 0, "")) is None
    assert clients.commit(member) is None
    clients.leave(member)
    assert heard.loud[-1][0] == "revoked"
    _, again = clients.joined("g", ["t"])
    clients.until(lambda: again.got, "the record that is left")
    assert (again.given[KafkaPartition("t", 0)].committed, again.given[KafkaPartition("t", 0)].metadata) == (3, "text")
    assert again.values() == [b"b"]


def test_pause_and_reading_from_elsewhere(clients: Clients) -> None:
    """Nothing is told before `read_from`, nor while paused; reading goes back."""
    member, heard = clients.joined("g", ["t"], Heard(reads=False))
    place = KafkaPartition("t", 0)
    member.pause([place])
    member.read_from(place, 0)
    assert clients.commit(member, Commit("t", 0, 0, "")) is None
    assert not heard.got
    member.resume([place])
    clients.until(lambda: heard.got, "the record")
    member.read_from(place, 0)
    clients.until(lambda: len(heard.got) == 2, "it again")
    ends: list[object] = []
    member.ends([place], lambda found, _: ends.append(found))
    clients.until(lambda: ends, "the end")
    assert ends == [[(place, 0, 1, 1)]]


def test_commit_of_what_is_not_ours_is_fenced(clients: Clients) -> None:
    """Without asking the coordinator; and after leaving, too."""
    member, _ = clients.joined("g", ["t"])
    refused = clients.commit(member, Commit("t", 99, 0, ""))
    assert isinstance(refused, KafkaFailure)
    assert refused.fenced
    clients.leave(member)
    late = clients.commit(member, Commit("t", 0, 0, ""))
    assert isinstance(late, KafkaFailure)
    assert late.fenced


def test_reader_reads_again(clients: Clients) -> None:
    """What is there of what is asked for, in its order."""
    clients.send("t", [b"a", b"b"])
    reader = clients.client().reader()
    found: list[tuple[list[bytes | None], list[Gap]]] = []

    def there(records: Sequence[KafkaRecord], gaps: Sequence[Gap]) -> None:
        found.append(([each.value for each in records], list(gaps)))

    reader.fetch(KafkaPartition("t", 0), [0, 2, 9], there)
    clients.until(lambda: found, "records")
    assert found == [([b"first", b"b"], [(9, 10)])]
    reader.close()


def test_cluster_that_is_not_there_is_a_trouble(clients: Clients) -> None:
    """Told once; a member leaves without it."""
    member, heard = clients.join("g", ["t"], address="127.0.0.1:1")
    clients.until(lambda: heard.troubles, "a trouble")
    assert heard.troubles[0] is not None
    assert heard.troubles[0].code == "ALL_BROKERS_DOWN"
    clients.leave(member)
    assert len(heard.troubles) == 1


def test_record_fails_when_nobody_takes_it(clients: Clients) -> None:
    """Once it has waited for as long as it may."""
    producer = clients.client(address="127.0.0.1:1", librdkafka={"message.timeout.ms": 100}).producer()
    ended: list[KafkaFailure | None] = []
    producer.produce("t", None, None, b"v", (), lambda failure, *_: ended.append(failure))
    clients.until(lambda: ended, "the end of its time")
    assert ended[0] is not None
    assert (ended[0].code, ended[0].unknown) == ("NOT_SENT", False)
    producer.close(0)


def test_producer_says_why_its_cluster_does_not_respond(clients: Clients) -> None:
    """It is asked for a topic; one that responds, whatever it says of the topic, is reachable."""
    away = clients.client(address="127.0.0.1:1").producer()
    assert away.unreachable("t") is None
    clients.until(lambda: away.unreachable("t") is not None, "the cluster to be unreachable")
    clients.until(lambda: "Connection refused" in str(away.unreachable("t")), "the reason")
    away.close(0)
    there = clients.client().producer()
    clients.until(lambda: there.partitions("t") is not None, "the cluster to respond")
    assert there.unreachable("t") is None
    there.close(0)


def test_last_commit_of_a_revoke_counts_after_its_time_for_answers(clients: Clients) -> None:
    """Whoever waited for answers as long as it may still commits those that came."""
    member, heard = clients.joined("g-last", ["t"], Heard(holds=True), revoke_timeout=1)
    left: list[bool] = []
    member.leave(lambda: left.append(True))
    clients.until(lambda: heard.open, "a revoke")
    pause = threading.Event()
    pause.wait(0.05)
    assert clients.commit(member, Commit("t", 0, 1, "the last")) is None
    heard.open.pop()()
    clients.until(lambda: left, "the member to leave")
    clients.forget(member)
    assert not heard.lost_places()
