"""The cache of a partition: what the log says in any order of reading, and when a file is used again."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from broker.runtime.disk import RealDisk
from upstream.kafka.link import Checkpoint, KafkaRecord
from upstream.kafka.waiting.cache import READ_BYTES, PartitionCache
from upstream.kafka.waiting.loading import LogLoad
from upstream.kafka.waiting.records import (
    EndedMessage,
    HalfChecks,
    Identity,
    KeyState,
    NewerRecord,
    WaitingHalf,
    WaitingRecord,
    WaitingRequest,
    decode,
    encode,
)
from upstream.kafka.waiting.rows import CachedRecord

WHOSE = Identity("orders", "", "a")
NOW = Checkpoint("cluster/topic", 1_000, 0, 10, 50)


def message(due_ms: int = 5, *, owned: bool = False) -> bytes:
    """A value that waits."""
    return encode(WaitingRecord(due_ms, None, b"k", b"body", (), owned=owned))


def cache_of(path: str = ":memory:") -> PartitionCache:
    """A new one."""
    return PartitionCache(path, RealDisk())


def read(cache: PartitionCache, records: Sequence[KafkaRecord]) -> list[int]:
    """Have records of the log taken; returns the offsets of damaged ones."""
    damaged: list[int] = []
    cache.read(records, lambda record, _: damaged.append(record.offset))
    return damaged


def rows_of(cache: PartitionCache) -> list[CachedRecord]:
    """All rows."""
    return [row for state in KeyState for row in cache.of(state, 1 << 62, 1_000)]


def states(cache: PartitionCache) -> list[tuple[bytes, int]]:
    """Keys of the identity, each with its state."""
    return sorted([(each.key, each.state) for each in rows_of(cache) if each.identity == WHOSE.text])


def test_first_key_of_an_identity_waits_and_others_are_repeats() -> None:
    """Until an owner has written under another: then that one is the message, also where it is read last."""
    cache = cache_of()
    first, second = WHOSE.key("1"), WHOSE.key("2")
    cache.change(first, message(), 1)
    cache.change(second, message(), 2)
    assert states(cache) == [(first, KeyState.WAITING), (second, KeyState.REPEAT)]
    compacted = cache_of()
    compacted.change(second, message(), 2)
    compacted.change(first, message(9, owned=True), 7)
    assert sorted(states(compacted)) == [(first, KeyState.WAITING), (second, KeyState.REPEAT)]
    ended = cache_of()
    ended.change(second, message(), 2)
    ended.change(first, encode(EndedMessage("delivered", 5)), 7)
    assert sorted(states(ended)) == [(first, KeyState.ENDED), (second, KeyState.REPEAT)]
    assert ended.counts.total() == 0


def test_older_record_changes_nothing() -> None:
    """What an owner has committed is not undone by reading what came before it."""
    cache = cache_of()
    key = WHOSE.key("1")
    cache.change(key, message(), 1)
    cache.change(key, message(900, owned=True), 8)
    read(cache, [KafkaRecord("t", 0, 5, 0, key, message(100, owned=True), ())])
    assert cache.next_due() == 900
    cache.change(key, None, 9)
    assert (cache.next_due(), states(cache), cache.counts.total()) == (None, [], 0)


def test_due_messages_are_those_of_chosen_targets() -> None:
    """By due time; a request is not one."""
    cache = cache_of()
    for number, topic in enumerate(("orders", "events", "orders")):
        cache.change(Identity(topic, "", str(number)).key("1"), message(10 - number), number)
    cache.change(WHOSE.key("1", "request"), encode(WaitingRequest("request")), 9)
    assert [each.at for each in cache.due(9, 10)] == [8, 9]
    assert [each.topic for each in cache.due(10, 10, without=["events"])] == ["orders", "orders"]
    assert [each.topic for each in cache.due(10, 1, only="events")] == ["events"]
    assert [each.at for each in cache.of(KeyState.REQUEST, 1 << 60, 5)] == [9]
    assert [at_ms for at_ms, _ in cache.page((8, b"\xff"), 5)] == [9, 10]


@pytest.mark.parametrize("level", [-1, 2])
def test_listing_reads_no_bodies(level: int) -> None:
    """A page may have thousands of messages, each of megabytes."""
    cache = cache_of()
    for number in range(20):
        large = WaitingRecord(number, None, b"k", bytes(1 << 20), (("h", b"x"),), level=2)
        cache.change(Identity("orders", "", str(number)).key("1"), encode(large), number)
    tracemalloc.start()
    rows = [cache.listed(key) for _, key in cache.page((0, b""), 1_000, "orders", level)]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [decode(each.value) for each in rows if each is not None] == [
        WaitingRecord(number, None, b"k", b"", (("h", b"x"),), level=2) for number in range(20)
    ]
    assert most < 1 << 20


def test_questions_for_a_batch_read_few_bytes_of_many_large_messages() -> None:
    """At least one message, though it is larger than that; small ones up to the limit."""
    cache = cache_of()
    large = encode(WaitingRecord(5, None, b"k", b"x" * (READ_BYTES // 4), ()))
    half = encode(WaitingRecord(5, None, b"k", b"x" * (READ_BYTES // 4), (), half=WaitingHalf("shop")))
    for number in range(20):
        cache.change(Identity("orders", "", f"m{number}").key("1"), large, number)
        cache.change(Identity("orders", "", f"h{number}").key("1"), half, 100 + number)
    assert [len(found) for found in (cache.due(9, 500), cache.due(9, 500, only="orders"))] == [4, 4]
    assert len(cache.given_up(9, 0, 0, 500)) == len(cache.of(KeyState.HALF, 9, 500)) == 4
    huge = encode(WaitingRecord(1, None, b"k", b"x" * 2 * READ_BYTES, ()))
    cache.change(Identity("orders", "", "huge").key("1"), huge, 200)
    assert len(cache.due(9, 500)) == 1


@pytest.mark.parametrize(
    ("again", "used"),
    [
        (NOW, True),
        (NOW._replace(boot=1_003), True),
        (NOW._replace(boot=1_030), False),
        (NOW._replace(log="cluster/other"), False),
        (NOW._replace(log=""), False),
        (NOW._replace(high=3), False),
        (NOW._replace(low=5), False),
        (NOW._replace(oldest_ms=101), False),
    ],
)
def test_file_is_used_again_only_where_nothing_can_be_missing(again: Checkpoint, used: bool, tmp_path: Path) -> None:
    """Else it begins with the log's start, empty."""
    path = str(tmp_path / "0.db")
    cache = cache_of(path)
    assert not cache.resume(NOW)
    cache.change(WHOSE.key("1"), message(), 3)
    cache.save(4, 100)
    cache.close()
    cache = cache_of(path)
    assert cache.resume(again) is used
    assert (cache.position, cache.next_due(), cache.counts.total()) == ((4, 5, 1) if used else (again.low, None, 0))


