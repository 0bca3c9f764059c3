"""The Kafka clusters of a node: a client for each that is used, made when it first is (docs/kafka.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from broker.runtime.bundle import Runtime
from broker.runtime.rate_limited_log import RateLimitedLog
from conf import Config, KafkaClusterConfig
from proxy.services.kafka_numbers import KafkaNumbers
from proxy.services.kafka_sends import KafkaSends
from proxy.services.publishing import Publishing
from upstream.calls.seams import Threads
from upstream.kafka.link import KafkaClient, KafkaFailure, Producer

_log = structlog.get_logger(__name__)

KafkaFactory = Callable[[str, KafkaClusterConfig], KafkaClient]
"""Makes the client of a cluster, given its name and settings. Raises KafkaFailure: it cannot be made."""


@dataclass(slots=True)
class _Made:
    """What there is of one cluster."""

    client: KafkaClient | None = None
    producer: Producer | None = None


class KafkaClients:
    """Clients and producers by the name of their cluster.

    Args:
        clusters: Settings by name; fixed while the node runs.
        factory: Makes a client.
        threads: Where producers are closed, which waits for the network.
        tasks: The node's loop.
        limited_log: Tells what cannot be made.

    Attributes:
        sends: What the producer port has under way; None where there is no cluster, or the port has not begun.
    """

    def __init__(
        self,
        clusters: Mapping[str, KafkaClusterConfig],
        factory: KafkaFactory,
        *,
        threads: Threads,
        loop: asyncio.AbstractEventLoop,
        limited_log: RateLimitedLog,
    ) -> None:
        self._clusters = clusters
        self._factory = factory
        self._threads = threads
        self._loop = loop
        self._limited_log = limited_log
        self._made: dict[str, _Made] = {}
        self._closed = False
        self.sends: KafkaSends | None = None

    @property
    def unsettled(self) -> bool:
        """Whether sends wait for a cluster."""
        return self.sends is not None and self.sends.waiting > 0

    def client(self, cluster: str) -> KafkaClient:
        """Return the client of a cluster, made at the first call.

        Raises:
            KafkaFailure: It cannot be made: the extra `kafka` is not installed, a setting is wrong, ...
        """
        made = self._made.setdefault(cluster, _Made())
        if made.client is None:
            if self._closed:
                raise KafkaFailure("DESTROY", "the node is stopping")
            try:
                made.client = self._factory(cluster, self._clusters[cluster])
            except KafkaFailure as failure:
                self._limited_log.note("kafka_client_failed", kind=cluster, cluster=cluster, text=str(failure))
                raise
        return made.client

    def producer(self, cluster: str) -> Producer:
        """Return the producer of a cluster, made at the first call. Raises KafkaFailure: as `client`."""
        made = self._made.get(cluster)
        if made is not None and made.producer is not None:
            return made.producer
        producer = self.client(cluster).producer()
        self._made[cluster].producer = producer
        return producer

    async def close(self, seconds: float) -> None:
        """Close the producers beside the loop, which meanwhile is told what becomes of records that are under way."""
        self._closed = True
        producers = [made.producer for made in self._made.values() if made.producer is not None]
        for made in self._made.values():
            made.producer = None
        if producers:
            await asyncio.gather(*[self._close(producer, seconds) for producer in producers])

    def _close(self, producer: Producer, seconds: float) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()

        def work() -> BaseException | None:
            try:
                producer.close(seconds)
            except Exception as error:
                return error
            return None

        def done(raised: object) -> None:
            if isinstance(raised, BaseException):
                _log.error("kafka_close_failed", text=str(raised))
            if not future.done():
                future.set_result(None)

        self._threads.run(work, done)
        return future


def kafka_sends(
    config: Config,
    publishing: Publishing,
    numbers: KafkaNumbers,
    runtime: Runtime,
    new_keys: Callable[[int, int], list[bytes]],
) -> KafkaSends | None:
    """Make what sends to the clusters of a configuration; None: there is none. Arguments as of `KafkaSends`."""
    if not config.kafka:
        return None
    return KafkaSends(publishing, numbers, runtime=runtime, new_keys=new_keys, clusters=len(config.kafka))


def real_clients(cluster: str, config: KafkaClusterConfig) -> KafkaClient:
    """Return a client over confluent-kafka. Raises KafkaFailure."""
    raise KafkaFailure("NO_CLIENT", f"this version has no client for Kafka cluster {cluster}")


__all__ = ["KafkaClients", "KafkaFactory", "kafka_sends", "real_clients"]
