"""Flushes that end before their moment: shown then and not before, in order, whatever comes in between."""

from __future__ import annotations

import errno
from random import Random

import pytest

from broker.format.message import message_of
from broker.log.group_commit import AHEAD_MAX_US, CommitDriver, seconds_early
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk, SimSyncs
from tests.integration.broker.store.test_store_background import HeldSyncs
from tests.integration.store_tools import append, bodies, open_store
from tests.integration.timer_tools import Broker, broker
from tests.integration.turns import take_over
from tests.integration.waiting_tools import flush_in_background

START_MS = 1_700_000_000_000


class Moments:
    """A store with a topic, and what happens to it.

    Attributes:
        told: What was told, in order.
    """

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.clock = ManualClock(START_MS)
        self.scheduler = ManualScheduler(self.clock)
        self.store, self.syncs = open_store(self.disk, clock=self.clock), HeldSyncs()
        self.store.create_topic("t", 1)
        take_over(self.store, None, syncs=self.syncs, alarms=self.scheduler)
        self.reported: list[str] = []

    def put(self, name: str, after_ms: int = 0) -> None:
        """Append a message, which may be shown after so long."""
        if after_ms:
            self.store.commit.wait_for(START_MS + after_ms)
        append(self.store, name.encode(), done=lambda error: self.reported.append(f"{name} {error}"))

    @property
    def shown(self) -> list[bytes | None]:
        """Bodies that are visible."""
        return list(bodies(self.store).values())


def test_what_is_durable_before_its_moment_is_shown_at_its_moment() -> None:
    """What was appended before it, in the same flush, is shown at once; its store timestamp is no earlier than that."""
    made = Moments()
    made.put("now")
    made.put("soon", 2)
    made.store.commit.begin()
    made.syncs.end()
    made.scheduler.advance(0.00199)
    assert (made.shown, made.reported, made.store.unsettled) == ([b"now"], ["now None"], True)
    made.scheduler.advance(0.00001)
    assert (made.shown, made.reported, made.store.unsettled) == ([b"now", b"soon"], ["now None", "soon None"], False)
    [unit] = made.store.topics["t"].queues[0].read(1, 1)
    assert message_of(made.store.read(unit[0], unit[1])).store_ms == START_MS + 2


def test_disk_goes_on_and_what_follows_waits_in_order() -> None:
    """Moments one after the other; a later flush that has none is shown no sooner than those before it."""
    made = Moments()
    take_over(made.store, CommitDriver(), syncs=made.syncs, alarms=made.scheduler)
    made.put("a", 1)
    made.put("b", 3)
    made.store.commit.begin()
    made.put("c")
    made.syncs.end()
    assert (len(made.syncs.begun), made.store.pending) == (1, False)
    made.syncs.end()
    assert made.shown == []
    made.scheduler.advance(0.001)
    assert made.shown == [b"a"]
    made.scheduler.advance(0.001)
    assert made.shown == [b"a"]
    made.scheduler.advance(0.001)
    assert (made.shown, made.reported) == ([b"a", b"b", b"c"], ["a None", "b None", "c None"])


def test_flush_lets_the_time_pass() -> None:
    """Who needs all of it now waits for the moment, whether it was staged, on its way or durable."""
    for begun, ended in ((False, False), (True, False), (True, True)):
        made = Moments()
        made.put("a", 3)
        if begun:
            made.store.commit.begin()
        if ended:
            made.syncs.end()
        made.put("b")
        made.store.flush()
        assert (made.shown, made.clock.wall_us()) == ([b"a", b"b"], (START_MS + 3) * 1000)
        assert (made.reported, made.store.unsettled) == (["a None", "b None"], False)
        made.scheduler.advance(1)
        assert len(made.reported) == 2


@pytest.mark.parametrize("durable", [False, True])
def test_clock_that_is_set_back_holds_nothing_for_longer(durable: bool) -> None:
    """A moment that was a millisecond away and is an hour away: what was begun is shown a millisecond later (D35)."""
    made = Moments()
    made.put("a", 1)
    made.store.commit.begin()
    if durable:
        made.syncs.end()
    made.clock.set_wall_ms(START_MS - 3_600_000)
    if not durable:
        made.syncs.end()
    made.scheduler.advance(0.00099)
    assert not made.shown
    made.scheduler.advance(0.00002)
    assert made.shown == [b"a"]
    made.put("b")
    made.store.commit.begin()
    made.syncs.end()
    assert made.shown == [b"a", b"b"]


