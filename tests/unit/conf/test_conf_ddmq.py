"""Every field of DDMQ's proxies: supported, accepted with a warning, or refused with a reason (D23)."""

from __future__ import annotations

import pytest
import yaml

from conf import ConfigError, loads
from conf.base import Model
from conf.foreign import FOREIGN, SPELLINGS, TOP_LEVEL
from conf.models import GroupConfig, SubscriptionConfig, TopicConfig
from conf.sections.node import NodeConfig

THREADS = ("selectorThreads", "workerThreads", "acceptQueueSizePerThread", "maxReadBufferBytes", "backlog")
SECTIONS: dict[str, tuple[type[Model], tuple[str, ...]]] = {
    "bootstrap": (NodeConfig, ("zookeeperAddr", "port", "host", "defaultTopicInfoConf")),
    "CProxyConfig": (
        NodeConfig,
        ("instance", "proxyCluster", "brokerClusters", "kafkaConfigs", "rocketmqConfigs", "thriftServer", "groups"),
    ),
    "ConsumeServerConfiguration": (NodeConfig, ("port", *THREADS, "workerQueueSize", "maxRecvMsgsLength")),
    "PProxyConfig": (
        NodeConfig,
        ("instance", "proxyCluster", "brokerClusters", "topics", "carreraConfiguration"),
    ),
    "CarreraConfiguration": (
        NodeConfig,
        (
            "retryDelays",
            "useKafka",
            "useRocketmq",
            "kafkaProducers",
            "rocketmqProducers",
            "kafkaConfigurationMap",
            "rocketmqConfigurationMap",
            "useRequestLimiter",
            "thriftServer",
            "delay",
            "useAutoBatch",
            "autoBatch",
            "warmUpConnection",
            "warmUpFetchTopicRouteInfo",
            "maxTps",
            "tpsWarningRatio",
            "defaultTopicInfoConf",
            "limiterFailureRetryQueueSize",
        ),
    ),
    "ThriftServerConfiguration": (
        NodeConfig,
        ("port", *THREADS, "clientTimeout", "workerQueueSize", "timeoutCheckerThreads"),
    ),
    "TopicConfig": (
        TopicConfig,
        (
            "topic",
            "topicUnits",
            "delayTopic",
            "autoBatch",
            "strongOrder",
            "compressType",
            "limiterFailureRetryInterval",
            "alarmGroup",
        ),
    ),
    "GroupConfig": (
        GroupConfig,
        (
            "group",
            "topics",
            "asyncThreads",
            "redisConfig",
            "alarmGroup",
            "enableAlarm",
            "delayTimeThreshold",
            "committedLagThreshold",
            "delayRequestHandlerThreads",
        ),
    ),
    "UpstreamTopic": (
        SubscriptionConfig,
        (
            "brokerCluster",
            "proxies",
            "enabled",
            "topic",
            "tags",
            "actions",
            "fetchThreads",
            "maxTps",
            "totalMaxTps",
            "concurrency",
            "maxConsumeLag",
            "groovyScript",
            "timeout",
            "pressureTraffic",
            "orderKey",
            "maxRetry",
            "retryIntervals",
            "urls",
            "httpMethod",
            "queryParams",
            "appendContext",
            "transit",
            "tokenKey",
            "httpMaxTps",
            "maxPullBatchSize",
            "hdfsConfiguration",
            "hbaseconfiguration",
            "enableAlarm",
            "delayTimeThreshold",
            "committedLagThreshold",
        ),
    ),
}
"""DDMQ's configuration by its classes, with the section here that takes the place of each.

The classes inside of `thriftServer`, `delay`, `autoBatch`, `topicUnits`, the maps of clusters and the sinks go with the
field that holds them.
"""
FIELDS = [(section, model, name) for section, (model, names) in SECTIONS.items() for name in names]
WHOLE_FILE = ("zookeeperAddr", "port", "host", "defaultTopicInfoConf", "idc", "cProxyConfig", "groupConfigs")
"""What stands at the top of DDMQ's bootstrap and local files."""
MEANT = {"port": "producerPort or consumerPort"}

VALUES: dict[str, object] = {
    "brokerClusters": ["a"],
    "delayTopic": True,
    "useKafka": True,
    "httpMethod": "GET",
    "httpMaxTps": 5,
    "urls": ["http://x"],
    "groups": ["a"],
    "topics": ["a"],
}
"""Values that mean something, for fields where a text is none or stands at its default."""


@pytest.mark.parametrize(("section", "model", "name"), FIELDS, ids=[f"{a}.{c}" for a, _, c in FIELDS])
def test_field_of_ddmq_has_its_place(section: str, model: type[Model], name: str) -> None:
    """In the models, among those that are warned of or refused with a reason, or named as what it is called here."""
    supported = {field.alias or key for key, field in model.model_fields.items()}
    foreign = FOREIGN[model].get(name)
    assert (name in supported) + (foreign is not None) + (SPELLINGS.get(name) == MEANT.get(name, "")) == 1
    if foreign is None:
        return
    where = {NodeConfig: "node", TopicConfig: "topics", GroupConfig: "groups", SubscriptionConfig: "subscription"}[
        model
    ]
    text = file_with(where, name, VALUES.get(name, {"some": "thing"}))
    if foreign.option and not foreign.harmless:
        with pytest.raises(ConfigError) as refused:
            loads(text)
        assert f"{name}: would have no effect: it is the option" in str(refused.value.problems[0])
        return
    if foreign.harmless:
        [warning] = [str(each) for each in loads(text).warnings]
        assert f"{name}: has no effect: " in warning
    else:
        with pytest.raises(ConfigError, match="not in this version: ") as refused:
            loads(text)
        [problem] = refused.value.problems
        assert name in str(problem)


def file_with(where: str, name: str, value: object) -> str:
    """A file with one more field in a section."""
    more = {name: value}
    topics = {"orders": more if where == "topics" else {}}
    subscription = {"topic": "orders", **(more if where == "subscription" else {})}
    group = {"group": "billing", "topics": [subscription], **(more if where == "groups" else {})}
    text: str = yaml.safe_dump({"node": more if where == "node" else {}, "topics": topics, "groups": [group]})
    return text


@pytest.mark.parametrize(
    "name", sorted({*WHOLE_FILE, *SECTIONS["CProxyConfig"][1], *SECTIONS["PProxyConfig"][1]} - {"topics", "groups"})
)
def test_top_of_a_file_of_ddmq_is_told_where_it_belongs(name: str) -> None:
    """A file that was written for DDMQ is refused with a sentence for each of its sections."""
    assert name in TOP_LEVEL
    with pytest.raises(ConfigError) as refused:
        loads(yaml.safe_dump({name: {"some": "thing"}}))
    [problem] = refused.value.problems
    assert TOP_LEVEL[name] in str(problem)
