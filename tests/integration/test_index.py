"""The index over a real store on a simulated disk: what it finds, and what it is after stops and damage."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.index_file import ENTRY, HEADER
from broker.index_keys import KeyHasher
from broker.java import string_hash
from broker.metrics import Metrics
from broker.properties import encode_properties
from broker.put import Put
from broker.query import by_key, by_unique_key
from broker.retention import RetentionLimits
from broker.store import Store
from broker.testing import ManualClock, PowerCut, SimDisk
from tests.integration.store_tools import HOST, ROOT, open_store

FOLDER = f"{ROOT}/index"
REBUILT = "pyddmq_store_index_rebuilt_total"

Model = dict[str, list[int]]
"""Commit-log offsets by key, oldest first: what a query must answer."""


def opened(disk: SimDisk, **options: Any) -> Store:
    """Open a store with tiny index files: 11 entries over 7 slots."""
    return open_store(disk, **{"index_slots": 7, "index_entries": 12, **options})


def publish(store: Store, model: Model, *keys: str, topic: str = "t") -> int:
    """Append and flush one message whose KEYS are the words given; returns its commit-log offset."""
    target = store.create_topic(topic, 1)
    block = encode_properties({"KEYS": " ".join(keys)})
    [position] = store.append([Put(target, 0, b"body", block)], born_ms=1, born_host=HOST)
    store.flush()
    for key in {*keys, position.unique_key.decode()}:
        model.setdefault(key, []).append(position.physical)
    return position.physical


def found(store: Store, key: str, *, topic: str = "t", limit: int = 1000) -> list[int]:
    """What a query answers, oldest first."""
    search = by_key(store, topic, key, limit=limit).run()
    assert not search.unsearched
    return [message.physical for message in reversed(search.found)]


def check(store: Store, model: Model) -> None:
    """Every key of the model is answered as the model says, unique keys by their own query too."""
    for key, places in model.items():
        assert found(store, key) == places
        if len(key) == 32:
            assert [each.physical for each in by_unique_key(store, "t", key).run().found] == places[::-1]
    assert "t" not in store.topics or found(store, "never used") == []


def built(store: Store) -> Store:
    """Build the whole index."""
    while store.index.step():
        pass
    return store


def names(disk: SimDisk) -> list[str]:
    """Names of the index files."""
    return disk.list(FOLDER)


@settings(max_examples=50, deadline=None)
@given(
    words=st.lists(st.lists(st.sampled_from(["a", "b", "c", "a b", "é", "k" * 300]), max_size=4), max_size=30),
    steps=st.lists(st.integers(0, 6), max_size=30),
    slots=st.integers(1, 5),
    entries=st.integers(2, 12),
)
def test_index_answers_as_a_dictionary_would(
    words: list[list[str]], steps: list[int], slots: int, entries: int
) -> None:
    """With few slots (every hash collides) and tiny files, whatever was built when: all of a key and nothing else."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    store = opened(disk, clock=clock, index_slots=slots, index_entries=entries)
    for place, keys in enumerate(words):
        publish(store, model, *" ".join(keys).split())
        clock.advance(0.7)
        for _ in range(steps[place] if place < len(steps) else 0):
            store.index.step(1)
    check(store, model)
    store.close()
    store = opened(disk, clock=clock, index_slots=slots, index_entries=entries)
    assert store.index.missing == []
    check(store, model)


def test_files_are_laid_out_as_rocketmq_does() -> None:
    """Header, slots and entries stand where RocketMQ's IndexFile puts them; the hash is Java's."""
    disk, clock = SimDisk(), ManualClock(1_700_000_000_000)
    store = opened(disk, clock=clock, index_slots=7, index_entries=12)
    first = publish(store, {}, "order-1")
    clock.advance(5.5)
    second = publish(store, {}, "order-1")
    store.close()
    [name] = names(disk)
    assert len(name) == 17
    assert name.isdigit()
    raw = disk.open(f"{FOLDER}/{name}").read(0, 1 << 20)
    assert len(raw) == 40 + 4 * 7 + 20 * 12
    begin, end, first_at, last_at, used, following = HEADER.unpack_from(raw)
    assert (begin, end) == (1_700_000_000_000, 1_700_000_005_500)
    assert (first_at, last_at, following) == (first, second, 5)
    entries = [ENTRY.unpack_from(raw, 40 + 28 + 20 * number) for number in range(5)]
    assert entries[0] == (0, 0, 0, 0)
    hashed = abs(string_hash("t#order-1"))
    assert [entry[:3] for entry in entries[2::2]] == [(hashed, first, 0), (hashed, second, 5)]
    slots = [int.from_bytes(raw[at : at + 4], "big") for at in range(40, 68, 4)]
    assert used == sum(slot > 0 for slot in slots)
    chain = [slots[hashed % 7]]
    while chain[-1]:
        chain.append(entries[chain[-1]][3])
    assert {2, 4} <= set(chain)


