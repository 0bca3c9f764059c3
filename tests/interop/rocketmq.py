"""A real Apache RocketMQ 5.3.3 on the loopback: name server, broker, and its own clients, each a process of ours.

The jars come from Maven Central by the pom beside this file and stay in a cache folder outside of the checkout.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from zlib import crc32

from broker.interchange import broker_conf
from broker.properties import BATCH_NAME, CRC_NAME
from tests.conftest import need, need_program

HERE = Path(__file__).parent
VERSION = "5.3.3"
POM = HERE / "pom.xml"
# Another pom is another folder, so a cache is whole or not there.
CACHE = (
    Path(os.environ.get("PYDDMQ_INTEROP_CACHE", "~/.cache/pyddmq/interop")).expanduser()
    / f"{VERSION}-{crc32(POM.read_bytes()):08x}"
)
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_SECONDS_MAX = 300
FETCH_ATTEMPTS = 3
END_SECONDS_MAX = 60
# Short lives on few cores: one compiler and one collector, none of which needs threads of its own.
JVM_OPTIONS = (
    "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
    "-Djava.net.preferIPv4Stack=true",
)  # fmt: skip
PORTS_FROM = 20_000


def fetch() -> Path:
    """Return the folder with the jars of pom.xml, fetched when it is not there yet.

    What the machine lacks (Java, Maven, the way to Maven Central) is a skip with the reason, and a failure in CI.
    """
    need_program("java", "apt install openjdk-17-jdk-headless")
    need_program("javac", "apt install openjdk-17-jdk-headless")
    if (CACHE / "complete").exists():
        return CACHE
    maven = need_program("mvn", "apt install maven")
    command = [maven, "-B", "-q", "-ntp", "-Dstyle.color=never", "-f", str(POM), COPY_GOAL, "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={CACHE}", "-Dmaven.wagon.http.retryHandler.count=3"]
    said = ""
    for _ in range(FETCH_ATTEMPTS):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired:
            said = f"no end within {FETCH_SECONDS_MAX} s"
            continue
        if not done.returncode:
            (CACHE / "complete").touch()
            return CACHE
        said = " ".join(done.stdout.split())[:500]
    need(False, f"RocketMQ {VERSION}: {FETCH_ATTEMPTS} attempts to fetch it from Maven Central failed ({said}), so it")
    raise AssertionError("need() does not return")


def compile_programs(jars: Path, folder: Path) -> None:
    """Compile the programs beside this file into a folder."""
    sources = [str(each) for each in sorted(HERE.glob("*.java"))]
    command = ["javac", "-proc:none", "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    services = folder / "META-INF" / "service"
    services.mkdir(parents=True)
    (services / "org.apache.rocketmq.store.ha.HAService").write_text("NoReplicas")


class Message(NamedTuple):
    """A message as RocketMQ's client shows it; times in ms since the epoch, hosts as address, blank, port."""

    topic: str
    queue_id: int
    offset: int
    physical: int
    size: int
    born_ms: int
    born_host: str
    stored_ms: int
    store_host: str
    reconsumed: int
    replaces: int
    key: str
    tags: str
    unique_key: str
    properties: dict[str, str]
    body: bytes


class Programs(NamedTuple):
    """What JVMs run: the folder with the jars, and the one with the compiled programs."""

    jars: Path
    classes: Path

    @property
    def class_path(self) -> str:
        """Both, ours first."""
        return f"{self.classes}:{self.jars}/*"


