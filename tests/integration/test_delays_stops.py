"""Delays over every stop: killed or cut from power at any change of the disk, nothing is lost, early or twice."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import StoreError
from broker.testing import ManualClock, PowerCut, SimDisk
from tests.integration.delay_tools import START_MS, TOPIC, Broker, broker
from tests.integration.store_tools import ROOT

FILES = ("config/delayOffset.json", "config/delayOffset.json.bak", "pyddmq/delays.json", "pyddmq/delayOffset.json")
"""What tells how far delivery is; the log can do without."""


def run(disk: SimDisk, clock: ManualClock, random: Random, sent: dict[bytes, int]) -> None:
    """Publish with delays, let time pass, deliver; `sent` has what was acknowledged, with its due time."""
    made = broker(disk, clock, segment_bytes=16384)
    for _ in range(6):
        for _ in range(random.randrange(4)):
            level = random.choice((1, 1, 2, 3))
            body = b"%d" % (len(sent) + random.randrange(1, 1 << 40))
            made.send(body, level)
            sent[body] = clock.wall_ms() + (1000, 5000, 10_000)[level - 1]
        made.scheduler.advance(random.choice((0.3, 1.0, 6.0)))
    if random.random() < 0.5:
        made.close()
    else:
        made.delays.stop()
        made.store.abandon()


def stopped(disk: SimDisk, clock: ManualClock, random: Random, sent: dict[bytes, int], changes: int) -> None:
    """Do that until the disk stops."""
    disk.stop_after(changes)
    with contextlib.suppress(PowerCut, StoreError, OSError):
        run(disk, clock, random, sent)


def check(made: Broker, sent: dict[bytes, int]) -> None:
    """Everything acknowledged was delivered once, and not before it was due."""
    made.scheduler.advance(20)
    found = made.delivered()
    assert len(found) == len(set(found)), "delivered twice"
    assert not sent.keys() - set(found), "lost"
    for body, at in zip(found, made.times(), strict=True):
        assert at + START_MS >= sent.get(body, 0), "early"


@pytest.mark.parametrize("seed", range(4))
def test_stop_at_every_change_loses_repeats_and_hurries_nothing(seed: int) -> None:
    """A kill or a power cut at each change of the disk around put, delivery and checkpoint; files that go besides."""
    changes = 1
    while True:
        disk, clock, sent = SimDisk(), ManualClock(START_MS), dict[bytes, int]()
        random = Random(seed)
        stopped(disk, clock, random, sent, changes)
        whole = disk.operations < changes
        if changes % 2:
            disk.crash(Random(changes))
        else:
            disk.kill()
        for name in FILES[: changes % (len(FILES) + 1)]:
            if disk.exists(f"{ROOT}/{name}"):
                disk.remove(f"{ROOT}/{name}")
        made = broker(disk, clock, segment_bytes=16384)
        check(made, sent)
        made.close()
        if whole:
            return
        changes += 3


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=2, max_size=4), st.integers(0, 1 << 30), st.integers(0, 31))
def test_stops_in_a_row(stops: list[int], seed: int, lost: int) -> None:
    """One stop after the other, each anywhere, some of the files gone after the last."""
    disk, clock, sent = SimDisk(), ManualClock(START_MS), dict[bytes, int]()
    random = Random(seed)
    for changes in stops:
        stopped(disk, clock, random, sent, changes)
        if random.random() < 0.5:
            disk.crash(random)
        else:
            disk.kill()
    for place, name in enumerate((*FILES, "pyddmq/checkpoint.json")):
        if lost >> place & 1 and disk.exists(f"{ROOT}/{name}"):
            disk.remove(f"{ROOT}/{name}")
    made = broker(disk, clock, segment_bytes=16384)
    check(made, sent)
    made.close()
    assert len(broker(disk, clock, segment_bytes=16384).delivered(TOPIC)) >= len(sent)
