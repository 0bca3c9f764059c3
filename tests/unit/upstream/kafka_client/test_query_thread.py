"""The thread that asks a cluster, and the consumers by which it asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from conf.sections.kafka import KafkaClusterConfig
from pyddmq.testing import ManualClock
from tests.conftest import need_module
from tests.kafka_world import Loop
from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.link import KafkaPartition
from upstream.kafka_client.member import LibrdkafkaMember
from upstream.kafka_client.member_protocol import ProtocolChoice
from upstream.kafka_client.package import KafkaUnusable
from upstream.kafka_client.posting import Post
from upstream.kafka_client.query_thread import QueryConsumers, QueryThread
from upstream.kafka_client.settings import Settings


@pytest.mark.parametrize(
    ("name", "renewed"), [("_UNKNOWN_PARTITION", 1), ("_UNKNOWN_TOPIC", 1), ("_TIMED_OUT", 0), ("_TRANSPORT", 0)]
)
def test_consumers_that_remember_no_such_partition_are_replaced(name: str, renewed: int) -> None:
    """The brokers, asked without them, know it; where the cluster is away others would know no more."""
    package = need_module("confluent_kafka")
    loop, unanswered = Loop(), list[bool]()
    replaced: list[bool] = []
    queries = QueryThread("main", Post(loop), lambda: replaced.append(True))

    def query() -> None:
        raise package.KafkaException(package.KafkaError(getattr(package.KafkaError, name)))

    queries.submit(query, lambda: unanswered.append(True))  # type: ignore[arg-type]
    loop.until(lambda: unanswered, "the end of the question")
    assert len(replaced) == renewed
    queries.close()


def test_question_for_which_no_consumer_can_be_made_ends_alone() -> None:
    """As while the file of a certificate is replaced; the next question is asked."""
    need_module("confluent_kafka")
    loop, heard = Loop(), list[str]()
    queries = QueryThread("main", Post(loop), lambda: None)

    def query() -> None:
        raise KafkaUnusable("librdkafka rejects the settings: ssl.ca.location failed: No such file or directory")

    queries.submit(query, lambda: heard.append("no"))  # type: ignore[arg-type]
    queries.submit(lambda: lambda: heard.append("yes"))
    loop.until(lambda: len(heard) == 2, "both ends")
    assert heard == ["no", "yes"]
    queries.close()


def test_question_that_waits_is_asked_once_and_as_it_was_asked_last() -> None:
    """Every second the same is asked, and a cluster that is away takes longer than that to say nothing."""
    need_module("confluent_kafka")
    loop, heard, away = Loop(), list[str](), threading.Event()
    queries = QueryThread("main", Post(loop), lambda: None)
    config = KafkaClusterConfig.model_validate({"bootstrapServers": "127.0.0.1:1"})
    asked: list[int] = []

    def first() -> Callable[[], None]:
        away.wait()
        return lambda: heard.append("first")

    def consumer() -> Any:
        asked.append(1)
        raise KafkaUnusable("only counted")

    member = LibrdkafkaMember(
        "g",
        "c",
        settings=Settings("main", config, ManualClock()),
        loop=loop,
        clock=ManualClock(),
        queries=queries,
        query_consumers=QueryConsumers(consumer, consumer),
        choice=ProtocolChoice("auto", 6000, ClusterFacts),
        topic_ids=lambda names, reported: None,
    )
    queries.submit(first)
    for _ in range(100):
        member.ends([KafkaPartition("t", 0)], lambda ends, failures: None)
        member.topics(["t"], lambda found, failures: None)
    for number in range(3):
        queries.submit(lambda number=number: lambda: heard.append(f"{number} of 3"), instead_of="same")  # type: ignore[misc]
    queries.submit(lambda: lambda: heard.append("last"))
    away.set()
    loop.until(lambda: "last" in heard, "the last answer")
    assert heard == ["first", "2 of 3", "last"]
    assert len(asked) == 2, "one for the ends and one for the topics"
    queries.close()
