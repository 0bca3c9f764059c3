"""Fillers in queue files: a form that RocketMQ reads, too, and that is known again from the log alone."""

from __future__ import annotations

import pytest

from broker.queues.consume_queue import FILLER, FILLER_BYTES, UNIT, UNIT_BYTES
from broker.queues.time_search import offset_at
from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import SealedFile
from broker.store import Store
from broker.tools.readonly import ReadOnlyStore
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.damage import check, mend
from tests.integration.store_tools import ROOT, append, bodies, open_store

SEGMENT = f"{ROOT}/commitlog/{0:020d}"
FILE = f"{ROOT}/consumequeue/t/0/{0:020d}"


def filled(disk: SimDisk, count: int = 6) -> Store:
    """A store with one queue of `count` messages, closed later by the test."""
    store = open_store(disk)
    store.create_topic("t", 1)
    for number in range(count):
        append(store, b"body %d" % number)
        store.flush()
    return store


def on_file(disk: SimDisk, path: str = FILE) -> list[tuple[int, int, int]]:
    """The units that a queue file holds, its empty end left out."""
    file = disk.open(path)
    units = list(UNIT.iter_unpack(file.read(0, file.size())))
    return units[: max((place + 1 for place, unit in enumerate(units) if unit != (0, 0, 0)), default=0)]


def with_lost(disk: SimDisk, *lost: int, count: int = 6) -> Store:
    """A store whose messages of these offsets were damaged, opened again after a kill."""
    store = filled(disk, count)
    units = store.topics["t"].queues[0].read(0, count)
    disk.kill()
    for offset in lost:
        disk.flip_bit(SEGMENT, units[offset][0] + 90)
    return open_store(disk)


def assert_monotone(units: list[tuple[int, int, int]]) -> None:
    """Whether RocketMQ can search them by place, and finds a record wherever one leads."""
    places = [physical for physical, _, _ in units]
    assert places == sorted(places)
    assert FILLER not in units


def test_filler_repeats_the_next_unit_in_the_file() -> None:
    """Readers get FILLER, before and after the units have gone to the file, and in every later process."""
    disk = SimDisk()
    store = with_lost(disk, 2, 3)
    wanted = [True, True, False, False, True, True]
    assert [body is not None for body in bodies(store).values()] == wanted
    store.close()
    units = on_file(disk)
    assert units[2] == units[3] == (*units[4][:2], 0)
    assert_monotone(units)
    metrics = Metrics()
    for _ in range(2):
        store = open_store(disk, metrics=metrics)
        assert store.topics["t"].queues[0].read(2, 2) == [FILLER, FILLER]
        assert store.topics["t"].queues[0].read(3, 1) == [FILLER]
        assert [body is not None for body in bodies(store).values()] == wanted
        store.close()
    assert metrics.value("pyddmq_store_units_lost_total") == metrics.value("pyddmq_store_units_repaired_total") == 0
    seen = ReadOnlyStore.open(ROOT, disk=disk, clock=ManualClock())
    assert seen.topics["t"].queues[0].read(2, 2) == [FILLER, FILLER]


def test_check_tells_of_old_fillers_and_repair_rewrites_them() -> None:
    """They cost nothing here; a note says what RocketMQ would make of them."""
    disk = SimDisk()
    with_lost(disk, 2, 3).close()
    disk.open(FILE).write(2 * UNIT_BYTES, [FILLER_BYTES * 2])
    assert ["filler_old", 2] in [[finding.kind, finding.count] for finding in check(disk)]
    mend(disk)
    assert_monotone(on_file(disk))
    assert "filler_old" not in [finding.kind for finding in check(disk)]


def test_filler_over_the_end_of_a_queue_file_repeats_the_next_file() -> None:
    """The unit that follows may stand in a file that is not made yet."""
    disk = SimDisk()
    store = with_lost(disk, 6, 7, 8, count=12)
    store.close()
    first, second = on_file(disk), on_file(disk, FILE.replace(f"{0:020d}", f"{160:020d}"))
    assert first[6] == first[7] == second[0] == (*second[1][:2], 0)
    assert open_store(disk).topics["t"].queues[0].read(6, 3) == [FILLER] * 3


@pytest.mark.parametrize("code", ["", "tagged"])
def test_record_with_the_code_of_a_filler_is_none(code: str) -> None:
    """A message without tags beside a filler is served: its record says the queue offset that it stands at."""
    disk = SimDisk()
    store = with_lost(disk, 1, 4)
    for number in range(3):
        append(store, b"%s %d" % (code.encode(), number))
    store.close()
    assert [body for body in bodies(open_store(disk)).values() if body is not None] == [
        b"body 0",
        b"body 2",
        b"body 3",
        b"body 5",
        *(b"%s %d" % (code.encode(), number) for number in range(3)),
    ]


def test_repair_writes_the_same_form() -> None:
    """In the first log file, too; what is published next is served, and nothing is left to find."""
    disk = SimDisk()
    store = filled(disk, 6)
    units = store.topics["t"].queues[0].read(0, 6)
    store.close()
    for offset in (0, 3):
        disk.flip_bit(SEGMENT, units[offset][0] + 90)
    mend(disk)
    assert on_file(disk) == [(*units[1][:2], 0), *units[1:3], (*units[4][:2], 0), *units[4:]]
    store = open_store(disk)
    assert [body is not None for body in bodies(store).values()] == [False, True, True, False, True, True]
    assert append(store, b"next")[0].offset == 6
    store.close()
    assert_monotone(on_file(disk))
    assert list(bodies(open_store(disk)).values())[4:] == [b"body 4", b"body 5", b"next"]
    assert {finding.kind for finding in check(disk)} <= {"offsets_empty", "live"}


