"""`groupProtocol: auto`: what a look at the cluster finds, when it stays classic, and why."""

from __future__ import annotations

import pytest

from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.link import KafkaFailure, TopicSubscription
from upstream.kafka_client.member_protocol import ProtocolChoice, is_unsupported

OFFERED = {
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "group.consumer.session.timeout.ms": "45000",
}
TOPICS = [TopicSubscription("t")]


@pytest.mark.parametrize(
    ("settings", "protocol", "why"),
    [
        (OFFERED, "consumer", ""),
        ({**OFFERED, "group.coordinator.rebalance.protocols": "classic"}, "classic", "do not offer KIP-848"),
        (
            {**OFFERED, "group.consumer.session.timeout.ms": "9000"},
            "classic",
            "sessionTimeout is 45000",
        ),
        ({"log.dirs": "/k"}, "classic", "do not offer KIP-848"),
        ({}, "classic", "allow it DescribeConfigs"),
    ],
)
def test_auto_is_what_the_brokers_offer(settings: dict[str, str], protocol: str, why: str) -> None:
    """KIP-848 where they have it with the same session timeout; else classic, with the reason."""
    choice = ProtocolChoice("auto", 45_000, lambda: ClusterFacts(settings=settings))
    assert choice.of(TOPICS) == protocol
    assert why in choice.trouble
    assert bool(choice.trouble) == (protocol == "classic")


def test_auto_waits_for_a_cluster_that_does_not_answer_and_looks_once() -> None:
    """A member that began as classic would be one until the next start."""
    answers = [ClusterFacts(trouble="away"), ClusterFacts(settings=OFFERED)]
    choice = ProtocolChoice("auto", 45_000, lambda: answers.pop(0))
    assert [choice.of(TOPICS) for _ in range(3)] == [None, "consumer", "consumer"]


def test_group_with_an_expression_stays_classic() -> None:
    """Without a look; of the same cluster other groups may have KIP-848."""
    choice = ProtocolChoice("auto", 45_000, lambda: ClusterFacts(settings=OFFERED))
    assert choice.of([TopicSubscription("^t.*")]) == "classic"
    assert choice.of(TOPICS) == "consumer"


def test_configured_protocol_is_taken_without_a_look() -> None:
    """Whatever the cluster offers."""
    for protocol in ("classic", "consumer"):
        assert ProtocolChoice(protocol, 45_000, lambda: pytest.fail("a look")).of(TOPICS) == protocol


def test_cluster_that_refuses_what_it_offers_is_classic_from_then_on() -> None:
    """Its feature group.version is 0: librdkafka ends by a fatal error that names the request."""
    text = "Fatal error: Broker: API version not supported: ConsumerGroupHeartbeat fatal error"
    assert is_unsupported(KafkaFailure("FATAL", text))
    assert not is_unsupported(KafkaFailure("FATAL", "another"))
    choice = ProtocolChoice("auto", 45_000, lambda: ClusterFacts(settings=OFFERED))
    choice.refused()
    assert choice.of(TOPICS) == "classic"
    assert "group.version" in choice.trouble
