"""The section `kafka`: clusters in whose topics messages stand instead of in the node's own store.

Settings of librdkafka are passed on as they are written (docs/kafka.md), but for what the promises of pyddmq rest on:
those keys are refused, each with what takes its place. Secrets are places, never text (D60).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationError

from conf.base import Model, Reload, is_kafka_topic, setting
from conf.secrets import Secret, masked

__all__ = [
    "OWN_KEYS",
    "GroupProtocol",
    "KafkaClusterConfig",
    "KafkaWaitingConfig",
    "LibrdkafkaValue",
    "Takeover",
    "librdkafka_problem",
]

GroupProtocol = Literal["auto", "classic", "consumer"]
Membership = Literal["pulls", "always"]
Takeover = Literal["prompt", "strict"]
LibrdkafkaValue = str | int | float | bool | Secret

_RESTART = Reload.RESTART
MAX_POLL_INTERVAL_MS = 300_000
"""After so long without a poll a member is out of its group; revokeTimeout stays below a third of it (D55)."""

COMMIT_TOPIC = "__pyddmq_commits"
WAITING_TOPIC = "__pyddmq_waiting"
ANSWERS_TOPIC = "__pyddmq_answers"

_CLUSTER = "the cluster's `bootstrapServers`"
_EDGE = "offsets are committed only for messages that were answered; remove it"
_FETCHED = "each record is delivered once, as it arrives; remove it"

OWN_KEYS: dict[str, str] = {
    "bootstrap.servers": f"write {_CLUSTER}",
    "metadata.broker.list": f"write {_CLUSTER}",
    "group.id": "the group's name under `groups` is its name in Kafka; remove it",
    "group.protocol": "write the cluster's `groupProtocol`",
    "group.protocol.type": "members are consumers; remove it",
    "group.remote.assignor": "the brokers assign partitions to members; remove it",
    "group.instance.id": "the group does not wait for a member that left, its partitions are reassigned; remove it",
    "session.timeout.ms": "write the cluster's `sessionTimeout`",
    "heartbeat.interval.ms": "it follows from the cluster's `sessionTimeout`; remove it",
    "max.poll.interval.ms": f"it is {MAX_POLL_INTERVAL_MS} ms, which limits revokeTimeout; remove it",
    "partition.assignment.strategy": "it is cooperative-sticky, to keep consuming other partitions; remove it",
    "enable.auto.commit": _EDGE,
    "auto.commit.enable": _EDGE,
    "enable.auto.offset.store": _EDGE,
    "auto.commit.interval.ms": "write the cluster's `commitInterval`",
    "auto.offset.reset": "write `consumeFromWhere` of the subscription",
    "isolation.level": "records of aborted transactions are never delivered (read_committed); remove it",
    "enable.partition.eof": "the lag of a caught-up group needs it to be 0; remove it",
    "queued.min.messages": "write the cluster's `waitingBytes`, which limits waiting messages",
    "queued.max.messages.kbytes": "write the cluster's `waitingBytes`, which limits waiting messages",
    "consume.callback.max.messages": _FETCHED,
    "enable.idempotence": "every send is idempotent, or a retry would store it twice; remove it",
    "transactional.id": "it names a partition of the waiting topic; remove it",
    "transaction.timeout.ms": "it is 10 s, which limits how long a dead owner blocks consumers; remove it",
    "acks": "a send is answered when all in-sync replicas have it; remove it",
    "request.required.acks": "a send is answered when all in-sync replicas have it; remove it",
    "partitioner": "a key is mapped to the partition that Java's client uses (murmur2); remove it",
    "enable.gapless.guarantee": "a failed send is reported to its producer, others continue; remove it",
    "delivery.report.only.error": "every send is answered; remove it",
    "produce.offset.report": "every send is answered with its offset; remove it",
    "client.id": "it is `pyddmq-` with the name of the node; remove it",
    "allow.auto.create.topics": "topics are created in Kafka, never by a misspelled name; remove it",
    "opaque": "cannot be set in a file; remove it",
    "plugin.library.paths": "no other code is loaded into the node; remove it",
    "test.mock.num.brokers": "a test cluster loses everything with the process; remove it",
}
"""Keys of librdkafka that are pyddmq's own, and what to write in their place."""