def test_filler_at_the_end_repeats_the_unit_before() -> None:
    """What is published next stands behind it, in this process and the next."""
    disk = SimDisk()
    filled(disk, 6).close()
    units = on_file(disk)
    disk.open(FILE).write(5 * UNIT_BYTES, [UNIT.pack(*units[4][:2], 0)])
    store = open_store(disk)
    assert store.recovery.whole_log is None
    assert store.topics["t"].queues[0].read(3, 9) == [units[3], units[4], FILLER]
    assert append(store, b"next")[0].offset == 6
    store.close()


def test_old_fillers_are_rewritten_at_opening() -> None:
    """In the middle, at the end, and none a second time: then the format says so."""
    disk = SimDisk()
    filled(disk, 20).close()
    for place in (0, 3, 4, 19):
        number, at = divmod(place, 8)
        disk.open(FILE.replace(f"{0:020d}", f"{160 * number:020d}")).write(at * UNIT_BYTES, [FILLER_BYTES])
    units = [unit for number in range(3) for unit in on_file(disk, FILE.replace(f"{0:020d}", f"{160 * number:020d}"))]
    format_file = SealedFile(disk, f"{ROOT}/pyddmq/store.json")
    format_file.save({**format_file.load(), "format": 1})
    open_store(disk).close()
    found = [unit for number in range(3) for unit in on_file(disk, FILE.replace(f"{0:020d}", f"{160 * number:020d}"))]
    assert format_file.load()["format"] == 2
    assert_monotone(found)
    assert found[0] == (*units[1][:2], 0)
    assert found[3] == found[4] == (*units[5][:2], 0)
    assert found[19] == (*units[18][:2], 0)
    assert [unit for place, unit in enumerate(found) if place not in (0, 3, 4, 19)] == [
        unit for unit in units if unit != FILLER
    ]


def test_time_and_retention_pass_over_fillers() -> None:
    """A search by time finds what follows a filler; a queue whose last unit is one goes with its records."""
    disk, clock = SimDisk(), ManualClock()
    store = open_store(disk, clock=clock)
    store.create_topic("t", 1)
    for number in range(60):
        clock.advance(1)
        append(store, b"body %d" % number)
        store.flush()
    units = store.topics["t"].queues[0].read(0, 60)
    store.close()
    disk.flip_bit(SEGMENT, units[10][0] + 90)
    mend(disk)
    store = open_store(disk, clock=clock)
    queue = store.topics["t"].queues[0]
    at = clock.wall_ms() - 50_000 + 1000
    assert offset_at(store, queue, at) == 11
    assert queue.first_at(units[11][0]) in (10, 11)


def test_topic_made_again_begins_at_a_queue_file_without_fillers() -> None:
    """What RocketMQ finds in a queue file before its first unit would be messages to it."""
    disk = SimDisk()
    store = filled(disk, 5)
    store.topic_changes.delete("t")
    store.create_topic("t", 1)
    assert append(store, b"new")[0].offset == 8
    store.close()
    assert disk.list(f"{ROOT}/consumequeue/t/0") == [f"{160:020d}"]
    assert len(on_file(disk, FILE.replace(f"{0:020d}", f"{160:020d}"))) == 1
    assert bodies(open_store(disk)) == {8: b"new"}


def test_first_offset_inside_a_file_moves_where_no_message_stands() -> None:
    """A store of format 1 may have a topic that was made again in the middle of a file."""
    disk = SimDisk()
    store = filled(disk, 5)
    store.topic_changes.delete("t")
    store.create_topic("t", 1)
    store.close()
    lives = SealedFile(disk, f"{ROOT}/pyddmq/topic_lives.json")
    life = lives.load()["t"]
    del life["ends"]
    lives.save({"t": {**life, "bases": [5]}})
    checkpoint = SealedFile(disk, f"{ROOT}/pyddmq/checkpoint.json")
    checkpoint.save({**checkpoint.load(), "queues": {"t": [[5, 5]]}})
    store = open_store(disk)
    queue = store.topics["t"].queues[0]
    assert (queue.min_offset, queue.max_offset, queue.void_from) == (8, 8, 5)
    store.close()
    assert lives.load()["t"]["bases"] == [8]
    assert open_store(disk).topics["t"].queues[0].max_offset == 8


def test_old_fillers_before_a_first_unit_no_longer_hide_the_first_log_file() -> None:
    """A topic that an older version made again inside a file keeps its offsets; the fillers before it are rewritten."""
    disk = SimDisk()
    store = filled(disk, 12)
    store.close()
    disk.open(FILE).write(0, [FILLER_BYTES * 5])
    lives = SealedFile(disk, f"{ROOT}/pyddmq/topic_lives.json")
    first = on_file(disk)[5]
    lives.save({"t": {"deleted": False, "served": False, "begins_at": first[0], "bases": [5]}})
    checkpoint = SealedFile(disk, f"{ROOT}/pyddmq/checkpoint.json")
    checkpoint.save({**checkpoint.load(), "queues": {"t": [[5, 12]]}})
    format_file = SealedFile(disk, f"{ROOT}/pyddmq/store.json")
    format_file.save({**format_file.load(), "format": 1})
    store = open_store(disk)
    assert list(bodies(store)) == list(range(5, 12))
    store.close()
    assert on_file(disk)[:5] == [(*first[:2], 0)] * 5
    assert_monotone(on_file(disk))
