"""Group commit: a batch's way from staged to told, and what it holds to at each step."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from broker.errors import StoreError
from broker.log.commit_batch import _NEXT, BatchState, CommitBatch
from broker.log.group_commit import AHEAD_MAX_US, CommitDriver, seconds_early
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk, SimSyncs
from tests.integration.store_tools import append, bodies, open_store
from tests.integration.turns import take_over


class _Driver(CommitDriver):
    """Notes what it is told, and in which state the store's batches are by then."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.ends: list[int] = []

    def on_visible(self, end: int) -> None:
        self.ends.append(end)

    def on_staged(self) -> None:
        self.heard.append("staged")

    def on_begun(self) -> None:
        self.heard.append("begun")

    def on_shown(self, flushes: int) -> None:
        self.heard.append(f"shown {flushes}")

    def on_reported(self, raised: Exception | None) -> None:
        self.heard.append(f"told {raised}")


class _World:
    """A store that a driver flushes, over syncs that take two milliseconds."""

    def __init__(self, flush: Literal["sync", "async"] = "sync") -> None:
        self.disk, self.clock = SimDisk(), ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.driver = _Driver()
        self.store: Store = open_store(self.disk, clock=self.clock, flush=flush)
        self.store.create_topic("t", 1)
        self.commit = self.store.commit
        syncs = SimSyncs(self.disk, self.scheduler, Random(1), seconds_max=0.002)
        take_over(self.store, self.driver, syncs=syncs, alarms=self.scheduler)

    def end(self) -> None:
        """Let all that is on its way end."""
        self.scheduler.advance(1.0)


def _batch(*, start: int = 0, end: int = 100, last_record: int = 0) -> CommitBatch:
    return CommitBatch([], {}, start=start, end=end, last_record=last_record, not_before_ms=0, not_before=0.0)


def test_way_back_is_shown_next_begun_told() -> None:
    """What came during a sync is on its way before anybody is told of that sync; one `begin` is enough for both."""
    world = _World()
    append(world.store, b"a", done=lambda error: world.driver.heard.append(f"a {error}"))
    world.commit.begin()
    append(world.store, b"b", done=lambda error: world.driver.heard.append(f"b {error}"))
    world.end()
    assert world.driver.heard == [
        "staged", "begun", "staged", "shown 1", "begun", "a None", "told None", "shown 1", "b None", "told None",
    ]  # fmt: skip
    assert not world.store.unsettled


def test_what_a_callback_appends_is_flushed_before_replies_leave() -> None:
    """Its flush begins between the telling and the replies, so that no turn of the loop comes in between."""
    world = _World()

    def again(error: StoreError | None) -> None:
        append(world.store, b"follows")

    append(world.store, b"a", done=again)
    world.commit.begin()
    world.end()
    assert world.driver.heard[2:] == ["shown 1", "staged", "begun", "told None", "shown 1", "told None"]
    assert bodies(world.store) == {0: b"a", 1: b"follows"}


def test_begin_takes_one_flush_at_a_time() -> None:
    """Invariant 2: while a sync is on its way, nothing else is written."""
    world = _World()
    assert not world.commit.begin()
    append(world.store, b"a")
    assert world.commit.begin()
    append(world.store, b"b")
    written = world.disk.operations
    assert not world.commit.begin()
    assert world.disk.operations == written
    with pytest.raises(AssertionError, match="while a sync is under way"):
        world.commit._write([_batch()])


def test_each_state_follows_its_own_and_no_other() -> None:
    """Invariant 3: no way leads to SHOWN but over the write, none to REPORTED but over SHOWN or FAILED."""
    on_their_way = [BatchState.WRITTEN, BatchState.DURABLE, BatchState.SHOWN, BatchState.REPORTED]
    batch = _batch()
    for state in on_their_way:
        batch.go_on(state)
    for early, late in ((BatchState.STAGED, BatchState.SHOWN), (BatchState.STAGED, BatchState.REPORTED)):
        batch = _batch()
        assert batch.state is early
        with pytest.raises(AssertionError, match=f"from STAGED to {late.name}"):
            batch.go_on(late)
    batch = _batch()
    batch.fail()
    with pytest.raises(AssertionError, match="from FAILED to SHOWN"):
        batch.go_on(BatchState.SHOWN)


def test_under_sync_nothing_is_shown_that_was_only_written() -> None:
    """Invariant 3, where the store syncs; under `async` the same batch is shown when it is written."""
    for flush, fits in (("sync", False), ("async", True)):
        store = open_store(SimDisk(), flush=flush)
        batch = _batch(start=store.index.log.end, last_record=store.index.log.end, end=store.index.log.end + 1)
        batch.go_on(BatchState.WRITTEN)
        refused = pytest.raises(AssertionError, match="only what is durable is shown")
        with nullcontext() if fits else refused:
            store.commit._show(batch)
        assert (batch.state is BatchState.SHOWN) is fits


