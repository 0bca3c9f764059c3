"""Messages by offset, id, time and key from a store, in pages and in steps."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import query as query_module
from broker.errors import BodyUnusable
from broker.format.body import SYS_COMPRESSED
from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.query import (
    Listing,
    NotFound,
    QueryRefused,
    Searchable,
    at_offset,
    at_physical,
    by_id,
    by_key,
    by_unique_key,
)
from broker.runtime.metrics import Metrics
from broker.store import Store
from broker.tools.readonly import ReadOnlyStore
from proxy.operate.lookups.masks import TopicMask
from proxy.operate.lookups.messages import describe
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import HOST, ROOT, open_store

BEGIN_MS = 1_700_000_000_000


def filled(disk: SimDisk, clock: ManualClock, queues: list[int], gaps_ms: list[int]) -> Store:
    """A store with a message per entry of `queues`, stored after each of the gaps; bodies are their numbers."""
    store = open_store(disk, clock=clock)
    topic = store.create_topic("t", 3)
    store.create_topic("other", 1)
    for number, queue in enumerate(queues):
        clock.set_wall_ms(clock.wall_ms() + gaps_ms[number % len(gaps_ms)])
        block = encode_properties({"KEYS": f"n{number} k{number % 3}", "TAGS": "x"})
        store.append([Put(topic, queue, b"%d" % number, block, b"x")], born_ms=number, born_host=HOST)
        store.append([Put(store.topics["other"], 0, b"other", b"")], born_ms=0, born_host=HOST)
        store.flush()
    return store


def listed(store: Searchable, *, limit: int, **options: int) -> list[int]:
    """Numbers of all messages of a listing, page by page."""
    numbers: list[int] = []
    cursor: int | None = 0
    while cursor is not None:
        page = Listing(store, "t", limit=limit, cursor=cursor, **options).run()
        assert len(page.found) <= limit
        numbers += [int(message.body()) for message in page.found]
        cursor = page.cursor
    return numbers


@settings(max_examples=40, deadline=None)
@given(
    queues=st.lists(st.integers(0, 2), max_size=40),
    gaps=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    limit=st.integers(1, 7),
    begin=st.integers(-5, 100),
    end=st.integers(-5, 100),
    queue=st.none() | st.integers(0, 2),
    read_only=st.booleans(),
)
def test_listing_gives_every_message_of_a_range_once(
    *, queues: list[int], gaps: list[int], limit: int, begin: int, end: int, queue: int | None, read_only: bool
) -> None:
    """Pages of any size put together: all of the time range, of one queue or all, in the order of the log."""
    disk, clock = SimDisk(), ManualClock(BEGIN_MS)
    store: Searchable = filled(disk, clock, queues, gaps)
    times = {}
    for number in range(len(queues)):
        [message] = by_key(store, "t", f"n{number}").run().found
        times[number] = message.store_ms - BEGIN_MS
    if read_only:
        store = ReadOnlyStore.open(ROOT, disk=disk, clock=clock)
    options = {} if queue is None else {"queue": queue}
    wanted = [n for n in range(len(queues)) if begin <= times[n] < end and queue in (None, queues[n])]
    assert listed(store, limit=limit, begin_ms=BEGIN_MS + begin, end_ms=BEGIN_MS + end, **options) == wanted


def test_listing_of_a_queue_begins_at_its_offset() -> None:
    """With an offset the queue's earlier messages are left out, page after page."""
    store = filled(SimDisk(), ManualClock(BEGIN_MS), [0, 1, 0, 0, 1, 0], [1])
    assert listed(store, limit=2, queue=0, offset=2) == [3, 5]
    assert listed(store, limit=2, queue=2) == []


def test_listing_ends_a_page_by_bytes() -> None:
    """A page ends when its records are large enough; one message is in it in any case."""
    store = filled(SimDisk(), ManualClock(BEGIN_MS), [0, 0, 0], [1])
    page = Listing(store, "t", bytes_max=1).run()
    assert len(page.found) == 1
    assert [int(m.body()) for m in Listing(store, "t", cursor=page.cursor or 0).run().found] == [1, 2]


