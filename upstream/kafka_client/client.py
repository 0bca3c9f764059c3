"""The ways to one cluster."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from broker.runtime.seams import Clock
from conf.secrets import SecretUnreadable
from conf.sections.kafka import KafkaClusterConfig
from upstream.calls.seams import ThreadLoop
from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.lease import Lease
from upstream.kafka.link import Broken, Checkpoint, KafkaPartition, LogLoaded, ScanDone, TopicScan
from upstream.kafka_client.cluster_inspection import look_beside
from upstream.kafka_client.log_load import LoadOrder, LogLoader
from upstream.kafka_client.member import LibrdkafkaMember
from upstream.kafka_client.member_protocol import ProtocolChoice
from upstream.kafka_client.package import KafkaUnusable, confluent
from upstream.kafka_client.posting import Post
from upstream.kafka_client.producer import LibrdkafkaProducer
from upstream.kafka_client.query_thread import QueryConsumers, QueryThread
from upstream.kafka_client.reader import LibrdkafkaReader
from upstream.kafka_client.scanning import LogScanner
from upstream.kafka_client.settings import Settings
from upstream.kafka_client.topic_ids import TopicIdLookup
from upstream.kafka_client.transactions import LibrdkafkaTransactions

_SESSION = "group.consumer.session.timeout.ms"
_NUMBER = re.compile("[0-9]{1,18}")
_SESSION_AGAIN_SECONDS = 30.0


class LibrdkafkaClient:
    """`upstream.kafka.link.KafkaClient` for one node and one cluster. Called in the loop's thread."""

    def __init__(
        self, cluster: str, config: KafkaClusterConfig, *, client_id: str, loop: ThreadLoop, clock: Clock
    ) -> None:
        """Read the secrets; nothing is connected yet.

        Args:
            cluster: Its name under `kafka`.
            config: As configured.
            client_id: How brokers name readers and the producer in their logs.
            loop: The event loop.
            clock: For attempts again.

        Raises:
            KafkaUnusable: The package confluent-kafka is missing.
            SecretUnreadable: A secret cannot be had.
        """
        confluent()
        self._settings = Settings(cluster, config, clock)
        self._client_id = client_id
        self._choice = ProtocolChoice(
            config.group_protocol, config.session_timeout, lambda: look_beside(cluster, config, (), ())
        )
        self._loop = loop
        self._clock = clock
        self._queries = QueryThread(cluster, Post(loop), self._end_query_consumers)
        self._query_consumer: Any = None
        self._uncommitted: Any = None
        self._closed = threading.Event()
        self._topic_ids = TopicIdLookup(lambda topics: look_beside(cluster, config, topics, ()), Post(loop))
        self._written: dict[str, float] = {}
        """Topics that transactions find there, each with when it is asked for again."""

    @property
    def protocol_trouble(self) -> str:
        """Why members of `groupProtocol: auto` are classic; "": they are not."""
        return self._choice.trouble

    def member(self, group: str, client_id: str, instance_id: str = "") -> LibrdkafkaMember:
        """Return a member of a group that has not joined.

        Raises:
            KafkaUnusable: librdkafka refuses a setting.
        """
        return LibrdkafkaMember(
            group,
            client_id,
            instance_id,
            settings=self._settings,
            loop=self._loop,
            clock=self._clock,
            queries=self._queries,
            query_consumers=QueryConsumers(self._consumer_for_queries, self._consumer_of_uncommitted),
            choice=self._choice,
            topic_ids=self._topic_ids.ask,
        )

    def reader(self) -> LibrdkafkaReader:
        """Return a reader. Raises KafkaUnusable."""
        return LibrdkafkaReader(self._client_id, settings=self._settings, loop=self._loop, clock=self._clock)

    def producer(self, broken: Broken = lambda _: None) -> LibrdkafkaProducer:
        """Return the producer; one for all of a node. Raises KafkaUnusable."""
        return LibrdkafkaProducer(
            self._client_id,
            settings=self._settings,
            loop=self._loop,
            clock=self._clock,
            queries=self._queries,
            query_consumer=self._consumer_for_queries,
            broken=broken,
        )

    def transactions(self, transactional_id: str, lease: Lease | None = None) -> LibrdkafkaTransactions:
        """Return what writes under a transactional id."""
        made = LibrdkafkaTransactions(
            transactional_id,
            self._client_id,
            settings=self._settings,
            loop=self._loop,
            clock=self._clock,
            queries=self._queries,
            query_consumer=self._consumer_for_queries,
            known=self._written,
        )
        made.lease = lease
        return made

    def look(self, topics: Sequence[str], reported: Callable[[ClusterFacts], None], groups: Sequence[str] = ()) -> None:
        """Inspect the cluster, by a process of its own."""

        def query() -> None:
            try:
                facts = look_beside(self._settings.cluster, self._settings.config, topics, groups)
            except (KafkaUnusable, SecretUnreadable) as error:
                facts = ClusterFacts(trouble=str(error))
            Post(self._loop)(reported, facts)

        threading.Thread(target=query, daemon=True, name=f"kafka-look-{self._settings.cluster}").start()

    def scan(self, scan: TopicScan, done: ScanDone) -> Callable[[], object]:
        """Look through a topic, in a thread of its own."""
        post = Post(self._loop)
        return LogScanner(self._client_id, scan, done, settings=self._settings, post=post, clock=self._clock).stop

    def load(self, place: KafkaPartition, path: str, checkpoint: Checkpoint, done: LogLoaded) -> Callable[[], object]:
        """Fill a file from a log, by a process of its own."""
        order = LoadOrder(self._settings.cluster, self._settings.config, place, path, checkpoint)
        return LogLoader(order, done, Post(self._loop)).stop

    def session_ms(self, reported: Callable[[int | None], None]) -> None:
        """Ask for the brokers' session time, by a process of its own, until the cluster answers."""

        def query() -> None:
            while not self._closed.is_set():
                try:
                    facts = look_beside(self._settings.cluster, self._settings.config, (), ())
                except (KafkaUnusable, SecretUnreadable):
                    return
                if not facts.trouble:
                    text = facts.settings.get(_SESSION, "")
                    Post(self._loop)(reported, int(text) if _NUMBER.fullmatch(text) else None)
                    return
                self._closed.wait(_SESSION_AGAIN_SECONDS)

        threading.Thread(target=query, daemon=True, name=f"kafka-session-{self._settings.cluster}").start()

    def close(self) -> None:
        """Ask nothing more; members, readers and the producer are ended by themselves."""
        self._closed.set()
        self._queries.submit(self._end_query_consumers)
        self._queries.close()

    def _consumer_for_queries(self) -> Any:
        """A consumer that only asks; made with the first question, in the thread that asks."""
        if self._query_consumer is None:
            self._query_consumer = self._settings.reader(self._client_id)
        self._query_consumer.poll(0)  # It may have log lines.
        self._settings.give_password(self._query_consumer)
        return self._query_consumer

    def _consumer_of_uncommitted(self) -> Any:
        """Likewise one that sees open transactions."""
        if self._uncommitted is None:
            self._uncommitted = self._settings.looker(self._client_id)
        self._uncommitted.poll(0)
        self._settings.give_password(self._uncommitted)
        return self._uncommitted

    def _end_query_consumers(self) -> Any:
        for each in (self._query_consumer, self._uncommitted):
            if each is not None:
                with contextlib.suppress(RuntimeError):
                    each.close()
        self._query_consumer = self._uncommitted = None
        return lambda: None
