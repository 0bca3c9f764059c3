"""Pulls that wait: each linger ends at its time, each pull is answered once, and no client costs a call per pull."""

from __future__ import annotations

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from proxy.port.accepting import ServerLimits
from proxy.port.connection import Connection
from proxy.port.server import Commons, ThriftServer
from proxy.services.consumer_service import ConsumerService
from tests.fakes.access import open_guard
from tests.simulation.wire import consumer_codec, consumer_idl
from tests.unit.proxy.port.test_connection_turn import Peer
from tests.unit.upstream_world import World


class Port:
    """A consumer port over one group `g` on topic `t`, without sockets."""

    def __init__(self) -> None:
        self.world = World(queues=1)
        world = self.world
        metrics = Metrics()
        self.server = ThriftServer(
            "consumer",
            {},
            limits=ServerLimits(),
            commons=Commons(
                runtime=runtime_of(world.disk, world.clock, metrics=metrics, scheduler=world.scheduler),
                request_turn=lambda: None,
            ),
        )
        runtime = runtime_of(world.disk, world.clock, metrics=metrics, scheduler=world.scheduler)
        service = ConsumerService(
            {"g": world.group},
            linger_ms_max=10_000,
            acks_refused=lambda: world.progress.failed,
            budget=self.server.budget,
            guard=open_guard(runtime),
            runtime=runtime,
        )
        self.server.serve(service.handlers(), service.line)

    def connect(self) -> tuple[Connection, Peer]:
        """Open a connection."""
        connection, peer = Connection(self.server), Peer()
        connection.connection_made(peer)
        return connection, peer

    def pull(self, connection: Connection, linger_ms: int) -> None:
        """Have a client pull one message."""
        request = consumer_idl.PullRequest(groupId="g", maxBatchSize=1, maxLingerTime=linger_ms)
        connection.data_received(consumer_codec().call("pull", 1, request=request))
        self.server.run_pass()

    def after(self, seconds: float) -> None:
        """Let time pass, then write what it led to."""
        self.world.advance(seconds)
        self.server.flush()

    def publish(self) -> None:
        """Store one message and write what it led to."""
        self.world.publish(None)
        self.server.flush()


def test_each_linger_ends_at_its_own_time() -> None:
    """Pulls of equal and of other lingers, begun at other times, are answered empty when each has waited its time."""
    port = Port()
    peers = []
    for linger_ms in (300, 100, 300):
        connection, peer = port.connect()
        port.pull(connection, linger_ms)
        peers.append(peer)
        port.after(0.04)
    port.after(0.019)
    assert [len(peer.written) for peer in peers] == [0, 0, 0]
    port.after(0.002)
    assert [len(peer.written) for peer in peers] == [0, 1, 0]
    port.after(0.158)
    assert [len(peer.written) for peer in peers] == [0, 1, 0]
    port.after(0.002)
    assert [len(peer.written) for peer in peers] == [1, 1, 0]
    port.after(0.077)
    assert [len(peer.written) for peer in peers] == [1, 1, 0]
    port.after(0.002)
    assert [len(peer.written) for peer in peers] == [1, 1, 1]


def test_pull_that_was_answered_has_no_end_of_its_linger() -> None:
    """A pull that a message answered, and the next one of the same client, are answered once each."""
    port = Port()
    connection, peer = port.connect()
    port.pull(connection, 100)
    port.after(0.06)
    port.publish()
    assert len(peer.written) == 1
    port.pull(connection, 100)
    port.after(0.099)
    assert len(peer.written) == 1
    port.after(0.002)
    assert len(peer.written) == 2
    port.after(1)
    assert len(peer.written) == 2


def test_pull_of_a_client_that_goes_waits_no_longer() -> None:
    """A lost connection's pull is nobody's; another's of the same linger ends in time, and a message goes to it."""
    port = Port()
    gone, peer_gone = port.connect()
    stays, peer = port.connect()
    port.pull(gone, 100)
    port.pull(stays, 100)
    gone.connection_lost(None)
    assert port.world.group.stats().parked_pulls == 1
    port.publish()
    port.after(1)
    assert (len(peer_gone.written), len(peer.written)) == (0, 1)


def test_client_that_is_answered_again_and_again_costs_one_call() -> None:
    """A hundred pulls of a client that messages answer have one scheduled call for their lingers."""
    port = Port()
    connection, _ = port.connect()
    made = []
    plain = port.world.scheduler.call_later

    def counted(delay: float, *call: object) -> object:
        made.append(delay)
        return plain(delay, *call)  # type: ignore[arg-type]

    port.world.scheduler.call_later = counted  # type: ignore[method-assign,assignment]
    for _ in range(100):
        port.pull(connection, 700)
        port.publish()
    assert made.count(0.7) == 1
