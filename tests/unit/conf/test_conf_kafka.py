"""The section `kafka` and topics that stand there: what is taken, and what is said of what is not."""

from __future__ import annotations

import pytest

from conf import Config, GroupConfig, KafkaClusterConfig, SubscriptionConfig, TopicConfig, loads
from conf.diff import diff
from conf.secrets import Secret
from conf.sections.kafka import OWN_KEYS, librdkafka_problem
from tests.unit.conf_tools import refused

MAIN = "kafka: {main: {bootstrapServers: 'a:9092'}, other: {bootstrapServers: 'b:9092'}}\n"


def read(text: str) -> Config:
    """A text that is right."""
    loaded = loads(text)
    assert loaded.warnings == []
    return loaded.config


def test_defaults_of_a_cluster() -> None:
    """Only its servers must be given."""
    cluster = read("kafka: {main: {bootstrapServers: 'a:9092, [::1]:9093'}}\n").kafka["main"]
    assert cluster.bootstrap_servers == "a:9092,[::1]:9093"
    assert (cluster.group_protocol, cluster.takeover) == ("auto", "prompt")
    assert (cluster.session_timeout, cluster.commit_interval, cluster.revoke_timeout) == (45_000, 100, 10_000)
    assert cluster.waiting_bytes == 64 * 1024 * 1024
    assert cluster.librdkafka == {}


def test_settings_of_librdkafka_are_kept_as_written() -> None:
    """Text, numbers, truth values, and secrets as places."""
    text = (
        "{security.protocol: sasl_ssl, socket.timeout.ms: 5000, enable.ssl.certificate.verification: true, "
        "sasl.password: {env: P}}"
    )
    settings = read(f"kafka: {{main: {{bootstrapServers: 'a:1', librdkafka: {text}}}}}\n").kafka["main"].librdkafka
    assert settings == {
        "security.protocol": "sasl_ssl",
        "socket.timeout.ms": 5000,
        "enable.ssl.certificate.verification": True,
        "sasl.password": Secret(env="P"),
    }
    assert "***" in repr(settings)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("", "kafka.main.bootstrapServers: is missing; add `bootstrapServers: ...`"),
        ("bootstrapServers: host", "'host' is not a valid server; write host:port"),
        ("bootstrapServers: 'a:1,b:0'", "'b:0' is not a valid server"),
        ("bootstrapServers: 'kafka://a:1'", "is not a valid server"),
        ("groupProtocol: share", "write 'auto', 'classic' or 'consumer'"),
        ("takeover: late", "write 'prompt' or 'strict'"),
        ("sessionTimeout: 45s", "write 45000"),
        ("sessionTimeout: 10", "must be at least 1000"),
        ("revokeTimeout: 100000", "must be at most 99999"),
        ("commitInterval: 20000", "20000 ms is more than a third of sessionTimeout (45000)"),
        ("waitingBytes: 1", "must be at least 1048576"),
        ("waitingByte: 1", "did you mean waitingBytes?"),
        ("librdkafka: {group.id: x}", "librdkafka.group.id: is set by pyddmq itself: the group's name"),
        ("librdkafka: {acks: 1}", "librdkafka.acks: is set by pyddmq itself: a send is answered when all"),
        ("librdkafka: {bootstrap.servers: x}", "write the cluster's `bootstrapServers`"),
        ("librdkafka: {sasl.jaas.config: x}", "is a setting of the Java client; write `sasl.username`"),
        ("librdkafka: {error_cb: x}", "is a callback of a program; remove it"),
        ("librdkafka: {SASL: x}", "is not a setting of librdkafka"),
        ("librdkafka: {sasl.username: [a]}", "librdkafka.sasl.username: a value must be text, a number"),
        ("librdkafka: {sasl.username: }", "librdkafka.sasl.username: a value must be text, a number"),
        ("librdkafka: {sasl.password: {}}", "a secret has one source; write {file: PATH} or {env: NAME}"),
        ("librdkafka: {sasl.password: {path: a}}", "it has keys that a secret does not have; write {file: PATH}"),
        ("librdkafka: text", "must be a mapping of keys"),
    ],
)
def test_wrong_values_of_a_cluster_are_told(entry: str, said: str) -> None:
    """Key, what is wrong, what would be right."""
    servers = "" if "bootstrap" in entry.split(":", maxsplit=1)[0] or not entry else "bootstrapServers: 'a:9092', "
    assert said in refused(f"kafka: {{main: {{{servers}{entry}}}}}\n")


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)
@pytest.mark.parametrize("value", ["hunter2", "20002"])
def test_secret_as_text_is_refused_and_not_shown(key: str, value: str) -> None:
    """Neither the text nor a number of it stands in what is said (D60)."""
    said = refused(f"kafka: {{main: {{bootstrapServers: 'a:1', librdkafka: {{{key}: {value}}}}}}}\n")
    assert f"librdkafka.{key}: is a secret and not allowed in this file; write {{file: PATH}} or {{env: NAME}}" in said
    assert value not in said


