"""Compiled accelerators of what is due against the Python that they stand for: the same results, byte for byte."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.features import ALL
from broker.format.record import HEADER_BYTES, Located
from broker.log.put import Put
from broker.options import StoreOptions
from broker.queues.topics import Topic
from broker.runtime.metrics import Metrics
from broker.scheduled import release_plain
from broker.scheduled.delay.due import FACTS as DELAY_FACTS
from broker.scheduled.delay.levels import WAIT_NAME
from broker.scheduled.release_plain import Facts, Origin
from broker.scheduled.timer import log_units
from broker.scheduled.timer.due import _FACTS as TIMER_FACTS
from broker.scheduled.timer.pending.log import UNIT, UNIT_BYTES, Taken, TimerLog, Unit
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk
from tests.accelerator_ways import both, need_compiled, running

ROOM = b"\x04room"
TIMER = b"TIMER_DELIVER_MS\x0112\x02TIMER_OUT_MS\x0110\x02REAL_TOPIC\x01orders\x02REAL_QID\x013\x02"
DELAY = b"DELAY\x0112\x02REAL_TOPIC\x01orders\x02REAL_QID\x013\x02" + WAIT_NAME + b"\x01120\x02"
SUM = b"__CRC32#\x010123456789\x02"
BATCH = b"__PYDDMQ_BATCH\x0100001/00003\x02"
KEY = b"UNIQ_KEY\x010A\x02"
PAIRS = [
    *(b"TAGS\x01t\x02", b"TAGS\x01\x02", b"XTAGS\x01u\x02", b"KEYS\x01k\x02", KEY, b"XUNIQ_KEY\x01K\x02", b"\x02"),
    *(b"REAL_QID\x011\x02", b"LOOP\x011\x02", b"TIMER_X\x011\x02", b"TAGS\x01v"),
]
FACTS = [
    *(TIMER, DELAY, TIMER.replace(b"orders", b"few"), TIMER.replace(b"\x013\x02", b"\x010\x02")),
    *(
        TIMER.replace(b"\x013\x02", b"\x014\x02"),
        TIMER.replace(b"orders", b"absent"),
        DELAY.replace(b"\x013", b"\x01003"),
    ),
    *(TIMER.replace(b"\x0112", b"\x01" + b"0" * n + b"12") for n in (1, 16, 17)),
]
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
FEW = st.integers(0, 3)


@pytest.fixture(autouse=True)
def _compiled() -> None:
    need_compiled()


def _topics() -> dict[bytes, Topic]:
    options = StoreOptions(segment_bytes=1 << 16, queue_file_units=1024)
    store = Store.open(
        "/s", options=options, features=ALL, disk=SimDisk(), clock=ManualClock(), random=Random(1), metrics=Metrics()
    )
    return {b"orders": store.create_topic("orders", 4), b"few": store.create_topic("few", 1)}


TOPICS = _topics()
closings = st.sampled_from(
    [SUM, KEY + SUM, BATCH + SUM, KEY + BATCH + SUM, BATCH + KEY + SUM, b"UNIQ_KEY\x01\x02" + SUM]
)
usual = st.tuples(st.lists(st.sampled_from(PAIRS), max_size=3).map(b"".join), st.sampled_from(FACTS), closings).map(
    b"".join
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A block with some bytes cut out and others put in."""
    block = draw(usual)
    at = draw(st.integers(0, len(block)))
    put = draw(st.one_of(st.binary(max_size=2), st.sampled_from([b"\x01", b"\x02", b"0", b"/", *PAIRS])))
    return block[:at] + put + block[at + draw(st.integers(0, 2)) :]


blocks = st.one_of(usual, usual, damaged())
records = st.tuples(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES), st.binary(max_size=4), blocks)


def _located(found: list[tuple[bytes, bytes, bytes]], room: bytes = ROOM) -> list[Located]:
    """Records of one segment, the last one in a segment of its own."""
    located: list[Located] = []
    for part in (found[:-1], found[-1:]):
        data = b"".join([head + body + room + b"\x00\x00" + block for head, body, block in part])
        view, at = memoryview(data), 0
        for _, body, block in part:
            body_at = at + HEADER_BYTES
            body_end = body_at + len(body)
            block_at = body_end + len(room) + 2
            at = block_at + len(block)
            located.append((view, body_at, body_end, block_at, at))
    return located


