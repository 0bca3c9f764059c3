"""The store while it runs: appending, visibility, reading, limits, failures."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from broker.errors import (
    DamagedRecord,
    DiskFull,
    MessageRefused,
    StoreError,
    StoreFailed,
    StoreFormatNewer,
    StoreGeometryDiffers,
    StoreInUse,
    StoreUnwritable,
)
from broker.format.java import string_hash
from broker.format.message import message_of
from broker.format.record import RECORD_OVERHEAD_BYTES, born_host, split, store_timestamp
from broker.log.put import Put
from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import SealedFile
from broker.tools.check import StoreCheck
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import HOST, ROOT, append, bodies, open_store, properties
from tests.integration.turns import Turns, take_over


def test_put_then_read_gives_the_message_back() -> None:
    """What was put comes back with body, key, tags, properties and a stamped UNIQ_KEY."""
    store = open_store(SimDisk())
    store.create_topic("t", 4)
    position = store.put("t", b"hello", key="order-7", tags="TagA", properties={"city": "Köln"})
    assert position.queue_id == abs(string_hash("order-7")) % 4
    found = properties(store, position)
    assert found == {"TAGS": "TagA", "KEYS": "order-7", "city": "Köln", "UNIQ_KEY": position.unique_key.decode()}
    [unit] = store.topics["t"].queues[position.queue_id].read(0, 10)
    assert unit[2] == string_hash("TagA")
    body, _ = split(store.read(unit[0], unit[1]))
    assert bytes(body) == b"hello"


def test_put_takes_key_and_tags_from_the_properties_of_a_message_that_is_passed_on() -> None:
    """Its queue and its unit are those of any message with them; readers that want the tag look at the unit alone."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 4)
    first = store.put("t", b"x", key="order-7", tags="TagA", properties={"city": "Köln"})
    again = store.put("t", b"x", properties=properties(store, first))
    assert again.queue_id == first.queue_id
    assert [unit[2] for unit in store.topics["t"].queues[first.queue_id].read(0, 10)] == [string_hash("TagA")] * 2
    store.close()
    assert not [each for each in StoreCheck(ROOT, disk, ManualClock()).run() if each.kind == "unit_wrong"]


def test_put_without_key_goes_round_the_queues() -> None:
    """Messages without a key are spread evenly."""
    store = open_store(SimDisk())
    store.create_topic("t", 3)
    assert sorted(store.put("t", b"x").queue_id for _ in range(6)) == [0, 0, 1, 1, 2, 2]


def test_append_before_flush_is_invisible_and_done_waits() -> None:
    """Nothing is visible, and no `done` runs, before the flush that covers it (D1)."""
    disk = SimDisk()
    store = open_store(disk)
    queue = store.create_topic("t", 1).queues[0]
    settled: list[StoreError | None] = []
    append(store, b"a", b"b", done=settled.append)
    synced = disk.synced_files
    assert (store.pending, queue.max_offset, queue.read(0, 9), settled) == (True, 0, [], [])
    store.flush()
    assert (store.pending, queue.max_offset, settled) == (False, 2, [None])
    assert disk.synced_files == synced + 1
    assert bodies(store) == {0: b"a", 1: b"b"}


def test_flush_runs_dones_before_listeners_once_per_topic() -> None:
    """A flush answers publishers first, then wakes each topic that got records exactly once."""
    store = open_store(SimDisk())
    order: list[str] = []
    for name in ("t", "u", "idle"):
        store.create_topic(name, 2).listeners.append(lambda name=name: order.append(name))  # type: ignore[misc]
    append(store, b"1", done=lambda error: order.append("done 1"))
    append(store, b"2", topic="u", queue_id=1, done=lambda error: order.append("done 2"))
    append(store, b"3", queue_id=1)
    store.flush()
    assert order == ["done 1", "done 2", "t", "u"]


