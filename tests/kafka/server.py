"""A real Apache Kafka for tests, on quiet ports."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from bench.servers.kafka import JARS, QUICK_JVM, VERSION, KafkaProcess
from tests.patient import quiet_ports, until

__all__ = ["JARS", "QUICK_JVM", "VERSION", "KafkaServer"]

SETTINGS = {
    # As Kafka has it: a test shows that we make no topic by mistake.
    "auto.create.topics.enable": "true",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
}


class KafkaServer(KafkaProcess):
    """One broker; `start` after `stop` or `kill` goes on with the same files and ports."""

    def __init__(
        self,
        folder: Path,
        jars: Path,
        *,
        more: Mapping[str, str] | None = None,
        listeners: Mapping[str, tuple[str, str]] | None = None,
        joins: str = "",
    ) -> None:
        port, controller = quiet_ports(2)
        settings = {**SETTINGS, **(more or {})}
        super().__init__(folder, jars, ports=(port, controller), more=settings, listeners=listeners, joins=joins)

    @property
    def runs(self) -> bool:
        """Whether it was started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """Have it stand still: connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Have it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def dump_threads(self) -> None:
        """Have it write what its threads do to its output."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        super().start()
        until(self._answers, "Kafka to answer")

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            return bool(client.list_topics(timeout=1).brokers)
        except KafkaException:
            return False
