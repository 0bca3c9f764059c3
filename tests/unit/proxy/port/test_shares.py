"""Fair shares of the loop: what clients that ask much take of its time, on a clock that their calls move."""

from __future__ import annotations

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from proxy.port.accepting import ServerLimits
from proxy.port.connection import Connection
from proxy.port.server import Commons, ThriftServer
from proxy.port.shares import HEAVY_SECONDS, SLICE_SECONDS, TURN_SECONDS
from proxy.wire.call import Call
from proxy.wire.replies import encode_bool_reply
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.simulation.wire import consumer_codec, consumer_idl
from tests.unit.proxy.port.test_connection_turn import Peer

FRAME = consumer_codec().call("submit", 1, result=consumer_idl.ConsumeResult(successOffsets=[1], failOffsets=[]))


class Busy:
    """A server whose calls take `seconds` each, and connections to it."""

    def __init__(self, seconds: float) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.seconds = seconds
        self.served: list[tuple[str, float]] = []
        self.server = ThriftServer(
            "consumer",
            {"submit": self._submit},
            limits=ServerLimits(),
            commons=Commons(
                runtime=runtime_of(SimDisk(), self.clock, metrics=Metrics(), scheduler=self.scheduler),
                request_turn=lambda: None,
            ),
        )

    def _submit(self, connection: Connection, call: Call) -> None:
        self.clock.advance(self.seconds)
        self.served.append((connection.address, self.clock.monotonic()))
        connection.answer(encode_bool_reply(call, True))

    def connect(self, name: str) -> Connection:
        """Open a connection whose address is `name`."""
        connection = Connection(self.server)
        connection.connection_made(Peer())
        connection.address = name
        return connection

    def turn(self) -> float:
        """End the turn and run the next one; returns how long it took."""
        began = self.clock.monotonic()
        self.server.flush()
        self.scheduler.run_turn()
        return self.clock.monotonic() - began


def test_one_turn_takes_no_longer_for_a_hundred_busy_connections_than_for_one() -> None:
    """Frames that wait get TURN_SECONDS together, and one more frame: the one that reaches the bound is finished."""
    for count in (1, 100):
        busy = Busy(0.0005)
        for number in range(count):
            busy.connect(f"hostile-{number}").data_received(FRAME * 400)
        for _ in range(20):
            assert busy.turn() <= TURN_SECONDS + SLICE_SECONDS


def test_busy_connections_have_equal_shares() -> None:
    """Whatever one has waiting, the others get as much: frames served differ by a slice."""
    busy = Busy(0.0005)
    for number in range(4):
        busy.connect(f"hostile-{number}").data_received(FRAME * 1000 * (number + 1))
    for _ in range(300):
        busy.turn()
    counts = [sum(client == f"hostile-{number}" for client, _ in busy.served) for number in range(4)]
    assert max(counts) - min(counts) <= 2 * SLICE_SECONDS / busy.seconds


def test_light_connection_is_served_as_its_bytes_arrive() -> None:
    """Between two turns of the busy ones, one that took little is served at once, however many of them wait."""
    busy = Busy(0.001)
    for number in range(100):
        busy.connect(f"hostile-{number}").data_received(FRAME * 400)
    light = busy.connect("light")
    for _ in range(5):
        busy.turn()
        came = busy.clock.monotonic()
        light.data_received(FRAME)
        assert busy.served[-1] == ("light", came + busy.seconds)


def test_heavy_connections_that_ask_one_thing_at_a_time_wait_when_a_turn_is_spent() -> None:
    """A hundred clients with costly calls, one at a time each: a light one does not wait for all of them."""
    busy = Busy(0.002)
    hostile = [busy.connect(f"hostile-{number}") for number in range(100)]
    busy.clock.advance(1.0)
    for each in hostile:
        each.share.add(0.0, busy.clock.monotonic())
    light = busy.connect("light")
    busy.turn()
    began = busy.clock.monotonic()
    for each in hostile:
        each.data_received(FRAME)
    light.data_received(FRAME)
    assert busy.served[-1][0] == "light"
    assert busy.clock.monotonic() - began <= TURN_SECONDS + 2 * busy.seconds
    assert busy.server.shares.waiting > 50
    while busy.server.shares.waiting:
        assert busy.turn() <= TURN_SECONDS + busy.seconds


def test_what_was_taken_is_forgiven() -> None:
    """A client that was busy and is quiet for a while is a light one again."""
    busy = Busy(0.002)
    client = busy.connect("once busy")
    for _ in range(10):
        client.data_received(FRAME)
    now = busy.clock.monotonic()
    assert client.share.used(now) > HEAVY_SECONDS
    assert client.share.used(now + 1.0) == 0.0
