"""What of a cluster does not fit a configuration: one sentence each."""

from __future__ import annotations

from typing import Any

import pytest

from conf import loads
from upstream.kafka.cluster_facts import ClusterFacts, TopicFacts
from upstream.kafka.cluster_rules import mismatches, schedule_ms, wanted_of

YAML = """
kafka:
  main: {bootstrapServers: "a:9092", sessionTimeout: 10000, groupProtocol: classic}
topics:
  orders: {queues: 1}
  invoices: {brokerCluster: main}
  "^bills-.*": {brokerCluster: main}
groups:
  - group: billing
    topics:
      - {topic: invoices, retryIntervals: [60000, 60000], timeout: 10000, maxRetry: 2}
      - {topic: "^bills-.*"}
  - {group: local, topics: [{topic: orders}]}
"""
CONFIG = loads(YAML).config
ALL = frozenset({"READ", "WRITE", "DESCRIBE"})
KEPT = {"retention.ms": "604800000", "min.insync.replicas": "2", "max.message.bytes": "10485760"}
GOOD = TopicFacts(12, 0, 3, 3, KEPT, ALL)
COMPACT = GOOD._replace(settings={**KEPT, "cleanup.policy": "compact"})
TOPICS = {"invoices": GOOD, "bills-a": GOOD, "billing.DLQ": GOOD, "__pyddmq_commits": COMPACT}
FACTS = ClusterFacts(names=frozenset(TOPICS), topics=TOPICS, groups={"billing": ALL}, brokers=3)


def _found(facts: ClusterFacts) -> list[tuple[str, bool, str]]:
    return [(".".join(each.path), each.bad, each.text) for each in mismatches(CONFIG, "main", facts)]


def _with(name: str, **changed: Any) -> ClusterFacts:
    settings = changed.pop("settings", None)
    topic = TOPICS[name]._replace(**changed)
    if settings is not None:
        topic = topic._replace(settings={**topic.settings, **settings})
    return FACTS._replace(topics={**TOPICS, name: topic})


def _without(name: str) -> ClusterFacts:
    return FACTS._replace(topics={key: each for key, each in TOPICS.items() if key != name})


def test_what_is_asked_for() -> None:
    """Topics and expressions of the cluster, dead letters and the commit topic; nothing of the store."""
    topics, groups = wanted_of(CONFIG, "main")
    assert topics == {"invoices", "^bills-.*", "billing.DLQ", "__pyddmq_commits"}
    assert groups == {"billing"}


def test_cluster_that_fits() -> None:
    """Nothing is said."""
    assert _found(FACTS) == []


@pytest.mark.parametrize(
    ("facts", "path", "bad", "said"),
    [
        (
            ClusterFacts(trouble="no (TRANSPORT)"),
            "kafka.main",
            True,
            "cannot be queried at a:9092: no (TRANSPORT); configure boot",
        ),
        (
            ClusterFacts(trouble="no (AUTHENTICATION)"),
            "kafka.main",
            True,
            "configure a user and a secret that the brokers accept",
        ),
        (
            ClusterFacts(trouble="no (SSL)"),
            "kafka.main",
            True,
            "configure security.protocol and certificates that match",
        ),
        (_without("invoices"), "topics.invoices", True, "invoices does not exist in main, or is not visible"),
        (
            _without("invoices")._replace(hidden={"invoices": "no (TOPIC_AUTHORIZATION_FAILED)"}),
            "topics.invoices",
            True,
            "this user may not describe invoices (no (TOPIC_AUTHORIZATION_FAILED)); grant Describe",
        ),
        (FACTS._replace(names=frozenset({"invoices"})), "topics.^bills-.*", False, "matches no visible topic of main"),
        (
            _without("billing.DLQ"),
            "groups.billing",
            True,
            "--create --topic billing.DLQ --partitions 12 --replication-f",
        ),
        (_without("__pyddmq_commits"), "kafka.main.commitTopic", False, "--config cleanup.policy=compact"),
        (_with("invoices", leaderless=2), "topics.invoices", True, "2 of 12 partitions of invoices have no leader"),
        (
            _with("invoices", replicas=1, in_sync=2),
            "topics.invoices",
            False,
            "so losing one disk loses the topic; use a replication",
        ),
        (_with("invoices", in_sync=1), "topics.invoices", True, "1 copies in sync, and min.insync.replicas is 2"),
        (
            _with("invoices", settings={"min.insync.replicas": "1"}),
            "topics.invoices",
            False,
            "on only one broker",
        ),
        (
            _with("invoices", settings={"min.insync.replicas": "3"}),
            "topics.invoices",
            False,
            "3 of 3 copies, so sends fail",
        ),
        (
            _with("invoices", settings={"max.message.bytes": "1000"}),
            "topics.invoices",
            False,
            "messages up to 1000 bytes",
        ),
        (
            _with("invoices", allowed=ALL - {"WRITE"}),
            "topics.invoices",
            False,
            "may not write to it (producers receive code 13",
        ),
        (_with("invoices", allowed=ALL - {"READ"}), "groups.billing.invoices", True, "this user may not read invoices"),
        (_with("bills-a", allowed=ALL - {"READ"}), "groups.billing.^bills-.*", True, "this user may not read bills-a"),
        (_with("billing.DLQ", allowed=ALL - {"WRITE"}), "groups.billing", True, "may not write to billing.DLQ"),
        (FACTS._replace(groups={"billing": frozenset()}), "groups.billing", True, "may not join group billing in main"),
        (
            _with("invoices", settings={"retention.ms": "120000"}),
            "groups.billing.invoices",
            True,
            "keeps messages for 120 s (retention.ms), and retries here take up to 170 s: Kafka deletes messages that "
            "still fail; set retention.ms to 340000 or more",
        ),
        (
            _with("__pyddmq_commits", settings={"cleanup.policy": "delete"}),
            "kafka.main.commitTopic",
            True,
            "to compact",
        ),
        (_with("__pyddmq_commits", allowed=frozenset()), "kafka.main.commitTopic", False, "may not read and write"),
        (
            FACTS._replace(settings={"group.min.session.timeout.ms": "11000"}),
            "kafka.main.sessionTimeout",
            True,
            "at least 11000",
        ),
        (
            FACTS._replace(settings={"group.max.session.timeout.ms": "9000"}),
            "kafka.main.sessionTimeout",
            True,
            "at most 9000",
        ),
    ],
)
def test_what_does_not_fit_is_told_once(facts: ClusterFacts, path: str, bad: bool, said: str) -> None:
    """By the key that it is about, as an error or a warning, with what would be right."""
    [(where, is_bad, text)] = _found(facts)
    assert (where, is_bad) == (path, bad)
    assert said in text


