"""Entries made of what was just appended and entries made of the log are the same, wherever one takes over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.format.record import SYS_ROLLBACK
from broker.index.recent_records import BYTES_MAX, RECORDS_MAX, IndexFeed
from broker.index.rows import RowMaker
from broker.log.put import Put
from broker.log.walk import walk
from pyddmq.testing import SimDisk
from tests.integration.index_tools import Model, built, check, found, opened, publish, stored
from tests.integration.store_tools import HOST, open_store

pytestmark = pytest.mark.usefixtures("each_accelerator_way")

WORDS = st.sampled_from(["", "k", "key-1", "key-2 b", " ", "two  words ", "é", "k" * 33, "k" * 300])
BLOCKS = st.builds(
    lambda keys, tags, other, first: ("" if not keys else f"KEYS\x01{keys}\x02", tags, other)[:: 1 if first else -1],
    WORDS,
    st.sampled_from(["", "TAGS\x01x\x02"]),
    st.sampled_from(["", "MYKEYS\x01no\x02", "KEYS\x01again\x02", "UNIQ_KEY\x01" + "F" * 32 + "\x02"]),
    st.booleans(),
)
MESSAGE = st.tuples(
    st.sampled_from(["t", "topic", "other"]),
    BLOCKS.map(lambda parts: "".join(parts).encode()),
    st.sampled_from([b"", b"", b"A" * 32, b"own"]),
    st.sampled_from([0, 0, 0, 4, 8, SYS_ROLLBACK]),
)


def as_put(store: object, message: tuple[str, bytes, bytes, int]) -> Put:
    """Make a put of a generated message; its own unique key stands in its properties."""
    topic, block, unique, flags = message
    if unique and b"UNIQ_KEY" not in block:
        block += b"UNIQ_KEY\x01" + unique + b"\x02"
    else:
        unique = b""
    target = store.create_topic(topic, 1)  # type: ignore[attr-defined]
    return Put(target, 0, b"body", block, unique_key=unique, sys_flag=flags)


@settings(max_examples=150, deadline=None)
@given(
    appends=st.lists(st.tuples(st.lists(MESSAGE, min_size=1, max_size=5), st.booleans()), min_size=1, max_size=12),
    pieces=st.integers(1, 7),
)
def test_fed_entries_are_those_of_the_log(
    appends: list[tuple[list[tuple[str, bytes, bytes, int]], bool]], pieces: int
) -> None:
    """For any properties, keys, topics, batches and flags, read in pieces of any size."""
    store = open_store(SimDisk(), segment_bytes=4096)
    for messages, atomic in appends:
        store.append([as_put(store, each) for each in messages], born_ms=1, born_host=HOST, atomic=atomic)
        store.flush()
    feed, log, rows = store.index.feed, store.index.log, RowMaker()
    position = feed.start or 0
    records, _ = walk(log, position, store.end, records_max=1000)
    wanted = rows.of_records(records)
    entries: list[list[int]] = [[], [], []]
    while (fed := feed.read(position, store.end, pieces)) is not None:
        entries = [[*column, *more] for column, more in zip(entries, rows.of_fed(fed[0]), strict=True)]
        assert fed[1] > position
        position = fed[1]
    assert entries == list(wanted)
    assert position == store.end


def test_feed_is_bounded_and_the_log_gives_what_did_not_fit() -> None:
    """With more records or more bytes than are kept, every message is found all the same."""
    for puts, padding in ((RECORDS_MAX + 1, 0), (60, BYTES_MAX // 50)):
        store, model = open_store(SimDisk(), segment_bytes=4 << 20, index_entries=1 << 15), Model()
        target = store.create_topic("t", 1)
        for number in range(0, puts, 10):
            blocks = [
                b"KEYS\x01n%d\x02X\x01%b\x02" % (place % 500, b"x" * padding) for place in range(number, number + 10)
            ]
            store.append([Put(target, 0, b"", block) for block in blocks], born_ms=1, born_host=HOST)
            store.flush()
        assert store.index.feed.start
        assert not store.index.fresh
        model = stored(store)
        for key in ("n0", "n1", "n55", "n499"):
            if key in model:
                assert found(store, key) == model[key]
        assert store.index.fresh


def test_staged_records_are_not_read_before_they_are_visible() -> None:
    """An append that no flush covered yet is not indexed."""
    store, model = opened(SimDisk()), Model()
    publish(store, model, "a")
    store.append([Put(store.topics["t"], 0, b"x", b"KEYS\x01b\x02")], born_ms=1, born_host=HOST)
    check(built(store), model)
    assert store.index.position == store.end
    store.flush()
    check(built(store), stored(store))


def test_a_file_made_anew_is_read_from_the_log() -> None:
    """When the position goes back, what was let go of comes from the log, and what follows from the feed."""
    store, model = opened(SimDisk(), index_entries=1000), Model()
    for number in range(5):
        publish(store, model, f"n{number}")
        built(store)
    publish(store, model, "later")
    store.index.distrust(store.index.files[-1], "a test")
    assert not store.index.fresh
    check(built(store), model)


def test_closed_feed_keeps_nothing() -> None:
    """Where nothing is built any more, nothing is kept."""
    feed = IndexFeed()
    feed.close()
    feed.add([b"\x01t\x00\x00"], [0], [100], store_ms=1, flags=0)
    assert feed.total == 1
    assert feed.start is None
    assert feed.read(0, 100, 10) is None
