"""Flushes with their sync in the background: what shows when, and what a stop, a failure or a flush leaves of them."""

from __future__ import annotations

import errno
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import MessageRefused, StoreError, StoreFailed
from broker.log.group_commit import CommitDriver
from broker.runtime.seams import DiskFile, Reported
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, PowerCut, SimDisk, SimSyncs
from tests.integration.store_tools import append, bodies, open_store
from tests.integration.turns import Turns, take_over


class HeldSyncs:
    """Syncs that end when a test says so, or a flush waits for them; holds one at a time."""

    def __init__(self) -> None:
        self.begun: list[tuple[DiskFile, Reported]] = []
        self.fails: OSError | None = None

    def begin(self, file: DiskFile, done: Reported) -> HeldSyncs:
        """Hold it."""
        assert not self.begun
        self.begun.append((file, done))
        return self

    def begin_folder(self, path: str, done: Reported) -> HeldSyncs:
        """No flush asks for it."""
        raise AssertionError(path)

    def wait(self) -> None:
        """End it now, as it was to end."""
        file, done = self.begun.pop(0)
        if self.fails is None:
            file.sync()
        done(self.fails)

    def end(self, error: OSError | None = None) -> None:
        """Let it end."""
        self.fails = error
        self.wait()


def opened(disk: SimDisk) -> tuple[Store, HeldSyncs]:
    """A store with a topic."""
    store, syncs = open_store(disk), HeldSyncs()
    take_over(store, None, syncs=syncs)
    store.create_topic("t", 1)
    return store, syncs


def test_nothing_shows_before_the_sync_has_ended() -> None:
    """One at a time; what is appended meanwhile is not part of it, and goes with the next (D1)."""
    disk = SimDisk()
    store, syncs = opened(disk)
    reported: list[str] = []
    pending: list[str] = []
    take_over(store, Turns(lambda: pending.append("pending")), syncs=syncs)
    store.topics["t"].listeners.append(lambda: reported.append("topic"))
    append(store, b"a", done=lambda error: reported.append(f"a {error}"))
    end = store.end
    assert store.commit.begin()
    append(store, b"b", done=lambda error: reported.append(f"b {error}"))
    assert not store.commit.begin()
    assert (bodies(store), reported, store.end, len(pending), len(syncs.begun)) == ({}, [], end, 2, 1)
    syncs.end()
    assert (bodies(store), reported, store.pending, store.unsettled) == ({0: b"a"}, ["a None", "topic"], False, True)
    assert not store.commit.begin()
    syncs.end()
    assert (bodies(store), reported[2:], store.unsettled) == ({0: b"a", 1: b"b"}, ["b None", "topic"], False)
    assert not store.commit.begin()


class _Watching(CommitDriver):
    """Notes what it is told, in order."""

    def __init__(self, store: Store, seen: list[object]) -> None:
        self._store, self._seen = store, seen

    def on_begun(self) -> None:
        self._seen.append("begun")

    def on_shown(self, flushes: int) -> None:
        self._seen.append((bodies(self._store), flushes, self._store.unsettled))

    def on_reported(self, raised: Exception | None) -> None:
        self._seen.append(repr(raised))


def test_next_flush_begins_before_those_that_wait_are_told() -> None:
    """What is durable is visible by then, and told once, also when a callback fails."""
    store, syncs = opened(SimDisk())
    seen: list[object] = []
    take_over(store, _Watching(store, seen), syncs=syncs)

    def broken(error: StoreError | None) -> None:
        raise ZeroDivisionError

    append(store, b"a", done=broken)
    append(store, b"b", done=seen.append)
    store.commit.begin()
    append(store, b"c", done=seen.append)
    syncs.end()
    assert seen == ["begun", ({0: b"a", 1: b"b"}, 1, True), "begun", None, "ZeroDivisionError()"]
    syncs.end()
    assert seen[5:] == [({0: b"a", 1: b"b", 2: b"c"}, 1, True), None, "None"]


def test_flush_waits_for_what_is_on_its_way_and_settles_it_with_what_is_staged() -> None:
    """In their order; what it was for is told once."""
    disk = SimDisk()
    store, syncs = opened(disk)
    reported: list[str] = []
    append(store, b"a", done=lambda error: reported.append(f"a {error}"))
    store.commit.begin()
    append(store, b"b", done=lambda error: reported.append(f"b {error}"))
    store.flush()
    assert (bodies(store), reported, store.unsettled, syncs.begun) == (
        {0: b"a", 1: b"b"}, ["a None", "b None"], False, [],
    )  # fmt: skip
    append(store, b"c", done=lambda error: reported.append(f"c {error}"))
    store.commit.begin()
    syncs.end()
    assert reported[2:] == ["c None"]
    disk.crash(Random(1), modes=("none",))
    assert bodies(open_store(disk)) == {0: b"a", 1: b"b", 2: b"c"}


