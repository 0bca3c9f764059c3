"""A node with rules in virtual time, and clients at addresses of their own that call one method after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actions.registry import Registry
from broker.runtime.steps import run_now
from conf.loader import loads
from conf.sections.access_files import StoredToken, text_of
from proxy.access.access import DENIED
from proxy.access.tokens import made
from proxy.node.reload import Reloader
from proxy.node.views import ReloadResult
from proxy.port.connection import Connection
from pyddmq.testing import SimDisk
from tests.hostile.sim import HostileWorld, Raw
from tests.simulation.wire import Codec, Reply, consumer_idl, producer_idl

TOPICS = """
topics:
  orders: {queues: 1}
  payments: {queues: 1}
groups:
  - group: billing
    topics: [{topic: orders, maxPullBatchSize: 32, timeout: 600000}]
  - group: audit
    topics: [{topic: orders, timeout: 600000}]
  - group: low
    topics: [{topic: orders, actions: [LowLevel]}]
"""
NODE = "node: {memoryMax: 67108864, segmentBytes: 4194304, producerPort: 9613, consumerPort: 9713}\n"
CONSUMER_METHODS = frozenset({"pull", "submit", "getConsumeStats", "fetch", "ack"})
PRODUCER_PORT, CONSUMER_PORT = 9613, 9713


def codec_of(method_or_service: str) -> Codec:
    """Return the codec of the port that has a method, or of a service's."""
    if method_or_service in CONSUMER_METHODS or method_or_service == "consumer":
        return Codec(consumer_idl.AuthenticatedConsumerService)
    return Codec(producer_idl.AuthenticatedProducerService)


class Client(Raw):
    """One connection; `call` waits for the answer."""

    world: AccessWorld
    seqid = 0

    def call(self, method: str, *, seconds: float = 40.0, **arguments: Any) -> Reply:
        """Make a call and return its answer."""
        seen = len(self.replies)
        self.send(method, **arguments)
        self.world.loop.run(lambda: len(self.replies) > seen or self.lost, seconds=seconds)
        assert len(self.replies) > seen, f"no answer to {method}"
        return self.replies[-1]

    def send(self, method: str, **arguments: Any) -> None:
        """Make a call and wait for nothing."""
        self.seqid += 1
        self.transport.write(self.codec.call(method, self.seqid, **arguments))


class AccessWorld(HostileWorld):
    """One node with a section `access`."""

    def __init__(
        self, access: str, *, disk: SimDisk | None = None, topics: str = TOPICS, node: dict[str, int] | None = None
    ) -> None:
        self.topics = topics
        self.head = NODE.replace("}", "".join(f", {key}: {value}" for key, value in (node or {}).items()) + "}")
        self.disk = SimDisk() if disk is None else disk
        super().__init__(self.head + access + topics, disk=self.disk)

    def client(self, service: str, host: str = "127.0.0.1") -> Client:
        """Open a connection of a client at an address."""
        client = Client(codec_of(service))
        client.world = self
        port = CONSUMER_PORT if service == "consumer" else PRODUCER_PORT
        self.network.connect(client, ("127.0.0.1", port), host=host)
        self.run(0.01)
        return client

    def served(self, client: Client) -> Connection:
        """Return the node's end of a connection."""
        host, port = client.transport.get_extra_info("sockname")
        [found] = [each for _, each in self.node.connections() if each.address == f"{host}:{port}"]
        return found

    def reload(self, access: str) -> ReloadResult:
        """Bring another section `access` into force."""
        config = loads(self.head + access + self.topics, actions=Registry()).config
        result = run_now(Reloader(self.node, lambda: loads("node: {}")).applying(config))
        self.run(0.01)
        return result

    def denied(self) -> int:
        """How much was denied so far."""
        return sum(value for spec, _, value in self.node.runtime.metrics if spec.name == DENIED)

    def again(self, access: str) -> AccessWorld:
        """Kill the node and start another one on what it left."""
        self.node.kill()
        return AccessWorld(access, disk=self.disk, topics=self.topics)


