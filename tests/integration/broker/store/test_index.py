"""The index over a real store on a simulated disk: what it finds, and what it is after stops and disk failures."""

from __future__ import annotations

import errno
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.format.java import string_hash
from broker.index.file import ENTRY, HEADER
from broker.index.keys import KeyHasher, ascii_hashes
from broker.index.rows import RowMaker
from broker.log.put import Put
from broker.log.walk import Walked
from broker.retention import RetentionLimits
from broker.runtime.file_writes import at_once
from broker.runtime.metrics import Metrics
from broker.store import Store
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.integration.index_tools import FOLDER, Model, built, check, filled, found, names, opened, publish, stored
from tests.integration.store_tools import HOST


@settings(max_examples=25, deadline=None)
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


@given(
    topics=st.lists(st.sampled_from([b"t", b"%RETRY%g", "é".encode()]), min_size=1, max_size=3),
    keys=st.lists(st.text(max_size=40) | st.text("aZ~\x7f", min_size=32, max_size=32), max_size=20),
    equal=st.booleans(),
)
def test_hashes_of_many_are_those_of_each(topics: list[bytes], keys: list[str], equal: bool) -> None:
    """Whatever lengths and characters are together, one topic or several."""
    texts = [key.encode()[:8].rjust(8, b".") if equal else key.encode() for key in keys]
    each = [topics[place % len(topics)] for place in range(len(texts))]
    hasher = KeyHasher()
    assert hasher.hashes(each, texts) == [hasher.hash(topic, text) for topic, text in zip(each, texts, strict=True)]


def test_walked_records_of_a_long_topic_have_the_entries_of_each() -> None:
    """A topic of another program's records may be longer than the length of a topic in a tail can say."""
    block = b"KEYS\x01a b\x02UNIQ_KEY\x01u\x02"
    topics = [b"t", b"x" * 300, b"t"]
    walked = [Walked(each, 100, each + 7, each == 2, topic, block) for each, topic in enumerate(topics)]
    wanted = [(KeyHasher().hash(topics[each], key), each, each + 7) for each in (0, 1) for key in (b"u", b"a", b"b")]
    assert list(zip(*RowMaker().of_records(walked), strict=True)) == wanted
    assert list(zip(*RowMaker().of_records(walked[:1]), strict=True)) == wanted[:3]
    assert RowMaker().of_records(walked[2:]).length == 0


def test_hashes_of_very_many_are_javas() -> None:
    """More than go into one piece; the smallest integer among them becomes 0."""
    keys = [b"%032d" % (number * 7919**5) for number in range(1300)]
    assert ascii_hashes(keys) == [string_hash(key.decode()) for key in keys]
    smallest = key_that_hashes_to_the_smallest("t").encode()
    assert KeyHasher().hashes([b"t"] * 2, [smallest, b"1234567"])[0] == 0
    assert KeyHasher().hashes([b"t"] * 2, [smallest, b"12345678"])[0] == 0


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


@settings(max_examples=30, deadline=None)
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


def test_file_that_is_full_while_the_disk_is_holds_up_no_checkpoint() -> None:
    """What is known of it is written once there is room; the index goes on with the next file."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    store = built(opened(disk, clock=clock))
    for number in range(3):
        publish(store, model, f"k{number}")
    built(store)
    disk.fail("write", path_part="pyddmq/index.json", error=errno.ENOSPC)
    for number in range(3, 12):
        publish(store, model, f"k{number}")
    for _ in range(10):
        clock.advance(2)
        store.checkpoint()
    assert (store.index.failed, store.index.behind) == (None, False)
    assert len(names(disk)) == 3
    check(store, model)
    disk.kill()
    check(opened(disk, clock=clock), model)


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


def dropped(disk: SimDisk, store: Store, physical: int) -> int:
    """Delete index files below an offset at once; returns how many."""
    return at_once(disk, store.index.dropping_before(physical))


def test_drop_before_deletes_whole_files_and_keeps_the_last() -> None:
    """Retention's hook: files whose last entry lies below go, the newest stays, answers of the rest are the same."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    filled(disk, clock, model)
    store = opened(disk, clock=clock)
    ends = [file.header.end for file in store.index.files]
    assert dropped(disk, store, ends[0]) == 0
    assert dropped(disk, store, ends[1]) == 1
    assert dropped(disk, store, ends[2] + 1) == 2
    assert [file.header.end for file in store.index.files] == ends[3:]
    for key, places in model.items():
        assert found(store, key) == [place for place in places if place > ends[2]]
    store.close()
    store = opened(disk, clock=clock)
    assert [file.header.end for file in store.index.files] == ends[3:]
    assert dropped(disk, store, 1 << 60) == len(ends) - 4
    assert len(names(disk)) == 1


def test_full_disk_while_files_are_dropped_does_not_end_the_index() -> None:
    """The names of the others are written once there is room, and it goes on."""
    disk, clock, model = SimDisk(), ManualClock(), Model()
    filled(disk, clock, model)
    store = opened(disk, clock=clock)
    ends = [file.header.end for file in store.index.files]
    disk.fail("write", path_part="pyddmq/index.json", error=errno.ENOSPC)
    assert dropped(disk, store, ends[2] + 1) == 3
    assert store.index.failed is None
    publish(store, model, "later")
    built(store)
    clock.advance(11)
    store.checkpoint()
    disk.kill()
    store = opened(disk, clock=clock)
    assert not store.index.behind
    for key, places in model.items():
        assert found(store, key) == [place for place in places if place > ends[2]]


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