def test_settings_that_may_not_be_seen_are_no_trouble_but_told() -> None:
    """Nothing is said of what is not known."""
    found = _found(FACTS._replace(topics={**TOPICS, "invoices": GOOD._replace(settings={}, allowed=None)}))
    assert [(path, bad) for path, bad, _ in found] == [("topics.invoices", False)]
    assert "grant this user DescribeConfigs on it" in found[0][2]


def test_longest_schedule_of_retries() -> None:
    """Intervals, and a timeout for each attempt; without end where the last one repeats or nothing is given up."""
    [first, _] = CONFIG.groups["billing"].topics
    assert schedule_ms(first) == 2 * 60_000 + 3 * 10_000 + 2 * 10_000
    for change in ({"retry_intervals": [1000, -1]}, {"max_retry": -1}, {"on_exhausted": "stopKey"}):
        assert schedule_ms(first.model_copy(update=change)) is None


def test_endless_retries_end_with_what_kafka_keeps() -> None:
    """A warning: whoever means it knows."""
    config = loads(YAML.replace("[60000, 60000]", "[1000, -1]")).config
    [found] = mismatches(config, "main", FACTS)
    assert not found.bad
    assert "keeps messages for 7 days (retention.ms), and failed messages are retried without end" in found.text


def test_session_of_the_new_protocol_is_the_brokers() -> None:
    """A longer one of ours hands out what is another's: an error; a shorter one gives up early: a warning."""
    config = loads(YAML.replace("groupProtocol: classic", "groupProtocol: consumer")).config
    for theirs, bad in (("9000", True), ("45000", False)):
        facts = FACTS._replace(settings={"group.consumer.session.timeout.ms": theirs})
        [found] = mismatches(config, "main", facts)
        assert (found.path[-1], found.bad) == ("sessionTimeout", bad)
        assert f"write {theirs}" in found.text


@pytest.mark.parametrize(("limit", "said"), [("4096", False), ("4095", True), ("100", True)])
def test_limit_of_commit_texts_is_a_warning_where_they_do_not_fit(limit: str, said: bool) -> None:
    """Kafka's own limit is large enough."""
    found = _found(FACTS._replace(settings={"offset.metadata.max.bytes": limit}))
    assert [(path, bad) for path, bad, _ in found] == ([("kafka.main", False)] if said else [])
    assert all(limit in text for _, _, text in found)


def test_offsets_that_are_deleted_before_they_are_kept_are_said() -> None:
    """A node joins an idle group every six hours; of one that is always a member nothing is deleted."""
    for minutes, membership, said in ((10_080, "pulls", 0), (600, "pulls", 1), (600, "always", 0)):
        more = f"sessionTimeout: 10000, membership: {membership}"
        config = loads(YAML.replace("sessionTimeout: 10000", more)).config
        facts = FACTS._replace(settings={"offsets.retention.minutes": str(minutes)})
        found = [each for each in mismatches(config, "main", facts) if "offsets.retention.minutes" in each.text]
        assert len(found) == said


def test_auto_that_stays_classic_is_said() -> None:
    """With what the brokers would have to have; where they have it nothing is said."""
    config = loads(YAML.replace("groupProtocol: classic", "groupProtocol: auto")).config
    offered = {
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.consumer.session.timeout.ms": "10000",
    }
    assert [
        each for each in mismatches(config, "main", FACTS._replace(settings=offered)) if "classic" in each.text
    ] == []
    facts = FACTS._replace(settings={**offered, "group.consumer.session.timeout.ms": "45000"})
    [found] = [each for each in mismatches(config, "main", facts) if "classic" in each.text]
    assert (found.path[-1], found.bad) == ("groupProtocol", False)
    assert "stays classic: sessionTimeout is 10000" in found.text