def test_driver_is_told_once_of_what_is_staged_until_the_flush() -> None:
    """The owner hears of the first staged record after each flush."""
    store = open_store(SimDisk())
    store.create_topic("t", 1)
    calls: list[int] = []
    take_over(store, Turns(lambda: calls.append(1)))
    append(store, b"1")
    append(store, b"2")
    store.flush()
    append(store, b"3")
    assert len(calls) == 2


def test_listener_may_append_for_the_next_flush() -> None:
    """What a listener appends is staged, and the next flush stores it."""
    store = open_store(SimDisk())
    topic = store.create_topic("t", 1)
    store.create_topic("u", 1)

    def copy() -> None:
        append(store, b"copy", topic="u")

    topic.listeners.append(copy)
    append(store, b"1")
    store.flush()
    assert store.pending
    assert bodies(store, "u") == {}
    store.flush()
    assert bodies(store, "u") == {0: b"copy"}


def test_raising_callback_does_not_starve_the_others() -> None:
    """One broken callback is reported after all the others ran."""
    store = open_store(SimDisk())
    store.create_topic("t", 1)
    settled: list[StoreError | None] = []

    def broken(error: StoreError | None) -> None:
        raise ZeroDivisionError

    append(store, b"1", done=broken)
    append(store, b"2", done=settled.append)
    with pytest.raises(ZeroDivisionError):
        store.flush()
    assert settled == [None]


def test_records_roll_into_the_next_segment_and_stay_readable() -> None:
    """Records never cross a segment's end, and a full segment is left behind with a blank record."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    for number in range(40):
        append(store, b"%03d" % number * 100)
        store.flush()
    names = disk.list(f"{ROOT}/commitlog")
    assert names[:3] == ["00000000000000000000", "00000000000000004096", "00000000000000008192"]
    assert bodies(store) == {number: b"%03d" % number * 100 for number in range(40)}


def test_one_append_over_several_segments_is_written_whole() -> None:
    """One call may fill several segments."""
    store = open_store(SimDisk())
    store.create_topic("t", 2)
    wanted = [b"%03d" % number * 200 for number in range(30)]
    positions = append(store, *wanted)
    store.flush()
    assert bodies(store) == dict(enumerate(wanted))
    assert len({position.physical // 4096 for position in positions}) > 3
    assert [position.offset for position in positions] == list(range(30))


@pytest.mark.parametrize("spare", [0, 1, 7, 8, 9])
def test_record_that_just_fits_or_just_not_keeps_eight_bytes_free(spare: int) -> None:
    """A record of exactly `left - 8` bytes still fits; a larger one goes to the next segment."""
    store = open_store(SimDisk())
    topic = store.create_topic("t", 1)
    block = b"UNIQ_KEY\x0112345678\x02"
    fixed = RECORD_OVERHEAD_BYTES + 1 + len(block) + 20
    body = bytes(4096 - fixed - spare)
    put = Put(topic, 0, body, block, unique_key=b"12345678")
    if spare < 8:
        with pytest.raises(MessageRefused, match="does not fit"):
            store.append([put], born_ms=0, born_host=HOST)
        return
    store.append([put], born_ms=0, born_host=HOST)
    [following] = append(store, b"next")
    store.flush()
    assert following.physical == 4096
    assert bodies(store) == {0: body, 1: b"next"}


def test_atomic_batch_moves_whole_to_the_next_segment() -> None:
    """An atomic batch never straddles two segments (D8)."""
    store = open_store(SimDisk())
    store.create_topic("t", 1)
    append(store, bytes(3000))
    positions = append(store, *[bytes([65 + n]) * 400 for n in range(5)], atomic=True)
    store.flush()
    assert {position.physical // 4096 for position in positions} == {1}
    assert bodies(store)[5] == b"E" * 400


def test_atomic_batch_larger_than_a_segment_is_refused_whole() -> None:
    """Refused means nothing stored; the text names the size."""
    metrics = Metrics()
    store = open_store(SimDisk(), metrics=metrics)
    store.create_topic("t", 1)
    with pytest.raises(MessageRefused, match=r"needs \d+ bytes in the log") as refusal:
        append(store, *[bytes(1500)] * 3, atomic=True)
    assert refusal.value.code == 11
    assert not store.pending
    assert metrics.value("pyddmq_store_refused_total", "illegal") == 3


@pytest.mark.parametrize(
    ("put", "text"),
    [
        (lambda t: Put(t, 5, b"", b""), "has no queue 5"),
        (lambda t: Put(t, -1, b"", b""), "has no queue -1"),
        (lambda t: Put(t, 0, bytes(2001), b""), "2001 bytes; the limit is 2000"),
        (lambda t: Put(t, 0, b"", b"a\x01" + b"x" * 32_710 + b"\x02"), "the limit is 32767"),
    ],
)
def test_one_illegal_message_refuses_the_whole_append(put: Callable[..., Put], text: str) -> None:
    """An append stores all of its messages or none."""
    store = open_store(SimDisk(), message_bytes_max=2000)
    topic = store.create_topic("t", 2)
    with pytest.raises(MessageRefused, match=text):
        store.append([Put(topic, 0, b"good", b""), put(topic)], born_ms=0, born_host=HOST)
    store.flush()
    assert bodies(store) == {}
    append(store, b"later")
    store.flush()
    assert bodies(store) == {0: b"later"}


def test_empty_body_and_ipv6_producer_are_stored() -> None:
    """An empty body is a message; an IPv6 producer's address is kept in full."""
    store = open_store(SimDisk())
    topic = store.create_topic("t", 1)
    host = bytes(range(16)) + b"\x00\x00\x00\x50"
    store.append([Put(topic, 0, b"", b"a\x01b\x02")], born_ms=5, born_host=host)
    store.flush()
    [(physical, size, _)] = topic.queues[0].read(0, 1)
    record = store.read(physical, size)
    body, block = split(record)
    assert bytes(body) == b""
    assert block.startswith(b"a\x01b\x02UNIQ_KEY\x01")
    assert born_host(record) == host
    assert store_timestamp(record) == ManualClock().wall_ms()