def test_file_that_is_not_a_database_is_made_anew(tmp_path: Path) -> None:
    """A cache is deletable at any time."""
    path = tmp_path / "0.db"
    path.write_bytes(b"\xff" * 9_000)
    cache = cache_of(str(path))
    assert not cache.resume(NOW)
    cache.change(WHOSE.key("1"), message(), 3)
    assert cache.next_due() == 5
    with pytest.raises(sqlite3.Error):
        cache_of(str(tmp_path / "missing" / "0.db"))


@pytest.mark.parametrize("read_first", [False, True])
def test_end_of_a_delivered_message_counts_once(read_first: bool) -> None:
    """Be it read before its commit is known or afterwards; it is known by its identity, and delivered no more."""
    cache = cache_of()
    key = WHOSE.key("1")
    read(cache, [KafkaRecord("t", 0, 1, 0, key, message(), ())])
    cache.save(2, 0)
    [row] = cache.due(9, 10)
    ended = encode(EndedMessage("delivered", 9))
    own = KafkaRecord("t", 0, 2, 0, key, ended, ())

    def read_own() -> None:
        read(cache, [own])
        cache.save(3, 0)

    if read_first:
        read_own()
    cache.end([(row, ended, 2)], 9)
    if not read_first:
        read_own()
    assert (cache.counts.total(), cache.due(9, 10)) == (0, [])
    found = cache.find(WHOSE.text)
    assert found is not None
    assert (found.state, found.at, found.position, found.value) == (KeyState.ENDED, 9, 2, ended)
    assert states(cache) == [(key, KeyState.ENDED)]


