"""The section `kafka`: clusters in whose topics messages stand instead of in the node's own store.

What librdkafka can be told is passed on as it is written (docs/kafka.md), but for what the promises of pyddmq rest on:
those keys are refused, each with what takes its place. Secrets are places, never text (D60).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationError

from conf.base import Model, Reload, is_kafka_topic, setting
from conf.secrets import Secret, masked

__all__ = ["OWN_KEYS", "GroupProtocol", "KafkaClusterConfig", "LibrdkafkaValue", "Takeover", "librdkafka_problem"]

GroupProtocol = Literal["auto", "classic", "consumer"]
Membership = Literal["pulls", "always"]
Takeover = Literal["prompt", "strict"]
LibrdkafkaValue = str | int | float | bool | Secret

_RESTART = Reload.RESTART
MAX_POLL_INTERVAL_MS = 300_000
"""After so long without a poll a member is out of its group; revokeTimeout stays below a third of it (D55)."""

COMMIT_TOPIC = "__pyddmq_commits"

_CLUSTER = "the cluster's `bootstrapServers`"
_EDGE = "a committed offset means that messages were answered; remove it"
_FETCHED = "records are handed on as they come, each once; remove it"

OWN_KEYS: dict[str, str] = {
    "bootstrap.servers": f"write {_CLUSTER}",
    "metadata.broker.list": f"write {_CLUSTER}",
    "group.id": "the group's name under `groups` is its name in Kafka; remove it",
    "group.protocol": "write the cluster's `groupProtocol`",
    "group.protocol.type": "members are consumers; remove it",
    "group.remote.assignor": "which member gets which partition is the brokers' choice; remove it",
    "group.instance.id": "the group does not wait for a member that left, its partitions go to others; remove it",
    "session.timeout.ms": "write the cluster's `sessionTimeout`",
    "heartbeat.interval.ms": "it follows from the cluster's `sessionTimeout`; remove it",
    "max.poll.interval.ms": f"it is {MAX_POLL_INTERVAL_MS} ms, from which revokeTimeout has its bound; remove it",
    "partition.assignment.strategy": "it is cooperative-sticky, so that what stays is not disturbed; remove it",
    "enable.auto.commit": _EDGE,
    "auto.commit.enable": _EDGE,
    "enable.auto.offset.store": _EDGE,
    "auto.commit.interval.ms": "write the cluster's `commitInterval`",
    "auto.offset.reset": "write `consumeFromWhere` of the subscription",
    "isolation.level": "what a producer took back is never handed out (read_committed); remove it",
    "enable.partition.eof": "a caught-up group shows a lag of 0 by it; remove it",
    "queued.min.messages": "write the cluster's `waitingBytes`, by which what waits is bounded",
    "queued.max.messages.kbytes": "write the cluster's `waitingBytes`, by which what waits is bounded",
    "consume.callback.max.messages": _FETCHED,
    "enable.idempotence": "every send is idempotent, or a retry would store it twice; remove it",
    "transactional.id": "transactions on Kafka are not in this version; remove it",
    "transaction.timeout.ms": "transactions on Kafka are not in this version; remove it",
    "acks": "a send is answered when all in-sync replicas have it; remove it",
    "request.required.acks": "a send is answered when all in-sync replicas have it; remove it",
    "partitioner": "a key goes to the partition that Java's client gives it (murmur2); remove it",
    "enable.gapless.guarantee": "a failed send is reported to its producer, others continue; remove it",
    "delivery.report.only.error": "every send is answered; remove it",
    "produce.offset.report": "every send is answered with its offset; remove it",
    "client.id": "it is `pyddmq-` with the name of the node; remove it",
    "allow.auto.create.topics": "topics are made in Kafka, never by a misspelled name; remove it",
    "opaque": "cannot be set in a file; remove it",
    "plugin.library.paths": "no other code is loaded into the node; remove it",
    "test.mock.num.brokers": "a test's cluster loses everything with the process; remove it",
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
                f"{masked(server.strip())!r} is not a valid server; write host:port, several with commas between them"
            )
    return ",".join(server.strip() for server in text.split(","))


def _check_commit_topic(name: str) -> str:
    if not is_kafka_topic(name):
        raise ValueError(f"{name!r} is not a valid Kafka topic name; write letters, digits, `. _ -`")
    return name


def _read_value(value: Any) -> Any:
    """Turn a mapping into the secret that it names; what is no value at all is told."""
    if isinstance(value, dict):
        try:
            return Secret.model_validate(value)
        except ValidationError as error:
            reason = error.errors()[0]
            said = str(reason["ctx"]["error"]) if reason["type"] == "value_error" else "it has keys that no secret has"
            raise ValueError(
                f"{said}; write {{file: PATH}} or {{env: NAME}}" if "write" not in said else said
            ) from None
    if value is None or isinstance(value, list):
        raise ValueError("a value is text, a number, true or false, or a secret as {file: PATH} or {env: NAME}")
    return value


def librdkafka_problem(key: str, value: LibrdkafkaValue) -> str | None:
    """Return what is wrong with one setting of librdkafka, and what would be right; None: nothing.

    What librdkafka itself does not know is found where a client is made. The text never shows the value.
    """
    if key in OWN_KEYS:
        return f"is pyddmq's own: {OWN_KEYS[key]}"
    if key in _JAVA_KEYS:
        return f"is a setting of Java's client; {_JAVA_KEYS[key]}"
    if key.endswith("_cb"):
        return "is a function of a program; remove it"
    if not _KEY.match(key):
        return (
            "is not a setting of librdkafka; write its name as its CONFIGURATION.md has it, such as security.protocol"
        )
    if _SECRET.search(key) and not isinstance(value, Secret):
        return "is a secret and is not written here; write {file: PATH} or {env: NAME}"
    return None


class KafkaClusterConfig(Model):
    """One entry of `kafka`, whose key is the cluster's name; topics name it as their `brokerCluster`."""

    bootstrap_servers: Annotated[str, AfterValidator(_check_servers)] = setting(
        ...,
        "Servers to begin with, as `host:port`, with commas between several.",
        reload=_RESTART,
        max_length=4096,
    )
    group_protocol: GroupProtocol = setting(
        "auto",
        "How members of a group find their partitions. `classic`: cooperative-sticky, known to every Kafka. "
        "`consumer`: KIP-848, Kafka 4.0 or newer; regular expressions are the broker's then (RE2/J, over whole names), "
        "and sessionTimeout must be what the brokers have (D55). `auto`: `consumer` where brokers offer it with the "
        "same session time and the group reads no regular expression, else `classic` (D80).",
        reload=_RESTART,
    )
    session_timeout: int = setting(
        45_000,
        "After this time in ms without a heartbeat a node's partitions go to other nodes, and it stops delivering "
        "before that (D54). With groupProtocol `consumer` the brokers decide: write their "
        "group.consumer.session.timeout.ms here.",
        reload=_RESTART,
        ge=1_000,
        le=1_800_000,
    )
    membership: Membership = setting(
        "pulls",
        "When a node is a member of a group: while a client pulls from it or holds messages of the group, and for 60 s "
        "more (`pulls`), so that a node without clients holds no partitions (D56); or for as long as it runs "
        "(`always`). A group that pushes always is.",
        reload=_RESTART,
    )
    takeover: Takeover = setting(
        "prompt",
        "When the messages of a partition that came from a node which did not leave in order are handed out: at once "
        "(`prompt`), or after the subscription's timeout, when no client of the other node can be at work any more "
        "(`strict`) (D54).",
        reload=_RESTART,
    )
    waiting_bytes: int = setting(
        64 * 1024 * 1024,
        "Bytes of waiting messages that a group keeps in memory; further ones are read again in their turn (D57).",
        reload=_RESTART,
        ge=1024 * 1024,
    )
    commit_interval: int = setting(
        100,
        "Ms until an acknowledgement is committed to Kafka: what a crash may repeat (D52). With node.ackFlush `sync` "
        "it is committed at once, and its answer waits for that.",
        reload=_RESTART,
        ge=1,
        le=60_000,
    )
    commit_topic: Annotated[str, AfterValidator(_check_commit_topic)] = setting(
        COMMIT_TOPIC,
        "A compacted topic for what a commit has no room for (D53); made in Kafka. Where it is missing, the rest of "
        "such a commit is left out and counted.",
        reload=_RESTART,
    )
    revoke_timeout: int = setting(
        10_000,
        "Time in ms in which messages in flight may still be answered when their partition goes to another node.",
        reload=_RESTART,
        ge=0,
        le=MAX_POLL_INTERVAL_MS // 3 - 1,
    )
    librdkafka: dict[str, Annotated[LibrdkafkaValue, BeforeValidator(_read_value)]] = setting(
        {},
        "Settings of librdkafka for all connections to this cluster, such as security.protocol, sasl.* and ssl.*. "
        "Passwords and keys are secrets: `{file: PATH}` or `{env: NAME}`. What pyddmq sets itself is refused.",
        reload=_RESTART,
        max_length=200,
    )