def test_flag_of_the_producer_is_stored() -> None:
    """The producer's own number comes back as it was, also a negative one."""
    store = open_store(SimDisk())
    topic = store.create_topic("t", 1)
    store.append([Put(topic, 0, b"x", b"", flag=number) for number in (0, 7, -(1 << 31))], born_ms=5, born_host=HOST)
    store.flush()
    flags = [message_of(store.read(physical, size)).flag for physical, size, _ in topic.queues[0].read(0, 3)]
    assert flags == [0, 7, -(1 << 31)]


def test_store_timestamp_does_not_follow_the_clock_back() -> None:
    """The store timestamp never goes back, not even over a restart (D4)."""
    disk, clock = SimDisk(), ManualClock(wall_ms=2_000_000)
    store = open_store(disk, clock=clock)
    store.create_topic("t", 1)
    append(store, b"1")
    clock.set_wall_ms(1_000_000)
    append(store, b"2")
    store.close()
    store = open_store(disk, clock=clock)
    append(store, b"3")
    store.flush()
    units = store.topics["t"].queues[0].read(0, 3)
    assert [store_timestamp(store.read(physical, size)) for physical, size, _ in units] == [2_000_000] * 3


def test_second_opening_of_a_store_is_refused_until_it_is_closed() -> None:
    """One owner per store; closing gives it back."""
    disk = SimDisk()
    store = open_store(disk)
    with pytest.raises(StoreInUse, match="in use by another process"):
        open_store(disk)
    store.close()
    store.close()
    open_store(disk).close()


