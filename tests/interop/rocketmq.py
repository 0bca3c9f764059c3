"""RocketMQ's own clients as the tests ask them (Interchange.java), and the processes of bench.rocketmq.

What the machine lacks (Java, Maven, the way to Maven Central) is a skip with the reason, and a failure in CI.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from bench.rocketmq.jars import INTERCHANGE_JARS
from bench.rocketmq.processes import Broker, LineClient, NameServer
from bench.servers.java import JVM_OPTIONS
from bench.servers.maven import JarsMissing, Programs, compile_programs
from broker.format.properties import BATCH_NAME, CRC_NAME
from tests.conftest import need

__all__ = ["JVM_OPTIONS", "Broker", "Client", "ClientContext", "Message", "NameServer", "Programs", "compiled_programs"]

HERE = Path(__file__).parent


def compiled_programs(folder: Path) -> Programs:
    """Fetch RocketMQ when it is not there yet, and compile the programs beside this file into a folder."""
    try:
        found = INTERCHANGE_JARS.fetch()
    except JarsMissing as error:
        need(False, f"{error}, so it")
        raise
    programs = compile_programs(found, HERE, folder)
    services = folder / "META-INF" / "service"
    services.mkdir(parents=True)
    (services / "org.apache.rocketmq.store.ha.HAService").write_text("NoReplicas")
    return programs


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


class Client(LineClient):
    """RocketMQ's own clients behind JSON lines (Interchange.java)."""

    def __init__(self, folder: Path, programs: Programs, namesrv: str) -> None:
        super().__init__(folder, programs, ["Interchange", namesrv], piped=True)

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
        self,
        group: str,
        topic: str,
        *,
        deliveries: int,
        fails: Mapping[str, Sequence[int]] | None = None,
        tags: str = "*",
    ) -> list[Message]:
        """Consume as a member of a group until so many were delivered.

        Args:
            group: The group.
            topic: The topic that it subscribes.
            deliveries: How many to wait for.
            fails: By body, the delay levels of its failures, one by one; then success.
            tags: What it subscribes of the topic.
        """
        lines = self.ask(do="consume", group=group, topic=topic, deliveries=deliveries, fails=fails or {}, tags=tags)
        return [_message(line) for line in lines]

    def pop(
        self,
        broker: Broker,
        group: str,
        topic: str,
        *,
        count: int,
        invisible_ms: int,
        acks: Sequence[str] = (),
    ) -> list[Message]:
        """Pop messages, each invisible to others for so long; acknowledge those with these bodies."""
        request = {"broker": broker.address, "group": group, "topic": topic, "count": count, "acks": list(acks)}
        return [_message(line) for line in self.ask(do="pop", invisible=invisible_ms, **request)]

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