class JavaProcess:
    """One JVM with a home folder of its own; it listens on the loopback and dies with the block.

    Args:
        folder: Its home and working folder; its output goes to a file there.
        programs: The class path.
        arguments: Main class and what follows it.
        piped: Whether stdin and stdout are pipes of ours; otherwise stdout goes to the log.
    """

    def __init__(self, folder: Path, programs: Programs, arguments: Sequence[str], *, piped: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "output.txt"
        command = [
            "java", *JVM_OPTIONS, f"-Duser.home={folder}", f"-Drocketmq.client.logRoot={folder}",
            "-cp", programs.class_path, *arguments,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "ROCKETMQ_HOME": str(folder)},
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )

    def wait_for(self, sign: str) -> None:
        """Read its output until a line holds `sign`.

        Raises:
            AssertionError: It ended before.
        """
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if sign in line:
                return
        raise AssertionError(f"{sign!r} was not said: {''.join(seen)[-2000:]} {self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """SIGTERM, and wait: RocketMQ closes its store in a shutdown hook. Harmless when it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.communicate(timeout=END_SECONDS_MAX)


class NameServer(JavaProcess):
    """Where clients find the broker."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        folder.mkdir(parents=True)
        [port] = free_ports(1)
        settings = folder / "namesrv.conf"
        settings.write_text(broker_conf({"listenPort": str(port), "bindAddress": "127.0.0.1"}))
        super().__init__(folder, programs, ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(settings)])
        self.address = f"127.0.0.1:{port}"
        self.wait_for("boot success")


class Broker(JavaProcess):
    """A broker on a store. Leaving the block kills it; `stop` before that closes the store.

    Args:
        folder: A folder of its own.
        programs: Class path.
        namesrv: Address of the name server.
        settings: Its broker.conf but for addresses.
    """

    def __init__(self, folder: Path, programs: Programs, namesrv: str, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        # The port, and the one two below for "VIP" clients.
        port = free_ports(3)[2]
        self.address = f"127.0.0.1:{port}"
        own = {
            "namesrvAddr": namesrv,
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(port),
            # Its part of a shutdown takes 6 s, and no test has a timed message.
            "timerWheelEnable": "false",
        }
        settings_file = folder / "broker.conf"
        settings_file.write_text(broker_conf({**own, **settings}))
        super().__init__(folder, programs, ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(settings_file)])
        self.wait_for("boot success")

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Client(JavaProcess):
    """RocketMQ's own clients behind JSON lines (Interchange.java)."""

    def __init__(self, folder: Path, programs: Programs, namesrv: str) -> None:
        super().__init__(folder, programs, ["Interchange", namesrv], piped=True)

    def write(self, request: Mapping[str, Any]) -> None:
        """Send a request without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that answer one request.

        Raises:
            AssertionError: The client reports an error, or ended.
        """
        assert self.process.stdout is not None
        error = ""
        for line in self.process.stdout:
            answer = json.loads(line)
            if not answer:
                assert not error, f"{error} {self.log.read_text()[-1000:]}"
                return
            if "error" in answer:
                error = answer["error"]
            else:
                yield answer
        raise AssertionError(f"the client ended: {self.log.read_text()[-2000:]}")

    def ask(self, **request: Any) -> list[dict[str, Any]]:
        """Send a request and return its answers."""
        self.write(request)
        return list(self.answers())

    def make_topic(self, broker: Broker, topic: str, queues: int) -> None:
        """Create a topic at a broker."""
        self.ask(do="topic", broker=broker.address, topic=topic, queues=queues)

    def read(
        self, topic: str, ends: Mapping[int, int] | None = None
    ) -> tuple[dict[int, tuple[int, int]], list[Message]]:
        """Return bounds [minimum, maximum) by queue of a topic, and everything in it by queue and offset.

        Args:
            topic: The topic.
            ends: Maxima to wait for, by queue; a broker that just started may not have come to them yet.
        """
        bounds: dict[int, tuple[int, int]] = {}
        messages = []
        for line in self.ask(do="read", topic=topic, ends=ends or {}):
            if "maximum" in line:
                bounds[line["queue"]] = (line["minimum"], line["maximum"])
                continue
            assert "body" in line, f"{topic}: {line}"
            messages.append(_message(line))
        return bounds, sorted(messages, key=lambda each: (each.queue_id, each.offset))

    def consume(
        self, group: str, topic: str, *, deliveries: int, fails: Mapping[str, Sequence[int]] | None = None
    ) -> list[Message]:
        """Consume as a member of a group until so many were delivered.

        Args:
            group: The group.
            topic: The topic that it subscribes.
            deliveries: How many to wait for.
            fails: By body, the delay levels of its failures, one by one; then success.
        """
        lines = self.ask(do="consume", group=group, topic=topic, deliveries=deliveries, fails=fails or {})
        return [_message(line) for line in lines]

    def query(self, topic: str, *, key: str, limit: int) -> list[Message]:
        """Return the messages that the broker's index finds by a key, oldest first."""
        found = [_message(line) for line in self.ask(do="query", topic=topic, key=key, limit=limit)]
        return sorted(found, key=lambda each: each.physical)

    def view(self, topic: str, message_id: str) -> Message:
        """Return the message of a unique key (or of an offsetMsgId that names the running broker)."""
        [line] = self.ask(do="query", topic=topic, id=message_id)
        return _message(line)


ClientContext = AbstractContextManager[Client]
"""The clients within a `with` block."""


def _message(line: dict[str, Any]) -> Message:
    # RocketMQ takes the two properties that close our records for the producer's.
    properties = {name: value for name, value in line["properties"].items() if name not in (CRC_NAME, BATCH_NAME)}
    return Message(
        topic=line["topic"],
        queue_id=line["queue"],
        offset=line["offset"],
        physical=line["physical"],
        size=line["size"],
        born_ms=line["born"],
        born_host=line["bornHost"],
        stored_ms=line["stored"],
        store_host=line["storeHost"],
        reconsumed=line["reconsumed"],
        replaces=line["replaces"],
        key=line["key"],
        tags=line["tags"],
        unique_key=line["id"],
        properties=properties,
        body=base64.b64decode(line["body"]),
    )


def free_ports(count: int) -> list[int]:
    """Return consecutive loopback ports that nobody listens on."""
    for first in range(PORTS_FROM, 32_000, count):
        held = []
        try:
            for port in range(first, first + count):
                taken = socket.socket()
                held.append(taken)
                taken.bind(("127.0.0.1", port))
        except OSError:
            continue
        else:
            return [each.getsockname()[1] for each in held]
        finally:
            for taken in held:
                taken.close()
    raise AssertionError("no free ports")