@given(topic=st.text(min_size=1, max_size=20), key=st.text(max_size=300))
def test_hash_is_javas(topic: str, key: str) -> None:
    """The hash of any key, remembered beginnings or not, is |hashCode| of topic#key, 0 for -2^31."""
    hasher = KeyHasher()
    topic_bytes, key_bytes = topic.encode("utf-8", "replace"), key.encode("utf-8", "replace")
    value = string_hash(f"{topic_bytes.decode()}#{key_bytes.decode()}")
    for _ in range(2):
        assert hasher.hash(topic_bytes, key_bytes) == (0 if value == -(1 << 31) else abs(value))


def test_hash_of_the_smallest_integer_is_zero() -> None:
    """Java's |-2^31| is negative; RocketMQ takes 0 for it."""
    assert string_hash("polygenelubricants") == -(1 << 31)
    key = key_that_hashes_to_the_smallest("t")
    assert string_hash(f"t#{key}") == -(1 << 31)
    assert KeyHasher().hash(b"t", key.encode()) == 0


def key_that_hashes_to_the_smallest(topic: str) -> str:
    """A key whose hash behind a topic is -2^31: seven characters, chosen from the first to the last."""
    wanted = (1 << 31) - (string_hash(f"{topic}#") * 31**7) % (1 << 32)
    for turns in range(64):
        left, chars = wanted % (1 << 32) + (turns << 32), []
        for power in range(6, -1, -1):
            floor = 33 * sum(31**each for each in range(power))
            char = min((left - floor) // 31**power, 126)
            chars.append(char)
            left -= char * 31**power
        if left == 0 and all(33 <= char <= 126 for char in chars):
            return "".join(map(chr, chars))
    raise AssertionError


def run_until_stop(disk: SimDisk, random: Random, clock: ManualClock, model: Model, log: list[tuple[int, str]]) -> None:
    """Publish, build and checkpoint until the machine stops."""
    store = opened(disk, clock=clock, seed=random.getrandbits(32))
    while True:
        key = random.choice("abc")
        log.append((publish(store, {}, key), key))
        for _ in range(random.randint(0, 2)):
            store.index.step(random.randint(1, 4))
        clock.advance(random.choice((0.1, 11)))
        if random.random() < 0.3:
            store.checkpoint()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), stops=st.lists(st.integers(0, 150), min_size=1, max_size=4))
def test_index_survives_any_stop(seed: int, stops: list[int]) -> None:
    """Wherever the machine stops, killed or without power: every stored message is found by its key, once."""
    random, disk, clock = Random(seed), SimDisk(), ManualClock()
    for changes in stops:
        disk.stop_after(changes)
        with pytest.raises(PowerCut):
            run_until_stop(disk, random, clock, {}, [])
        disk.kill() if random.random() < 0.5 else disk.crash(random)
        store = opened(disk, clock=clock, seed=random.getrandbits(32))
        check(store, stored(store))
        if random.random() < 0.5:
            store.close()
            store = opened(disk, clock=clock)
            assert store.index.missing == []
            check(store, stored(store))
        disk.kill()


def stored(store: Store) -> Model:
    """What the store holds, read through its queue."""
    from broker.index_keys import keys_of
    from broker.record import split

    model: Model = {}
    for topic in store.topics.values():
        for physical, size, _ in topic.queues[0].read(0, 1 << 20):
            for key in keys_of(split(store.read(physical, size))[1]):
                model.setdefault(key.decode(), []).append(physical)
    return model


def filled(disk: SimDisk, clock: ManualClock, model: Model, count: int = 30, **options: Any) -> Store:
    """A store whose index has several files, closed and opened again."""
    store = opened(disk, clock=clock, **options)
    for number in range(count):
        publish(store, model, "abc"[number % 3], f"n{number}")
        clock.advance(1)
    store.close()
    return store


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


@settings(max_examples=60, deadline=None)
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