def test_flush_of_nothing_but_what_is_on_its_way_ends_it() -> None:
    """The caller has nothing unsettled afterwards, and nothing is synced twice; also over several files."""
    for count in (1, 10):
        disk = SimDisk()
        store, _ = opened(disk)
        before = disk.synced_files
        append(store, *[b"a" * 1_000] * count)
        synced = disk.synced_files - before
        store.commit.begin()
        store.flush()
        assert (len(bodies(store)), store.unsettled) == (count, False)
        assert disk.synced_files - before - synced == len(store.index.log.segments)
        disk.crash(Random(1), modes=("none",))
        assert len(bodies(open_store(disk))) == count


def test_flush_hears_of_the_failure_of_what_is_on_its_way() -> None:
    """Its own sync would not: the system tells one of the two. Nothing is shown, nothing more is written."""
    disk = SimDisk()
    store, syncs = opened(disk)
    reported: list[StoreError | None] = []
    append(store, b"a", done=reported.append)
    store.commit.begin()
    append(store, b"b", done=reported.append)
    syncs.fails = OSError(errno.EIO, "no")
    operations = disk.operations
    store.flush()
    assert [type(each) for each in reported] == [StoreFailed, StoreFailed]
    assert (bodies(store), store.unsettled, disk.operations) == ({}, False, operations)


def test_failed_sync_tells_all_and_shows_nothing() -> None:
    """Those of the flush and those staged behind it; nothing is written or synced again, and offsets go back."""
    disk = SimDisk()
    store, syncs = opened(disk)
    reported: list[str] = []
    append(store, b"kept")
    store.flush()
    append(store, b"a", done=lambda error: reported.append(f"a {type(error).__name__}"))
    store.commit.begin()
    append(store, b"b", done=lambda error: reported.append(f"b {type(error).__name__}"))
    operations = disk.operations
    syncs.end(OSError(errno.EIO, "no"))
    assert reported == ["a StoreFailed", "b StoreFailed"]
    assert (bodies(store), store.topics["t"].queues[0].next_offset, store.unsettled) == ({0: b"kept"}, 1, False)
    assert not store.commit.begin()
    store.flush()
    store.close()
    assert disk.operations == operations
    with pytest.raises(StoreFailed):
        append(store, b"c")


def test_failed_write_of_a_flush_in_the_background_tells_all() -> None:
    """As that of any other; no sync is begun."""
    disk = SimDisk()
    store, syncs = opened(disk)
    reported: list[StoreError | None] = []
    append(store, b"a", done=reported.append)
    disk.fail("write")
    assert not store.commit.begin()
    assert (len(reported), isinstance(reported[0], StoreFailed), syncs.begun, bodies(store)) == (1, True, [], {})


def test_failure_elsewhere_ends_what_is_on_its_way() -> None:
    """Fail-stop is whole: that a sync ends well afterwards changes nothing."""
    store, syncs = opened(SimDisk())
    reported: list[StoreError | None] = []
    append(store, b"a", done=reported.append)
    store.commit.begin()
    store.writes.fail("testing", OSError(errno.EIO, "no"))
    assert [type(each) for each in reported] == [StoreFailed]
    syncs.end()
    assert (len(reported), bodies(store)) == (1, {})


@pytest.mark.parametrize("orderly", [True, False])
def test_end_of_the_store_with_a_flush_on_its_way(*, orderly: bool) -> None:
    """A clean stop waits for it, an abandoned store forgets it; the late end of its sync is harmless."""
    disk = SimDisk()
    store, syncs = opened(disk)
    reported: list[StoreError | None] = []
    append(store, b"a", done=reported.append)
    store.commit.begin()
    append(store, b"b", done=reported.append)
    if orderly:
        store.close()
    else:
        store.abandon()
    for _, done in syncs.begun:
        done(None)
    assert reported == ([None, None] if orderly else [])
    disk.kill()
    assert bodies(open_store(disk)) == ({0: b"a", 1: b"b"} if orderly else {0: b"a"})


