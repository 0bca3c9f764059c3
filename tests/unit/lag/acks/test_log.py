"""The files of an ack log: bounded, and a bad disk costs records only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lag.acks.log import AckLog, AckLogLimits, read_acks
from lag.blocks import BlockGap, FileHead, FileKind, GapKind
from pyddmq.testing.sim_disk import PowerCut, SimDisk
from tests.unit.lag.acks.test_acks import batch

FOLDER = "/data/pyddmq/lag-acks/g"
HEAD = FileHead(kind=FileKind.ACKS, cluster="c", node="n", epoch=3, sequence=0, first_ms=0, last_ms=0, group="g")
LIMITS = AckLogLimits(free_bytes_min=0)


def log(disk: SimDisk, limits: AckLogLimits = LIMITS) -> AckLog:
    """Return the log of a start."""
    return AckLog(disk, FOLDER, HEAD, limits)


def offsets(disk: SimDisk) -> list[int]:
    """Return the offsets that are read."""
    return [offset for each in read_acks(disk, FOLDER) if not isinstance(each, BlockGap) for offset in each[1].offsets]


def gaps(disk: SimDisk) -> list[GapKind]:
    """Return what is missing."""
    return [each.kind for each in read_acks(disk, FOLDER) if isinstance(each, BlockGap)]


def test_batches_are_read_with_whose_they_are() -> None:
    """In the order of their writing, over starts."""
    disk = SimDisk()
    log(disk).add(batch(0))
    AckLog(disk, FOLDER, replace(HEAD, epoch=4), LIMITS).add(batch(10))
    found = [each for each in read_acks(disk, FOLDER) if not isinstance(each, BlockGap)]
    assert [(head.epoch, head.group, made) for head, made in found] == [(3, "g", batch(0)), (4, "g", batch(10))]


def test_files_are_bounded_and_the_oldest_goes() -> None:
    """Never more bytes than allowed."""
    disk = SimDisk()
    made = log(disk, replace(LIMITS, file_bytes=500, bytes_max=2000))
    for number in range(200):
        made.add(batch(10 * number))
    sizes = [disk.open(f"{FOLDER}/{name}").size() for name in disk.list(FOLDER)]
    assert len(sizes) > 1
    assert sum(sizes) <= 2000 + 200
    found = offsets(disk)
    assert found == list(range(found[0], 2000))
    assert found[0] > 0


def test_kill_at_any_change_leaves_whole_batches() -> None:
    """What `add` returned from is read again; the next start goes on."""
    stop = 1
    while True:
        disk, done = SimDisk(), 0
        made = log(disk, replace(LIMITS, file_bytes=150))
        disk.stop_after(stop)
        try:
            for number in range(6):
                made.add(batch(10 * number))
                done += 10
        except PowerCut:
            disk.kill()
            assert offsets(disk) in (list(range(done)), list(range(done + 10)))
            log(disk).add(batch(1000))
            assert offsets(disk)[-10:] == list(range(1000, 1010))
            stop += 1
        else:
            assert stop > 6
            return


def test_failed_write_drops_the_batch_and_the_next_begins_a_file() -> None:
    """Counted; nothing raises."""
    disk = SimDisk()
    made = log(disk)
    made.add(batch(0))
    disk.fail("write")
    made.add(batch(10))
    assert (made.written, made.dropped) == (10, 10)
    assert made.trouble is not None
    made.add(batch(20))
    assert offsets(disk) == [*range(10), *range(20, 30)]
    assert gaps(disk) == []


def test_last_space_is_left_to_the_store() -> None:
    """Below the bound nothing is written."""
    disk = SimDisk(capacity_bytes=1000)
    made = log(disk, AckLogLimits(free_bytes_min=2000))
    made.add(batch(0))
    assert (made.dropped, disk.list(FOLDER)) == (10, [])


class _Syncs:
    """Syncs that never end."""

    def __init__(self) -> None:
        self.begun = 0

    def begin(self, file: Any, done: Any) -> Any:
        self.begun += 1

    def begin_folder(self, path: str, done: Any) -> Any:
        """Nothing begins here."""


def test_end_of_a_full_file_waits_for_no_sync() -> None:
    """Where syncs are made beside the loop; the last one is waited for."""
    disk, syncs = SimDisk(), _Syncs()
    made = AckLog(disk, FOLDER, HEAD, replace(LIMITS, file_bytes=150), syncs=syncs)
    for number in range(6):
        made.add(batch(10 * number))
    made.close()
    assert syncs.begun == len(disk.list(FOLDER)) - 1 > 0
    assert offsets(disk) == list(range(60))
    assert gaps(disk) == []
