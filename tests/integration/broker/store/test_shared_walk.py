"""One walk of the log for all that has to be found out at a start."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from broker.log.decisions import Decided, DecisionRecord, prepared_offset_of
from broker.log.put import Put
from broker.log.shared_walk import DecisionsRequest, Reading, alone, decided, together
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.sealed_file import SealedFile
from broker.runtime.steps import run_now
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.names import State
from broker.transaction.transactions import EndOutcome, Transactions
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import HOST, ROOT, append, open_store

START_MS = 1_700_000_000_000
CHECKPOINTS = ("delays.json", "timers.json", "transactions.json")


class Walks:
    """A store's log that counts how often it is walked, and how many steps that takes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.starts: list[int] = []

    def decisions(self, start: int) -> Generator[Decided, None, None]:
        """As `Store.decisions`."""
        self.starts.append(start)
        return self._store.decisions(start)


@pytest.fixture
def chain() -> Store:
    """A store of 40 records of which each replaces the one before it."""
    store = open_store(SimDisk())
    topic = store.create_topic("t", 1)
    before = append(store, b"first")[0].physical
    for _ in range(40):
        put = Put(topic, 0, b"next", b"", prepared_offset=prepared_offset_of(before))
        before = store.append([put], born_ms=0, born_host=HOST)[0].physical
    store.flush()
    return store


def test_each_gets_what_it_wants_of_one_walk(chain: Store) -> None:
    """Everybody the decisions from its own offset on, in order; the log is read once, from the lowest."""
    whole = [each for step in chain.decisions(0) for each in step.decisions]
    middle = whole[20].physical

    def opening(start: int) -> Reading[list[DecisionRecord]]:
        found: list[DecisionRecord] = []
        yield None
        yield from decided(start, found.append)
        yield None
        return found

    def nothing() -> Reading[str]:
        yield None
        return "nothing"

    walks = Walks(chain)
    late, all_of_it, none, end = run_now(together(walks, opening(middle), opening(0), nothing(), opening(chain.end)))
    assert walks.starts == [0]
    assert (late, all_of_it, none, end) == (whole[20:], whole, "nothing", [])


def test_who_wants_the_log_again_gets_it_again(chain: Store) -> None:
    """Amid the walk, or after it: from where it says then; the others have theirs undisturbed."""
    whole = [each for step in chain.decisions(0) for each in step.decisions]

    def doubtful(start: int) -> Reading[list[DecisionRecord]]:
        yield DecisionsRequest(start)
        yield None
        found: list[DecisionRecord] = []
        yield from decided(0, found.append)
        return found

    def steady() -> Reading[list[DecisionRecord]]:
        found: list[DecisionRecord] = []
        yield from decided(0, found.append)
        return found

    walks = Walks(chain)
    assert run_now(together(walks, doubtful(whole[5].physical), steady(), doubtful(0))) == [whole] * 3
    assert walks.starts == [0, 0]
    assert run_now(alone(chain, steady())) == whole


def test_a_failure_ends_all(chain: Store) -> None:
    """What one of them raises comes out, and no other is left half open."""
    closed = []

    def waiting() -> Reading[None]:
        try:
            yield from decided(0, lambda _: None)
        finally:
            closed.append(True)

    def failing() -> Reading[None]:
        def fail(_: DecisionRecord) -> None:
            raise OSError("the disk")

        yield from decided(0, fail)

    with pytest.raises(OSError, match="the disk"):
        run_now(together(chain, waiting(), failing()))
    assert closed == [True]


def parts(disk: SimDisk, clock: ManualClock) -> tuple[Store, dict[str, Any]]:
    """An open store, and what its openings take."""
    metrics = Metrics()
    seams = {
        "disk": disk,
        "clock": clock,
        "scheduler": ManualScheduler(clock),
        "metrics": metrics,
        "limited_log": RateLimitedLog(clock),
    }
    return open_store(disk, clock=clock, metrics=metrics, seed=disk.operations), seams


def opened(log: Any, store: Store, seams: dict[str, Any]) -> tuple[Delays, Timers, Transactions]:
    """Open all that waits, with one walk."""
    offsets = ConsumerOffsets.open(ROOT, disk=seams["disk"], clock=seams["clock"])
    delays, timers, transactions = run_now(
        together(
            log,
            Delays.reading(store, **seams),
            Timers.reading(store, **seams),
            Transactions.reading(store, offsets=offsets, **seams),
        )
    )
    return delays, timers, transactions


@pytest.mark.parametrize("content", [None, {"x": 1}, [1, 2], 7, {"log_end": 1, "levels": {"1": 2}, "decided_from": 1}])
def test_without_any_checkpoint_the_log_is_read_once(content: object) -> None:
    """What was delivered and decided stays so, what is pending is pending, after one walk.

    So it is where each has a right sum, and says something that no checkpoint says.
    """
    disk, clock = SimDisk(), ManualClock(START_MS)
    store, seams = parts(disk, clock)
    topic = store.create_topic("t", 1)
    delays, timers, transactions = opened(store, store, seams)
    for each in (delays, timers, transactions):
        each.start()
    decided_ones: list[EndOutcome] = []
    for number in range(10):
        body = b"%d" % number
        store.put("t", body, delay_level=1 if number % 2 else 5)
        store.put("t", body, deliver_at_ms=START_MS + (500 if number % 2 else 86_400_000))
        [position] = store.append([transactions.half(Put(topic, 0, body, b""), group="g")], born_ms=0, born_host=HOST)
        store.flush()
        if number % 2:
            transactions.end(transactions.handle_of(position), group="g", state=State.COMMIT, done=decided_ones.append)
            store.flush()
    seams["scheduler"].advance(2.0)
    assert topic.queues[0].max_offset == 15
    assert len(decided_ones) == 5
    delays.stop()
    timers.stop()
    transactions.stop()
    store.abandon()
    disk.kill()
    for name in ("config/timercheck", "config/delayOffset.json", *(f"pyddmq/{each}" for each in CHECKPOINTS)):
        if disk.exists(f"{ROOT}/{name}"):
            disk.remove(f"{ROOT}/{name}")
    for name in () if content is None else (*CHECKPOINTS, "index.json"):
        SealedFile(disk, f"{ROOT}/pyddmq/{name}").save(content)

    store, seams = parts(disk, clock)
    walks = Walks(store)
    delays, timers, transactions = opened(walks, store, seams)
    assert walks.starts == [0]
    for each in (delays, timers, transactions):
        each.start()
    seams["scheduler"].advance(2.0)
    assert store.topics["t"].queues[0].max_offset == 15
    assert sum(level.pending for level in delays.levels.values()) == 5
    assert timers.pending == 5
    assert transactions.halves.states.undecided == 5
    store.abandon()