_JAVA_KEYS = {
    "sasl.jaas.config": "write `sasl.username`, and `sasl.password` as {file: PATH} or {env: NAME}",
    "ssl.truststore.location": "write `ssl.ca.location` with a PEM file",
    "ssl.truststore.password": "write `ssl.ca.location` with a PEM file, which needs no password",
    "key.serializer": "bodies and keys are bytes; remove it",
    "value.serializer": "bodies and keys are bytes; remove it",
    "key.deserializer": "bodies and keys are bytes; remove it",
    "value.deserializer": "bodies and keys are bytes; remove it",
}
_KEY = re.compile(r"[a-z][a-z0-9]*([._][a-z0-9]+)*\Z")
_SECRET = re.compile(r"password|secret|passphrase|key\.pem\Z|^sasl\.oauthbearer\.config\Z")
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})\Z")


def _check_servers(text: str) -> str:
    for server in text.split(","):
        match = _SERVER.match(server.strip())
        if match is None or not 0 < int(match[2]) < 65_536:
            raise ValueError(
                f"{masked(server.strip())!r} is not a valid server; write host:port, several separated by commas"
            )
    return ",".join(server.strip() for server in text.split(","))


def _check_topic(name: str) -> str:
    if not is_kafka_topic(name):
        raise ValueError(f"{name!r} is not a valid Kafka topic name; write letters, digits, `. _ -`")
    return name


def _read_value(value: Any) -> Any:
    """Turn a mapping into the secret that it names; a missing value is reported."""
    if isinstance(value, dict):
        try:
            return Secret.model_validate(value)
        except ValidationError as error:
            reason = error.errors()[0]
            said = (
                str(reason["ctx"]["error"])
                if reason["type"] == "value_error"
                else "it has keys that a secret does not have"
            )
            raise ValueError(
                f"{said}; write {{file: PATH}} or {{env: NAME}}" if "write" not in said else said
            ) from None
    if value is None or isinstance(value, list):
        raise ValueError("a value must be text, a number, true or false, or a secret as {file: PATH} or {env: NAME}")
    return value


def librdkafka_problem(key: str, value: LibrdkafkaValue) -> str | None:
    """Return what is wrong with one setting of librdkafka, and what would be right; None: nothing.

    What librdkafka itself does not know is found where a client is made. The text never shows the value.
    """
    if key in OWN_KEYS:
        return f"is set by pyddmq itself: {OWN_KEYS[key]}"
    if key in _JAVA_KEYS:
        return f"is a setting of the Java client; {_JAVA_KEYS[key]}"
    if key.endswith("_cb"):
        return "is a callback of a program; remove it"
    if not _KEY.match(key):
        return "is not a setting of librdkafka; use a name of its CONFIGURATION.md, such as security.protocol"
    if _SECRET.search(key) and not isinstance(value, Secret):
        return "is a secret and not allowed in this file; write {file: PATH} or {env: NAME}"
    return None


class KafkaWaitingConfig(Model):
    """`waiting` of a cluster: delays, timers and loops of its topics (docs/kafka.md)."""

    topic: Annotated[str, AfterValidator(_check_topic)] = setting(
        WAITING_TOPIC,
        "The compacted topic that has waiting messages; created in Kafka.",
        reload=_RESTART,
    )
    answers_topic: Annotated[str, AfterValidator(_check_topic)] = setting(
        ANSWERS_TOPIC,
        "The topic in which owners answer cancels and report the state of their partitions; created in Kafka.",
        reload=_RESTART,
    )
    partitions: int = setting(
        4,
        "Partitions of `topic` that messages are spread over. Equal on all nodes; a change while messages wait "
        "makes them unreachable for cancels.",
        reload=_RESTART,
        ge=1,
        le=1000,
    )
    max_delay_sec: int = setting(
        400 * 86_400,
        "How far ahead a message may be due, in seconds.",
        reload=_RESTART,
        ge=1,
        le=10 * 366 * 86_400,
    )
    remember_sec: int = setting(
        7 * 86_400,
        "How long a delivered or cancelled message is known by its id, in seconds: for repeats and cancels.",
        reload=_RESTART,
        ge=3_600,
        le=366 * 86_400,
    )
    max_pending_per_topic: int = setting(
        0, "Maximum messages of a topic that wait at a time; 0 means no limit.", reload=_RESTART, ge=0
    )
    max_pending_per_principal: int = setting(
        0, "Maximum messages of a principal that wait at a time; 0 means no limit.", reload=_RESTART, ge=0
    )


