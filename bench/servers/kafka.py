"""An Apache Kafka in a folder, on the loopback: one broker that is its own controller (KRaft)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.servers.maven import Jars
from bench.servers.processes import BenchError

VERSION = "4.1.1"
JARS = Jars(f"Kafka {VERSION}", Path(__file__).with_suffix(".xml"), f"kafka-{VERSION}")
_IPV4 = "-Djava.net.preferIPv4Stack=true"
QUICK_JVM = ("-Xmx1g", "-Xms64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", _IPV4)
"""For a broker that starts fast."""
USUAL_JVM = ("-Xmx1g", "-Xms1g", _IPV4)
"""For one that is measured: with the compiler that optimizes."""
CLUSTER_ID = "bXlkZG1xLXRlc3RzLTAwMQ"
START_SECONDS_MAX = 240.0
_POLL_SECONDS = 0.05


TOPIC_SECONDS_MAX = 60.0


def free_ports() -> tuple[int, int]:
    """Return two ports on which no process listens now."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def make_topic(address: str, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
    """Create a topic with one replica, and wait until its partitions have leaders."""
    import confluent_kafka.admin

    kafka: Any = confluent_kafka.admin
    admin = kafka.AdminClient({"bootstrap.servers": address})
    new = kafka.NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
    admin.create_topics([new])[name].result(TOPIC_SECONDS_MAX)
    deadline = time.monotonic() + TOPIC_SECONDS_MAX
    while True:
        found = admin.list_topics(name, timeout=TOPIC_SECONDS_MAX).topics[name].partitions
        if len(found) == partitions and all(each.leader >= 0 for each in found.values()):
            return
        if time.monotonic() > deadline:
            raise BenchError(f"partitions of topic {name} have no leader after {TOPIC_SECONDS_MAX:.0f} s")
        time.sleep(_POLL_SECONDS)


@contextmanager
def running_kafka(folder: Path) -> Iterator[str]:
    """Give the address of a Kafka: that of PYDDMQ_KAFKA, or of one that is started in the folder."""
    if given := os.environ.get("PYDDMQ_KAFKA"):
        yield given
        return
    server = KafkaProcess(folder / "kafka", JARS.fetch(), ports=free_ports(), jvm=USUAL_JVM)
    try:
        server.start()
        yield server.address
    finally:
        server.kill()


class KafkaProcess:
    """One broker; `start` after `stop` or `kill` continues with the same files and ports.

    Attributes:
        address: For `bootstrapServers`.
        controller: The controller of its cluster.
    """

    def __init__(
        self,
        folder: Path,
        jars: Path,
        *,
        ports: tuple[int, int],
        more: Mapping[str, str] | None = None,
        listeners: Mapping[str, tuple[str, str]] | None = None,
        joins: str = "",
        jvm: Sequence[str] = QUICK_JVM,
    ) -> None:
        """Prepare its files.

        Args:
            folder: A new folder.
            jars: Kafka's jars.
            ports: Free ports for the broker and the controller.
            more: Settings that are added to those of a small Kafka, or replace them.
            listeners: Further listeners by name: protocol and address.
            joins: The controller of another one, whose cluster it joins as broker 2; "": it is a cluster.
            jvm: Options of its Java.

        Raises:
            BenchError: Kafka could not format the folder.
        """
        folder.mkdir(parents=True)
        self._folder = folder
        self._jars = jars
        self._jvm = jvm
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = ports
        self._joins = joins
        self.address = f"127.0.0.1:{port}"
        self.controller = joins or f"127.0.0.1:{controller}"
        names = {"PLAINTEXT": ("PLAINTEXT", self.address), **(listeners or {})}
        protocols = {**names, "CONTROLLER": ("PLAINTEXT", self.controller)}
        if not joins:
            names = protocols
        settings = {
            "process.roles": "broker" if joins else "broker,controller",
            "node.id": "2" if joins else "1",
            "controller.quorum.bootstrap.servers": self.controller,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://{where}" for name, (_, where) in names.items()),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, (protocol, _) in protocols.items()
            ),
            "log.dirs": str(folder / "logs"),
            # One partition each, so that little has to be created and loaded.
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            **(more or {}),
        }
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._format()

    def start(self) -> None:
        """Start it, and wait until it listens. Raises BenchError."""
        with (self._folder / "output.txt").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches only the process that started it.
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"Kafka did not start: {(self._folder / 'output.txt').read_text()[-2000:]}")
            time.sleep(_POLL_SECONDS)

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

    def _listens(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    def _command(self, *arguments: str) -> list[str]:
        return ["java", *self._jvm, "-cp", f"{self._jars}/*", *arguments]

    def _format(self) -> None:
        how = "--no-initial-controllers" if self._joins else "--standalone"
        command = self._command("kafka.tools.StorageTool", "format", how, "-t", CLUSTER_ID, "-c", str(self._settings))
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False, timeout=240)
        if done.returncode:
            raise BenchError(f"Kafka could not format its folder: {done.stdout[-1000:]}{done.stderr[-1000:]}")
