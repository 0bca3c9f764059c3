"""Settings of librdkafka: the configuration's, and over them those on which the promises rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import structlog

from broker.runtime.seams import Clock
from conf.secrets import Secret, SecretUnreadable
from conf.sections.kafka import MAX_POLL_INTERVAL_MS, KafkaClusterConfig
from upstream.kafka_client.package import KafkaUnusable, confluent, failure_of

# What librdkafka logs, as log lines of the node, without secrets, and few of a kind.
#
# A cluster that cannot be reached is reported twenty times a second, for each connection. So after one line of a kind
# the next comes a minute later, with how many were left out.

MINUTE = 60.0
_log = structlog.get_logger(__name__)
_OF_NO_CONCERN = frozenset({"CONFWARN"})
"""That a setting for consumers means nothing to a producer, and the reverse: both are given all."""


class LogLines:
    """Stands where the package wants a `logging.Logger`, of which it calls `log` alone."""

    def __init__(self, cluster: str, hide: Callable[[str], str], clock: Clock) -> None:
        self._cluster = cluster
        self._hide = hide
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def log(self, level: int, text: str, *facts: object) -> None:
        """Write one line: facts are the kind of it, the name of the instance, and what it says."""
        kind = str(facts[0]) if facts else ""
        said = self._hide(str(facts[-1]) if facts else text)
        if level <= logging.DEBUG or kind in _OF_NO_CONCERN:
            _log.debug("kafka_client_said", cluster=self._cluster, kind=kind, text=said)
            return
        now = self._clock.monotonic()
        if now < self._quiet_until.get(kind, now):
            # Lines of several threads may be counted as one; none is written that should not be.
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + MINUTE
        left_out = self._left_out.pop(kind, 0)
        if level <= logging.INFO:
            _log.info("kafka_client_said", cluster=self._cluster, kind=kind, text=said, left_out=left_out)
        else:
            _log.warning("kafka_client_said", cluster=self._cluster, kind=kind, text=said, left_out=left_out)


HIDDEN = "***"
_QUEUED_KBYTES = 8 * 1024
_HEARTBEAT_MS_MAX = 3_000
_SENT_MS_MAX = 30_000
_PASSWORD = "sasl.password"
_USER_REFUSED = frozenset({"AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"})
_MESSAGE_BYTES_MAX = 1_000_000_000
"""The most that librdkafka takes."""


class Settings:
    """Settings of one cluster, and the only place where its secrets are.

    Attributes:
        cluster: Its name.
        config: As configured.
        sent_seconds_max: After so long a record that is not acknowledged has failed.
    """

    def __init__(self, cluster: str, config: KafkaClusterConfig, clock: Clock) -> None:
        """Read the secrets; `clock` says how long nothing of a kind is logged again.

        Raises:
            SecretUnreadable: One cannot be had.
        """
        self.cluster = cluster
        self.config = config
        self._logger = LogLines(cluster, self.hide, clock)
        self._secrets: list[str] = []
        self._due: dict[int, tuple[str, str]] = {}
        """User and password of clients that are to have another one, by the client's identity."""
        self._common: dict[str, Any] = {
            # A change of partitions, and of what an expression fits, is seen within a minute.
            "topic.metadata.refresh.interval.ms": 60_000,
            "socket.keepalive.enable": "true",
            # A broker that is back is found within a second; by itself librdkafka waits up to ten.
            "reconnect.backoff.max.ms": 1_000,
        }
        for key, value in config.librdkafka.items():
            self._common[key] = self._plain(value)
        self._common["bootstrap.servers"] = config.bootstrap_servers
        self.sent_seconds_max = _sent_ms_max(self._common) / 1000

    def __repr__(self) -> str:
        return f"Settings({self.cluster!r})"

    def hide(self, text: str) -> str:
        """Return a text of librdkafka's without the secrets in it."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def consumer(self, group: str, client_id: str, protocol: str, instance_id: str = "", **callbacks: Any) -> Any:
        """Return a `Consumer` that joins a group by a protocol, with a `group.instance.id` unless that is empty.

        Raises:
            KafkaUnusable: The package is missing, or refuses a setting.
        """
        config = self.config
        own: dict[str, Any] = {
            **self._reading(group, client_id),
            "group.protocol": protocol,
            "max.poll.interval.ms": max(MAX_POLL_INTERVAL_MS, config.session_timeout),
        }
        if instance_id:
            own["group.instance.id"] = instance_id
        if protocol == "classic":
            own["partition.assignment.strategy"] = "cooperative-sticky"
            own["session.timeout.ms"] = config.session_timeout
            own["heartbeat.interval.ms"] = min(config.session_timeout // 3, _HEARTBEAT_MS_MAX)
        return self._make("Consumer", {**self._bounds(), **self._common, **own, **callbacks})

    def reader(self, client_id: str, **callbacks: Any) -> Any:
        """Return a `Consumer` that joins none. Raises KafkaUnusable."""
        # The package wants the name of a group; without a subscription and without commits no broker hears of it.
        own = self._reading("pyddmq-reader", client_id)
        return self._make("Consumer", {**self._bounds(), **self._common, **own, **callbacks})

    def looker(self, client_id: str) -> Any:
        """Return a `Consumer` that joins none and reads single records, whatever becomes of them. Raises likewise."""
        own = self._reading("pyddmq-looker", client_id)
        # Of each partition as little as a broker gives: whole batches.
        small = {"isolation.level": "read_uncommitted", "fetch.message.max.bytes": 4096, "fetch.wait.max.ms": 10}
        return self._make("Consumer", {**self._common, **own, **small})

    def admin(self, client_id: str, **callbacks: Any) -> Any:
        """Return an `AdminClient`, for commands: `error_cb` gets its errors. Raises KafkaUnusable."""
        own = {"client.id": client_id, "log_level": 0}
        return self._make("AdminClient", {**self._common, **own, **callbacks})

    def producer(self, client_id: str, *, alone: bool = False, **callbacks: Any) -> Any:
        """Return a `Producer`; `alone`: it makes no batches. Raises KafkaUnusable."""
        free: dict[str, Any] = {
            "linger.ms": 2,
            "queue.buffering.max.kbytes": 64 * 1024,
            # Of sizes the topic's `max.message.bytes` is the limit, and the broker's word.
            "message.max.bytes": _MESSAGE_BYTES_MAX,
            # A topic was found before it is sent to: one that is unknown afterwards was deleted.
            "topic.metadata.propagation.max.ms": 2_000,
        }
        if not {"message.timeout.ms", "delivery.timeout.ms"} & self._common.keys():
            free["message.timeout.ms"] = _SENT_MS_MAX
        own: dict[str, Any] = {
            "client.id": client_id,
            "enable.idempotence": "true",
            "acks": "all",
            # As Java's client: by the key, also an empty one; any without one.
            "partitioner": "murmur2_random",
            # Also a refresh of what is known of a topic makes none.
            "allow.auto.create.topics": "false",
        }
        if alone:
            own |= {"batch.num.messages": 1, "linger.ms": 0}
        return self._make("Producer", {**free, **self._common, **own, **callbacks})

    def transactional(self, client_id: str, transactional_id: str, seconds: int) -> Any:
        """Return a `Producer` of transactions, which are aborted after so long. Raises KafkaUnusable."""
        free: dict[str, Any] = {"message.max.bytes": _MESSAGE_BYTES_MAX, "topic.metadata.propagation.max.ms": 2_000}
        own: dict[str, Any] = {
            "client.id": client_id,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": seconds * 1000,
            "message.timeout.ms": seconds * 1000 // 2,
            "linger.ms": 0,
            "acks": "all",
            "partitioner": "murmur2_random",
            "allow.auto.create.topics": "false",
        }
        common = {key: value for key, value in self._common.items() if key != "delivery.timeout.ms"}
        return self._make("Producer", {**free, **common, **own})

    def _bounds(self) -> dict[str, Any]:
        """What librdkafka may keep in memory for a consumer, unless the configuration says otherwise."""
        return {"fetch.max.bytes": _QUEUED_KBYTES * 1024}

    def _reading(self, group: str, client_id: str) -> dict[str, Any]:
        return {
            "group.id": group,
            "client.id": client_id,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "allow.auto.create.topics": "false",
            # Where an offset is not there any more: what is there, rather than nothing.
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": _QUEUED_KBYTES,
        }

    def _make(self, kind: str, settings: dict[str, Any]) -> Any:
        package = confluent()
        problem = "cannot be used"
        made: list[Any] = []
        reported, used = settings.get("error_cb"), settings.get(_PASSWORD)

        def note(error: Any) -> None:
            nonlocal used
            if made and failure_of(error).code in _USER_REFUSED:
                used = self._renew(made[0], used)
            if reported is not None:
                reported(error)

        try:
            made.append(
                getattr(package if hasattr(package, kind) else _administration(), kind)(
                    {**settings, "error_cb": note}, logger=self._logger
                )
            )
            return made[0]
        except package.KafkaException as error:
            problem = self.hide(error.args[0].str() if hasattr(error.args[0], "str") else str(error.args[0]))
        except (TypeError, ValueError) as error:
            problem = self.hide(str(error))
        # Outside of the handler: its cause would show the secret.
        raise KafkaUnusable(f"librdkafka rejects the settings of {self.cluster}: {problem}; see kafka.{self.cluster}")

    def give_password(self, client: Any) -> None:
        """Give a client its new password, if there is one; called between its polls, in the thread that polls.

        The package aborts the process where a client is called within its own callback, and other threads wait for as
        long as a consumer is polled.
        """
        if self._due and (pair := self._due.pop(id(client), None)) is not None:
            client.set_sasl_credentials(*pair)

    def _renew(self, client: Any, used: Any) -> Any:
        """Have a client whose user is refused get the password that its place has now; returns the one that it has."""
        place = self.config.librdkafka.get(_PASSWORD)
        user = self._common.get("sasl.username")
        if not isinstance(place, Secret) or not isinstance(user, str):
            return used
        try:
            password = self._plain(place)
        except SecretUnreadable:
            return used
        if password != used:
            self._common[_PASSWORD] = password
            self._due[id(client)] = user, password
        return password

    def _plain(self, value: object) -> Any:
        if isinstance(value, Secret):
            secret = value.read()
            # One of several lines, a key, may be shown line by line.
            parts = {secret, *(line for line in secret.splitlines() if len(line) > 8)}
            self._secrets = sorted({*self._secrets, *parts}, key=len, reverse=True)
            return secret
        if isinstance(value, bool):
            return "true" if value else "false"
        return value


def _administration() -> Any:
    from confluent_kafka import admin

    return admin


def _sent_ms_max(settings: dict[str, Any]) -> float:
    given = settings.get("message.timeout.ms", settings.get("delivery.timeout.ms", _SENT_MS_MAX))
    try:
        return float(given)
    except ValueError:
        return _SENT_MS_MAX  # librdkafka refuses it with its own words.
