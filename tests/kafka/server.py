"""A real Apache Kafka: one broker that is its own controller (KRaft), on the loopback, in a folder of its own."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from bench.servers.maven import Jars
from bench.servers.processes import BenchError
from tests.patient import quiet_ports, until

VERSION = "4.1.1"
POM = Path(__file__).with_name("pom.xml")
JARS = Jars(f"Kafka {VERSION}", POM, f"kafka-{VERSION}")
JVM = ("-Xmx256m", "-Xms64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true")
CLUSTER_ID = "bXlkZG1xLXRlc3RzLTAwMQ"


class KafkaServer:
    """One broker; `start` after `stop` or `kill` goes on with the same files and ports.

    Attributes:
        address: For `bootstrapServers`.
    """

    def __init__(self, folder: Path, jars: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = quiet_ports(2)
        self.address = f"127.0.0.1:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(folder / "logs"),
            # One of each, so that little has to be made and loaded.
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "num.network.threads": "2",
            "num.io.threads": "4",
            # As Kafka has it: a test shows that we make no topic by mistake.
            "auto.create.topics.enable": "true",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
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
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._run("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(self._settings))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "output.txt").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._answers, "Kafka to answer")

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(60)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "output.txt").read_text()[-2000:]
        try:
            client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            return bool(client.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _command(self, *arguments: str) -> list[str]:
        return ["java", *JVM, "-cp", f"{self._jars}/*", *arguments]

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            self._command(*arguments), cwd=self._folder, capture_output=True, text=True, check=False, timeout=90
        )
        if done.returncode:
            raise BenchError(f"{arguments[0]} has failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")
