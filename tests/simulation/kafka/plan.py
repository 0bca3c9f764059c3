"""What a seeded run over Kafka does: its configuration, its clients, its faults."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from random import Random

from structlog.testing import capture_logs

from proxy.node.node import Node
from tests.simulation.clients import ConsumerHabits, ProducerHabits
from tests.simulation.facts import PromiseBroken
from tests.simulation.kafka.faults import ALL_FAULTS, FAULTS
from tests.simulation.kafka.under_way import CAMPAIGN, states, under_way
from tests.simulation.kafka.waiting import WaitingPart
from tests.simulation.kafka.world import GROUPS, NODES, SHAKEN, KafkaWorld, Report, Way
from tests.simulation.shrink import ddmin, kind_of
from tests.simulation.world import NodeFactory
from tests.tried import tried

FAULTS_PER_SEED = 8
PAUSE_SECONDS_MAX = 2.0
WAITING_FAULTS = (
    "kill", "kill", "stop", "stand_still", "stand_still", "cut_off", "cut_off", "reset_links", "restart_kafka",
    "reset_clients", "compact_waiting", "end_producers",
)  # fmt: skip
COORDINATOR_SHARE = 0.25
"""Of runs in which messages wait: the owners' group is lost once."""
OPENING_FAULTS = ("kill", "stop", "stop", "stand_still", "cut_off", "lose_coordinator", "widen", "restart_kafka")
"""Those after which partitions are shared out anew."""
UNWANTED_LOGS = frozenset({"call_failed", "action_failed", "periodic_work_failed"})


def way_of(seed: int) -> Way:
    """Return how a seed's run is configured."""
    drawn = Random(f"way {seed}")
    return Way(
        seed=seed,
        protocol="consumer" if seed % 2 else "classic",
        ack_flush="sync" if drawn.random() < 0.3 else "async",
        takeover="strict" if drawn.random() < 0.3 else "prompt",
        membership="always" if drawn.random() < 0.5 else "pulls",
    )


def run_waiting_seed(seed: int, *, faults: int = FAULTS_PER_SEED, kept: Collection[int] | None = None) -> Report:
    """Make the run of a seed in which messages wait; `kept`: numbers of the faults that are made. As `run_seed`."""
    return _logged(lambda: _run_waiting(replace(way_of(seed), waits=True), faults, kept))


def run_big_seed(seed: int, *, faults: int = FAULTS_PER_SEED, kept: Collection[int] | None = None) -> Report:
    """Make the run of a seed in which messages wait, some of them big. As `run_seed`."""
    return _logged(lambda: _run_waiting(replace(way_of(seed), waits=True, big=True), faults, kept))


def run_seed(
    seed: int, *, make_node: NodeFactory = Node, faults: int = FAULTS_PER_SEED, kept: Collection[int] | None = None
) -> Report:
    """Make the run of a seed with so many faults; `kept`: numbers of those that are made, None: all.

    Raises:
        PromiseBroken: A promise was broken, or a node logged an error of its own.
    """
    return _logged(lambda: _run(KafkaWorld(way_of(seed), make_node=make_node), seed, faults, kept))


def run_opening_seed(seed: int, *, faults: int = FAULTS_PER_SEED, kept: Collection[int] | None = None) -> Report:
    """Make the run of a seed in which actions are slow to open and to close, or do not open. As `run_seed`."""
    world = KafkaWorld(replace(way_of(seed), opens=True))
    return _logged(lambda: _run(world, seed, faults, kept, names=OPENING_FAULTS))


def shrink(run: Callable[[Collection[int]], Report]) -> tuple[list[int], Exception]:
    """Leave out faults of a seed as long as it fails in the same way; return the numbers of those left, and how.

    Raises:
        ValueError: It does not fail.
    """

    def failure(kept: Collection[int]) -> Exception | None:
        try:
            run(kept)
        except Exception as error:
            return error
        return None

    every = range(FAULTS_PER_SEED)
    first = failure(every)
    if first is None:
        raise ValueError("the run does not fail")
    kind = kind_of(first)
    left = ddmin(every, lambda kept: (found := failure(kept)) is not None and kind_of(found) == kind)
    return left, failure(left) or first


def _logged(run: Callable[[], Report]) -> Report:
    with capture_logs() as logs:
        report = run()
    for event in logs:
        if event["event"] in UNWANTED_LOGS:
            raise PromiseBroken(0, f"a node logged {event}")
    return report


def _make(world: KafkaWorld, name: str, random: Random) -> None:
    tried(CAMPAIGN, name, operations=under_way(world), states=states(world))
    world.report.faults[name] += 1
    ALL_FAULTS[name](world, random)


def _run_waiting(way: Way, faults: int, kept: Collection[int] | None) -> Report:
    seed, drawn = way.seed, Random(f"waiting schedule {way.seed}")
    world = KafkaWorld(way)
    habits = ProducerHabits(pause_seconds=0.3, wait_share=0.6, big_share=0.4 if way.big else 0.0)
    waiting = WaitingPart(world)
    for slot in world.slots.values():
        world.start(slot)
    for name in NODES:
        world.add_producer(name, habits)
        waiting.add_clients(name)
    # Until the partitions are owned, messages that wait are refused.
    world.run(seconds=4 + 2 * drawn.random())
    rare = Random(f"coordinator {seed}")
    rare_at = rare.randrange(faults) if rare.random() < COORDINATOR_SHARE else -1
    for number in range(faults):
        # It lasts for most of a minute, so few runs have it.
        name = "lose_owners_coordinator" if number == rare_at else drawn.choice(WAITING_FAULTS)
        if kept is None or number in kept:
            _make(world, name, Random(f"{seed} waiting fault {number}"))
        world.run(seconds=drawn.random() * 2 * PAUSE_SECONDS_MAX)
    waiting.settle()
    return waiting.check()


def _run(
    world: KafkaWorld, seed: int, faults: int, kept: Collection[int] | None, names: Sequence[str] = tuple(FAULTS)
) -> Report:
    drawn = Random(f"schedule {seed}")
    for slot in world.slots.values():
        world.start(slot)
    for name in NODES:
        world.add_producer(name, ProducerHabits(pause_seconds=0.15, wait_share=0))
        for group in GROUPS:
            world.add_consumer(name, group, ConsumerHabits(linger_ms=drawn.choice([0, 100, 400])))
        world.add_consumer(name, SHAKEN, ConsumerHabits(linger_ms=100))
    world.run(seconds=1.5 + drawn.random())
    for number in range(faults):
        name = drawn.choice(names)
        world.append_plainly()
        for _ in range(5):
            world.append_shaky()
        if kept is None or number in kept:
            _make(world, name, Random(f"{seed} fault {number}"))
        world.run(seconds=drawn.random() * PAUSE_SECONDS_MAX)
    world.settle()
    return world.check()
