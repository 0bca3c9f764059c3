"""What a store is after it was stopped: killed, without power, damaged, cut, rebuilt."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.format.record import CRC_PREFIX, batch_property, split
from broker.log.put import Put
from broker.opening.recovery import RecoveryProgress
from broker.queues.consume_queue import FILLER
from broker.runtime.metrics import Metrics
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.integration.store_tools import ROOT, append, bodies, open_store

SEGMENT = f"{ROOT}/commitlog/{0:020d}"


def filled(disk: SimDisk, count: int = 6, **options: Any) -> Store:
    """A store with `count` flushed messages in one queue; no checkpoint covers them."""
    store = open_store(disk, **options)
    store.create_topic("t", 1)
    for number in range(count):
        append(store, b"body %d" % number)
        store.flush()
    return store


def test_reopening_after_a_kill_finds_everything_flushed() -> None:
    """Every flushed message is there after SIGKILL, and offsets go on where they stood."""
    disk = SimDisk()
    filled(disk)
    disk.kill()
    store = open_store(disk)
    assert (store.recovery.clean, store.recovery.records, store.recovery.truncated_to) == (False, 6, None)
    assert bodies(store) == {number: b"body %d" % number for number in range(6)}
    [position] = append(store, b"next")
    store.flush()
    assert position.offset == 6


def test_clean_stop_needs_no_scan() -> None:
    """After `close` nothing is scanned again."""
    disk = SimDisk()
    filled(disk).close()
    store = open_store(disk)
    assert (store.recovery.clean, store.recovery.records) == (True, 0)
    assert len(bodies(store)) == 6


def test_scan_begins_at_the_checkpoint() -> None:
    """After a kill only what the checkpoint does not cover is scanned."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock=clock)
    clock.advance(11)
    store.checkpoint()
    append(store, b"after")
    store.flush()
    disk.kill()
    store = open_store(disk)
    assert store.recovery.records == 1
    assert bodies(store)[6] == b"after"


@pytest.mark.parametrize("lost", ["pyddmq/checkpoint.json", "checkpoint", "config/topics.json", "pyddmq/topics.json"])
def test_lost_small_file_is_derived_or_healed(lost: str) -> None:
    """No single small file is worth a message."""
    disk = SimDisk()
    filled(disk).close()
    disk.remove(f"{ROOT}/{lost}")
    store = open_store(disk)
    assert bodies(store) == {number: b"body %d" % number for number in range(6)}
    store.close()
    assert disk.exists(f"{ROOT}/{lost}") or lost.endswith("topics.json")


def test_all_derived_files_gone_are_rebuilt_from_the_log() -> None:
    """Queues, topics and checkpoints come back from the log alone."""
    disk = SimDisk()
    store = filled(disk, count=20)
    store.create_topic("u", 3)
    append(store, b"other", topic="u", queue_id=2)
    store.close()
    derived = {"": ["checkpoint"], "/pyddmq": ["checkpoint.json", "topics.json"]}
    for folder in ("/config", "/consumequeue/t/0", "/consumequeue/u/2"):
        derived[folder] = disk.list(ROOT + folder)
    for folder, names in derived.items():
        assert names
        for name in names:
            disk.remove(f"{ROOT}{folder}/{name}")
    store = open_store(disk)
    assert store.recovery.queues_rebuilt
    assert bodies(store) == {number: b"body %d" % number for number in range(20)}
    assert bodies(store, "u", 2) == {0: b"other"}