def test_other_file_sizes_are_refused_and_named() -> None:
    """Geometry is fixed at creation; the error names both values (D4)."""
    disk = SimDisk()
    open_store(disk).close()
    with pytest.raises(StoreGeometryDiffers, match=r"segment_bytes 4096 \(configured: 8192\)"):
        open_store(disk, segment_bytes=8192)
    open_store(disk).close()


def test_newer_format_is_refused() -> None:
    """A store of a later version is left alone."""
    disk = SimDisk()
    open_store(disk).close()
    file = SealedFile(disk, f"{ROOT}/pyddmq/store.json")
    file.save({**file.load(), "format": 99})
    with pytest.raises(StoreFormatNewer, match="format 99"):
        open_store(disk)


def test_unwritable_directory_gets_a_sentence() -> None:
    """A directory that cannot be written says so."""
    disk = SimDisk()
    disk.fail("create", error=errno.EACCES)
    with pytest.raises(StoreUnwritable, match="Permission denied"):
        open_store(disk)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_failed_write_or_sync_stops_the_write_side_for_good(operation: str) -> None:
    """After EIO nothing is acknowledged, nothing is written again, and reading goes on."""
    disk, metrics = SimDisk(), Metrics()
    store = open_store(disk, metrics=metrics)
    queue = store.create_topic("t", 1).queues[0]
    append(store, b"safe")
    store.flush()
    settled: list[StoreError | None] = []
    disk.fail(operation, path_part="commitlog")
    append(store, b"lost", done=settled.append)
    store.flush()
    operations = disk.operations
    assert isinstance(settled[0], StoreFailed)
    assert store.failed is settled[0]
    assert metrics.value("pyddmq_store_failed") == 1
    assert (queue.max_offset, queue.next_offset) == (1, 1)
    with pytest.raises(StoreFailed, match="restart"):
        append(store, b"refused")
    store.checkpoint()
    assert bodies(store) == {0: b"safe"}
    store.close()
    assert disk.operations == operations
    store = open_store(disk)
    assert bodies(store)[0] == b"safe"


def test_failed_claim_of_a_segment_stops_the_write_side() -> None:
    """An error other than a full disk while a segment is made counts as a failed write."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    settled: list[StoreError | None] = []
    append(store, bytes(2000), done=settled.append)
    disk.fail("sync", path_part="segment.new")
    with pytest.raises(StoreFailed):
        append(store, bytes(3000))
    assert isinstance(settled[0], StoreFailed)
    assert bodies(store) == {}


def test_full_disk_refuses_appends_and_recovers_by_itself() -> None:
    """ENOSPC refuses what needs another segment, keeps the rest, and ends when space returns (D5)."""
    disk, metrics = SimDisk(), Metrics()
    store = open_store(disk, metrics=metrics)
    store.create_topic("t", 1)
    append(store, bytes(2000))
    store.flush()
    disk.capacity_bytes = 0
    with pytest.raises(DiskFull, match="free some space"):
        append(store, bytes(1500), bytes(1500))
    assert not store.pending
    [small] = append(store, b"fits still")
    store.flush()
    store.checkpoint()
    assert store.failed is None
    assert metrics.value("pyddmq_store_refused_total", "disk_full") == 2
    disk.capacity_bytes = None
    append(store, bytes(3000))
    store.flush()
    assert small.offset == 1
    assert bodies(store) == {0: bytes(2000), 1: b"fits still", 2: bytes(3000)}


def test_full_disk_postpones_the_checkpoint_and_loses_nothing() -> None:
    """Queue files that cannot be made are derived data: the store goes on, also over a restart."""
    disk, clock = SimDisk(), ManualClock()
    store = open_store(disk, clock=clock)
    store.create_topic("t", 1)
    for number in range(30):
        append(store, b"%d" % number)
        store.flush()
    disk.capacity_bytes = 0
    clock.advance(60)
    store.checkpoint()
    assert store.failed is None
    store.close()
    disk.capacity_bytes = None
    store = open_store(disk)
    assert bodies(store) == {number: b"%d" % number for number in range(30)}


def test_async_flush_is_visible_at_once_and_synced_by_checkpoint() -> None:
    """Under `async` the turn's write makes visible; the checkpoint call makes durable."""
    disk = SimDisk()
    store = open_store(disk, flush="async")
    store.create_topic("t", 1)
    append(store, b"1")
    store.flush()
    store.checkpoint()
    synced = disk.synced_files
    append(store, b"2")
    store.flush()
    assert bodies(store) == {0: b"1", 1: b"2"}
    assert disk.synced_files == synced
    store.checkpoint()
    assert disk.synced_files > synced
    store.checkpoint()