def test_ended_messages_are_known_for_as_long_as_resends_come() -> None:
    """Else a message that was sent again would wait again."""
    yaml = (
        "node: {{deduplicationSec: {}}}\nkafka: {{main: {{bootstrapServers: 'a:1', waiting: {{rememberSec: 4000}}}}}}\n"
    )
    said = refused(yaml.format(4001))
    assert "kafka.main.waiting.rememberSec: 4000 s is less than node.deduplicationSec (4001)" in said
    waits = read(yaml.format(4000)).kafka["main"].waiting
    assert waits is not None
    assert waits.remember_sec == 4000


def test_own_keys_say_what_to_do() -> None:
    """Each names its remedy, whatever the value."""
    for key, remedy in OWN_KEYS.items():
        assert "write " in remedy or "remove it" in remedy
        assert librdkafka_problem(key, Secret(env="X")) == f"is set by pyddmq itself: {remedy}"
    assert librdkafka_problem("ssl.key.location", "/etc/key.pem") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kafka: [main]", "kafka: must be a mapping of clusters; write `kafka:`"),
        ("kafka: {main: text}", "kafka.main: must be a mapping"),
        ("kafka: {a b: {bootstrapServers: 'a:1'}}", "is not a plain name"),
        ("kafka: {pyddmq: {bootstrapServers: 'a:1'}}", "'pyddmq' is the node's own cluster (node.brokerCluster)"),
        ("kafkaConfigs: []", "write a cluster under `kafka:`"),
    ],
)
def test_wrong_sections_are_told(text: str, said: str) -> None:
    """Names of clusters are plain, and none is the node's."""
    assert said in refused(text + "\n")


def test_topics_say_where_they_stand() -> None:
    """Kafka's names are taken there, an expression, too; the node's own name means its store."""
    config = read(
        MAIN + "topics: {a.b: {brokerCluster: main}, '^c.*': {brokerCluster: other}, d: {brokerCluster: pyddmq}, e: }\n"
        "groups:\n- {group: g, topics: [{topic: a.b, brokerCluster: main}]}\n- {group: h, topics: [{topic: d}]}\n"
        "- {group: i, topics: [{topic: '^c.*', enabled: false}]}\n- group: j\n"
    )
    assert [config.cluster_of(each) for each in ("a.b", "^c.*", "d", "e", "f")] == ["main", "other", None, None, None]
    assert [config.cluster_of_group(each) for each in "ghij"] == ["main", None, "other", None]


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("t: {brokerCluster: man}", "topics.t.brokerCluster: 'man' is not a cluster; did you mean main?"),
        ("t: {brokerCluster: main, queues: 8}", "topics.t.queues: the queues of a topic in Kafka are its partitions"),
        (
            "t: {brokerCluster: main, messageType: DELAY}",
            "delays of a topic in Kafka need `waiting: {}` under its cluster",
        ),
        ("t: {brokerCluster: main, messageType: TRANSACTION}", "write NORMAL, FIFO or DELAY, or omit it"),
        ("t: {brokerCluster: main, messageType: MIXED}", "write NORMAL, FIFO or DELAY, or omit it"),
        ("t%u: {brokerCluster: main}", "'t%u' is not a valid Kafka topic name"),
        ("'^(': {brokerCluster: main}", "is not a valid regular expression"),
        (
            r"'^t\d+': {brokerCluster: main}",
            r"has '\\d', which librdkafka and brokers interpret differently; write classes",
        ),
        ("'^(?!a)b': {brokerCluster: main}", "has '(?', which librdkafka and brokers interpret differently"),
        ("t u: {brokerCluster: main}", "has a character that is not allowed in a topic"),
        ("t.u: {}", "topics.t.u: 't.u' is a name for Kafka only; add brokerCluster, one of kafka"),
        ("'^t': {}", "is a name for Kafka only"),
    ],
)
def test_topic_that_cannot_be_in_kafka_is_told(topic: str, said: str) -> None:
    """One sentence each."""
    text = refused(MAIN + f"topics: {{{topic}}}\n")
    assert said in text
    assert text.count("\n") == 0


def test_expression_that_fits_the_dead_letters_of_its_group_is_told() -> None:
    """They would come again and again; those of other groups may be read."""
    topics = MAIN + "topics: {'^orders.*': {brokerCluster: main}}\n"
    text = refused(topics + "groups: [{group: orders, topics: [{topic: '^orders.*'}]}]\n")
    assert "'^orders.*' matches orders.DLQ, the group's own dead letters" in text
    assert "such as ^orders[^.]*$" in text
    read(topics + "groups: [{group: billing, topics: [{topic: '^orders.*'}]}]\n")


