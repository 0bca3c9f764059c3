"""Fields of DDMQ's configuration, and keys of earlier versions, that this version does not use (D23).

Harmless ones are accepted with a warning that says why they mean nothing here. Those that would change what is
delivered are errors, unless they stand at DDMQ's own default, where they change nothing. A third kind is used: what
DDMQ has beside `actions` and we have among an action's `options` is read from both places, so that DDMQ's YAML works;
pages and examples have `options` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conf.base import Model
from conf.models import GroupConfig, SubscriptionConfig, TopicConfig
from conf.sections.lag import LagConfig
from conf.sections.node import NodeConfig


@dataclass(frozen=True, slots=True)
class DdmqField:
    """A field of DDMQ's: `harmless` ones warn with `text`; the others are errors unless their value is in `idle`.

    Where one of `actions` is in the pipeline, the field is that action's option `option` instead.
    """

    harmless: bool
    text: str
    idle: tuple[Any, ...] = ()
    option: str = ""
    actions: tuple[str, ...] = ()

    def refuses(self, value: Any) -> bool:
        """Whether this value is an error."""
        return not self.harmless and value not in (None, "", [], {}, *self.idle)


def _warn(text: str) -> DdmqField:
    return DdmqField(True, f"has no effect: {text}")


def _refuse(text: str, *idle: Any) -> DdmqField:
    return DdmqField(False, f"not in this version: {text}", idle)


def _removed(instead: str) -> DdmqField:
    return DdmqField(False, f"was removed; {instead}")


def _option(option: str, *actions: str, harmless: bool = True, idle: tuple[Any, ...] = ()) -> DdmqField:
    names = " or ".join(actions)
    effect = "has no effect" if harmless else "would have no effect"
    text = f"{effect}: it is the option `{option}` of {names}, which the pipeline does not have"
    return DdmqField(harmless, text, idle, option=option, actions=actions)


_THREADS = "one event loop serves all connections; remove it"
_REDIS = (
    "the block of a group; write it under the topic as `options: {Redis: {hosts: [host:6379], ...}}`, the password as "
    "{file: PATH} or {env: NAME}"
)
_HTTP = "AsyncHttp"
_EMBEDDED = "the broker is embedded, so there are no connections to it; remove it"
_BATCHED = "all publishes of one turn are batched; remove it"
_ONE_NODE = "one node consumes every queue; remove it"

GROOVY = (
    "Groovy, which needs a JVM and runs arbitrary code there; write a condition as a Filter (CEL), and "
    "changes of a message, headers, parameters and commands as a Python function for the action Python"
)
"""Why there are no Groovy scripts, and what takes their place: docs/actions-script.md."""

FOREIGN: dict[type[Model], dict[str, DdmqField]] = {
    NodeConfig: {
        "selectorThreads": _warn(_THREADS),
        "workerThreads": _warn(_THREADS),
        "acceptQueueSizePerThread": _warn(f"{_THREADS}, backlog limits waiting connections"),
        "workerQueueSize": _warn(f"{_THREADS}, maxOutstandingPerConnection limits waiting requests"),
        "timeoutCheckerThreads": _warn(_THREADS),
        "clientTimeout": _warn("idle connections are not closed; remove it"),
        "instance": _warn("brokerCluster and brokerName name a node; remove it"),
        "proxyCluster": _warn(_ONE_NODE),
        "brokerClusters": _refuse("brokerCluster names the node's own broker; clusters of Kafka are under `kafka:`"),
        "kafkaConfigs": _refuse("the section; write a cluster under `kafka:` at the top level"),
        "rocketmqConfigs": _refuse("the broker is embedded; remove it"),
        "thriftServer": _refuse(
            "the section; write producerPort, consumerPort, maxReadBufferBytes, backlog and "
            "maxRecvMsgsLength under `node`"
        ),
        "carreraConfiguration": _refuse("the section; write the settings that apply under `node`"),
        "groups": _refuse("a white list; all groups under `groups:` at the top level are served"),
        "topics": _refuse("a white list; all topics under `topics:` at the top level are served"),
        "zookeeperAddr": _warn("pyddmq does not use ZooKeeper, this file is the configuration; remove it"),
        "defaultTopicInfoConf": _refuse("static topics; write them under `topics:` at the top level"),
        "useKafka": _refuse("the switch; a topic is in Kafka if its brokerCluster is one of `kafka:`", False),
        "useRocketmq": _warn(_EMBEDDED),
        "kafkaProducers": _warn(_EMBEDDED),
        "rocketmqProducers": _warn(_EMBEDDED),
        "kafkaConfigurationMap": _refuse("the section; write clusters under `kafka:` at the top level"),
        "rocketmqConfigurationMap": _refuse("the broker is embedded; remove it"),
        "warmUpConnection": _warn(_EMBEDDED),
        "warmUpFetchTopicRouteInfo": _warn(_EMBEDDED),
        "retryDelays": _warn("DDMQ never used it either; remove it"),
        "useAutoBatch": _warn(_BATCHED),
        "autoBatch": _warn(_BATCHED),
        "useRequestLimiter": _warn("only maxTps sets a limit, of the node or a topic; remove it"),
        "tpsWarningRatio": _warn("a limit has one token bucket, without a separate warning limit; remove it"),
        "delay": _warn("delayed messages wait in the store, not in topics of another system; remove it"),
    },
    TopicConfig: {
        "topic": _warn("the key of the entry names the topic; remove it"),
        "topicUnits": _refuse("one node has one broker cluster; write queues and maxTps under the topic"),
        "delayTopic": _refuse(
            "every topic accepts delayed messages, and with `messageType: DELAY` only these; remove it", False
        ),
        "autoBatch": _warn(_BATCHED),
        "strongOrder": _warn("the node never resends a publish, so every topic is strongly ordered (W81)"),
        "compressType": _warn("DDMQ never used it either; remove it"),
    },
    SubscriptionConfig: {
        "proxies": _warn(_ONE_NODE),
        "fetchThreads": _warn("one reader serves all queues in the order of the log; remove it"),
        "groovyScript": _refuse(GROOVY),
        "urls": _option("urls", _HTTP, harmless=False),
        "httpMethod": _option("httpMethod", _HTTP, harmless=False, idle=("POST", "post")),
        "httpMaxTps": _option("httpMaxTps", _HTTP, harmless=False, idle=(-1, 0)),
        "queryParams": _option("fields", "QueryParams"),
        "appendContext": _option("appendContext", "FormParams", "FormParams2"),
        "tokenKey": _option("tokenKey", "FormParams", "FormParams2"),
        "transit": _option("fields", "Transit"),
        "redisConfig": _refuse(_REDIS),
        "hdfsConfiguration": _refuse(
            "the block; its fields are options of the action: "
            "`options: {Hdfs: {urls: [http://namenode:9870], rootPath: ...}}`"
        ),
        "hbaseconfiguration": _refuse(
            "the block, and ZooKeeper's address; write HBase's Thrift server and the tables as options of the action: "
            "`options: {HBase: {hosts: [host:9090], tables: [...]}}`"
        ),
    },
    LagConfig: {
        "alarms": _removed(
            "use `webhook: URL` instead for a post per changed verdict, and route alarms by Prometheus and "
            "Alertmanager (deploy/prometheus)"
        ),
    },
    GroupConfig: {
        "asyncThreads": _warn("jobs run concurrently on the event loop, up to concurrency; remove it"),
        "delayRequestHandlerThreads": _warn("every arrival wakes the longest waiting pull; remove it"),
        "redisConfig": _refuse(_REDIS),
    },
}

TOP_LEVEL = {
    "groupConfigs": "is DDMQ's name; write `groups:`",
    "cProxyConfig": "is DDMQ's; write the settings that apply under `node:`",
    "pProxyConfig": "is DDMQ's; write the settings that apply under `node:`",
    "carreraConfiguration": "is DDMQ's; write the settings that apply under `node:`",
    "thriftServer": "is DDMQ's; write producerPort, consumerPort, maxReadBufferBytes and backlog under `node:`",
    "instance": "is DDMQ's; brokerCluster and brokerName under `node:` name a node; remove it",
    "proxyCluster": "is DDMQ's and has no meaning for a single node; remove it",
    "brokerClusters": "is DDMQ's; brokerCluster under `node:` names the node's own; write Kafka's under `kafka:`",
    "kafkaConfigs": "is DDMQ's; write a cluster under `kafka:`, as `main: {bootstrapServers: host:9092}`",
    "rocketmqConfigs": "is DDMQ's; the broker is embedded; remove it",
    "zookeeperAddr": "is DDMQ's; pyddmq does not use ZooKeeper, this file is the configuration; remove it",
    "defaultTopicInfoConf": "is DDMQ's; write its topics under `topics:`",
    "host": "belongs under `node:`",
    "idc": "is DDMQ's and has no meaning here; remove it",
    "port": "is DDMQ's; write producerPort and consumerPort under `node:`",
}

SPELLINGS = {
    "isEnabled": "enabled",
    "isPressureTraffic": "pressureTraffic",
    "port": "producerPort or consumerPort",
    "queueNum": "queues",
    "name": "group",
}
"""Keys that people write, and the one that is meant; DDMQ's JSON form also takes the `is...` spellings."""
