"""Whatever waits in a node gives way to its clients."""

from __future__ import annotations

from tests.insides import opened_of
from tests.simulation.caller import Caller
from tests.simulation.world import World


def test_every_kind_of_step_sees_what_clients_ask() -> None:
    """Deliveries of levels and timers, timers that are entered, checks: each knows of a request of either port."""
    world = World(1)
    world.start()
    assert world.node is not None
    node = world.node
    sizes = [
        opened_of(node).delays.due.step_size,
        opened_of(node).timers.entering.step_size,
        opened_of(node).timers.due.step_size,
        opened_of(node).transactions.step_size,
    ]

    def requests() -> list[int]:
        return [step_size._requests() for step_size in sizes]

    before = requests()
    Caller(world, "10.9.0.1").send("orders", "k", uid=1)
    sent = requests()
    assert all(after > first for first, after in zip(before, sent, strict=True))
    Caller(world, "10.9.0.2").pull("by-key")
    assert all(after > first for first, after in zip(sent, requests(), strict=True))