class KafkaClusterConfig(Model):
    """One entry of `kafka`, whose key is the cluster's name; topics name it as their `brokerCluster`."""

    bootstrap_servers: Annotated[str, AfterValidator(_check_servers)] = setting(
        ...,
        "Bootstrap servers as `host:port`, several separated by commas.",
        reload=_RESTART,
        max_length=4096,
    )
    group_protocol: GroupProtocol = setting(
        "auto",
        "Group protocol. `classic`: cooperative-sticky, supported by every Kafka. `consumer`: KIP-848, "
        "Kafka 4.0 or newer; then the broker evaluates regular expressions (RE2/J, over whole names), and "
        "sessionTimeout must equal the brokers' (D55). `auto`: `consumer` where brokers offer it with the "
        "same session timeout and the group has no regular expression, else `classic` (D80).",
        reload=_RESTART,
    )
    session_timeout: int = setting(
        45_000,
        "After this time in ms without a heartbeat a node's partitions are reassigned; the node stops "
        "delivering before that (D54). With groupProtocol `consumer` the brokers decide: write their "
        "group.consumer.session.timeout.ms here.",
        reload=_RESTART,
        ge=1_000,
        le=1_800_000,
    )
    membership: Membership = setting(
        "pulls",
        "When a node is a member of a group. `pulls`: while a client pulls from it or holds messages of "
        "the group, and for 60 s more. A node without clients has no partitions (D56). `always`: "
        "as long as the node runs. A group that pushes is always a member.",
        reload=_RESTART,
    )
    takeover: Takeover = setting(
        "prompt",
        "When to deliver messages of a partition whose former node did not leave in order. `prompt`: "
        "immediately. `strict`: after the subscription's timeout, when no client of the former node can "
        "still be processing them (D54).",
        reload=_RESTART,
    )
    waiting_bytes: int = setting(
        64 * 1024 * 1024,
        "Bytes of waiting messages that a group keeps in memory; further ones are read again later (D57).",
        reload=_RESTART,
        ge=1024 * 1024,
    )
    commit_interval: int = setting(
        100,
        "Ms until an acknowledgement is committed to Kafka: a crash may repeat this much (D52). With "
        "node.ackFlush `sync` it is committed immediately, and its answer waits for the commit.",
        reload=_RESTART,
        ge=1,
        le=60_000,
    )
    commit_topic: Annotated[str, AfterValidator(_check_topic)] = setting(
        COMMIT_TOPIC,
        "A compacted topic for metadata that does not fit into a commit (D53); created in Kafka. If it is "
        "missing, the rest of such a commit is dropped and counted.",
        reload=_RESTART,
    )
    revoke_timeout: int = setting(
        10_000,
        "Time in ms in which messages in flight may still be answered when their partition moves to another node.",
        reload=_RESTART,
        ge=0,
        le=MAX_POLL_INTERVAL_MS // 3 - 1,
    )
    waiting: KafkaWaitingConfig | None = setting(
        None,
        "Delays, timers, loops and transactions of this cluster's topics: `{}` for the defaults. Both topics must "
        "exist ([how](kafka.md#delays-timers-loops-and-transactions)).",
        reload=_RESTART,
        absent="delays are refused",
    )
    librdkafka: dict[str, Annotated[LibrdkafkaValue, BeforeValidator(_read_value)]] = setting(
        {},
        "Settings of librdkafka for all connections to this cluster, such as security.protocol, sasl.* and "
        "ssl.*. Passwords and keys are secrets: `{file: PATH}` or `{env: NAME}`. Settings that pyddmq sets "
        "itself are refused.",
        reload=_RESTART,
        max_length=200,
    )
