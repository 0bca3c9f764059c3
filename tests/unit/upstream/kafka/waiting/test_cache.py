"""The cache of a partition: what the log says in any order of reading, and when a file is used again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from broker.runtime.disk import RealDisk
from upstream.kafka.link import KafkaRecord
from upstream.kafka.waiting.cache import Checkpoint, PartitionCache
from upstream.kafka.waiting.records import EndedMessage, Identity, KeyState, WaitingRecord, WaitingRequest, encode

WHOSE = Identity("orders", "", "a")
NOW = Checkpoint("cluster/topic", 1_000, 0, 10, 50)


def message(due_ms: int = 5, *, owned: bool = False) -> bytes:
    """A value that waits."""
    return encode(WaitingRecord(due_ms, None, b"k", b"body", (), owned=owned))


def cache_of(path: str = ":memory:") -> PartitionCache:
    """A new one."""
    return PartitionCache(path, RealDisk())


def states(cache: PartitionCache) -> list[tuple[bytes, int]]:
    """Keys of the identity, each with its state."""
    return [(each.key, each.state) for each in cache.rows_of(WHOSE.text)]


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
    cache.apply(KafkaRecord("t", 0, 5, 0, key, message(100, owned=True), ()))
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
    assert [each.at for each in cache.page((8, b"\xff"), 5)] == [9, 10]


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
    cache.apply(KafkaRecord("t", 0, 1, 0, key, message(), ()))
    cache.save(2, 0)
    [row] = cache.due(9, 10)
    ended = encode(EndedMessage("delivered", 9))
    own = KafkaRecord("t", 0, 2, 0, key, ended, ())

    def read() -> None:
        cache.apply(own)
        cache.save(3, 0)

    if read_first:
        read()
    cache.end([(row, ended, 2)], 9)
    if not read_first:
        read()
    assert (cache.counts.total(), cache.due(9, 10)) == (0, [])
    found = cache.find(WHOSE.text)
    assert found is not None
    assert (found.state, found.at, found.position, found.value) == (KeyState.ENDED, 9, 2, ended)
    assert states(cache) == [(key, KeyState.ENDED)]