@pytest.mark.parametrize("reads", [[(17, 3), (30, 1), (16, 1), (24, 8)], [(20, 1)], [(0, 60)]])
def test_lost_queue_files_in_the_middle_cost_nothing(reads: list[tuple[int, int]]) -> None:
    """Wherever reading begins, units of lost files are rebuilt from the log, and none passes for a filler."""
    disk, metrics = SimDisk(), Metrics()
    filled(disk, count=60).close()
    for first in (16, 24):
        disk.remove(f"{ROOT}/consumequeue/t/0/{first * 20:020d}")
    store = open_store(disk, metrics=metrics)
    queue = store.topics["t"].queues[0]
    for offset, count in reads:
        assert FILLER not in queue.read(offset, count)
    assert bodies(store) == {number: b"body %d" % number for number in range(60)}
    assert metrics.value("pyddmq_store_units_repaired_total") == 16
    assert metrics.value("pyddmq_store_units_lost_total") == 0
    store.close()
    assert bodies(open_store(disk)) == {number: b"body %d" % number for number in range(60)}


def test_emptied_units_are_found_however_far_apart_their_records_are() -> None:
    """A lost sector of a quiet queue's file is made anew, though its neighbours are of no help."""
    disk = SimDisk()
    store = filled(disk, count=0)
    store.create_topic("quiet", 1)
    for number in range(20):
        append(store, b"q%d" % number, topic="quiet")
        append(store, *[b"x" * 300] * 30)
        store.flush()
    store.close()
    disk.open(f"{ROOT}/consumequeue/quiet/0/{0:020d}").write(2 * 20, [bytes(6 * 20)])
    disk.open(f"{ROOT}/consumequeue/quiet/0/{160:020d}").write(0, [bytes(8 * 20)])
    assert bodies(open_store(disk), "quiet") == {number: b"q%d" % number for number in range(20)}


def test_torn_tail_is_cut_zeroed_and_written_over() -> None:
    """A record whose end is missing is cut; its old bytes are gone before the next append (D3)."""
    disk, metrics = SimDisk(), Metrics()
    store = filled(disk)
    end = store.end
    [torn] = append(store, b"t" * 500)
    store.flush()
    disk.kill()
    file = disk.open(SEGMENT)
    file.write(torn.physical + 300, [bytes(400)])
    store = open_store(disk, metrics=metrics)
    assert store.recovery.truncated_to == end == torn.physical
    assert metrics.value("pyddmq_store_tails_cut_total") == 1
    assert not disk.open(SEGMENT).read(end, 4096).strip(b"\x00")
    [again] = append(store, b"again")
    store.flush()
    assert (again.offset, again.physical) == (6, end)
    assert bodies(store)[6] == b"again"


def test_old_record_at_the_new_tail_is_never_taken_for_a_new_one() -> None:
    """What was cut does not come back when a later stop tears exactly there."""
    disk = SimDisk()
    store = filled(disk, count=3)
    positions = append(store, b"x" * 100, b"y" * 100)
    store.flush()
    disk.kill()
    disk.open(SEGMENT).write(positions[0].physical + 50, [bytes(20)])
    disk.open(SEGMENT).write(positions[1].physical + 50, [bytes(20)])
    store = open_store(disk)
    assert store.recovery.truncated_to == positions[0].physical
    disk.kill()
    store = open_store(disk)
    assert (store.recovery.truncated_to, len(bodies(store))) == (None, 3)


def test_hole_is_kept_reported_and_leaves_fillers() -> None:
    """Damage with valid records behind it costs its own records and nothing after it (D3)."""
    disk, metrics = SimDisk(), Metrics()
    store = filled(disk)
    units = store.topics["t"].queues[0].read(0, 6)
    disk.kill()
    for place in (2, 3):
        disk.flip_bit(SEGMENT, units[place][0] + 90)
    store = open_store(disk, metrics=metrics)
    facts = store.recovery
    assert (facts.holes, facts.truncated_to, facts.fillers) == (((units[2][0], units[4][0]),), None, 2)
    assert metrics.value("pyddmq_store_holes_total") == 1
    assert metrics.value("pyddmq_store_hole_bytes_total") == units[4][0] - units[2][0]
    assert store.topics["t"].queues[0].read(2, 2) == [FILLER, FILLER]
    assert bodies(store) == {0: b"body 0", 1: b"body 1", 2: None, 3: None, 4: b"body 4", 5: b"body 5"}
    store.close()
    assert [body is None for body in bodies(open_store(disk)).values()] == [False, False, True, True, False, False]


