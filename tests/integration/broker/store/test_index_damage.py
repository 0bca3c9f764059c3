"""Which index files are believed: damaged, newer, foreign and RocketMQ's own ones, and those of a log that was cut."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.index.file import ENTRY
from broker.index.keys import KeyHasher
from broker.runtime.metrics import Metrics
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.index_tools import FOLDER, REBUILT, Model, built, check, filled, found, names, opened, publish
from tests.integration.store_tools import ROOT


@pytest.mark.parametrize("which", [0, 2, -1])
@pytest.mark.parametrize(
    "damage",
    ["missing", "truncated", "empty", "longer", "header", "slot", "entry", "chain"],
)
def test_damaged_file_is_made_anew_and_nothing_else(which: int, damage: str) -> None:
    """Whatever happened to one file: every query is right, the file comes back as it was, the others stay."""
    disk, clock, model, metrics = SimDisk(), ManualClock(), Model(), Metrics()
    filled(disk, clock, model)
    assert len(names(disk)) > 5
    before = {name: disk.open(f"{FOLDER}/{name}").read(0, 1 << 20) for name in names(disk)}
    name = names(disk)[which]
    path = f"{FOLDER}/{name}"
    if damage == "missing":
        disk.remove(path)
    elif damage in ("truncated", "empty", "longer"):
        disk.open(path).truncate({"truncated": 100, "empty": 0, "longer": 10_000}[damage])
    else:
        disk.flip_bit(path, {"header": 26, "slot": 42, "entry": 40 + 28 + 20 + 3, "chain": 40 + 28 + 39}[damage])
    store = opened(disk, clock=clock, metrics=metrics)
    check(store, model)
    assert metrics.value(REBUILT, "missing" if damage == "missing" else "damaged") == 1
    store.close()
    after = {name: disk.open(f"{FOLDER}/{name}").read(0, 1 << 20) for name in names(disk)}
    if which == -1:
        assert list(after.values()) == list(before.values())
    else:
        assert after == before
    store = opened(disk, clock=clock, metrics=metrics)
    check(store, model)
    assert metrics.value(REBUILT, "missing" if damage == "missing" else "damaged") == 1


def test_several_damaged_files_in_a_row_are_made_anew() -> None:
    """Two neighbours and the first: all come back as they were."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    filled(disk, clock, model)
    before = {name: disk.open(f"{FOLDER}/{name}").read(0, 1 << 20) for name in names(disk)}
    for place in (0, 3, 4):
        disk.flip_bit(f"{FOLDER}/{names(disk)[place]}", 44)
    store = opened(disk, clock=clock)
    check(store, model)
    store.close()
    assert {name: disk.open(f"{FOLDER}/{name}").read(0, 1 << 20) for name in names(disk)} == before


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_flipped_bit_in_the_index_changes_no_answer(seed: int) -> None:
    """One flipped bit anywhere in index files or their sums, at rest or under a running store: no wrong answer."""
    random, disk, clock, model = Random(seed), SimDisk(), ManualClock(), Model()
    filled(disk, clock, model, count=12)
    paths = [f"{FOLDER}/{name}" for name in names(disk)] + [f"{ROOT}/pyddmq/index.json"]
    path = random.choice(paths)
    disk.flip_bit(path, random.randrange(len(disk.open(path).read(0, 1 << 20))), random.randrange(8))
    store = opened(disk, clock=clock)
    check(store, model)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_bit_that_flips_under_a_running_store_never_yields_a_wrong_message(seed: int) -> None:
    """A file that was right when it was first read: an answer may miss a message then, but has no other one."""
    random, disk, clock, model = Random(seed), SimDisk(), ManualClock(), Model()
    filled(disk, clock, model, count=12)
    store = opened(disk, clock=clock)
    check(store, model)
    path = f"{FOLDER}/{random.choice(names(disk))}"
    disk.flip_bit(path, random.randrange(40 + 28 + 240), random.randrange(8))
    for key, places in model.items():
        assert set(found(store, key)) <= set(places)
    store.close()