def test_files_of_one_flush_are_synced_one_after_the_other() -> None:
    """The oldest first, so that a power loss leaves no whole file behind a torn one; it shows when all are durable."""
    disk = SimDisk()
    store, syncs = opened(disk)
    append(store, *[bytes([number]) * 1_000 for number in range(10)])
    store.commit.begin()
    names = []
    while syncs.begun:
        assert len(syncs.begun) == 1
        assert bodies(store) == {}
        names.append(syncs.begun[0][0]._node.path)  # type: ignore[attr-defined]
        syncs.end()
    assert names == sorted(names)
    assert (len(names), len(bodies(store))) == (4, 10)


def test_checkpoint_and_deletion_do_not_count_what_is_on_its_way() -> None:
    """A checkpoint says what is durable; the deletion of a topic settles first what it says the end of."""
    for change in ("checkpoint", "delete"):
        disk, clock = SimDisk(), ManualClock()
        store, syncs = open_store(disk, clock=clock), HeldSyncs()
        take_over(store, None, syncs=syncs)
        store.create_topic("t", 1)
        store.create_topic("u", 1)
        append(store, b"a")
        store.flush()
        append(store, b"lost" * 50)
        store.commit.begin()
        clock.advance(20)
        if change == "checkpoint":
            store.checkpoint()
        else:
            store.topic_changes.delete("u")
        assert store.failed is None
        disk.crash(Random(1), modes=("none",))
        found = open_store(disk)
        assert found.recovery.holes == ()
        assert bodies(found) == ({0: b"a"} if change == "checkpoint" else {0: b"a", 1: b"lost" * 50})


class _Run:
    """A store at work in the background until the machine stops; the account of what it said."""

    def __init__(self, seed: int, disk: SimDisk) -> None:
        self.random, self.disk = Random(seed), disk
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.acknowledged: dict[int, bytes] = {}
        self.caught: set[str] = set()
        """What stops hit, by name."""

    def work(self) -> None:
        """Append, flush either way, let time pass, take checkpoints; raises PowerCut."""
        self.unacknowledged = 0
        self.store = store = open_store(self.disk, clock=self.clock, seed=self.random.getrandbits(32))
        take_over(store, Turns(), syncs=SimSyncs(self.disk, self.scheduler, self.random))
        store.create_topic("t", 1)
        while True:
            draw = self.random.random()
            if draw < 0.5:
                self._append(store)
            elif draw < 0.9:
                store.commit.begin()
                self.scheduler.advance(self.random.random() * 0.002)
            elif draw < 0.95:
                store.flush()
            else:
                self.clock.advance(11)
                store.checkpoint()

    def _append(self, store: Store) -> None:
        count = self.random.choice((1, 1, 3))
        texts = [self.random.randbytes(self.random.choice((10, 300, 1_500))) for _ in range(count)]

        def done(error: StoreError | None) -> None:
            assert error is None
            self.unacknowledged -= count
            self.acknowledged.update({each.offset: text for each, text in zip(positions, texts, strict=True)})

        try:
            positions = append(store, *texts, done=done, atomic=count > 1)
        except MessageRefused:
            return  # As large a batch has no segment.
        self.unacknowledged += count

    def note(self) -> None:
        """Note what the stop met."""
        if hasattr(self, "store"):
            commit = self.store.commit
            self.caught.add(f"{'sync' if commit.is_under_way else 'none'} {'staged' if commit.pending else ''}".strip())


def _stops(seed: int, stops: list[int]) -> _Run:
    disk = SimDisk()
    run = _Run(seed, disk)
    for changes in stops:
        disk.stop_after(changes)
        with pytest.raises(PowerCut):
            run.work()
        run.note()
        if run.random.random() < 0.5:
            disk.kill()
        else:
            disk.crash(run.random)
        # The process is gone, and with it whom its syncs would tell.
        run.scheduler = ManualScheduler(run.clock)
        store = open_store(disk, clock=run.clock)
        found = bodies(store) if "t" in store.topics else {}
        assert {offset: found.get(offset) for offset in run.acknowledged} == run.acknowledged
        run.acknowledged.update({offset: body for offset, body in found.items() if body is not None})
        store.close()
    return run


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), stops=st.lists(st.integers(0, 150), min_size=1, max_size=4))
def test_any_stop_keeps_what_was_acknowledged(seed: int, stops: list[int]) -> None:
    """Also between the write and the end of its sync, and with more staged behind it."""
    _stops(seed, stops)


def test_stops_meet_every_state_of_a_flush() -> None:
    """The runs above are worth something."""
    caught: set[str] = set()
    for seed in range(40):
        caught |= _stops(seed, [20 + 3 * seed]).caught
    assert caught == {"none", "none staged", "sync", "sync staged"}