def test_hole_is_found_again_when_the_queues_are_rebuilt() -> None:
    """A store with a hole may lose its checkpoint, too: the scan passes over the empty bytes once more."""
    disk = SimDisk()
    store = filled(disk, count=200, segment_bytes=1 << 16)
    units = store.topics["t"].queues[0].read(0, 200)
    store.close()
    start, end = units[20][0], units[150][0]
    assert end - start > 3 * 4096
    disk.open(SEGMENT).write(start, [bytes(end - start)])
    disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
    store = open_store(disk, segment_bytes=1 << 16)
    assert store.recovery.holes == ((start, end),)
    assert [body for body in bodies(store).values() if body] == [b"body %d" % n for n in (*range(20), *range(150, 200))]


def test_hole_over_a_segment_border_is_kept() -> None:
    """Resynchronising goes on in the next segment."""
    disk = SimDisk()
    store = filled(disk, count=60)
    units = store.topics["t"].queues[0].read(0, 60)
    border = next(place for place in range(60) if units[place][0] >= 4096)
    disk.kill()
    disk.flip_bit(SEGMENT, units[border - 1][0] + 90)
    store = open_store(disk)
    assert store.recovery.holes == ((units[border - 1][0], 4096),)
    assert [offset for offset, body in bodies(store).items() if body is None] == [border - 1]


def test_missing_segment_in_the_middle_is_a_hole() -> None:
    """A lost segment file costs its own records."""
    disk = SimDisk()
    store = filled(disk, count=80)
    units = store.topics["t"].queues[0].read(0, 80)
    disk.kill()
    disk.remove(f"{ROOT}/commitlog/{4096:020d}")
    store = open_store(disk)
    assert len(store.recovery.holes) == 1
    lost = {place for place, unit in enumerate(units) if 4096 <= unit[0] < 8192}
    assert lost
    assert bodies(store) == {place: None if place in lost else b"body %d" % place for place in range(80)}


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_incomplete_atomic_batch_at_the_tail_is_cut_whole(damaged: int) -> None:
    """Of a batch whose write was torn nothing is seen, whichever member is missing (D8)."""
    disk, metrics = SimDisk(), Metrics()
    store = filled(disk, count=2)
    positions = append(store, b"b0", b"b1", b"b2", atomic=True)
    store.flush()
    disk.kill()
    disk.flip_bit(SEGMENT, positions[damaged].physical + 89)
    store = open_store(disk, metrics=metrics)
    assert store.recovery.truncated_to == positions[0].physical
    assert store.recovery.holes == ()
    assert metrics.value("pyddmq_store_batches_cut_total") == 1
    assert [body for body in bodies(store).values() if body is not None] == [b"body 0", b"body 1"]


