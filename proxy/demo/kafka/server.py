"""An Apache Kafka of one's own: one broker that is its own controller (KRaft), on the loopback, in a folder."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from broker.runtime.seams import Clock, SystemClock
from proxy.demo.kafka.download import CannotFetch, fetch, folder_of

VERSION = "4.1.1"
POM = Path(__file__).with_name("pom.xml")
JVM = ("-Xmx256m", "-Xms64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true")
CLUSTER_ID = "bXlkZG1xLXRlc3RzLTAwMQ"
START_SECONDS_MAX = 240.0
_POLL_SECONDS = 0.05


class KafkaFailed(Exception):
    """It cannot be started; the text says why."""


def kafka_jars() -> Path:
    """Return the folder with Kafka's jars. Raises CannotFetch."""
    if shutil.which("java") is None:
        raise CannotFetch(f"Kafka {VERSION} needs java, which is not installed (apt install openjdk-17-jre-headless)")
    return fetch(POM, folder_of(POM, f"kafka-{VERSION}"), f"Kafka {VERSION}")


class KafkaProcess:
    """One broker; `start` after `stop` or `kill` goes on with the same files and ports.

    Attributes:
        address: For `bootstrapServers`.
    """

    def __init__(
        self,
        folder: Path,
        jars: Path,
        *,
        ports: tuple[int, int],
        more: Mapping[str, str] | None = None,
        listeners: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """Prepare its files.

        Args:
            folder: A new one.
            jars: Kafka's.
            ports: Of the broker and of the controller, free ones.
            more: Settings beside those that a small Kafka needs, or in their place.
            listeners: Further ones by name: their protocol, and where.

        Raises:
            KafkaFailed: Its files cannot be made.
        """
        folder.mkdir(parents=True)
        self._folder = folder
        self._jars = jars
        self._clock: Clock = SystemClock()
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = ports
        self.address = f"127.0.0.1:{port}"
        names = {"PLAINTEXT": ("PLAINTEXT", self.address), **(listeners or {})}
        names["CONTROLLER"] = ("PLAINTEXT", f"127.0.0.1:{controller}")
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://{where}" for name, (_, where) in names.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, (protocol, _) in names.items()),
            "log.dirs": str(folder / "logs"),
            # One of each, so that little has to be made and loaded.
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
        """Start it, and wait until it listens. Raises KafkaFailed."""
        with (self._folder / "output.txt").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for whoever started it.
                start_new_session=True,
            )
        until, pause = self._clock.monotonic() + START_SECONDS_MAX, threading.Event()
        while not self._listens():
            if self._process.poll() is not None or self._clock.monotonic() > until:
                raise KafkaFailed(f"Kafka did not start: {(self._folder / 'output.txt').read_text()[-2000:]}")
            pause.wait(_POLL_SECONDS)

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
        return ["java", *JVM, "-cp", f"{self._jars}/*", *arguments]

    def _format(self) -> None:
        command = self._command(
            "kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(self._settings)
        )
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False, timeout=240)
        if done.returncode:
            raise KafkaFailed(f"Kafka's files cannot be made: {done.stdout[-1000:]}{done.stderr[-1000:]}")
