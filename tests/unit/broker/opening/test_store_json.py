"""Geometry and checkpoints."""

from __future__ import annotations

import struct

import pytest

from broker.errors import StoreGeometryDiffers, StoreUnreadable
from broker.opening.store_json import AbortFile, CheckpointFile, Geometry, QueueCheckpoint, check_geometry
from broker.runtime.file_writes import at_once
from pyddmq.testing import SimDisk

SIZES = Geometry(segment_bytes=4096, queue_file_units=8, index_slots=16, index_entries=64)
POINT = QueueCheckpoint(log_end=900, last_record=700, store_ms=1234, queues={"t": [[0, 3], [1, 5]]}, index_ms=7)


def folders() -> SimDisk:
    """A disk with an empty store."""
    disk = SimDisk()
    disk.make_folder("/s/pyddmq")
    return disk


def test_checkpoint_stands_in_both_forms() -> None:
    """Ours has everything; RocketMQ's has five integers in 4,096 bytes."""
    disk = folders()
    file = CheckpointFile("/s", disk=disk)
    assert file.load() is None
    at_once(disk, file.writing(POINT))
    assert file.load() == POINT
    raw = disk.open("/s/checkpoint").read(0, 9999)
    assert len(raw) == 4096
    assert struct.unpack_from(">qqqqq", raw) == (1234, 1234, 7, 0, 900)
    assert file.index_ms() == 7


def test_damaged_checkpoint_is_none() -> None:
    """Everything in it can be derived, so damage is no error."""
    disk = folders()
    at_once(disk, CheckpointFile("/s", disk=disk).writing(POINT))
    disk.flip_bit("/s/pyddmq/checkpoint.json", 30)
    assert CheckpointFile("/s", disk=disk).load() is None


def test_geometry_is_kept_and_compared() -> None:
    """Each differing size is named with both values (D4)."""
    disk = folders()
    check_geometry("/s", SIZES, disk=disk, segment_bytes_found=None)
    check_geometry("/s", SIZES, disk=disk, segment_bytes_found=None)
    other = Geometry(segment_bytes=4096, queue_file_units=9, index_slots=16, index_entries=65)
    with pytest.raises(StoreGeometryDiffers) as error:
        check_geometry("/s", other, disk=disk, segment_bytes_found=None)
    assert error.value.differences == {"queue_file_units": (8, 9), "index_entries": (64, 65)}


def test_store_of_rocketmq_is_taken_when_its_segments_have_the_size() -> None:
    """A store without our file: the size of its segments decides."""
    with pytest.raises(StoreGeometryDiffers, match="segment_bytes 1073741824"):
        check_geometry("/s", SIZES, disk=folders(), segment_bytes_found=1 << 30)


def test_damaged_geometry_is_an_error() -> None:
    """Sizes cannot be guessed."""
    disk = folders()
    check_geometry("/s", SIZES, disk=disk, segment_bytes_found=None)
    disk.flip_bit("/s/pyddmq/store.json", 30)
    with pytest.raises(StoreUnreadable, match="checksum"):
        check_geometry("/s", SIZES, disk=disk, segment_bytes_found=None)


def test_abort_file_marks_an_open_store() -> None:
    """Present while open, with the process id; gone after a clean stop."""
    disk = folders()
    abort = AbortFile("/s", disk=disk)
    abort.create()
    abort.create()
    assert abort.exists()
    assert int(disk.open("/s/abort").read(0, 20)) > 0
    abort.remove()
    assert not abort.exists()
