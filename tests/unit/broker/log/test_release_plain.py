"""What is released by columns is what `broker.scheduled.release` makes of it one by one, or it is left to that."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import MessageRefused
from broker.features import ALL
from broker.log.put import Put
from broker.options import StoreOptions
from broker.queues.topics import Topic
from broker.runtime.metrics import Metrics
from broker.scheduled.delay.due import FACTS
from broker.scheduled.delay.levels import SCHEDULE_NAME, SCHEDULE_TOPIC, WAIT_NAME
from broker.scheduled.delay.puts import DELAY_NAMES, DelayedPuts
from broker.scheduled.release import Released, release
from broker.scheduled.release_plain import Plain, PlainRelease
from broker.scheduled.timer.due import _FACTS
from broker.scheduled.timer.names import TIMER_NAME, TIMER_NAMES, TIMER_TOPIC
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk

pytestmark = pytest.mark.usefixtures("each_accelerator_way")
HOST = bytes([127, 0, 0, 1, 0, 0, 0, 9])
_WORDS = st.sampled_from(
    [b"", b"a", b"TAGS", b"UNIQ_KEY", b"KEYS", b"REAL_TOPIC", b"TIMER_OUT_MS", b"XTAGS", b"UNIQ_KEYS", b"UNIQ_KEY\x01k"]
)
_PAIRS = st.lists(st.tuples(_WORDS, _WORDS), max_size=4)


def _store() -> tuple[Store, Topic, ManualClock]:
    clock = ManualClock()
    options = StoreOptions(segment_bytes=1 << 20, queue_file_units=1024)
    store = Store.open(
        "/s", options=options, features=ALL, disk=SimDisk(), clock=clock, random=Random(1), metrics=Metrics()
    )
    return store, store.create_topic("orders", 4), clock


def _releases(store: Store) -> PlainRelease:
    return PlainRelease(store, room=TIMER_NAME, facts=_FACTS, names=(b"TIMER_", b"REAL_"))


def _each(plain: Plain, count: int) -> list[Released | None]:
    """Put, born time and host by place, None for one that is not plain."""
    made = iter([Released(put, *origin) for put, origin in zip(plain.puts, plain.origins, strict=True)])
    found = [None if place in plain.others else next(made) for place in range(count)]
    assert next(made, None) is None
    return found


def _both(store: Store, dues: list[int] | None = None) -> list[tuple[Released | None, Released | None]]:
    """What both make of everything in the timer topic."""
    places = [(physical, size) for physical, size, _ in store.topics[TIMER_TOPIC].queues[0].read(0, 100)]
    plain = _each(_releases(store).release(places, dues), len(places))
    full: list[Released | None] = []
    for place in places:
        try:
            full.append(release(store.read(*place), store.topics, TIMER_NAMES))
        except MessageRefused:
            full.append(None)
    return list(zip(plain, full, strict=True))


@given(st.lists(st.tuples(_PAIRS, st.booleans(), st.binary(max_size=8), st.integers(0, 3)), min_size=1, max_size=5))
def test_plain_is_what_a_full_release_makes(
    messages: list[tuple[list[tuple[bytes, bytes]], bool, bytes, int]],
) -> None:
    """Whatever the properties, in whatever order: the same put, born time and host, or none."""
    store, topic, clock = _store()
    puts = []
    for pairs, closed, body, queue_id in messages:
        block = b"\x02".join([name + b"\x01" + value for name, value in pairs]) + (b"\x02" if closed and pairs else b"")
        timed = store.waiting(TimedPuts).timed(Put(topic, queue_id, body, b"", flag=len(body)), clock.wall_ms() + 1500)
        key = b"k" if b"UNIQ_KEY\x01k" in block else b""
        puts.append(timed._replace(properties=block + timed.properties, unique_key=key))
    store.append(puts, born_ms=77, born_host=HOST)
    store.flush()
    for plain, full in _both(store):
        assert plain is None or plain == full


def test_what_producers_send_is_plain() -> None:
    """A timer with tag, key and properties needs no second look, with and without a key of its own."""
    store, topic, clock = _store()
    block = b"TAGS\x01t\x02KEYS\x01k1\x02region\x01eu\x02"
    puts = [
        Put(topic, 1, b"one", block, b"t"),
        Put(topic, 2, b"two", block + b"UNIQ_KEY\x01own\x02", b"t", b"own"),
        Put(topic, 3, b"", b""),
    ]
    store.append([store.waiting(TimedPuts).timed(put, clock.wall_ms() + 1) for put in puts], born_ms=5, born_host=HOST)
    store.flush()
    found = [plain for plain, _ in _both(store)]
    assert all(found)
    assert [each.put.unique_key == b"own" for each in found if each] == [False, True, False]
    assert [each.put.tags for each in found if each] == [b"t", b"t", b""]


def test_messages_of_delay_levels_are_plain() -> None:
    """A message of a level is released as the full way does it, with its own properties alone."""
    store, topic, _ = _store()
    block = b"TAGS\x01t\x02KEYS\x01k1\x02"
    puts = [
        store.waiting(DelayedPuts).put(Put(topic, 1, b"one", block, b"t"), 3),
        store.waiting(DelayedPuts).put(Put(topic, 2, b"", b""), 3),
    ]
    store.append(puts, born_ms=5, born_host=HOST)
    store.flush()
    places = [(physical, size) for physical, size, _ in store.topics[SCHEDULE_TOPIC].queues[2].read(0, 9)]
    releases = PlainRelease(store, room=SCHEDULE_NAME, facts=FACTS, names=(b"DELAY\x01", b"REAL_", WAIT_NAME))
    wanted = [release(store.read(*place), store.topics, DELAY_NAMES) for place in places]
    assert _each(releases.release(places), 2) == wanted
    assert _each(releases.release(places, [3, 3]), 2) == wanted
    assert _each(releases.release(places, [4, 3]), 2) == [None, wanted[1]]


def test_a_message_of_another_moment_is_not_plain() -> None:
    """A unit that says another due time than its record is looked at by the full way."""
    store, topic, clock = _store()
    due = clock.wall_ms() + 5
    store.append(
        [store.waiting(TimedPuts).timed(Put(topic, 0, b"b", b""), due + n) for n in range(3)], born_ms=5, born_host=HOST
    )
    store.flush()
    found = _both(store, [due, due, due + 2])
    assert [plain is None for plain, _ in found] == [False, True, False]


def test_atomic_batches_are_plain_and_lose_their_mark() -> None:
    """Members of a batch are delivered one by one."""
    store, topic, clock = _store()
    puts = [store.waiting(TimedPuts).timed(Put(topic, 0, b"b", b""), clock.wall_ms() + 1) for _ in range(3)]
    store.append(puts, born_ms=5, born_host=HOST, atomic=True)
    store.flush()
    for plain, full in _both(store):
        assert plain is not None
        assert plain == full
        assert b"BATCH" not in plain.put.properties


def test_a_record_that_cannot_be_read_leaves_all_to_the_full_way() -> None:
    """Which of them it is, and what becomes of it, is said there."""
    store, topic, clock = _store()
    store.append(
        [store.waiting(TimedPuts).timed(Put(topic, 0, b"b", b""), clock.wall_ms() + 1)], born_ms=5, born_host=HOST
    )
    store.flush()
    [(physical, size, _)] = store.topics[TIMER_TOPIC].queues[0].read(0, 1)
    plain = _releases(store).release([(physical, size), (physical, size + 1)])
    assert (plain.puts, plain.origins, list(plain.others)) == ([], [], [0, 1])


def test_other_rooms_and_missing_topics_are_left_to_the_full_way() -> None:
    """A record of another topic, or one whose topic or queue is not there, is not plain."""
    store, topic, clock = _store()
    timed = store.waiting(TimedPuts).timed(Put(topic, 0, b"b", b""), clock.wall_ms() + 1)
    elsewhere = timed._replace(topic=store.create_topic("other", 1))
    missing = timed._replace(properties=timed.properties.replace(b"orders", b"absent"))
    no_queue = timed._replace(properties=timed.properties.replace(b"REAL_QID\x010", b"REAL_QID\x019"))
    positions = store.append([elsewhere, missing, no_queue], born_ms=5, born_host=HOST)
    store.flush()
    ends = [*[each.physical for each in positions[1:]], store.end]
    places = [(each.physical, end - each.physical) for each, end in zip(positions, ends, strict=True)]
    assert _releases(store).release(places).others == [0, 1, 2]
