"""What the admin port answers for topics, messages and dead letters that are in Kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from broker.retry.redrive import Redrives
from broker.store import Store
from conf import loads
from proxy.admin.console import topics
from proxy.admin.server import AdminServer
from proxy.operate.lookups.in_kafka import InKafka
from pyddmq.testing import ManualClock, SimDisk
from tests.admin_node import NOW_MS, PlainNode
from tests.integration.store_tools import open_store
from upstream.kafka.link import KafkaFailure, KafkaRecord, ScanFound, TopicScan

CONFIG = loads("""
kafka:
  main: {bootstrapServers: "a:9092"}
topics:
  invoices: {brokerCluster: main}
groups:
  - {group: billing, topics: [{topic: invoices}]}
""").config


class NodeBeforeKafka(PlainNode):
    """One with an empty store, whose topic and group are in Kafka."""

    def __init__(self, *, answers: bool = True) -> None:
        super().__init__()
        self.answers = answers
        disk = SimDisk()
        self.empty = open_store(disk, clock=ManualClock(NOW_MS))
        self.messages = self.empty
        self.redrives = Redrives(self.empty, disk=disk)

    @property
    def in_kafka(self) -> InKafka:
        return InKafka(CONFIG)

    async def scan(self, cluster: str, scan: TopicScan) -> ScanFound:
        if not self.answers:
            await asyncio.Event().wait()
        if scan.partition == 5:
            raise KafkaFailure("UNKNOWN_PARTITION", "topic invoices has no partition 5")
        if scan.partition == 6:
            raise KafkaFailure("TRANSPORT", "the cluster does not respond")
        record = KafkaRecord("invoices", 0, 7, NOW_MS, b"k", b"body", [])
        return ScanFound([record] if scan.matches(record) else [], (0, 8), 0.5)

    def dead_letters(self) -> tuple[Store, Redrives] | None:
        return self.empty, self.redrives


def _get(path: str, *, answers: bool = True) -> tuple[int, Any]:
    async def ask() -> tuple[int, Any]:
        server = AdminServer(NodeBeforeKafka(answers=answers))
        await server.start("127.0.0.1", 0)
        host, port = server.address
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as response:
                is_page = response.content_type == "text/html"
                return response.status, await (response.text() if is_page else response.json())
        finally:
            await server.stop()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/topics?topic=invoices", "Topic invoices is in Kafka cluster main"),
        ("/api/topics?topic=billing.DLQ", "Topic billing.DLQ is in Kafka cluster main"),
        ("/api/topics?topic=none", "Topic 'none' does not exist"),
        ("/api/messages?topic=invoices&queue=5", "Kafka cluster main: topic invoices has no partition 5"),
        ("/api/messages?uniqKey=0A", "To search messages in Kafka, pass their topic"),
        ("/api/messages?topic=none", "none"),
        ("/api/dead-letters?group=none", "never had a dead letter"),
    ],
)
def test_what_is_in_kafka_is_said_to_be_there(path: str, said: str) -> None:
    """With its cluster; of what is nowhere the answer is as before."""
    status, answer = _get(path)
    assert status == 404
    assert said in answer["error"]["message"]
    assert ("Kafka" in answer["error"]["message"]) == ("none" not in path)


def test_messages_in_kafka_are_found_with_where_to_continue() -> None:
    """As those of the store, with the share of the log that is searched; a cluster in trouble is not "not found"."""
    status, answer = _get("/api/messages?topic=invoices&text=bod")
    assert (status, answer["cursor"], answer["share"]) == (200, "0:8", 0.5)
    assert [(each["cluster"], each["offset"], each["body"]) for each in answer["messages"]] == [("main", 7, "body")]
    assert _get("/api/messages?topic=invoices&text=nobody")[1]["messages"] == []
    status, answer = _get("/api/messages?topic=invoices&queue=6")
    assert (status, "does not respond" in answer["error"]["message"]) == (503, True)
    assert _get("/api/messages?topic=invoices&cursor=8")[0] == 400


def test_page_of_a_topic_waits_for_kafka_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is shown without what the cluster would have said."""
    monkeypatch.setattr(topics, "KAFKA_SECONDS", 0.01)
    status, page = _get("/topic?topic=invoices", answers=False)
    assert status == 200
    assert "Kafka cluster main has not responded within 0.01 s." in page
    assert 'href="/group?group=billing"' in page.partition("<h2>Groups</h2>")[2]


def test_groups_over_kafka_are_listed_beside_those_with_dead_letters() -> None:
    """They are not counted here."""
    status, answer = _get("/api/dead-letters")
    assert status == 200
    assert answer["inKafka"] == [{"group": "billing", "cluster": "main", "topic": "billing.DLQ"}]