def test_what_may_be_read_never_shrinks() -> None:
    """Invariant 4: a batch whose end is below what was shown is refused by its own assertion."""
    store = open_store(SimDisk())
    store.create_topic("t", 1)
    append(store, b"x" * 100)
    store.flush()
    batch = _batch(end=10)
    for state in (BatchState.WRITTEN, BatchState.DURABLE):
        batch.go_on(state)
    with pytest.raises(AssertionError, match="only grows"):
        batch.show(store.index.log)


def test_nobody_is_told_twice_or_well_of_a_failure() -> None:
    """Invariant 5: told once; what failed is told with its error and never without."""
    batch = _batch()
    batch.fail()
    with pytest.raises(AssertionError, match="only shown batches"):
        batch.report(None)
    batch.report(StoreError("gone"))
    with pytest.raises(AssertionError, match="from REPORTED to REPORTED"):
        batch.report(StoreError("gone"))


def test_who_asks_is_told_with_what_is_under_way() -> None:
    """With what is staged, else with what is on its way, else at once."""
    world = _World()
    reported: list[str] = []
    world.commit.when_reported(lambda error: reported.append(f"idle {error}"))
    assert reported == ["idle None"]
    append(world.store, b"a")
    world.commit.begin()
    world.commit.when_reported(lambda error: reported.append(f"begun {error}"))
    append(world.store, b"b")
    world.commit.when_reported(lambda error: reported.append(f"staged {error}"))
    assert reported == ["idle None"]
    world.end()
    assert reported == ["idle None", "begun None", "staged None"]


def test_flush_completes_what_is_under_way_without_a_sync_of_its_own() -> None:
    """Under `async`: it waits for the sync that has begun, and shows what is staged unsynced."""
    world = _World("async")
    reported: list[str] = []
    append(world.store, b"a", done=lambda error: reported.append(f"a {error}"))
    world.commit.begin()
    append(world.store, b"b", done=lambda error: reported.append(f"b {error}"))
    world.store.flush()
    assert (reported, bodies(world.store), world.store.unsettled) == (["a None", "b None"], {0: b"a", 1: b"b"}, False)


def test_moment_makes_a_batch_of_its_own() -> None:
    """What was staged before is shown at once, though one flush takes both; the driver hears of whole flushes."""
    world = _World()
    append(world.store, b"now")
    world.commit.wait_for(world.clock.wall_ms() + 4)
    append(world.store, b"soon")
    world.commit.begin()
    world.scheduler.advance(0.0021)
    assert (bodies(world.store), world.commit.is_early) == ({0: b"now"}, True)
    world.end()
    assert bodies(world.store) == {0: b"now", 1: b"soon"}
    assert world.driver.heard[2:] == ["shown 0", "told None", "shown 1", "told None"]


def test_driver_hears_of_each_end_when_it_is_visible() -> None:
    """Per batch, not before it is durable and its moment has come; also where the caller waits."""
    world = _World()
    append(world.store, b"now")
    world.commit.wait_for(world.clock.wall_ms() + 4)
    append(world.store, b"soon")
    world.commit.begin()
    assert world.driver.ends == []
    world.scheduler.advance(0.0021)
    assert len(world.driver.ends) == 1
    world.end()
    assert len(world.driver.ends) == 2
    append(world.store, b"waited for")
    world.store.flush()
    assert len(world.driver.ends) == 3
    assert world.driver.ends[-1] == world.store.end


def test_batches_follow_each_other_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 1, over flushes either way and over ends of segments: each begins where the one before ended."""
    world = _World()
    ends: list[tuple[int, int]] = []
    show = CommitBatch.show

    def shown(batch: CommitBatch, log: Any) -> None:
        show(batch, log)
        ends.append((batch.start, batch.end))

    monkeypatch.setattr(CommitBatch, "show", shown)
    for number in range(40):
        append(world.store, b"x" * 500)
        if number % 3:
            world.commit.begin()
            world.scheduler.advance(0.0005)
        else:
            world.store.flush()
    world.end()
    assert len(ends) > 20
    assert [start for start, _ in ends[1:]] == [end for _, end in ends[:-1]]
    assert len(bodies(world.store)) == 40


def test_restart_waits_for_moments_that_lie_ahead_and_for_no_clock_that_was_set_back() -> None:
    """By what is left of at most AHEAD_MAX_US."""
    clock = ManualClock()
    now_ms = clock.wall_ms()
    assert seconds_early(now_ms + 1, clock) == pytest.approx(0.001)
    assert seconds_early(now_ms, clock) == 0
    assert seconds_early(now_ms + AHEAD_MAX_US // 1000 + 1, clock) == 0


def test_picture_of_a_batch_has_the_ways_of_the_table() -> None:
    """Each arrow of docs/architecture.md is a way that a batch goes, and each way has its arrow."""
    text = (Path(__file__).parents[4] / "docs" / "architecture.md").read_text(encoding="utf-8")
    arrows = re.findall(r"^    ([A-Z& ]+) -->\|[^|]+\| ([A-Z]+)$", text, re.M)
    shown = {(start, end) for starts, end in arrows for start in starts.split(" & ")}
    assert shown == {(start.name, end.name) for start, ends in _NEXT.items() for end in ends}
