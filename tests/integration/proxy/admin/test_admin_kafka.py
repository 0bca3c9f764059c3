"""What the admin port answers for topics, messages and dead letters that are in Kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from broker.retry.redrive import Redrives
from broker.store import Store
from conf import loads
from proxy.admin.server import AdminServer
from proxy.operate.lookups.in_kafka import InKafka
from pyddmq.testing import ManualClock, SimDisk
from tests.admin_node import NOW_MS, PlainNode
from tests.integration.store_tools import open_store

CONFIG = loads("""
kafka:
  main: {bootstrapServers: "a:9092"}
topics:
  invoices: {brokerCluster: main}
groups:
  - {group: billing, topics: [{topic: invoices}]}
""").config


class KafkaNode(PlainNode):
    """One with an empty store, whose topic and group are in Kafka."""

    def __init__(self) -> None:
        super().__init__()
        disk = SimDisk()
        self.empty = open_store(disk, clock=ManualClock(NOW_MS))
        self.messages = self.empty
        self.redrives = Redrives(self.empty, disk=disk)

    @property
    def in_kafka(self) -> InKafka:
        return InKafka(CONFIG)

    def dead_letters(self) -> tuple[Store, Redrives] | None:
        return self.empty, self.redrives


def _get(path: str) -> tuple[int, dict[str, Any]]:
    async def ask() -> tuple[int, dict[str, Any]]:
        server = AdminServer(KafkaNode())
        await server.start("127.0.0.1", 0)
        host, port = server.address
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as response:
                return response.status, await response.json()
        finally:
            await server.stop()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/topics?topic=invoices", "Topic invoices is in Kafka cluster main"),
        ("/api/topics?topic=billing.DLQ", "Topic billing.DLQ is in Kafka cluster main"),
        ("/api/topics?topic=none", "Topic 'none' does not exist"),
        ("/api/messages?topic=invoices", "Messages of topic invoices are in Kafka cluster main"),
        ("/api/messages?uniqKey=0A", "messages in Kafka are not searched"),
        ("/api/messages?topic=none", "none"),
        ("/api/dead-letters?group=billing", "are in topic billing.DLQ of Kafka cluster main"),
        ("/api/dead-letters?group=billing&figures=true", "are in topic billing.DLQ of Kafka cluster main"),
        ("/api/dead-letters?group=none", "never had a dead letter"),
    ],
)
def test_what_is_in_kafka_is_said_to_be_there(path: str, said: str) -> None:
    """With its cluster; of what is nowhere the answer is as before."""
    status, answer = _get(path)
    assert status == 404
    assert said in answer["error"]["message"]
    assert ("Kafka" in answer["error"]["message"]) == ("none" not in path)


def test_groups_over_kafka_are_listed_beside_those_with_dead_letters() -> None:
    """They are not counted here."""
    status, answer = _get("/api/dead-letters")
    assert status == 200
    assert answer["inKafka"] == [{"group": "billing", "cluster": "main", "topic": "billing.DLQ"}]