def test_failed_sync_tells_those_that_wait_and_a_restart_has_them() -> None:
    """Nothing is shown after the failure; what was durable comes again."""
    made = Moments()
    made.put("a", 2)
    made.store.commit.begin()
    made.syncs.end()
    made.put("b")
    made.store.commit.begin()
    made.syncs.end(OSError(errno.EIO, "input/output error"))
    made.scheduler.advance(1)
    assert (made.shown, [each.split(" ")[0] for each in made.reported]) == ([], ["a", "b"])
    assert "input/output error" in made.reported[0]
    made.store.abandon()
    made.disk.crash(Random(1), modes=("none",))
    again = open_store(made.disk, clock=made.clock)
    assert list(bodies(again).values())[:1] == [b"a"]


def test_restart_knows_how_long_to_wait() -> None:
    """A process that ends while something durable waits for its moment leaves it to the next one."""
    made = Moments()
    made.put("a", 3)
    made.store.commit.begin()
    made.syncs.end()
    made.store.abandon()
    made.scheduler.advance(0.001)
    assert not made.reported
    made.disk.crash(Random(1), modes=("none",))
    stored_ms = open_store(made.disk, clock=made.clock).recovery.store_ms
    assert seconds_early(stored_ms, made.clock) == pytest.approx(0.002)
    made.clock.advance(0.002)
    assert not seconds_early(stored_ms, made.clock)
    made.clock.set_wall_ms(START_MS - 60_000)
    assert not seconds_early(stored_ms, made.clock)


def _sent(seconds_max: float, count: int) -> tuple[Broker, list[tuple[int, int]]]:
    """Have timers fall due, ten a second, on a disk whose syncs take up to so long; due and shown, us."""
    made = broker(start=False)
    flush_in_background(
        made.store, SimSyncs(made.disk, made.scheduler, Random(1), seconds_max=seconds_max), made.scheduler
    )
    made.store.commit.alarms = made.scheduler
    made.timers.start()
    begin = made.clock.wall_ms() + 5_000 + int(count * seconds_max * 1000)
    for number in range(count):
        made.send(b"%d" % number, begin + 100 * number - made.clock.wall_ms())
    shown: list[tuple[int, int]] = []
    queue = made.store.topics["t"].queues[0]

    def note() -> None:
        while len(shown) < queue.max_offset:
            shown.append((100_000 * len(shown), made.clock.wall_us() - begin * 1000))

    made.store.topics["t"].listeners.append(note)
    made.scheduler.advance((begin - made.clock.wall_ms()) / 1000 + count / 10 + 5)
    return made, shown


def test_timers_are_shown_at_their_millisecond_while_syncs_take_most_of_one() -> None:
    """None early, and once it is known what the disk takes, nine of ten at their moment to the microsecond."""
    made, shown = _sent(0.0029, 300)
    assert len(shown) == 300
    assert all(at >= due for due, at in shown)
    assert sum(at <= due + 1 for due, at in shown[100:]) > 0.8 * 200
    assert 1000 < made.store.commit.ahead_us <= AHEAD_MAX_US


@pytest.mark.parametrize(("seconds_max", "least", "most"), [(0.0, 0, 200), (1.0, AHEAD_MAX_US, AHEAD_MAX_US)])
def test_what_is_begun_before_its_moment_follows_from_the_syncs(seconds_max: float, least: int, most: int) -> None:
    """Nothing where they take no time; never more than the limit, however long they take."""
    made, shown = _sent(seconds_max, 400)
    assert all(at >= due for due, at in shown)
    assert least <= made.store.commit.ahead_us <= most


def test_without_calls_at_a_moment_nothing_is_begun_before_it() -> None:
    """A store that nobody gave them appends what is due when it is due."""
    store: Store = open_store(SimDisk())
    assert store.commit.ahead_us == 0