def test_damaged_record_is_refused_counted_and_costs_only_itself() -> None:
    """A flipped bit in a record of an earlier process is seen at the read; its neighbours are well (D2)."""
    disk, metrics = SimDisk(), Metrics()
    store = open_store(disk)
    store.create_topic("t", 1)
    positions = append(store, b"aaaa", b"bbbb", b"cccc")
    store.close()
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", positions[1].physical + 90)
    store = open_store(disk, metrics=metrics)
    [_, (physical, size, _), _] = store.topics["t"].queues[0].read(0, 3)
    with pytest.raises(DamagedRecord, match="checksum"):
        store.read(physical, size)
    assert metrics.value("pyddmq_store_damaged_records_total") == 1
    assert bodies(store) == {0: b"aaaa", 1: None, 2: b"cccc"}


@pytest.mark.parametrize("place", range(0, 20, 3))
def test_damaged_queue_unit_is_made_anew_from_the_log(place: int) -> None:
    """A flipped bit in a queue file costs nothing: the unit is derived again (D2)."""
    disk, metrics = SimDisk(), Metrics()
    store = open_store(disk)
    topic = store.create_topic("t", 1)
    for number in range(12):
        store.put("t", b"%d" % number, tags=f"tag{number}", queue_id=0)
    before = topic.queues[0].read(0, 12)
    store.close()
    disk.flip_bit(f"{ROOT}/consumequeue/t/0/{0:020d}", 5 * 20 + place)
    store = open_store(disk, metrics=metrics)
    assert store.topics["t"].queues[0].read(0, 12) == before
    assert store.topics["t"].queues[0].read(5, 1) == [before[5]]
    assert metrics.value("pyddmq_store_units_repaired_total") == 1


def test_missing_queue_file_is_made_anew_from_the_log() -> None:
    """A lost queue file costs nothing either."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 2)
    for number in range(40):
        append(store, b"%d" % number, queue_id=number % 2)
    store.flush()
    store.close()
    disk.remove(f"{ROOT}/consumequeue/t/1/{0:020d}")
    store = open_store(disk)
    assert bodies(store, queue_id=1) == {number: b"%d" % (2 * number + 1) for number in range(20)}


def test_read_of_a_wrong_place_is_damage() -> None:
    """A position that is no record's never yields bytes."""
    store = open_store(SimDisk())
    store.create_topic("t", 1)
    [position, _] = append(store, b"one", b"two")
    store.flush()
    [(physical, size, _)] = store.topics["t"].queues[0].read(0, 1)
    for wrong in ((physical + 1, size), (physical, size + 1), (physical, 0), (1 << 40, size), (-5, size)):
        with pytest.raises(DamagedRecord):
            store.read(*wrong)
    assert position.physical == physical


def test_view_stays_readable_after_segments_are_forgotten_and_closed() -> None:
    """Slices handed out live on their own."""
    store = open_store(SimDisk())
    store.create_topic("t", 1)
    append(store, b"body")
    store.flush()
    [(physical, size, _)] = store.topics["t"].queues[0].read(0, 1)
    body, _ = split(store.read(physical, size))
    for _ in range(3):
        store.checkpoint()
    assert bodies(store) == {0: b"body"}
    store.close()
    assert bytes(body) == b"body"