def test_topic_of_a_wrong_cluster_is_not_wrong() -> None:
    """What is said of the cluster is enough."""
    text = refused("kafka: {main: {bootstrapServers: x}}\ntopics: {t: {brokerCluster: main}}\n")
    assert (
        text == "f.yaml:1: kafka.main.bootstrapServers: 'x' is not a valid server; write host:port, several separated "
        "by commas"
    )


GROUP = "topics: {k: {brokerCluster: main}, l: {brokerCluster: other}, s: }\ngroups:\n- group: %s\n  topics: [%s]\n"


@pytest.mark.parametrize(
    ("group", "topics", "said"),
    [
        ("g", "{topic: k}, {topic: s}", "groups[g].topics: all topics of a group must be in one cluster, and these "
         "are not: k in main; s in pyddmq; split the group into two"),
        ("g", "{topic: k}, {topic: l}", "k in main; l in other; split the group into two"),
        ("g", "{topic: k, brokerCluster: other}", "'other' is not that of k; write 'main' (topics.k.brokerCluster)"),
        ("g", "{topic: s, brokerCluster: main}", "'main' is not this node's; write 'pyddmq' (node.brokerCluster)"),
        ("g", "{topic: k, actions: [LowLevel]}", "k is in Kafka (main), where LowLevel is not supported"),
        ("g", "{topic: k, retryTopic: true}", "where failed messages are retried in place; remove it"),
        ("g|h", "{topic: k}", "g|h.DLQ is not a valid topic name"),
    ],
)  # fmt: skip
def test_group_that_cannot_read_kafka_is_told(group: str, topics: str, said: str) -> None:
    """One sentence each, with the way out."""
    assert said in refused(MAIN + GROUP % (group, topics))


def test_disabled_topics_may_stand_elsewhere() -> None:
    """They are not read."""
    assert read(MAIN + GROUP % ("g", "{topic: k}, {topic: s, enabled: false}")).cluster_of_group("g") == "main"


def test_dead_letters_of_a_kafka_group_are_in_kafka() -> None:
    """The store has none of it."""
    text = GROUP % ("g", "{topic: k}") + "- {group: h, topics: [{topic: '%DLQ%g'}]}\n"
    said = refused(MAIN + text)
    assert "its dead letters are in topic g.DLQ there; list it under topics with brokerCluster: main" in said


def test_what_is_found_behind_a_wrong_entry_names_its_own_line() -> None:
    """Groups and subscriptions that are left out are counted all the same."""
    topics = MAIN + "topics: {'^h.*': {brokerCluster: main}, s: }\n"
    groups = ["groups:", "- {group: 7}", "- {group: g, topics: [{topic: '^h.*'}]}", "- group: h", "  topics:"]
    own = ["  - {enabled: true}", "  - {topic: '%DLQ%g'}", "  - {topic: '^h.*'}"]
    said = refused(topics + "\n".join([*groups, *own]))
    assert "f.yaml:9: groups[h].topics[%DLQ%g].topic: g reads from Kafka" in said
    assert "f.yaml:10: groups[h].topics[^h.*].topic: '^h.*' matches h.DLQ" in said


def test_names_of_kafka_need_a_cluster_in_programs_too() -> None:
    """A configuration that no file made is held to the same."""
    with pytest.raises(ValueError, match="use letters, digits"):
        Config(topics={"a.b": TopicConfig()})
    assert Config(topics={"a.b": TopicConfig(broker_cluster="main")}).cluster_of("a.b") == "main"


def test_changes_of_clusters_need_a_restart() -> None:
    """A field, a cluster that comes or goes, a topic that moves; no value is shown."""
    main = KafkaClusterConfig(bootstrap_servers="a:1")
    old = Config(kafka={"main": main}, topics={"t": TopicConfig()})
    changed = main.model_copy(update={"session_timeout": 10_000, "librdkafka": {"sasl.username": "me"}})
    new = Config(
        kafka={"main": changed, "more": main},
        topics={"t": TopicConfig(broker_cluster="main")},
        groups={"g": GroupConfig(group="g", topics=[SubscriptionConfig(topic="t")])},
    )
    reported = [str(each) for each in diff(old, new).refusals]
    assert [each.partition(":")[0] for each in reported] == [
        "kafka.main.librdkafka",
        "kafka.main.sessionTimeout",
        "kafka.more",
        "topics.t.brokerCluster",
    ]
    assert all("restart" in each for each in reported)
    assert "me" not in "".join(reported).split()
    assert diff(old, old).empty