def test_complete_atomic_batch_at_the_tail_is_kept() -> None:
    """A whole batch survives as it was."""
    disk = SimDisk()
    store = filled(disk, count=2)
    append(store, b"b0", b"b1", b"b2", atomic=True)
    store.flush()
    disk.kill()
    store = open_store(disk)
    assert bodies(store) == {0: b"body 0", 1: b"body 1", 2: b"b0", 3: b"b1", 4: b"b2"}
    assert (store.recovery.batches_cut, store.recovery.truncated_to) == (0, None)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_batch_with_members_that_wait_is_whole_after_a_stop(topic: str) -> None:
    """Such a member names its real topic, as a copy of RocketMQ's does, and is none."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, count=2)
    put = Put(store.topics["t"], 0, b"b1", b"")
    waits = (
        store.waiting(DelayedPuts).put(put, 3)
        if topic.startswith("SCHEDULE")
        else store.waiting(TimedPuts).put(put, clock.wall_ms() + 60_000)
    )
    assert waits.topic.name == topic
    puts = [Put(store.topics["t"], 0, b"b0", b""), waits, Put(store.topics["t"], 0, b"b2", b"")]
    store.append(puts, born_ms=0, born_host=bytes(8), atomic=True)
    store.flush()
    disk.kill()
    store = open_store(disk)
    assert (store.recovery.batches_cut, store.recovery.batches_broken) == (0, 0)
    assert [*bodies(store).values()] == [b"body 0", b"body 1", b"b0", b"b2"]
    assert sum(queue.max_offset for queue in store.topics[topic].queues) == 1


def test_rolled_copy_of_a_batch_member_does_not_make_a_batch() -> None:
    """RocketMQ puts all properties again when it rolls a timer, this broker's batch mark, too."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, count=1)
    waits = store.waiting(TimedPuts).put(Put(store.topics["t"], 0, b"rolled", b""), clock.wall_ms() + 60_000)
    key = b"K" * 32
    block = waits.properties + b"UNIQ_KEY\x01%b\x02TIMER_ROLL_TIMES\x011\x02" % key + batch_property(1, 3)
    store.append([waits._replace(properties=block, unique_key=key)], born_ms=0, born_host=bytes(8))
    store.flush()
    disk.kill()
    store = open_store(disk)
    assert (store.recovery.batches_cut, store.recovery.batches_broken) == (0, 0)
    assert store.topics["rmq_sys_wheel_timer"].queues[0].max_offset == 1


def test_damage_in_a_batch_with_records_behind_it_costs_one_member() -> None:
    """Later records prove that the batch was written whole: only the damaged member is lost (D2)."""
    disk = SimDisk()
    store = filled(disk, count=1)
    positions = append(store, b"b0", b"b1", b"b2", atomic=True)
    append(store, b"after")
    store.flush()
    disk.kill()
    disk.flip_bit(SEGMENT, positions[1].physical + 89)
    store = open_store(disk)
    assert store.recovery.batches_broken >= 1
    assert bodies(store) == {0: b"body 0", 1: b"b0", 2: None, 3: b"b2", 4: b"after"}


def test_copied_properties_of_a_batch_member_do_not_make_a_batch() -> None:
    """A record made from another one's properties (a dead letter) carries no batch mark."""
    disk = SimDisk()
    store = filled(disk, count=0)
    append(store, b"b0", b"b1", atomic=True)
    store.flush()
    [(physical, size, _), _] = store.topics["t"].queues[0].read(0, 2)
    assert CRC_PREFIX in bytes(store.read(physical, size))
    body, block = split(store.read(physical, size))
    assert b"PYDDMQ_BATCH" not in block
    assert b"CRC32" not in block
    store.append([Put(store.topics["t"], 0, body, block, unique_key=b"k" * 32)], born_ms=0, born_host=bytes(8))
    store.flush()
    disk.kill()
    assert [*bodies(open_store(disk)).values()] == [b"b0", b"b1", b"b0"]


def test_recovery_reports_progress() -> None:
    """A long scan tells how far it is."""
    disk = SimDisk()
    store = open_store(disk, segment_bytes=1 << 21)
    store.create_topic("t", 1)
    for _ in range(9):
        append(store, *[b"x"] * 1000)
    store.flush()
    disk.kill()
    seen: list[RecoveryProgress] = []
    store = open_store(disk, segment_bytes=1 << 21, progress=seen.append)
    assert [each.scanned_bytes for each in seen] == sorted(each.scanned_bytes for each in seen)
    steps = [each for each in seen if 0 < each.scanned_bytes < store.end]
    assert len(steps) >= 9000 // 256
    assert all(each.total_bytes == 1 << 21 for each in steps)
    assert all(later.records - each.records <= 256 for each, later in itertools.pairwise(steps))


