"""What a fault of a run over Kafka comes in the middle of, and what sets the run apart: for `tests.tried`."""

from __future__ import annotations

from tests.simulation.clients import Consumer
from tests.simulation.kafka.account import AWAY
from tests.simulation.kafka.world import KafkaWorld

CAMPAIGN = "simulation over Kafka"
CLIENTS = ("publishes", "deliveries", "acks")
REBALANCE, START = "a rebalance", "a start"
TROUBLES = (AWAY, "it stood still", "it had lost the cluster", "the cluster was away", "its member stood")
"""Kinds of `Trouble` that last for a while; others may be over before the next fault."""
OPERATIONS = (*CLIENTS, REBALANCE, START, *TROUBLES)
STATES = (
    "classic", "consumer", "acks synced", "takeover: strict", "membership: always", "messages wait", "opens slowly",
    "big bodies",
)  # fmt: skip


def under_way(world: KafkaWorld) -> list[str]:
    """Name what goes on now, of `OPERATIONS`."""
    consumers = [each for each in world.clients if isinstance(each, Consumer)]
    now = world.loop.time()
    found = {
        "publishes": world.busy,
        "deliveries": any(each.results for each in consumers),
        "acks": any(about for each in consumers if each.link is not None for about, _ in each.link.pending.values()),
        REBALANCE: not all(each.is_settled for each in world.kafka.groups.values()),
        START: any(slot.task is not None and not slot.task.done() for slot in world.slots.values()),
        **{each.kind: True for each in world.history.troubles if each.ended > now},
    }
    return [name for name in OPERATIONS if found.get(name)]


def states(world: KafkaWorld) -> list[str]:
    """Name what sets this run apart, of `STATES`."""
    way = world.way
    found = {
        way.protocol: True,
        "acks synced": way.ack_flush == "sync",
        "takeover: strict": way.takeover == "strict",
        "membership: always": way.membership == "always",
        "messages wait": way.waits,
        "opens slowly": way.opens,
        "big bodies": way.big,
    }
    return [name for name in STATES if found.get(name)]
