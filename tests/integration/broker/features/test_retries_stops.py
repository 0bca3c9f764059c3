"""Retries over every stop: killed or cut from power at any change of the disk, no failed message is lost or doubled.

Invariants, of the log as it is found after all stops:

- No record is replaced by two: a message is sent back or dead-lettered once, whatever was committed at the stop.
- Every acknowledged message was consumed with success in the end, or has one dead letter.
- A dead letter says one failure more than retries are allowed, and no listener saw more.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.consumer import ConcurrentStatus
from broker.errors import StoreError
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.stopping import end_run, lose_files
from tests.unit.consumer_world import ROOT, World

START_MS = 1_700_000_000_000
MOST = 2
FILES = (
    "pyddmq/consumer_finished.json",
    "pyddmq/consumer_retries.json",
    "pyddmq/delays.json",
    "config/delayOffset.json",
    "config/delayOffset.json.bak",
    "pyddmq/delayOffset.json",
)

"""What tells how far retries are; the log can do without."""


class Fallible(World):
    """A world whose listener fails by plan: `fails[body]` times."""

    def __init__(self, disk: SimDisk, clock: ManualClock, reported: Reported) -> None:
        self.reported = reported
        super().__init__(queues=2, disk=disk, clock=clock, flush=reported.flush)

    def answer(self, batch: object) -> ConcurrentStatus:
        """Fail a body as often as it was planned, by the retries that the listener sees."""
        for _, body, times in self.got[-1:]:
            if times < self.reported.fails.get(body, 0):
                return ConcurrentStatus.RECONSUME_LATER
            self.reported.succeeded.add(body)
        return ConcurrentStatus.SUCCESS


class Reported:
    """What was acknowledged, how often each is to fail, and what succeeded."""

    def __init__(self, flush: str = "sync") -> None:
        self.flush = flush
        self.fails: dict[str, int] = {}
        self.acknowledged: set[str] = set()
        self.succeeded: set[str] = set()


def run(disk: SimDisk, clock: ManualClock, random: Random, reported: Reported) -> None:
    """Publish, consume, fail, let time pass."""
    world = Fallible(disk, clock, reported)
    world.delay_level = 1
    world.concurrent(reconsume_max=MOST)
    for _ in range(5):
        for _ in range(random.randrange(3)):
            body = f"{random.randrange(1 << 40)}"
            reported.fails[body] = random.choice((0, 1, 2, 3))
            world.send(body, queue=random.randrange(2))
            reported.acknowledged.add(body)
        world.advance(random.choice((0.3, 1.0, 6.0)))
    if random.random() < 0.5:
        world.consumers.close()
        world.delays.close()
        world.store.close()
    else:
        world.delays.stop()
        world.store.abandon()


def stopped(disk: SimDisk, clock: ManualClock, random: Random, reported: Reported, changes: int) -> None:
    """Do that until the disk stops."""
    disk.stop_after(changes)
    with contextlib.suppress(PowerCut, StoreError, OSError):
        run(disk, clock, random, reported)


def check(disk: SimDisk, clock: ManualClock, reported: Reported) -> None:
    """Let all retries end, and look at the log."""
    world = Fallible(disk, clock, reported)
    world.delay_level = 1
    world.concurrent(reconsume_max=MOST)
    world.advance(60)
    replaced = Counter(each.replaced for step in world.store.decisions(0) for each in step.decisions)
    assert [physical for physical, count in replaced.items() if count > 1] == [], "sent back or dead-lettered twice"
    letters = Counter(letter["body"] for letter in world.dead_letters())
    hopeless = {body for body in reported.acknowledged if reported.fails[body] > MOST}
    assert reported.acknowledged - hopeless <= reported.succeeded, "lost"
    assert hopeless <= letters.keys(), "no dead letter"
    assert all(reported.fails[body] > MOST and count == 1 for body, count in letters.items()), "dead without reason"
    assert all(letter["DLQ_ATTEMPTS"] == str(MOST + 1) for letter in world.dead_letters())
    assert all(times <= MOST for *_, times in world.got)
    assert all(topic == "t" for topic, *_ in world.got)
    world.consumers.close()
    world.delays.close()
    world.store.close()


@pytest.mark.parametrize("seed", range(3))
def test_stop_at_every_change_neither_loses_nor_doubles_a_retry(seed: int) -> None:
    """A kill or a power cut at each change around failure, retry, delivery and dead letter; files that go besides."""
    changes = 1
    while True:
        disk, clock, reported = SimDisk(), ManualClock(START_MS), Reported()
        random = Random(seed)
        stopped(disk, clock, random, reported, changes)
        whole = disk.operations < changes
        end_run(disk, changes, power=changes % 2 == 1)
        lose_files(disk, ROOT, FILES, changes)
        check(disk, clock, reported)
        if whole:
            return
        changes += 3


def test_kill_under_async_neither_loses_nor_doubles_a_retry() -> None:
    """The checkpoint of what was sent back is never ahead of the log, although the log is not synced at once."""
    changes = 1
    while True:
        disk, clock, reported = SimDisk(), ManualClock(START_MS), Reported("async")
        stopped(disk, clock, Random(7), reported, changes)
        whole = disk.operations < changes
        disk.kill()
        check(disk, clock, reported)
        if whole:
            return
        changes += 5


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=2, max_size=4), st.integers(0, 1 << 30), st.integers(0, 63))
def test_stops_in_a_row(stops: list[int], seed: int, lost: int) -> None:
    """One stop after the other, each anywhere, some of the files gone after the last."""
    disk, clock, reported = SimDisk(), ManualClock(START_MS), Reported()
    random = Random(seed)
    for changes in stops:
        stopped(disk, clock, random, reported, changes)
        if random.random() < 0.5:
            disk.crash(random)
        else:
            disk.kill()
    for place, name in enumerate(FILES):
        if lost >> place & 1 and disk.exists(f"{ROOT}/{name}"):
            disk.remove(f"{ROOT}/{name}")
    check(disk, clock, reported)
