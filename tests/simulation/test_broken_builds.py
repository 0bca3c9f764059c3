"""Deliberately broken nodes: each must be caught by the checkers, with the promise that it breaks."""

from __future__ import annotations

import pytest

from broker.errors import StoreError
from proxy.node.node import Node
from pyddmq.testing import NetworkFaults
from tests.simulation.caller import Caller
from tests.simulation.clients import ProducerHabits
from tests.simulation.faults import fail_sync, kill, lose_power, reset_connections
from tests.simulation.ledger import PromiseBroken
from tests.simulation.mutants import (
    MUTANTS,
    Fault,
    Mutant,
    change_timers_and_kill,
    cut_log_write,
    fail_log_sync,
    work_slowly,
)
from tests.simulation.world import NodeFactory, World
from upstream.progress import replay
from upstream.progress.reconcile import Reconciler

ROUNDS = 12
ROUNDS_OF_MANY: dict[Fault, int] = {change_timers_and_kill: 2, work_slowly: 5}
"""Fewer of a fault that does ten things in each."""
SEEDS_MAX = 12

_caught: list[str] = []


def _run(make_node: NodeFactory, fault: Fault, seed: int) -> PromiseBroken | None:
    """Run a node with one kind of fault, over and over; return what the checkers see broken."""
    world = World(seed, make_node=make_node)
    try:
        world.start()
        for _ in range(3):
            world.add_producer(ProducerHabits(pad_bytes_max=6_000))
            for group in ("by-key", "by-path", "free"):
                world.add_consumer(group)
        for _ in range(ROUNDS_OF_MANY.get(fault, ROUNDS)):
            world.run(seconds=0.7)
            fault(world, world.disk_random)
        world.settle()
        world.check()
    except PromiseBroken as error:
        return error
    except StoreError as error:
        return PromiseBroken(1, f"the store does not open any more: {error}")
    return None


@pytest.mark.parametrize(
    "fault",
    [kill, lose_power, reset_connections, cut_log_write, fail_sync, fail_log_sync, change_timers_and_kill, work_slowly],
)
def test_whole_node_passes_the_same_runs(fault: Fault) -> None:
    """The harness blames nobody without cause: the unbroken node passes."""
    assert _run(Node, fault, seed=1) is None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_broken_node_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a few seeds a checker names a promise that this node breaks."""
    make_node = mutant.apply(monkeypatch)
    for seed in range(mutant.seed, mutant.seed + SEEDS_MAX):
        error = _run(make_node, mutant.fault, seed)
        if error is not None:
            assert error.promise in mutant.promises, error
            _caught.append(f"{mutant.name:<52} {mutant.fault.__name__:<18} promise {error.promise}  seed {seed}")
            return
    pytest.fail(f"not caught in {SEEDS_MAX} seeds: {mutant.name}")


def _delivered_after_power_loss() -> list[int]:
    """Ack messages that the power then takes from the log (`flush: async`); return what of the next ones comes."""
    world = World(1, flush="async", faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0))
    world.start()
    caller = Caller(world, "10.9.0.1")
    world.run(seconds=0.6)
    for uid in (1, 2, 3):
        caller.send("orders", "k", uid=uid)
        [(place, _)] = caller.pull("by-key")
        caller.answer("by-key", place, success=True)
    world.run(seconds=0.15)
    # Of what was not synced nothing is left; the acks were synced 100 ms after they came (D9), the log was not.
    world.kill(power=True, left=("none",))
    world.start()
    assert not world.ledger.places
    for uid in (4, 5, 6):
        caller.send("orders", "k", uid=uid)
    found = []
    for _ in range(3):
        for place, uid in caller.pull("by-key"):
            caller.answer("by-key", place, success=True)
            found.append(uid)
    return found


def test_acks_beyond_the_end_of_the_log_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """D11: offsets that a power loss freed name new messages, which are delivered; without the clamp they are not."""
    assert _delivered_after_power_loss() == [4, 5, 6]
    monkeypatch.setattr(Reconciler, "resolve", Reconciler._follow_file)
    assert _delivered_after_power_loss() == [4, 5, 6], "what was read ended with its queue already"
    monkeypatch.setattr(replay, "_finish", lambda found, known, start, end: known.tracker.finish_range(start, end))
    assert _delivered_after_power_loss() == []
    _caught.append("acks beyond the end of the log are kept              lose_power         promise 6  by a script")


@pytest.fixture(scope="module", autouse=True)
def _table() -> object:
    """Print who was caught by what, at the end."""
    yield
    print("\n" + "\n".join(_caught))
