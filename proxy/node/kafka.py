"""Kafka in a node: the ways to its clusters (docs/kafka.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from broker.runtime.bundle import Runtime
from conf import Config
from conf.kafka import KafkaClusterConfig
from conf.secrets import SecretUnreadable
from proxy.services.kafka_numbers import KafkaNumbers
from proxy.services.kafka_sends import KafkaSends
from proxy.services.publishing import Publishing
from upstream.calls.seams import Threads
from upstream.kafka.link import KafkaClient, KafkaFailure, Producer
from upstream.kafka_client.package import KafkaUnusable

_log = structlog.get_logger(__name__)

MakeKafkaClient = Callable[[str, KafkaClusterConfig], KafkaClient]
"""Makes the client of a cluster, by its name under `kafka`."""


class KafkaClients:
    """The ways to the clusters of one node, each made when it is first needed.

    Attributes:
        sends: What the producer port has under way; None where there is no cluster, or the port has not begun.
    """

    def __init__(self, clusters: Mapping[str, KafkaClusterConfig], make: MakeKafkaClient) -> None:
        """Set up.

        Args:
            clusters: As configured.
            make: Makes a client; raises where it cannot be had (a package, a secret).
        """
        self._clusters = clusters
        self._make = make
        self._clients: dict[str, KafkaClient] = {}
        self._producers: dict[str, Producer] = {}
        self.sends: KafkaSends | None = None

    @property
    def unsettled(self) -> bool:
        """Whether a send waits for a cluster."""
        return self.sends is not None and self.sends.waiting > 0

    def client(self, cluster: str) -> KafkaClient:
        """Return a cluster's client. Raises what `make` does, KeyError for a cluster that is not configured."""
        if cluster not in self._clients:
            self._clients[cluster] = self._make(cluster, self._clusters[cluster])
        return self._clients[cluster]

    def producer(self, cluster: str) -> Producer:
        """Return a cluster's producer; likewise."""
        if cluster not in self._producers:
            self._producers[cluster] = self.client(cluster).producer()
        return self._producers[cluster]

    def producer_of(self, cluster: str) -> Producer:
        """Return a cluster's producer, for sends.

        Raises:
            KafkaFailure: It cannot be had: the extra is not installed, a secret or a setting is wrong.
        """
        try:
            return self._producers.get(cluster) or self.producer(cluster)
        except (KafkaUnusable, SecretUnreadable) as error:
            raise KafkaFailure("NO_CLIENT", str(error)) from error

    def close(self, seconds: float) -> None:
        """Wait at most so long for what is under way to each cluster, and end; blocks."""
        for producer in self._producers.values():
            producer.close(seconds)
        self._producers.clear()

    async def close_beside(self, seconds: float, *, threads: Threads, loop: asyncio.AbstractEventLoop) -> None:
        """Close beside the loop, which meanwhile is told what becomes of records that are under way."""
        if not self._producers:
            return
        ended: asyncio.Future[object] = loop.create_future()

        def work() -> object:
            try:
                self.close(seconds)
            except Exception as error:
                return error
            return None

        threads.run(work, lambda raised: None if ended.done() else ended.set_result(raised))
        raised = await ended
        if raised is not None:
            _log.error("kafka_close_failed", text=str(raised))


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