def test_listing_leaves_damaged_records_out_and_counts_them() -> None:
    """What cannot be read costs itself."""
    disk = SimDisk()
    store = filled(disk, ManualClock(BEGIN_MS), [0, 0, 0], [1])
    physical = store.topics["t"].queues[0].read(1, 1)[0][0]
    disk.flip_bit(f"{ROOT}/commitlog/{physical // 4096 * 4096:020d}", physical % 4096 + 5)
    page = Listing(store, "t").run()
    assert ([int(message.body()) for message in page.found], page.damaged) == ([0, 2], 1)


def test_one_message_is_found_by_each_of_its_names() -> None:
    """Offset, commit-log offset, id, unique key and key lead to the same record, with all that it says."""
    store = filled(SimDisk(), ManualClock(BEGIN_MS), [0, 1, 1], [7])
    message = at_offset(store, "t", 1, 1)
    assert message.body() == b"2"
    assert (message.topic, message.queue_id, message.offset, message.born_ms) == ("t", 1, 1, 2)
    assert (message.store_ms, message.born_host, len(message.id)) == (BEGIN_MS + 21, HOST, 32)
    assert message.properties == {"KEYS": "n2 k2", "TAGS": "x", "UNIQ_KEY": message.unique_key}
    assert at_physical(store, message.physical) == message
    assert by_id(store, message.id.lower()) == message
    assert by_unique_key(store, "t", message.unique_key).run().found == [message]
    assert by_unique_key(store, None, message.unique_key).run().found == [message]
    assert by_unique_key(store, "other", message.unique_key).run().found == []
    assert by_key(store, "t", "n2").run().found == [message]
    assert by_unique_key(store, "t", "n2").run().found == []


def test_query_by_key_is_bounded_by_time_and_number() -> None:
    """The newest so many of those stored in the range, both ends included."""
    store = filled(SimDisk(), ManualClock(BEGIN_MS), [0] * 30, [1000])

    def numbers(**options: int) -> list[int]:
        return [int(message.body()) for message in by_key(store, "t", "k0", **options).run().found]

    assert numbers() == list(range(27, -1, -3))
    assert numbers(limit=2) == [27, 24]
    assert numbers(begin_ms=BEGIN_MS + 7_000, end_ms=BEGIN_MS + 16_000) == [15, 12, 9, 6]
    assert numbers(begin_ms=BEGIN_MS + 7_001, end_ms=BEGIN_MS + 15_999) == [12, 9]