def token_file(folder: Path, principals: dict[str, int]) -> tuple[str, dict[str, str]]:
    """Write a file of tokens; returns its path, and the text of each principal's.

    Args:
        folder: Where.
        principals: Until when each one's holds, ms since the epoch.
    """
    tokens, texts = {}, {}
    for name, expires_ms in principals.items():
        random_bytes = hashlib.shake_128(name.encode()).digest(40)
        token_id, texts[name], digest = made(random_bytes)
        tokens[token_id] = StoredToken(id=token_id, digest=digest, principal=name, created_ms=0, expires_ms=expires_ms)
    path = folder / "tokens.json"
    spare = folder / "tokens.new"
    spare.write_text(text_of(tokens))
    spare.replace(path)
    return str(path), texts


# What each method is called with, for a topic or group of this name.


def message(topic: str, **fields: Any) -> Any:
    """Return a message as producers send it."""
    return producer_idl.Message(topic=topic, body=b"x", hashId=0, partitionId=-1, **fields)


def delay(topic: str, **fields: Any) -> Any:
    """Return a delayed message, added unless `action` says otherwise."""
    asked = {"action": 1, "timestamp": 2_000_000_000, "dmsgtype": 2, "uuid": "u", **fields}
    return producer_idl.DelayMessage(topic=topic, body=b"x", tags="", **asked)


def result(group: str, *, topic: str = "orders", offset: int = 0) -> Any:
    """Return a result of one success."""
    context = consumer_idl.Context(groupId=group, topic=topic, qid="pyddmq_broker-0_0")
    return consumer_idl.ConsumeResult(context=context, successOffsets=[offset], failOffsets=[])


def pull(group: str, *, linger_ms: int = 20, results: Any = None) -> Any:
    """Return a pull."""
    return consumer_idl.PullRequest(groupId=group, maxLingerTime=linger_ms, result=results)


def fetch(group: str, *, linger_ms: int = 20) -> Any:
    """Return a fetch."""
    return consumer_idl.FetchRequest(consumerId="c", groupId=group, cluster="", maxLingerTime=linger_ms)


def arguments_of(method: str, resource: str) -> dict[str, Any]:
    """Return arguments that ask something of this topic or group and change little."""
    ending = producer_idl.EndTransaction(producerGroup=resource, handle="0-0-none", state=8)
    queues = {"orders": {"pyddmq_broker-0_0": 0}}
    found: dict[str, Callable[[], dict[str, Any]]] = {
        "pull": lambda: {"request": pull(resource)},
        "submit": lambda: {"result": result(resource, offset=10**9)},
        "getConsumeStats": lambda: {"request": consumer_idl.ConsumeStatsRequest(group=resource)},
        "fetch": lambda: {"request": fetch(resource)},
        "ack": lambda: {"result": consumer_idl.AckResult(consumerId="c", groupId=resource, cluster="", offsets=queues)},
        "sendSync": lambda: {"message": message(resource), "timeout": 1000},
        "sendAsync": lambda: {"message": message(resource)},
        "sendBatchSync": lambda: {"messages": [message(resource), message(resource)]},
        "sendDelaySync": lambda: {"delayMessage": delay(resource), "timeout": 1000},
        "sendHalfSync": lambda: {"message": message("orders"), "producerGroup": resource, "timeout": 1000},
        "endTransaction": lambda: {"decision": ending},
        "fetchChecks": lambda: {"request": producer_idl.CheckRequest(producerGroup=resource, maxLingerTime=20)},
    }
    return found[method]()


def shape(reply: Reply) -> str:
    """Say what a denial and any other answer look like, without the client's own names."""
    if reply.error is not None:
        code = getattr(reply.error, "code", None)
        return f"exception {code if code is not None else reply.error.type}"
    value = reply.value
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "list"
    return f"code {getattr(value, 'code', None)}"


DENIAL = {
    "pull": "exception 8",
    "submit": "False",
    "getConsumeStats": "exception 8",
    "fetch": "code 8",
    "ack": "False",
    "sendSync": "code 13",
    "sendAsync": "code 13",
    "sendBatchSync": "code 13",
    "sendDelaySync": "code 13",
    "sendHalfSync": "code 13",
    "endTransaction": "code 13",
    "fetchChecks": "exception 6",
}
"""What each method is answered without its right."""
