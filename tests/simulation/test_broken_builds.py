"""Deliberately broken nodes: each must be caught by the checkers, with the promise that it breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.testing import SimDisk, SimFile
from proxy.node import Node, Seams
from tests.simulation.faults import kill, lose_power, reset_connections
from tests.simulation.ledger import PromiseBroken
from tests.simulation.world import World
from upstream.dead_letters import DeadLetters
from upstream.job import UpstreamJob
from upstream.order import OrderQueue
from upstream.progress import Progress

ROUNDS = 12


def _broken(make_node: Callable[..., Node], fault: Callable[..., None], seed: int) -> int:
    """Run a node with one kind of fault, over and over, and return the promise that the checkers see broken."""
    world = World(seed, make_node=make_node)
    try:
        world.start()
        for _ in range(3):
            world.add_producer()
            for group in ("by-key", "by-path", "free"):
                world.add_consumer(group)
        for _ in range(ROUNDS):
            world.run(seconds=0.7)
            fault(world, world.disk_random)
        world.settle()
        world.check()
    except PromiseBroken as error:
        return error.promise
    return -1


def test_whole_node_passes_the_same_runs() -> None:
    """The harness blames nobody without cause: the unbroken node passes."""
    for fault in (kill, lose_power, reset_connections):
        assert _broken(Node, fault, seed=1) == -1


def test_node_that_does_not_sync_is_caught() -> None:
    """Promise 1: with a sync that does nothing, a power loss takes acknowledged publishes."""

    class Lying(SimDisk):
        """Opens files of the disk below whose sync does nothing."""

        def __init__(self, disk: SimDisk) -> None:
            self._disk = disk

        def __getattribute__(self, name: str) -> Any:
            if name in ("open", "_disk"):
                return object.__getattribute__(self, name)
            return getattr(object.__getattribute__(self, "_disk"), name)

        def open(self, path: str, *, create: bool = False) -> SimFile:
            file = self._disk.open(path, create=create)
            if "commitlog" in path:
                file.sync = lambda: None  # type: ignore[method-assign]
            return file

    def make(config: Any, *, seams: Seams, registry: Any) -> Node:
        seams = Seams(
            loop=seams.loop,
            clock=seams.clock,
            disk=Lying(seams.disk),  # type: ignore[arg-type]
            randomness=seams.randomness,
            network=seams.network,
        )
        return Node(config, seams=seams, registry=registry)

    assert _broken(make, lose_power, seed=2) in (1, 7)


def test_node_that_answers_before_the_ack_is_written_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 2: an ack answered before its journal entry is written comes again after a kill."""
    flush, sync = Progress.flush, Progress.sync

    class Late(Node):
        """Writes the ack journal 50 ms after the replies have left."""

        def _turn(self) -> None:
            monkeypatch.setattr(Progress, "flush", lambda progress: None)
            monkeypatch.setattr(Progress, "sync", lambda progress: None)
            super()._turn()
            monkeypatch.setattr(Progress, "flush", flush)
            monkeypatch.setattr(Progress, "sync", sync)
            self.seams.loop.call_later(0.05, self.progress.flush)

    assert _broken(Late, kill, seed=3) == 2


def test_node_that_answers_publishes_before_they_are_written_is_caught() -> None:
    """Promise 1: a publish answered 50 ms before its flush is lost by a kill."""

    class Nothing:
        """Stands for the store during a turn: there is nothing to flush."""

        pending = False
        failed = None

    class Hasty(Node):
        """Settles publishes in the turn that staged them and writes them 50 ms later."""

        async def start(self, *, admin_hint: str = "") -> None:
            await super().start(admin_hint=admin_hint)
            append = self.store.append
            self.late = False

            def hasty_append(puts: Any, *, done: Any = None, **options: Any) -> Any:
                positions = append(puts, **options)
                if done is not None:
                    self.seams.loop.call_soon(done, None)
                return positions

            self.store.append = hasty_append  # type: ignore[method-assign]

        def _turn(self) -> None:
            store = self.store
            self.store = Nothing()  # type: ignore[assignment]
            super()._turn()
            self.store = store
            if store.pending and not self.late:
                self.late = True
                self.seams.loop.call_later(0.05, self._write)

        def _write(self) -> None:
            self.late = False
            self.store.flush()
            super()._turn()

    assert _broken(Hasty, kill, seed=4) in (1, 7)


def test_node_that_releases_the_next_of_a_key_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 3: without the wait behind the first of a key, two are in flight."""

    def submit_many(queue: OrderQueue, jobs: Sequence[UpstreamJob], ready: Callable[[UpstreamJob], None]) -> int:
        for job in jobs:
            job.key = None
        return submit(queue, jobs, ready)

    submit = OrderQueue.submit_many
    monkeypatch.setattr(OrderQueue, "submit_many", submit_many)
    assert _broken(Node, reset_connections, seed=5) == 3


def test_node_that_drops_exhausted_messages_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 6: an exhausted message that is finished without a dead letter is missed."""

    def bury(letters: DeadLetters, job: UpstreamJob, reason: str, settled: Callable[..., None]) -> bool:
        letters._progress.dead_lettered(job.lane.tracker, job.offset)
        settled(job, None)
        return True

    monkeypatch.setattr(DeadLetters, "bury", bury)
    assert _broken(Node, reset_connections, seed=6) == 6