@pytest.mark.parametrize(
    ("ask", "error", "text"),
    [
        (lambda s: at_offset(s, "nope", 0, 0), NotFound, "topic 'nope' does not exist"),
        (lambda s: at_offset(s, "t", 3, 0), NotFound, "no queue 3; its queues are 0 to 2"),
        (lambda s: at_offset(s, "t", 0, 2), NotFound, "no offset 2; it ends before 2"),
        (lambda s: at_physical(s, 1), NotFound, "no message begins"),
        (lambda s: at_physical(s, 1 << 40), NotFound, "the log has no offset"),
        (lambda s: by_id(s, "xyz"), QueryRefused, "not a valid message id"),
        (lambda s: by_id(s, "0" * 32), NotFound, "message 0+ does not exist"),
        (lambda s: by_key(s, "nope", "k"), NotFound, "topic .* does not exist"),
        (lambda s: Listing(s, "t", queue=9), NotFound, "no queue 9"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(
    ask: Callable[[Store], object], error: type[Exception], text: str
) -> None:
    """Each refusal names what was asked for and what there is."""
    store = filled(SimDisk(), ManualClock(BEGIN_MS), [0, 0], [1])
    with pytest.raises(error, match=text):
        ask(store)


def test_expired_offset_names_the_first_that_is_kept() -> None:
    """Below a queue's minimum: gone, and from where on messages are."""
    store = filled(SimDisk(), ManualClock(BEGIN_MS), [0, 0], [1])
    store.topics["t"].queues[0].min_offset = 1
    with pytest.raises(NotFound, match="was deleted; the queue begins at 1"):
        at_offset(store, "t", 0, 0)
    assert listed(store, limit=9, queue=0) == [1]


def test_query_gives_way_after_every_bounded_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that has much to index yields again and again; so does a listing."""
    monkeypatch.setattr(query_module, "_STEP_RECORDS", 4)
    store = filled(SimDisk(), ManualClock(BEGIN_MS), [0] * 40, [1])
    query = by_key(store, "t", "n7")
    assert sum(1 for _ in query.steps()) >= 80 // 4 - 1
    assert [message.body() for message in query.found] == [b"7"]
    assert sum(1 for _ in Listing(store, "t").steps()) >= 3


def test_read_only_query_scans_what_is_not_indexed_and_changes_nothing() -> None:
    """A store in use is searched by key although its owner indexed nothing yet; not one byte is written."""
    disk, clock, metrics = SimDisk(), ManualClock(BEGIN_MS), Metrics()
    filled(disk, clock, [0, 1, 2, 0], [1])
    before = disk.operations
    store = ReadOnlyStore.open(ROOT, disk=disk, clock=clock, metrics=metrics)
    query = by_key(store, "t", "k0").run()
    assert ([message.body() for message in query.found], query.unsearched) == ([b"3", b"0"], [])
    assert disk.operations == before


def test_read_only_query_uses_the_saved_index() -> None:
    """A closed store's index covers everything; a damaged file of it is read over, not repaired."""
    disk, clock = SimDisk(), ManualClock(BEGIN_MS)
    filled(disk, clock, [0] * 20, [1]).close()
    store = ReadOnlyStore.open(ROOT, disk=disk, clock=clock)
    assert store.index.missing == []
    [name, *_] = disk.list(f"{ROOT}/index")
    disk.flip_bit(f"{ROOT}/index/{name}", 45)
    before = disk.operations
    store = ReadOnlyStore.open(ROOT, disk=disk, clock=clock)
    assert [int(message.body()) for message in by_key(store, "t", "k1").run().found] == [19, 16, 13, 10, 7, 4, 1]
    assert disk.operations == before


def test_id_is_looked_for_in_some_topics_at_a_time() -> None:
    """There may be thousands, and the loop serves others meanwhile."""
    disk, clock = SimDisk(), ManualClock(BEGIN_MS)
    store = filled(disk, clock, [0], [1])
    for number in range(300):
        store.create_topic(f"t{number}", 1)
    [only] = by_key(store, "t", "n0").run().found
    query = by_unique_key(store, None, only.unique_key)
    assert sum(1 for _ in query.steps()) >= 300 // 64
    assert [each.physical for each in query.found] == [only.physical]


def test_scan_is_bounded_and_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index only so much of the log is read, the newest; the rest is named."""
    monkeypatch.setattr(query_module, "SCAN_BYTES_MAX", 2000)
    disk, clock = SimDisk(), ManualClock(BEGIN_MS)
    owner = filled(disk, clock, [0] * 40, [1])
    store = ReadOnlyStore.open(ROOT, disk=disk, clock=clock)
    query = by_key(store, "t", "k0").run()
    assert query.unsearched == [(0, owner.end - 2000)]
    found = [int(message.body()) for message in query.found]
    assert found[0] == 39
    assert 0 < len(found) < 14


def test_compressed_bodies_are_shown_as_they_were_sent() -> None:
    """What RocketMQ's client compressed comes unpacked; what cannot be unpacked says why."""
    store = open_store(SimDisk(), clock=ManualClock(BEGIN_MS))
    topic = store.create_topic("t", 1)
    for body in (zlib.compress(b"plain " * 50), b"no zlib at all"):
        put = Put(topic, 0, body, b"", sys_flag=SYS_COMPRESSED | 0x300)
        store.append([put], born_ms=0, born_host=HOST)
    store.flush()
    good, bad = Listing(store, "t").run().found
    assert good.body() == b"plain " * 50
    assert describe(good, 1000, None, TopicMask()).body == "plain " * 50
    with pytest.raises(BodyUnusable):
        bad.body()
    assert "ZLIB" in (describe(bad, 1000, None, TopicMask()).body_problem or "")
    assert describe(bad, 1000, None, TopicMask()).body == "no zlib at all"
