"""Loops over every stop: killed or cut from power at any change of the disk, each occurrence comes once, in order."""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from broker.errors import StoreError
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring.occurrence import Occurrence
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.integration.loop_tools import START_S, World, loop, once, uuid, walked, world
from tests.integration.store_tools import ROOT
from tests.stopping import end_run, lose_files

FILES = ("pyddmq/timers.json", "config/timercheck", "timerwheel")
"""What tells how far the timers are; the log can do without."""


class Account:
    """What was acknowledged."""

    def __init__(self) -> None:
        self.asked: list[Occurrence] = []
        self.added: set[Occurrence] = set()
        self.asked_to_cancel: set[Occurrence] = set()
        self.cancelled: dict[Occurrence, int] = {}
        """With how many occurrences had been delivered by then."""


def run(disk: SimDisk, clock: ManualClock, random: Random, account: Account) -> None:
    """Add loops, some of the past, let time pass, cancel."""
    made = world(disk, clock)
    for number in range(5):
        first = loop(
            clock.wall_ms() // 1000 - START_S + random.choice((-20, 0, 2, 5)),
            every=random.choice((3, 4)),
            times=random.choice((2, 6)),
            growth=random.choice((0, 0, 2)),
            number=number,
        )
        account.asked.append(first)
        made.add(first, b"%d" % number)
        account.added.add(first)
        made.scheduler.advance(random.choice((0.3, 2.0, 7.0)))
        if random.random() < 0.4:
            target = random.choice(account.asked)
            account.asked_to_cancel.add(target)
            if made.cancel(target) is CancelEffect.CANCELLED:
                account.cancelled[target] = len(of(made, target))
    if random.random() < 0.5:
        made.close()
    else:
        made.stop()


def of(made: World, first: Occurrence) -> list[str]:
    """Ids of a loop's deliveries."""
    return [each for each in made.ids() if each.endswith(first.uuid)]


def check(made: World, account: Account) -> None:
    """Every loop that was acknowledged: all of it, or up to where it was cancelled; once, in order, not early."""
    made.scheduler.advance(100)
    for first in account.asked:
        whole = [each.id for each in walked(first)]
        found = of(made, first)
        assert found == whole[: len(found)], "twice, out of order, or with a gap"
        if first in account.cancelled:
            assert len(found) == account.cancelled[first], "delivered after its cancel was answered"
        elif first in account.added and first not in account.asked_to_cancel:
            assert found == whole, "lost"
    due = {each.id: (each.at_s - START_S) * 1000 for first in account.asked for each in walked(first)}
    assert all(at >= due[each] for each, at in made.delivered()), "early"


@pytest.mark.parametrize("seed", range(4))
def test_stop_at_every_change_loses_repeats_and_hurries_nothing(seed: int) -> None:
    """A kill or a power cut at each change of the disk around add, delivery, successor and cancel; files go, too."""
    changes = 1 + 7 * seed
    while True:
        disk, clock, account = SimDisk(), ManualClock(START_S * 1000), Account()
        disk.stop_after(changes)
        with contextlib.suppress(PowerCut, StoreError, OSError):
            run(disk, clock, Random(seed), account)
        whole = disk.operations < changes
        end_run(disk, changes, power=changes % 2 == 1)
        lose_files(disk, ROOT, FILES, changes)
        made = world(disk, clock)
        check(made, account)
        made.close()
        if whole:
            assert len(account.added) == 5
            return
        changes += 31


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