def drawn_log(random: Random) -> list[KafkaRecord]:
    """All kinds of records of a few identities, each with a few keys, and some that no version wrote."""
    found = []
    for offset in range(random.randint(1, 60)):
        identity = Identity(random.choice(("orders", "events")), random.choice(("", "ann")), str(random.randrange(4)))
        key = identity.key(random.choice("112"))
        half = WaitingHalf("shop", random.choice(("undecided", "discarded", "committed")))
        waiting = WaitingRecord(random.randrange(9), None, b"k", b"", (), owned=random.random() < 0.3, at_ms=offset)
        value = random.choice((
            encode(waiting), encode(waiting._replace(half=half, level=random.randrange(2))),
            encode(EndedMessage("delivered", offset, random.choice(("", "shop")))), None,
        ))  # fmt: skip
        drawn = random.random()
        if drawn < 0.1:
            key, value = identity.key("checks"), random.choice((encode(HalfChecks(3, offset)), None))
        elif drawn < 0.2:
            key, value = identity.key("1", str(offset)), random.choice((encode(WaitingRequest("r")), None))
        elif drawn < 0.25:
            key, value = random.choice(((key, b"\x01"), (b"?", encode(waiting)), (key, b"")))
        found.append(KafkaRecord("t", 0, offset, 0, key, value, ()))
    return found


def pieces(log: Sequence[KafkaRecord], random: Random) -> Iterator[Sequence[KafkaRecord]]:
    """The log in pieces of drawn sizes."""
    while log:
        size = random.randint(1, 40)
        yield log[:size]
        log = log[size:]


def contents(cache: PartitionCache) -> list[object]:
    """What a cache knows, but for the order of its rows."""
    rows = sorted([each._replace(id=0) for each in rows_of(cache)])
    found = [cache.find(each.identity) for each in rows]
    return [rows, [each and each.key for each in found], +cache.counts, +cache.undecided, cache.position]


@pytest.mark.parametrize("seed", range(150))
def test_log_read_in_pieces_or_loaded_beside_gives_the_same_rows(seed: int, tmp_path: Path) -> None:
    """As one by one: what a later record of the same key replaces is left out only where that makes no difference."""
    random = Random(seed)
    log = drawn_log(random)

    damaged = set[int]()
    path = str(tmp_path / "0.db")
    load = LogLoad(path + "-load", RealDisk(), NOW)
    for piece in pieces(log, random):
        load.append(piece, lambda record: damaged.add(record.offset))
    load.complete(log[-1].offset + 1, 60)
    caches = [cache_of(), cache_of(), cache_of(path)]
    assert caches[2].adopt(NOW._replace(high=1 << 62))
    for each in log:
        damaged.difference_update(read(caches[0], [each]))
        caches[0].save(each.offset + 1, 0)
    for piece in pieces(log, random):
        read(caches[1], piece)
        caches[1].save(piece[-1].offset + 1, 0)
    one_by_one, in_pieces, loaded = map(contents, caches)
    assert in_pieces == one_by_one
    assert loaded == one_by_one
    assert not damaged
    indexes = sqlite3.connect(path).execute("SELECT COUNT(*) FROM sqlite_master WHERE type = 'index' AND sql > ''")
    assert indexes.fetchall() == [(7,)]


def test_record_of_a_newer_version_stops_the_reading_also_where_a_later_one_replaces_it(tmp_path: Path) -> None:
    """Its partition cannot be served: what a newer owner meant is not known."""
    key, newer = WHOSE.key("1"), b"\x02" + message()[1:]
    log = [KafkaRecord("t", 0, number, 0, key, each, ()) for number, each in enumerate((newer, message()))]
    with pytest.raises(NewerRecord):
        read(cache_of(), log)
    with pytest.raises(NewerRecord):
        LogLoad(str(tmp_path / "0.db"), RealDisk(), NOW).append(log, print)
    damaged = [each._replace(value=b"\x01") for each in log[:1]]
    assert read(cache_of(), damaged) == [0]


def _steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Have hundreds of steps of the caches' databases counted from now on."""
    steps, connect = Counter[str](), sqlite3.connect

    def connected(path: str) -> sqlite3.Connection:
        database = connect(path)
        database.set_progress_handler(lambda: steps.update(["all"]), 100)
        return database

    monkeypatch.setattr("upstream.kafka.waiting.cache.sqlite3.connect", connected)
    return steps