def test_full_disk_lets_the_index_lag_and_queries_scan() -> None:
    """No room for an index file: publishing goes on, queries read the log, and the index follows when there is room."""
    disk, clock, model, metrics = SimDisk(), ManualClock(), Model(), Metrics()
    store = opened(disk, clock=clock, metrics=metrics)
    publish(store, model, "a")
    disk.capacity_bytes = (1 << 62) - disk.free_bytes("/") + 100
    for number in range(6):
        publish(store, model, "a", f"n{number}")
    assert names(disk) == []
    check(store, model)
    assert metrics.value("pyddmq_store_index_disk_full_total") >= 1
    assert store.failed is None
    disk.capacity_bytes = None
    clock.advance(2)
    store.checkpoint()
    assert names(disk)
    assert store.index.missing == []
    check(store, model)


@pytest.mark.parametrize("operation", ["write", "sync", "allocate", "create"])
def test_failed_index_write_stops_the_index_alone(operation: str) -> None:
    """EIO on an index file: nothing more is built, which is shown; publishes and queries go on (by the log)."""
    disk, clock, model, metrics = SimDisk(), ManualClock(), Model(), Metrics()
    store = opened(disk, clock=clock, metrics=metrics)
    publish(store, model, "a")
    disk.fail(operation, error=errno.EIO, path_part="/index/")
    for number in range(20):
        publish(store, model, "a", f"n{number}")
        store.index.step()
        clock.advance(11)
        store.checkpoint()
    assert disk.faults_hit == {operation: 1}
    assert metrics.value("pyddmq_store_index_failed") == 1
    assert store.failed is None
    check(store, model)
    store.close()
    store = opened(disk, clock=clock, metrics=metrics)
    assert store.index.failed is None
    check(store, model)


def test_failed_store_writes_no_index_either() -> None:
    """After a failed sync of the log nothing at all is written; queries go on over what is there."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    store = opened(disk, clock=clock)
    for number in range(5):
        publish(store, model, f"n{number}")
    disk.fail("sync", path_part="commitlog")
    store.append([Put(store.topics["t"], 0, b"x", b"")], born_ms=0, born_host=HOST)
    store.flush()
    assert store.failed is not None
    before = disk.operations
    check(store, model)
    store.checkpoint()
    store.close()
    assert disk.operations == before
    disk.kill()
    check(opened(disk, clock=clock), model)


def test_drop_before_deletes_whole_files_and_keeps_the_last() -> None:
    """Retention's hook: files whose last entry lies below go, the newest stays, answers of the rest are the same."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    filled(disk, clock, model)
    store = opened(disk, clock=clock)
    ends = [file.header.end for file in store.index.files]
    assert store.index.drop_before(ends[0]) == 0
    assert store.index.drop_before(ends[1]) == 1
    assert store.index.drop_before(ends[2] + 1) == 2
    assert [file.header.end for file in store.index.files] == ends[3:]
    for key, places in model.items():
        assert found(store, key) == [place for place in places if place > ends[2]]
    store.close()
    store = opened(disk, clock=clock)
    assert [file.header.end for file in store.index.files] == ends[3:]
    assert store.index.drop_before(1 << 60) == len(ends) - 4
    assert len(names(disk)) == 1


def test_retention_takes_index_files_along() -> None:
    """Index files of deleted log files go with the next checkpoint; what is left of the log is found as before."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    store = opened(disk, clock=clock)
    for number in range(120):
        publish(store, model, "abc"[number % 3], f"n{number}")
        clock.advance(1)
    built(store)
    count = len(names(disk))
    store.retention.limits = RetentionLimits(log_bytes=3 * 4096)
    for _ in range(60):
        store.retention.step()
        clock.advance(11)
        store.checkpoint()
    assert store.min_offset > 0
    assert len(names(disk)) < count
    assert all(file.header.end >= store.min_offset for file in store.index.files)
    kept = {key: [place for place in places if place >= store.min_offset] for key, places in model.items()}
    check(store, kept)
    store.close()
    check(opened(disk, clock=clock), kept)


def test_names_go_on_when_the_clock_does_not() -> None:
    """Files are put in order by name, so a clock that stands or goes back makes no earlier name."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    store = opened(disk, clock=clock)
    for number in range(30):
        publish(store, model, f"n{number}")
        store.index.step()
        clock.set_wall_ms(1_700_000_000_000 - number * 86_400_000)
    store.close()
    assert len(names(disk)) == len(set(names(disk))) > 4
    check(opened(disk, clock=clock), model)
