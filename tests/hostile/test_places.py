"""Places on a Thrift port: one address cannot take all, and who is idle makes room where somebody needs it."""

from __future__ import annotations

from conf import Config
from proxy.port.server import CONNECTIONS_REFUSED
from tests.hostile.sim import YAML, HostileWorld, Raw
from tests.insides import opened_of
from tests.simulation.wire import consumer_codec


class Places(HostileWorld):
    """A node with eight places on each port."""

    def __init__(self, more: str = "") -> None:
        super().__init__(YAML.replace("node: {", "node: {maxConnections: 8, " + more))

    def come_from(self, host: str) -> Raw:
        """Open a connection to the consumer port from an address."""
        client = Raw(consumer_codec())
        port = self.config.node.consumer_port
        assert port is not None, "it has plain ports"
        self.network.connect(client, ("127.0.0.1", port), host=host)
        self.run(0.2)
        return client

    def refused(self, reason: str) -> int:
        """Connections of the consumer port that were closed for this reason."""
        return self.node.runtime.metrics.value(CONNECTIONS_REFUSED, "consumer", reason)


def test_one_address_leaves_places_to_others() -> None:
    """A client that opens connections without end gets three quarters of them; another one is served."""
    world = Places()
    hostile = [world.come_from("10.9.9.9") for _ in range(20)]
    assert [each.lost for each in hostile].count(False) == 6
    assert world.refused("address") == 14
    healthy = world.come_from("10.0.0.7")
    assert world.pull(healthy).error is None


def test_share_of_an_address_is_what_the_configuration_says() -> None:
    """As many as maxConnectionsPerAddress, and again as soon as one of them closes."""
    world = Places("maxConnectionsPerAddress: 2, ")
    first, second, third = (world.come_from("10.9.9.9") for _ in range(3))
    assert (first.lost, second.lost, third.lost) == (False, False, True)
    first.transport.close()
    world.run(0.2)
    assert not world.come_from("10.9.9.9").lost


def test_idle_connection_makes_room_and_a_waiting_pull_does_not() -> None:
    """With all places taken the one that was silent longest goes; parked pulls, and who asked lately, stay."""
    world = Places("idleTimeout: 10000, maxConnectionsPerAddress: 8, ")
    clients = [world.come_from("10.0.0.7") for _ in range(8)]
    world.run(5.0)
    for each in clients[:2]:
        each.transport.write(world.pull_frame(each, linger_ms=30_000))
    world.run(15.0)
    for each in clients[4:]:
        world.pull(each)
    world.run(1.5)
    new = [world.come_from("10.0.0.8") for _ in range(3)]
    assert [each.lost for each in clients] == [False, False, True, True, False, False, False, False]
    assert [each.lost for each in new] == [False, False, True]
    assert (world.refused("idle"), world.refused("too_many")) == (2, 1)


def test_nobody_is_closed_for_being_idle_while_there_are_places() -> None:
    """Pools of client libraries keep connections for hours; none of them finds its one closed."""
    world = Places("idleTimeout: 1000, ")
    clients = [world.come_from("10.0.0.7") for _ in range(6)]
    world.run(7200.0)
    assert not any(each.lost for each in clients)
    assert world.pull(clients[0]).error is None


def test_idle_connection_of_the_same_address_makes_room_for_its_next() -> None:
    """A client that lost its pool and opens another one replaces its own connections, not somebody else's."""
    world = Places("idleTimeout: 1000, maxConnectionsPerAddress: 3, ")
    others = [world.come_from("10.0.0.8") for _ in range(3)]
    old = [world.come_from("10.0.0.7") for _ in range(3)]
    world.run(5.0)
    new = [world.come_from("10.0.0.7") for _ in range(3)]
    assert [each.lost for each in (*others, *new)] == [False] * 6
    assert all(each.lost for each in old)


def test_a_reload_changes_both_bounds() -> None:
    """They hold for connections from then on; open ones stay."""
    world = Places()
    clients = [world.come_from("10.0.0.7") for _ in range(4)]
    node = world.config.node.model_copy(update={"max_connections_per_address": 5, "idle_timeout": 2000})
    world.node.in_force.config = Config(node=node, topics=world.config.topics, groups=world.config.groups)
    world.node.apply_live_settings(opened_of(world.node))
    assert world.node.consumer.limits.idle_seconds == 2.0
    assert [world.come_from("10.0.0.7").lost for _ in range(2)] == [False, True]
    assert not any(each.lost for each in clients)