def run_until_stop(disk: SimDisk, random: Random, clock: ManualClock, acknowledged: dict[int, bytes]) -> None:
    """Append until the machine stops; `acknowledged` gets the body of every offset whose `done` said so."""
    store = open_store(disk, clock=clock, seed=random.getrandbits(32))
    queue = store.create_topic("t", 1).queues[0]
    while True:
        for _ in range(random.randint(1, 4)):
            count = random.randint(1, 5)
            made = [b"%d:" % random.getrandbits(40) + bytes(random.randint(0, 600)) for _ in range(count)]
            positions = append(store, *made, atomic=random.random() < 0.3 and sum(map(len, made)) < 2500)
            stored = dict(zip((position.offset for position in positions), made, strict=True))
            store.commit.when_reported(lambda error, stored=stored: acknowledged.update(stored))  # type: ignore[misc]
        store.flush()
        assert queue.max_offset == max(acknowledged) + 1
        clock.advance(random.choice((0.1, 20)))
        if random.random() < 0.3:
            store.checkpoint()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), stops=st.lists(st.integers(0, 120), min_size=1, max_size=4))
def test_every_acknowledged_append_survives_any_stop(seed: int, stops: list[int]) -> None:
    """Wherever the machine stops: all that was acknowledged is there unchanged, nothing damaged is handed out."""
    random, disk, clock = Random(seed), SimDisk(), ManualClock()
    acknowledged: dict[int, bytes] = {}
    for changes in stops:
        disk.stop_after(changes)
        with pytest.raises(PowerCut):
            run_until_stop(disk, random, clock, acknowledged)
        if random.random() < 0.5:
            disk.kill()
        else:
            disk.crash(random)
        store = open_store(disk, clock=clock, seed=random.getrandbits(32))
        found = bodies(store) if "t" in store.topics else {}
        assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
        assert list(found) == list(range(len(found)))
        # What was not acknowledged may be there or not; from now on it is as good as acknowledged.
        acknowledged.update({offset: body for offset, body in found.items() if body is not None})
        store.close()
        store = open_store(disk, clock=clock)
        assert (bodies(store) if "t" in store.topics else {}) == found
        store.close()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_flipped_bit_costs_at_most_its_own_record(seed: int) -> None:
    """One flipped bit anywhere in log or queue files: no wrong body is ever read, and one record at most is lost."""
    random, disk = Random(seed), SimDisk()
    store = filled(disk, count=30)
    wanted = bodies(store)
    end = store.end
    if random.random() < 0.5:
        store.close()
    else:
        disk.kill()
    if random.random() < 0.7 or not disk.list(f"{ROOT}/consumequeue/t/0"):
        at = random.randrange(end)
        disk.flip_bit(f"{ROOT}/commitlog/{at // 4096 * 4096:020d}", at % 4096, random.randrange(8))
    else:
        name = random.choice(disk.list(f"{ROOT}/consumequeue/t/0"))
        disk.flip_bit(f"{ROOT}/consumequeue/t/0/{name}", random.randrange(160), random.randrange(8))
    store = open_store(disk)
    found = bodies(store)
    wrong = {offset for offset in wanted if found.get(offset) != wanted[offset]}
    assert len(wrong) <= 1
    assert all(found.get(offset) is None for offset in wrong)


def test_records_of_a_failed_sync_that_a_restart_shows_are_made_durable() -> None:
    """What a restart reads from the page cache after a failed sync survives a power loss; a mere sync would not do."""
    disk = SimDisk()
    store = filled(disk, count=3)
    disk.fail("sync", path_part="commitlog")
    append(store, b"late")
    store.flush()
    assert store.failed is not None
    store.abandon()
    disk.kill()
    store = open_store(disk)
    shown = bodies(store)
    assert shown[3] == b"late"
    store.abandon()
    disk.crash(Random(1))
    store = open_store(disk)
    assert bodies(store) == shown
    store.close()