def _put(cache: PartitionCache, offset: int, topic: str, due_ms: int) -> bytes:
    key = Identity(topic, "", str(offset)).key("1")
    cache.read([KafkaRecord("w", 0, offset, 0, key, message(due_ms), ())], lambda *_: None)
    return key


def test_backlog_of_a_target_that_takes_nothing_is_passed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due to others is found behind it at each turn of an owner, twenty times a second and more."""
    steps = _steps(monkeypatch)
    cache = cache_of()
    for offset in range(5_000):
        _put(cache, offset, "dead", offset)
        _put(cache, 5_000 + offset, "dead", 10_000 + offset)
    _put(cache, 10_000, "well", 5_000)
    without = {"dead"}
    assert [each.topic for each in cache.due(5_000, 500, without=without)] == ["well"]
    steps.clear()
    for now_ms in range(5_000, 5_100):
        assert [each.topic for each in cache.due(now_ms, 500, without=without)] == ["well"]
        assert cache.next_due(without, now_ms + 1_000) == 5_000
    assert steps["all"] < 300


def test_what_an_owner_says_each_second_costs_little_however_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a look at delay levels where timers wait."""
    steps = _steps(monkeypatch)
    cache = cache_of()
    for offset in range(5_000):
        _put(cache, offset, "late", offset)
    assert cache.overdue(4_000) == 4_001
    steps.clear()
    for now_ms in range(4_000, 4_100):
        assert cache.overdue(now_ms) == now_ms + 1
        assert cache.levels("late") == []
        assert cache.count_due(0, 1 << 62, halves=False, topic="late", level=0) == 0
    assert steps["all"] < 300


def test_topic_of_few_messages_is_found_behind_many_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at one that is tried alone, and a listing, cost what it has itself."""
    steps = _steps(monkeypatch)
    cache = cache_of()
    for offset in range(5_000):
        _put(cache, offset, "common", offset)
    key = _put(cache, 5_000, "rare", 6_000)
    steps.clear()
    for _ in range(20):
        assert [each.key for each in cache.due(9_000, 500, only="rare")] == [key]
        assert cache.due(9_000, 1, only="none") == []
        assert cache.page((0, b""), 100, "rare") == [(6_000, key)]
        assert cache.count_due(0, 9_000, halves=False, topic="rare") == 1
    assert steps["all"] < 60


def test_halves_to_discard_are_found_among_many_that_no_producer_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner looks for them each second."""
    steps = _steps(monkeypatch)
    cache = cache_of()
    half = encode(WaitingRecord(5, None, b"k", b"", (), at_ms=50, half=WaitingHalf("shop")))
    for offset in range(5_000):
        cache.change(Identity("orders", "", f"{offset}").key("1"), half, offset)
    cache.change(Identity("orders", "", "7").key("checks"), encode(HalfChecks(15, 9)), 5_000)
    steps.clear()
    for _ in range(20):
        assert [each.checks for each in cache.given_up(9, 15, 40, 500)] == [15]
        assert cache.given_up(8, 15, 40, 500) == []
        assert cache.oldest_half() == 50
    assert steps["all"] < 60


def test_due_without_some_topics_is_what_is_left_of_all() -> None:
    """However messages come, move and end, and whichever topics are left out, with the clock stepping back too."""
    random, cache, all_of = Random(7), cache_of(), dict[bytes, tuple[int, str]]()
    for offset in range(3_000):
        now_ms, without = random.randrange(100), {each for each in "abc" if random.random() < 0.4}
        if all_of and random.random() < 0.5:
            key = random.choice(list(all_of))
            moved = random.random() < 0.5
            due_ms, topic = random.randrange(100), all_of.pop(key)[1]
            cache.change(key, message(due_ms, owned=True) if moved else None, offset)
            if moved:
                all_of[key] = due_ms, topic
        else:
            due_ms, topic = random.randrange(100), random.choice("abcd")
            all_of[_put(cache, offset, topic, due_ms)] = due_ms, topic
        for names in (without, without | {"d"}, set[str]()):
            left = sorted(due_ms for due_ms, topic in all_of.values() if due_ms <= now_ms and topic not in names)
            assert [each.at for each in cache.due(now_ms, 3, without=names)] == left[:3]
            assert cache.next_due(names, now_ms) == next(iter(left), None)
        assert cache.overdue(now_ms) == sum(due_ms <= now_ms for due_ms, _ in all_of.values())
