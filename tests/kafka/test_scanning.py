"""What `upstream.kafka.link` says of looking through a topic, on a real Kafka."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import admin

from tests.acceptance.conftest import command
from tests.kafka.nodes import NodeProcess
from tests.kafka.topics import SECONDS, delete_records, plain_producer, send_plainly, topic_names
from tests.kafka_world import Clients
from tests.patient import until
from upstream.kafka.link import KafkaFailure, KafkaRecord, ScanFound, TopicScan

pytestmark = pytest.mark.long

MakeTopic = Callable[..., str]
_ADMIN: Any = admin
Ended = list[tuple[KafkaFailure | None, ScanFound]]


def anything(_: KafkaRecord) -> bool:
    """Whatever it is."""
    return True


def ended(clients: Clients, scan: TopicScan) -> tuple[KafkaFailure | None, ScanFound]:
    """Look, and return how it ended."""
    found: Ended = []
    clients.client().scan(scan, lambda *each: found.append(each))
    clients.until(lambda: found, "the end of a scan")
    return found[0]


def found_by(clients: Clients, scan: TopicScan) -> ScanFound:
    """Look, and return what was found."""
    failure, found = ended(clients, scan)
    assert failure is None, failure
    return found


def places(found: ScanFound) -> list[tuple[int, int]]:
    """Partitions and offsets."""
    return [(each.partition, each.offset) for each in found.records]


def test_records_are_found_by_partition_offset_and_time(clients: Clients, topic: MakeTopic, address: str) -> None:
    """All partitions one after the other, an empty one too; what retention deleted is left out."""
    name = topic(3, retention_ms="-1")
    sent = [{"value": b"%d" % each, "timestamp": 1000 * each, "partition": each % 2 * 2} for each in range(1, 11)]
    send_plainly(address, name, sent)
    assert places(found_by(clients, TopicScan(name, anything))) == [(0, each) for each in range(5)] + [
        (2, each) for each in range(5)
    ]
    assert places(found_by(clients, TopicScan(name, anything, partition=2, offset=3))) == [(2, 3), (2, 4)]
    timed = found_by(clients, TopicScan(name, anything, from_ms=4000, to_ms=8000))
    assert [each.value for each in timed.records] == [b"4", b"6", b"5", b"7"]
    assert found_by(clients, TopicScan(name, anything, from_ms=20_000))[:3] == ([], None, 1.0)
    delete_records(address, name, 0, 2)
    assert places(found_by(clients, TopicScan(name, anything, partition=0))) == [(0, 2), (0, 3), (0, 4)]


def test_scan_goes_on_where_another_ended(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Each after so many bytes; each record is looked at once, in a thread that is not the caller's."""
    name = topic(2)
    send_plainly(address, name, [{"value": b"%0500d" % each, "partition": each % 2} for each in range(400)])
    looked: list[tuple[int, int]] = []
    threads = set[int]()

    def matches(record: KafkaRecord) -> bool:
        looked.append((record.partition, record.offset))
        threads.add(threading.get_ident())
        return record.value is not None and record.value.endswith(b"77")

    found: list[KafkaRecord] = []
    scan: TopicScan = TopicScan(name, matches, bytes_max=60_000)
    shares = []
    while True:
        part = found_by(clients, scan)
        found += part.records
        shares.append(part.share)
        if part.cursor is None:
            break
        scan = scan._replace(begin=part.cursor)
    assert [int(each.value or b"") for each in found] == [77, 177, 277, 377]
    assert looked == [(each, offset) for each in range(2) for offset in range(200)]
    assert threading.get_ident() not in threads
    assert len(shares) > 3
    assert shares == sorted(shares)


def test_scan_reads_committed_records_and_joins_no_group(clients: Clients, topic: MakeTopic, address: str) -> None:
    """An aborted transaction at the end does not keep it waiting; the cluster knows no group of it."""
    name = topic()
    producer = plain_producer(address, **{"transactional.id": name})
    producer.init_transactions(SECONDS)
    for commits in (True, False):
        producer.begin_transaction()
        producer.produce(name, b"committed" if commits else b"aborted")
        producer.flush(SECONDS)
        if commits:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)
    found = found_by(clients, TopicScan(name, anything))
    assert [each.value for each in found.records] == [b"committed"]
    assert found.cursor is None
    groups = _ADMIN.AdminClient({"bootstrap.servers": address}).list_consumer_groups().result(SECONDS)
    assert not [each.group_id for each in groups.valid if "pyddmq" in each.group_id]


