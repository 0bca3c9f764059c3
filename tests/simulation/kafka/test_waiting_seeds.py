"""Seeded runs in which messages wait in a simulated Kafka: timers, delays, loops, cancels and transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.facts import PromiseBroken
from tests.simulation.kafka import waiting
from tests.simulation.kafka.plan import FAULTS_PER_SEED, run_waiting_seed
from upstream.kafka.waiting import records
from upstream.kafka.waiting.batches import Batches
from upstream.kafka.waiting.cache import PartitionCache
from upstream.kafka.waiting.seat import Seat

SEEDS, FAULTS = range(1), 2
SEEDS_LONG = range(1_000, 1_040)
HAPPENINGS = ("waited", "occurrences", "halves_visible", "half_asked", "loop_cancel_1", "loop_cancel_2")
COMMAND = "python -m tests.simulation.kafka --waiting --seed"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_waits_comes_once_on_time_and_as_answered(seed: int) -> None:
    """None lost, early or twice; none that was cancelled or rolled back; each answered outcome is true."""
    events = run_waiting_seed(seed, faults=FAULTS).events
    assert [name for name in HAPPENINGS if not events[name]] == [], f"replay: {COMMAND} {seed}"


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS_LONG)
def test_many_seeds_break_no_promise(seed: int) -> None:
    """The same over more of them, with all faults."""
    run_waiting_seed(seed)


def _early(patch: pytest.MonkeyPatch) -> None:
    following: Any = Batches.next
    patch.setattr(Batches, "next", lambda batches, now_ms, *more: following(batches, now_ms + 700, *more))


def _cancel_without_effect(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batches, "_cancel_or_move", lambda batches, *_: records.CANCELLED)


def _repeats_are_delivered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionCache, "_only", lambda cache, row, others: row)


def _member_that_waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Seat, "look", lambda seat: None)


@pytest.mark.parametrize(
    ("broken", "promises", "seed", "faults"),
    [
        (_early, {8}, SEEDS[0], FAULTS),
        pytest.param(_cancel_without_effect, {1, 8}, SEEDS[0], FAULTS, marks=pytest.mark.long),
        # In this one an add is stored twice.
        pytest.param(_repeats_are_delivered, {1, 8}, 1_001, FAULTS_PER_SEED, marks=pytest.mark.long),
        pytest.param(_member_that_waits_for_ever, {1, 8}, 2, FAULTS_PER_SEED, marks=pytest.mark.long),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_broken_owner_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None],
    promises: set[int],
    seed: int,
    faults: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The account names the promise that these owners break; with whole ones the same seed passes."""
    broken(monkeypatch)
    monkeypatch.setattr(waiting, "SETTLE_SECONDS", 25.0)
    with pytest.raises(PromiseBroken) as raised:
        run_waiting_seed(seed, faults=faults)
    assert raised.value.promise in promises