@given(
    st.lists(records, min_size=1, max_size=5),
    st.sampled_from([TIMER_FACTS, DELAY_FACTS]),
    st.sampled_from([None, 12, 12, 13]),
    st.sampled_from([ROOM, ROOM, ROOM, b"\x04rook"]),
)
@settings(max_examples=150)
@example([(bytes(HEADER_BYTES), b"b", TIMER + KEY + BATCH + SUM)], TIMER_FACTS, 12, ROOM)
@example([(bytes(HEADER_BYTES), b"b", b"TAGS\x01t\x02" + KEY + TIMER + SUM)], TIMER_FACTS, 12, ROOM)
@example([(bytes(HEADER_BYTES), b"b", b"XTAGS\x01t\x02" + DELAY + SUM)] * 3, DELAY_FACTS, None, ROOM)
def test_release_of_whatever_stands_in_a_block(
    found: list[tuple[bytes, bytes, bytes]], facts: Facts, due_ms: int | None, room: bytes
) -> None:
    """The same puts, times and hosts, and the same left to the full way."""
    located = [*_located(found, room), (memoryview(b""), 0, 0, 0, -1)]
    places = [(place * 100, 100) for place in range(len(located))]
    dues = None if due_ms is None else [due_ms] * len(located)

    def work() -> tuple[list[Put], list[Origin], list[int]]:
        puts: list[Put] = []
        origins: list[Origin] = []
        others: list[int] = []
        names = (b"TIMER_", b"REAL_", b"LOOP", b"\x02\x02")
        release_plain.release(located, places, dues, ROOM, names, facts, TOPICS.get, puts, origins, others)
        return puts, origins, others

    puts, origins, others = both(work)
    assert len(puts) == len(origins) == len(located) - len(others)
    assert len(located) - 1 in others
    assert all(put.body.obj is located[0][0].obj or put.body.obj is located[-2][0].obj for put in puts)


FORMS = [
    (TIMER + SUM, b""),
    (TIMER + KEY + BATCH + SUM, KEY),
    (b"TAGS\x01t\x02" + TIMER + KEY + SUM, b"TAGS\x01t\x02" + KEY),
    (KEY + b"XTAGS\x01u\x02TAGS\x01t\x02" + TIMER + SUM, KEY + b"XTAGS\x01u\x02TAGS\x01t\x02"),
    (KEY + TIMER + KEY + SUM, None),
    (b"XUNIQ_KEY\x01a\x02" + TIMER + KEY + SUM, None),
    (b"\x02" + TIMER + SUM, None),
    (b"a\x01b" + TIMER + SUM, None),
    (b"a\x01b\x02\x02" + TIMER + SUM, None),
    (b"LOOP\x01b\x02" + TIMER + SUM, None),
    (TIMER.replace(b"\x013", b"\x014") + SUM, None),
    (TIMER.replace(b"\x013", b"\x0100003") + SUM, None),
    (TIMER.replace(b"\x0112", b"\x01" + b"0" * 16 + b"12") + SUM, b""),
    (TIMER.replace(b"\x0112", b"\x01" + b"0" * 17 + b"12") + SUM, None),
    (TIMER.replace(b"\x0112", b"\x0113") + SUM, None),
    (TIMER.replace(b"orders", b"absent") + SUM, None),
    (TIMER.replace(b"orders", b"") + SUM, None),
    (TIMER + b"UNIQ_KEY\x01\x02" + SUM, None),
    (TIMER + BATCH + KEY + SUM, None),
    (TIMER + SUM[:-1], None),
    (TIMER, None),
    (DELAY + SUM, None),
]


@pytest.mark.parametrize(("block", "properties"), FORMS)
def test_release_of_each_form(block: bytes, properties: bytes | None) -> None:
    """What is plain goes out with these properties; what is not is left to the full way."""

    def work() -> Any:
        puts: list[Put] = []
        others: list[int] = []
        names, located = (b"TIMER_", b"LOOP", b"\x02\x02"), _located([(bytes(range(HEADER_BYTES)), b"b", block)])
        release_plain.release(located, [(0, 1)], [12], ROOM, names, TIMER_FACTS, TOPICS.get, puts, [], others)
        return puts, others

    puts, others = both(work)
    assert others == ([0] if properties is None else [])
    for put in puts:
        assert (put.topic.name, put.queue_id, bytes(put.body)) == ("orders", 3, b"b")
        assert (put.properties, put.prepared_offset) == (properties, -1)
        assert put.unique_key == (b"0A" if KEY in block else b"")
        assert put.tags == (b"t" if b"TAGS" in block else b"")


units = st.builds(
    lambda damage, *fields: UNIT.pack(UNIT_BYTES + damage, *fields),
    st.sampled_from([0, 0, 0, 1]),
    I64,
    st.integers(-1, 17),
    st.integers(-(1 << 62), 1 << 62),
    I32,
    st.one_of(FEW, I64),
    st.one_of(FEW, I32),
    I32,
    I64,
)


