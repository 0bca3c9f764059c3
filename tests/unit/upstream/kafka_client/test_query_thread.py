"""The thread that asks a cluster, and the consumers by which it asks."""

from __future__ import annotations

import pytest

from tests.conftest import need_module
from tests.kafka_world import Loop
from upstream.kafka_client.package import KafkaUnusable
from upstream.kafka_client.posting import Post
from upstream.kafka_client.query_thread import QueryThread


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
