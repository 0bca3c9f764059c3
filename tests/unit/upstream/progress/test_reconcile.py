"""Where ack journal, `consumerOffset.json` and log disagree at start: whatever is in doubt comes again (D10, D11)."""

from __future__ import annotations

import json
import tracemalloc

from pyddmq.testing import SimDisk
from tests.unit.progress_world import (
    ACKS,
    GROUP,
    OFFSETS,
    ROOT,
    TOPIC,
    Node,
    append,
    finished,
    killed,
    open_store,
    rewrite_offset,
)
from upstream.progress import journal_format as form
from upstream.progress import reconcile
from upstream.progress.tracker import FailureKind
from upstream.retention_losses import MESSAGES_EXPIRED


def test_offset_changed_by_others_wins_and_drops_the_acks_above_it() -> None:
    """Mqadmin or a restore moved the offset: the file wins, forward and back (D10)."""
    for value in (2, 12):
        disk = SimDisk()
        node = Node(disk)
        node.publish(50)
        node.ack(*range(5), 20, 21)
        node.progress.fail(node.tracker(), 7, kind=FailureKind.FAIL, count=1, due_wall_ms=0)
        node.close()
        rewrite_offset(disk, value)
        node = Node(disk)
        assert finished(node) == set(range(value))
        assert node.tracker().failures == {}
        assert node.metrics.value(reconcile.OFFSETS_FOREIGN, GROUP) == 1
        assert node.metrics.value(reconcile.ACKS_DROPPED, GROUP) == 2
        node.ack(30)
        node = killed(node)
        assert finished(node) == {*range(value), 30}
        assert node.metrics.value(reconcile.OFFSETS_FOREIGN, GROUP) == 0


def test_offset_gone_from_the_file_is_written_again() -> None:
    """A missing entry is not a move: what the journal knows stands."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(50)
    node.ack(*range(5), 20)
    node.close()
    rewrite_offset(disk, None)
    node = Node(disk)
    assert finished(node) == {*range(5), 20}
    assert node.metrics.value(reconcile.OFFSETS_MISSING, GROUP) == 1
    node = killed(node)
    assert node.metrics.value(reconcile.OFFSETS_MISSING, GROUP) == 0
    assert finished(node) == {*range(5), 20}


def lose_tail(disk: SimDisk, *, keep: int) -> None:
    """Let the log end before the record of queue offset `keep`, as a power cut under `flush: async` may."""
    physical = open_store(disk).topics[TOPIC].queues[0].read(keep, 1)[0][0]
    disk.kill()
    name = disk.list(f"{ROOT}/commitlog")[0]
    file = disk.open(f"{ROOT}/commitlog/{name}")
    file.write(physical, [bytes(file.size() - physical)])
    file.sync()
    for queue_file in disk.list(f"{ROOT}/consumequeue/{TOPIC}/0"):
        units = disk.open(f"{ROOT}/consumequeue/{TOPIC}/0/{queue_file}")
        units.write(keep * 20, [bytes(units.size() - keep * 20)])
        units.sync()


def test_offsets_beyond_a_lost_tail_are_clamped_before_the_first_append() -> None:
    """The log lost records that were acknowledged: what is written there next is not taken for finished (D11)."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(40)
    node.ack(*range(10), 20, 29, 30, 39)
    node.progress.fail(node.tracker(), 35, kind=FailureKind.ERROR, count=1, due_wall_ms=0)
    node.progress.commit()
    disk.kill()
    lose_tail(disk, keep=30)
    node = Node(disk)
    assert node.store.topics[TOPIC].queues[0].max_offset == 30
    node.publish(10)
    assert finished(node) == {*range(10), 20, 29}
    assert node.tracker().failures == {}
    node = killed(node)
    assert finished(node) == {*range(10), 20, 29}
    assert node.metrics.value(reconcile.OFFSETS_CLAMPED) == 0


