"""Loops after stops: what was missed comes once and in order, and nothing comes by halves."""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring.occurrence import Occurrence
from tests.integration.loop_tools import World, loop, once, uuid, walked, world
from tests.integration.store_tools import ROOT

FILES = ("pyddmq/timers.json", "config/timercheck", "timerwheel")
"""What tells how far the timers are; the log can do without."""


def of(made: World, first: Occurrence) -> list[str]:
    """Ids of a loop's deliveries."""
    return [each for each in made.ids() if each.endswith(first.uuid)]


@pytest.mark.parametrize("days", [8, 400])
def test_any_downtime_gives_all_that_was_missed(days: int) -> None:
    """Kill, all derived files gone, days later: each occurrence once, in order; a cancelled loop stays ended."""
    made = world()
    kept = loop(60, every=days * 8640, times=8)
    ended = loop(60, every=60, times=10**6, number=1)
    made.add(kept)
    made.add(ended)
    made.scheduler.advance(100)
    assert made.cancel(ended) is CancelEffect.CANCELLED
    made.stop()
    made.disk.kill()
    for name in FILES:
        with contextlib.suppress(FileNotFoundError):
            made.disk.remove(f"{ROOT}/{name}")
    made.clock.advance(days * 86_400)
    made = world(made.disk, made.clock)
    made.scheduler.advance(10)
    assert of(made, kept) == [each.id for each in walked(kept)]
    assert [each for each in made.ids() if each.endswith(uuid(1))] == [ended.id]


@pytest.mark.parametrize("half", ["delivery", "successor"])
def test_delivery_of_which_a_half_is_gone_has_not_been(half: str) -> None:
    """A record behind it shows that it was written: without its successor the loop would end."""
    made = world()
    first = loop(3, every=3, times=2)
    made.add(first)
    begin = made.store.end
    made.scheduler.advance(3.01)
    found = made.store.record_at(begin)
    assert found is not None
    made.add(once(-5, number=1))
    made.stop()
    made.disk.kill()
    made.disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", (begin if half == "delivery" else begin + found.size) + 89)
    made = world(made.disk, made.clock)
    made.scheduler.advance(10)
    assert of(made, first) == [each.id for each in walked(first)]


@pytest.mark.parametrize("seed", range(4))
def test_torn_delivery_takes_its_successor_with_it(seed: int) -> None:
    """D8: what a power cut leaves of both is a delivery with what waits, or neither."""
    made = world(flush="async")
    first = loop(3, every=3, times=2)
    made.add(first, bytes(1500))
    made.store.make_durable()
    # Something before it that is not durable either, so that the cut may go through the delivery.
    made.add(once(-5, number=1))
    made.scheduler.advance(3.01)
    assert of(made, first) == [first.id]
    made = made.again(stop=lambda disk: disk.crash(Random(seed), modes=("prefix",)))
    made.scheduler.advance(10)
    assert of(made, first) == [each.id for each in walked(first)]