def test_stopped_scan_ends_with_what_it_has(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Soon, and it says where to continue."""
    name = topic()
    send_plainly(address, name, [{"value": b"%d" % each} for each in range(5_000)])
    stop: list[Callable[[], object]] = []
    begun = threading.Event()

    def matches(record: KafkaRecord) -> bool:
        begun.wait(SECONDS)
        if record.offset == 10:
            stop[0]()
        return True

    found: Ended = []
    stop.append(clients.client().scan(TopicScan(name, matches), lambda *each: found.append(each)))
    begun.set()
    clients.until(lambda: found, "the end of a scan")
    assert found[0][0] is None
    assert (len(found[0][1].records), found[0][1].cursor) == (11, (0, 11))


def test_what_is_not_there_is_refused(clients: Clients, topic: MakeTopic, address: str) -> None:
    """A partition, and a topic, which is not made; a cluster that is not there."""
    name = topic(2)
    failure, _ = ended(clients, TopicScan(name, anything, partition=2))
    assert failure is not None
    assert "no partition 2, only 0 to 1" in str(failure)
    failure, _ = ended(clients, TopicScan(f"{name}-missing", anything))
    assert failure is not None
    assert failure.code == "UNKNOWN_TOPIC_OR_PART"
    assert f"{name}-missing" not in topic_names(address)
    away: Ended = []
    clients.client(address="127.0.0.1:1").scan(TopicScan(name, anything), lambda *each: away.append(each))
    clients.until(lambda: away, "a failure")
    assert away[0][0] is not None


def test_operator_searches_and_exports_messages(topic: MakeTopic, address: str, tmp_path: Path) -> None:
    """By a node and its CLI: one by its place, those with a text, and all of them as lines, also continued."""
    name = topic(2)
    bodies = [b'{"n": %d, "pad": "%s"}' % (each, b"x" * 50_000) for each in range(60)]
    send_plainly(address, name, [{"value": each, "partition": place % 2} for place, each in enumerate(bodies)])
    node = NodeProcess(tmp_path, "n", address=address, topic=name, group=f"g-{name}")
    admin = ("--admin", node.admin)
    try:
        [shown] = command("messages", "show", "-t", name, "-q", "1", "-o", "3", "--json", *admin).json_lines()
        assert (shown["cluster"], shown["body"]) == ("main", bodies[7].decode())
        found = command("messages", "query", name, "--text", '"n": 58', "--json", *admin).json_lines()
        assert [(each["queue"], each["offset"]) for each in found] == [(0, 29)]
        file = tmp_path / "out.jsonl"
        assert command("messages", "export", name, "-O", file, "-n", "40", *admin).code == 0
        assert command("messages", "export", name, "-O", file, "--resume", *admin).code == 0
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [each["body"].encode() for each in lines] == bodies[::2] + bodies[1::2]
    finally:
        node.stop()


def test_nodes_that_share_a_group_are_listed_with_their_partitions(
    topic: MakeTopic, address: str, tmp_path: Path
) -> None:
    """By any of them, from what Kafka knows of the group's members."""
    name = topic(4)
    text = """
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: {node}}}
kafka: {{main: {{bootstrapServers: "{address}", membership: always}}}}
topics: {{{topic}: {{brokerCluster: main}}}}
groups: [{{group: g-{topic}, topics: [{{topic: {topic}}}]}}]
"""
    nodes = [
        NodeProcess(tmp_path, each, text=text.format(data=tmp_path / each, node=each, address=address, topic=name))
        for each in ("one", "two")
    ]
    try:

        def owned() -> dict[str, list[int]]:
            answer = json.loads(urlopen(f"http://{nodes[1].admin}/api/nodes", timeout=SECONDS).read())
            [cluster] = answer["clusters"]
            assert not cluster["trouble"]
            return {each["node"]: each["parts"][0]["partitions"] for each in cluster["nodes"] if each["parts"]}

        def is_shared() -> bool:
            found = owned()
            numbers = [number for each in found.values() for number in each]
            return sorted(found) == ["one", "two"] and sorted(numbers) == [0, 1, 2, 3]

        until(is_shared, "both nodes to have partitions")
    finally:
        for each in nodes:
            each.stop()