def test_foreign_files_are_left_alone() -> None:
    """What is no index file by its name stays, is reported, and disturbs nothing."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    filled(disk, clock, model)
    for name in ("README", "00000000000000000000", "99999999999999999"):
        disk.open(f"{FOLDER}/{name}", create=True).write(0, [b"mine"])
    store = opened(disk, clock=clock)
    check(store, model)
    store.close()
    assert {"README", "00000000000000000000", "99999999999999999"} <= set(names(disk))


def test_files_newer_than_the_last_save_are_not_believed_after_a_kill() -> None:
    """After an abnormal stop only what was saved counts; no more than the rest is read again."""
    disk, clock, model, metrics = SimDisk(), ManualClock(), Model(), Metrics()
    store = opened(disk, clock=clock)
    for number in range(12):
        publish(store, model, f"n{number}")
    built(store)
    clock.advance(11)
    store.checkpoint()
    position = store.index.position
    publish(store, model, "later")
    built(store)
    disk.kill()
    store = opened(disk, clock=clock, metrics=metrics)
    assert (store.index.position, metrics.value(REBUILT, "unfinished")) == (position, 0)
    assert store.index.missing == [(position, store.end)]
    check(store, model)


def test_rocketmqs_last_file_is_left_as_it_is() -> None:
    """A file without sums is searched and never written on: what is new goes into a file of its own."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    filled(disk, clock, model, count=3, index_entries=100)
    disk.remove(f"{ROOT}/pyddmq/index.json")
    [name] = names(disk)
    before = disk.open(f"{FOLDER}/{name}").read(0, 1 << 20)
    store = opened(disk, clock=clock, index_entries=100)
    publish(store, model, "a")
    check(store, model)
    store.close()
    assert len(names(disk)) == 2
    assert disk.open(f"{FOLDER}/{name}").read(0, 1 << 20) == before
    check(opened(disk, clock=clock, index_entries=100), model)


@pytest.mark.parametrize("newer", [False, True])
def test_unknown_files_follow_the_checkpoints_index_time(newer: bool) -> None:
    """Without our own sums (a store of RocketMQ's) its rule decides after an abnormal stop."""
    disk, clock, model, metrics = SimDisk(), ManualClock(), Model(), Metrics()
    filled(disk, clock, model, count=3)
    disk.remove(f"{ROOT}/pyddmq/index.json")
    disk.open(f"{ROOT}/abort", create=True)
    if newer:
        disk.open(f"{ROOT}/checkpoint").write(16, [(clock.wall_ms() - 60_000).to_bytes(8, "big")])
    store = opened(disk, clock=clock, metrics=metrics)
    assert metrics.value(REBUILT, "unfinished") == ((newer and len(names(disk)) + 1) or 0) or newer
    assert bool(metrics.value(REBUILT, "unfinished")) is newer
    check(store, model)


@pytest.mark.parametrize("place", [7, 0])
def test_wrong_entry_of_a_file_without_sums_is_noticed_by_its_record(place: int) -> None:
    """An entry that leads to another record, or into the middle of one: the file is made anew, the answer is right."""
    disk, clock, model, metrics = SimDisk(), ManualClock(), Model(), Metrics()
    filled(disk, clock, model, count=3, index_slots=2, index_entries=100)
    disk.remove(f"{ROOT}/pyddmq/index.json")
    [name] = names(disk)
    file = disk.open(f"{FOLDER}/{name}")
    hashed = KeyHasher().hash(b"t", b"n1")
    entries_at = 40 + 4 * 2
    [number] = [n for n in range(1, 10) if ENTRY.unpack(file.read(entries_at + 20 * n, 20))[0] == hashed]
    wrong = model["n2"][0] + place
    file.write(entries_at + 20 * number + 4, [wrong.to_bytes(8, "big")])
    store = opened(disk, clock=clock, metrics=metrics, index_slots=2, index_entries=100)
    assert found(store, "n1") == model["n1"]
    assert metrics.value(REBUILT, "damaged") == 1
    check(store, model)


def test_cut_log_takes_its_index_entries_along() -> None:
    """Entries of records that recovery cut are gone: a new record at their place is not found under the old key."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    store = opened(disk, clock=clock)
    for number in range(4):
        publish(store, model, f"n{number}")
    kept = {key: list(places) for key, places in model.items()}
    cut = publish(store, {}, "cut")
    store.close()
    disk.open(f"{ROOT}/commitlog/{0:020d}").write(cut, [bytes(400)])
    disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
    metrics = Metrics()
    store = opened(disk, clock=clock, metrics=metrics)
    assert metrics.value(REBUILT, "cut") == 1
    assert publish(store, kept, "new") == cut
    check(store, kept)
    assert found(store, "cut") == []
