"""A message whose body holds what reads as a record of the log at its place: damage to it never brings that to life."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from broker.format.record import CRC_BYTES, HEADER_BYTES, crc_property
from broker.runtime.sums import crc32
from pyddmq.testing import SimDisk
from tests.fuzz.image import disk_of, image_of
from tests.integration.store_tools import ROOT, bodies, open_store

BIG: dict[str, Any] = {"segment_bytes": 1 << 16, "message_bytes_max": 1 << 15}
NESTED_AT = 200
LOG = f"{ROOT}/commitlog/{0:020d}"


def forged(physical: int, count: int) -> bytes:
    """Records of topic t with right sums that say of themselves that they stand from `physical` on."""
    disk = SimDisk()
    store = open_store(disk, **BIG)
    store.create_topic("t", 1)
    store.put("t", b"forged")
    [(at, size, _)] = store.topics["t"].queues[0].read(0, 1)
    found = b""
    for number in range(count):
        record = bytearray(store.read(at, size))
        struct.pack_into(">q", record, 20, 3 + number)
        struct.pack_into(">q", record, 28, physical + len(found))
        record[-CRC_BYTES:] = crc_property(crc32(bytes(record[:-CRC_BYTES])) & 0x7FFF_FFFF)
        found += record
    store.abandon()
    return found


def made(count: int, *, after: int = 3) -> tuple[dict[str, bytes], int, int]:
    """A killed store whose third message is the host of forged records; its files, place and size of that."""
    disk = SimDisk()
    store = open_store(disk, **BIG)
    store.create_topic("t", 1)
    for number in range(2):
        store.put("t", b"body %d" % number)
    place = store.end
    nested = forged(place + HEADER_BYTES + NESTED_AT, count)
    store.put("t", b"a" * NESTED_AT + nested + b"z" * 100)
    end = store.end
    for number in range(3, 3 + after):
        store.put("t", b"body %d" % number)
    store.abandon()
    disk.kill()
    files = {path: data for path, data in image_of(disk, ROOT).items() if "checkpoint" not in path}
    return files, place, end - place


def check_opened(files: dict[str, bytes], place: int, after: int) -> None:
    """Open, and find everything but the host."""
    disk = disk_of(files)
    store = open_store(disk, **BIG)
    found = bodies(store)
    assert b"forged" not in found.values(), place
    assert [found[number] for number in (0, 1)] == [b"body 0", b"body 1"]
    assert [found[number] for number in range(3, 3 + after)] == [b"body %d" % number for number in range(3, 3 + after)]
    store.abandon()


@pytest.mark.parametrize("count", [1, 3])
def test_any_damaged_byte_of_the_host_brings_no_record_in_its_body_to_life(count: int) -> None:
    """Header, body before and behind what is nested, topic, properties, sum: each byte by itself."""
    files, place, size = made(count)
    spared = range(HEADER_BYTES + NESTED_AT, size - 200)
    for at in [at for at in range(size) if at not in spared]:
        for bit in (0, 6):
            log = bytearray(files[LOG])
            log[place + at] ^= 1 << bit
            check_opened({**files, LOG: bytes(log)}, at, 3)


def test_damaged_host_at_the_end_of_the_log_is_cut_whole() -> None:
    """With nothing behind it."""
    files, place, _ = made(1, after=0)
    for at in [*range(16, 28), *range(36, HEADER_BYTES + NESTED_AT)]:
        log = bytearray(files[LOG])
        log[place + at] ^= 1
        check_opened({**files, LOG: bytes(log)}, at, 0)


def test_records_of_one_size_are_told_from_a_host() -> None:
    """A size that grew by a flipped bit to the end of another record hides none of those between."""
    disk = SimDisk()
    store = open_store(disk, **BIG)
    store.create_topic("t", 1)
    ends = []
    for number in range(12):
        store.put("t", b"%02d" % number + b"x" * 36)
        ends.append(store.end)
    size = ends[1] - ends[0]
    store.abandon()
    disk.kill()
    files = {path: data for path, data in image_of(disk, ROOT).items() if "checkpoint" not in path}
    for claimed in [size * count for count in (2, 3, 9, 10, 11)] + [1 << 14]:
        log = bytearray(files[LOG])
        struct.pack_into(">i", log, ends[0], claimed)
        again = open_store(disk_of({**files, LOG: bytes(log)}), **BIG)
        found = bodies(again)
        assert [number for number in range(12) if not found.get(number)] == [1], claimed
        again.abandon()