def test_watermark_beyond_a_lost_tail_is_clamped_in_journal_and_file() -> None:
    """Also for a group that has no tracker here."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(40)
    node.ack(*range(40))
    node.close()
    file = disk.open(OFFSETS)
    table = json.loads(file.read(0, file.size()))
    table["offsetTable"][f"{TOPIC}@stranger"] = {"0": 37}
    text = json.dumps(table).encode()
    file.truncate(0)
    file.write(0, [text])
    file.sync()
    disk.kill()
    lose_tail(disk, keep=30)
    node = Node(disk)
    assert node.tracker().watermark == 30
    file = disk.open(OFFSETS)
    table = json.loads(file.read(0, file.size()))["offsetTable"]
    assert table == {f"{TOPIC}@{GROUP}": {"0": 30}, f"{TOPIC}@stranger": {"0": 30}}


def test_acks_of_records_that_were_replaced_behind_our_back_come_again() -> None:
    """The log was cut and written on without this journal: queue offsets there mean other messages now (D11)."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(40)
    node.ack(*range(10), 20)
    node.ack(35)
    disk.kill()
    lose_tail(disk, keep=30)
    append(open_store(disk), 20, body=b"other and longer")
    disk.kill()
    node = Node(disk)
    # The fence at 35 does not match, the one at 20 does: what it vouches for holds.
    assert finished(node) == {*range(10), 20}
    assert node.metrics.value(reconcile.ACKS_UNVOUCHED, GROUP) == 1


def test_watermark_below_the_oldest_message_is_moved_up_and_counted() -> None:
    """What retention deleted before the group finished it is counted, not waited for."""
    node = Node(SimDisk())
    node.publish(50)
    node.ack(3, 15)
    node.store.topics[TOPIC].queues[0].min_offset = 10
    tracker = node.tracker()
    assert tracker.watermark == 10
    assert tracker.is_finished(15)
    assert node.metrics.value(MESSAGES_EXPIRED, GROUP) == 9


def test_position_beyond_a_dead_letter_queue_that_lost_its_tail_is_clamped() -> None:
    """Dead letters appended after the cut are looked at again."""
    node = Node(SimDisk())
    node.store.create_topic(f"%DLQ%{GROUP}", 1, system=True)
    node.progress.dead_letters_done(f"%DLQ%{GROUP}", 0, 3)
    node.progress.flush()
    assert killed(node).progress.scan_position(f"%DLQ%{GROUP}", 0) == 0


def test_damaged_journal_is_counted_and_costs_redelivery_only() -> None:
    """Wherever the segment is damaged: the node starts, and only acknowledged offsets are finished."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(100)
    for offset in range(0, 60, 2):
        node.ack(offset)
    node.progress.commit()
    node.ack(*range(40, 50))
    (name,) = [name for name in disk.list(ACKS) if name.endswith(".acks")]
    file = disk.open(f"{ACKS}/{name}")
    data = file.read(0, file.size())
    used = len(data.rstrip(b"\0"))
    promised = {*range(0, 60, 2), *range(40, 50)}
    for place in range(0, used, 7):
        disk.kill()
        for each in disk.list(ACKS):
            disk.remove(f"{ACKS}/{each}")
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        disk.open(f"{ACKS}/{name}", create=True).write(0, [damaged])
        node = Node(disk)
        assert finished(node) <= promised
        assert node.metrics.value(reconcile.JOURNAL_DAMAGE) >= 1


def test_lost_snapshot_never_makes_a_group_skip_messages() -> None:
    """A tracker that was lost with its segment's beginning starts at the file's value, or at the oldest message."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(50)
    node.publish(50, queue_id=1)
    node.ack(*range(5))
    node.progress.commit()
    assert node.tracker(1, start=lambda: 20).watermark == 20
    node.ack(20, queue_id=1)
    disk.kill()
    (name,) = [name for name in disk.list(ACKS) if name.endswith(".acks")]
    disk.open(f"{ACKS}/{name}").write(0, [bytes(600)])
    node = Node(disk)
    assert node.metrics.value(reconcile.JOURNAL_DAMAGE, "snapshot") == 1
    assert node.tracker().watermark == 5
    assert node.tracker(1, start=lambda: 50).watermark == 0


def test_forged_range_far_above_the_watermark_is_clamped_and_told() -> None:
    """A block with a right sum that finishes what no queue holds takes no memory, and costs nothing that was acked."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(40)
    node.ack(*range(5), 20)
    forged = form.encode_acked(node.tracker().tracker_id, -1, [1 << 20, 1 << 28]) + form.encode(form.Dead(0, 1 << 29))
    node.progress._writer.stage(forged)
    node.progress.flush()
    disk.kill()
    tracemalloc.start()
    try:
        node = Node(disk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert finished(node) == {*range(5), 20}
    assert node.metrics.value(reconcile.OFFSETS_CLAMPED, GROUP) == 1
    assert node.metrics.value(reconcile.ACKS_DROPPED, GROUP) == (1 << 28) - (1 << 20) + 1
    assert killed(node).metrics.value(reconcile.OFFSETS_CLAMPED) == 0
