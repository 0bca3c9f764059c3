"""Principals x methods x resources over topics and groups in a real Kafka, before and after a reload.

As `tests/access/test_matrix.py` has it for the store of the node, whose model of the rules and table of denials hold
here too: where a topic stands makes no difference to who may use it. Principals are told apart by the loopback address
that they come from.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.access.access import DENIED
from tests.access.test_matrix import ACTION, Lines, expected
from tests.access.world import CONSUMER_METHODS, DENIAL, arguments_of, codec_of, shape
from tests.patient import PATIENCE_SECONDS
from tests.running_node import RunningNode
from tests.simulation.wire import Frames, Reply

pytestmark = pytest.mark.long

PRINCIPALS = ("all", "producer", "consumer", "viewer", "nobody", "anonymous")
YAML = """
node: {segmentBytes: 8388608}
kafka:
  main: {bootstrapServers: "ADDRESS"}
topics:
  orders: {queues: 1}
  RIDES: {brokerCluster: main}
  TRIPS: {brokerCluster: main}
groups:
  - {group: riders, topics: [{topic: RIDES}]}
  - {group: drivers, topics: [{topic: TRIPS}]}
  - {group: billing, topics: [{topic: orders}]}
"""


def lines_of(rides: str, trips: str) -> tuple[Lines, Lines]:
    """The rules before and after the reload."""
    before: Lines = [
        (["all"], {"produce": ["*"], "consume": ["*"], "transact": ["*"]}),
        (["producer"], {"produce": [rides, "orders"], "transact": ["riders"]}),
        (["consumer"], {"consume": ["riders", "bill*"]}),
        (["viewer"], {"view": ["drivers", "riders"]}),
        (["anonymous"], {"produce": [trips], "consume": ["drivers"]}),
    ]
    after: Lines = [
        (["all"], {"produce": [trips], "consume": ["drivers"]}),
        (["prod*"], {"produce": ["*"], "consume": ["riders"]}),
        (["consumer", "viewer"], {"consume": ["*"], "view": ["billing"]}),
        (["nobody"], {"produce": [rides], "transact": ["*"]}),
    ]
    return before, after


def yaml(text: str, lines: Lines) -> str:
    """Write the configuration with its section `access`."""
    networks = ", ".join(
        f"{{cidr: 127.77.{at}.0/24, principal: {name}}}" for at, name in enumerate(PRINCIPALS) if name != "anonymous"
    )
    rules = [
        f"    - {{principals: {names!r}, {', '.join(f'{key}: {[*found]!r}' for key, found in rights.items())}}}\n"
        for names, rights in lines
    ]
    return f"{text}access:\n  networks: [{networks}]\n  rules:\n{''.join(rules)}"


class Client:
    """One connection from a loopback address of the principal's own."""

    def __init__(self, address: str, method: str, principal: str) -> None:
        host, _, port = address.rpartition(":")
        source = (f"127.77.{PRINCIPALS.index(principal)}.1", 0)
        self._socket = socket.create_connection((host, int(port)), PATIENCE_SECONDS, source_address=source)
        self._codec = codec_of(method)
        self._frames = Frames()

    def call(self, method: str, resource: str) -> Reply:
        """Make a call and return its answer."""
        self._socket.sendall(self._codec.call(method, 1, **arguments_of(method, resource)))
        while True:
            data = self._socket.recv(1 << 16)
            assert data, f"no answer to {method}"
            for _, payload in self._frames.feed(data):
                return self._codec.reply(payload)

    def close(self) -> None:
        """End it."""
        self._socket.close()


def denied(running: RunningNode) -> int:
    """How much was denied so far."""
    return sum(value for spec, _, value in running.node.runtime.metrics if spec.name == DENIED)


def ask(running: RunningNode, lines: Lines, resources: tuple[str, ...], clients: dict[tuple[str, str], Client]) -> int:
    """Ask every cell; returns how many there were."""
    cells = 0
    for principal in PRINCIPALS:
        for method in ACTION:
            client = clients[principal, "consumer" if method in CONSUMER_METHODS else "producer"]
            for resource in resources:
                before = running.call(denied, running)
                reply = client.call(method, resource)
                was_denied = running.call(denied, running) > before
                cell = (principal, method, resource, shape(reply))
                assert was_denied != expected(lines, principal, method, resource), cell
                if was_denied:
                    assert shape(reply) == DENIAL[method], cell
                cells += 1
    return cells


def test_every_cell_over_kafka_is_as_the_rules_say_before_and_after_a_reload(
    address: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Each call is denied as its method is, or goes on, by the rules in force; on open connections."""
    rides, trips = topic(1), topic(1)
    text = YAML.replace("ADDRESS", address).replace("RIDES", rides).replace("TRIPS", trips)
    before, after = lines_of(rides, trips)
    resources = (rides, trips, "orders", "riders", "drivers", "billing", "nowhere")
    with RunningNode(yaml(text, before), tmp_path / "data") as running:
        clients = {
            (principal, service): Client(
                running.consumer if service == "consumer" else running.producer, service, principal
            )
            for principal in PRINCIPALS
            for service in ("consumer", "producer")
        }
        try:
            cells = ask(running, before, resources, clients)
            assert running.reload(yaml(text, after)).accepted
            cells += ask(running, after, resources, clients)
        finally:
            for client in clients.values():
                client.close()
    assert cells == 2 * len(PRINCIPALS) * len(ACTION) * len(resources) > 1_000