@given(st.lists(units, min_size=1, max_size=6), st.data())
def test_reading_of_whatever_stands_in_a_file(written: list[bytes], data: st.DataObject) -> None:
    """The same units, or the same refusal, in the files or not, marked or not; all of them and each alone."""
    log = TimerLog("/s", disk=SimDisk(), file_bytes=3 * UNIT_BYTES + 16)
    log.append(b"".join(written))
    places = [log.position(number) for number in range(len(written))]
    at = st.one_of(st.sampled_from(places), st.integers(-60, places[-1] + 2 * UNIT_BYTES))
    positions = data.draw(st.lists(at, max_size=6))
    log.marked = data.draw(st.sets(st.sampled_from(positions))) if positions else set()
    for some in [positions, *([each] for each in positions)]:
        taken = both(lambda: log_units.take(log, some))  # noqa: B023
        assert isinstance(taken, tuple) or [each.position for each in taken] == some


@given(st.binary(max_size=3 * UNIT_BYTES), st.lists(st.integers(-60, 4 * UNIT_BYTES), max_size=6), st.integers(0, 400))
def test_reading_stays_in_its_view(data: bytes, positions: list[int], last_at: int) -> None:
    """Wherever a unit is said to be, and wherever the last one."""
    found: list[Taken] = []
    with running("compiled"):
        count = log_units.read_units(positions, 0, memoryview(data), 0, last_at, set(), found)
    assert [each.position for each in found] == positions[:count]
    assert all(0 <= each <= len(data) - UNIT_BYTES for each in positions[:count])
    assert all(type(each) is Taken and type(each.unit) is Unit for each in found)


magics = st.sampled_from([1, 1, 1, 2, 3, 5, 7])
timers = st.lists(
    st.builds(Taken, FEW, st.builds(Unit, I64, magics, FEW, FEW, FEW, FEW, st.one_of(FEW, I64))), max_size=8
)
PLAIN = Taken(1, Unit(0, 1, 2, 3, 4, 5, 6))
sets = st.sets(FEW, max_size=2)


@given(timers, sets, st.dictionaries(FEW, st.just([1]), max_size=1), sets, st.integers(0, 9))
@example([PLAIN, PLAIN], {4}, {3: [1]}, {2}, 4)
@example([PLAIN], {3}, {}, set(), 0)
@example([PLAIN], set(), {2: [1]}, set(), 0)
@example([PLAIN], set(), {}, {1}, 0)
@example([Taken(1, Unit(0, 3, 2, 3, 4, 5, 6)), PLAIN, Taken(1, Unit(0, 4, 2, 3, 4, 5, 6))], {1}, {}, set(), 0)
def test_timers_are_told_apart_and_counted(
    taken: list[Taken], superseded: set[int], cancels: dict[int, list[int]], marked: set[int], bytes_max: int
) -> None:
    """Which are ordinary, how many fit, and what they say together."""
    places, dues, others = both(lambda: log_units.usual(taken, superseded, cancels, marked))
    assert len(places) == len(dues) == len(taken) - len(others)
    count = both(lambda: log_units.fitting(taken, bytes_max))
    assert count >= min(1, len(taken))
    _, rolls, slots, topics = both(lambda: log_units.completed(taken))
    assert sum(each for _, each in slots) == len(taken)
    assert rolls == sum(bool(unit.magic & 2) for _, unit in taken)
    assert sum(each for _, each in topics) == sum(not unit.magic & 4 for _, unit in taken)


waiting_units = st.builds(
    lambda *fields: UNIT.pack(UNIT_BYTES, 0, *fields),
    st.integers(-1, 9),
    st.one_of(FEW, I64),
    st.one_of(FEW, I32),
    FEW,
    FEW,
    st.one_of(FEW, I32),
    FEW,
)


@given(st.lists(waiting_units, max_size=8), st.one_of(FEW, st.integers(-(1 << 62), 1 << 62)), st.integers(0, 51))
@settings(max_examples=150)
def test_what_waits_is_counted(written: list[bytes], read_ms: int, known: int) -> None:
    """As many by topic, added to what was counted before, whatever stands in the units."""

    def work() -> dict[int, int]:
        found = {2: known}
        log_units.count_waiting(memoryview(b"".join(written)), read_ms, found)
        return found

    fields = [UNIT.unpack(each) for each in written]
    wait = [each for each in fields if each[6] and not each[2] & 4 and each[3] + each[4] >= read_ms]
    assert sum(both(work).values()) == known + len(wait)
