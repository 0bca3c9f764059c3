"""The record's layout, byte for byte, and what counts as a record."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import DamagedRecord
from broker.format.record import (
    BATCH_BYTES,
    CRC_BYTES,
    batch_property,
    born_host,
    born_timestamp,
    check,
    crc_property,
    physical_offset,
    prepared_offset,
    queue_id,
    queue_offset,
    reconsume_times,
    split,
    store_timestamp,
    sum_matches,
)
from broker.log.put import Put
from broker.runtime.sums import crc32
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT, open_store


def plain(
    *,
    body: bytes = b"hello",
    topic: bytes = b"t",
    block: bytes = b"a\x01b\x02",
    magic: bytes = b"\xda\xa3\x20\xa7",
    sys_flag: int = 0,
    physical: int = 0,
    seal: bool = False,
) -> bytes:
    """A record put together field by field, as the layout's table says; nothing of the product is used."""

    def i32(value: int) -> bytes:
        return value.to_bytes(4, "big", signed=True)

    def i64(value: int) -> bytes:
        return value.to_bytes(8, "big", signed=True)

    block_bytes = len(block) + (20 if seal else 0)
    rest = b"".join(
        (
            magic,
            i32(zlib.crc32(body) & 0x7FFFFFFF),
            i32(3),
            i32(0),
            i64(77),
            i64(physical),
            i32(sys_flag),
            i64(1_600_000_000_001),
            (bytes(range(16)) if sys_flag & 0x10 else b"\x0a\x00\x00\x01") + i32(1234),
            i64(1_700_000_000_000),
            (bytes(range(16, 32)) if sys_flag & 0x20 else b"\x7f\x00\x00\x01") + i32(9613),
            i32(2),
            i64(4096),
            i32(len(body)),
            body,
            len(topic).to_bytes(1 if magic.endswith(b"\xa7") else 2, "big"),
            topic,
            block_bytes.to_bytes(2, "big"),
            block,
        )
    )
    record = i32(4 + len(rest) + (20 if seal else 0)) + rest
    if seal:
        digits = f"{zlib.crc32(record) & 0x7FFFFFFF:010d}"[::-1]
        record += b"__CRC32#\x01" + digits.encode() + b"\x02"
    return record


def test_stored_record_is_rocketmqs_byte_for_byte() -> None:
    """What the store writes is the table's layout with the closing sum."""
    disk = SimDisk()
    store = open_store(disk, clock=ManualClock(1_700_000_000_000), store_host=b"\x7f\x00\x00\x01\x00\x00\x25\x8d")
    topic = store.create_topic("t", 4)
    block = b"TAGS\x01TagA\x02UNIQ_KEY\x01k\x02"
    put = Put(topic, 3, b"hello", block, b"TagA", b"k", prepared_offset=4096, reconsume_times=2)
    topic.queues[3].start_at(77, 77)
    store.append([put], born_ms=1_600_000_000_001, born_host=b"\x0a\x00\x00\x01\x00\x00\x04\xd2")
    store.flush()
    wanted = plain(block=block, seal=True)
    assert disk.open(f"{ROOT}/commitlog/{0:020d}").read(0, len(wanted) + 8) == wanted + bytes(8)


def test_known_sums() -> None:
    """CRC-32 is the common one with the top bit cleared; its property has the lowest digit first."""
    assert crc32(b"hello") & 0x7FFFFFFF == 907060870
    assert crc_property(907060870) == b"__CRC32#\x010780607090\x02"
    assert crc_property(5) == b"__CRC32#\x015000000000\x02"
    assert len(crc_property(0)) == CRC_BYTES == 20
    assert len(batch_property(0, 3)) == BATCH_BYTES


@pytest.mark.parametrize("magic", [b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"])
@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("seal", [True, False])
def test_every_form_of_rocketmqs_records_is_read(magic: bytes, sys_flag: int, seal: bool) -> None:
    """Both versions, IPv4 and IPv6 hosts, with and without the sum."""
    record = memoryview(plain(magic=magic, sys_flag=sys_flag, seal=seal, physical=16))
    body, block = split(record)
    assert (bytes(body), block) == (b"hello", b"a\x01b\x02")
    assert (queue_id(record), queue_offset(record), physical_offset(record)) == (3, 77, 16)
    assert (born_timestamp(record), store_timestamp(record)) == (1_600_000_000_001, 1_700_000_000_000)
    assert (reconsume_times(record), prepared_offset(record)) == (2, 4096)
    assert len(born_host(record)) == (20 if sys_flag & 0x10 else 8)
    view = memoryview(bytes(16) + record)
    entry = check(view, 16, len(view), 16)
    assert entry is not None
    assert (entry.topic, entry.queue_id, entry.queue_offset, entry.size) == (b"t", 3, 77, len(record))
    assert check(view, 16, len(view), 17) is None
    assert check(view, 16, len(view) - 1, 16) is None


@given(st.binary(max_size=40), st.data())
def test_sealed_record_with_any_flipped_bit_is_refused(body: bytes, data: st.DataObject) -> None:
    """No flipped bit gets past the check."""
    record = bytearray(plain(body=body, seal=True))
    assert check(memoryview(record), 0, len(record), 0) is not None
    at = data.draw(st.integers(0, len(record) - 1))
    record[at] ^= 1 << data.draw(st.integers(0, 7))
    assert check(memoryview(record), 0, len(record), 0) is None


@given(st.binary(max_size=40), st.data())
def test_sealed_record_with_a_zeroed_stretch_is_refused(body: bytes, data: st.DataObject) -> None:
    """A torn write leaves zeros; a record that lost its sum to them is not taken for one of RocketMQ's."""
    whole = plain(body=body, seal=True)
    start = data.draw(st.integers(0, len(whole) - 1))
    record = bytearray(whole)
    end = data.draw(st.one_of(st.just(len(whole)), st.integers(start + 1, len(whole))))
    record[start:end] = bytes(end - start)
    if record != whole:
        assert check(memoryview(record), 0, len(record), 0) is None


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"p\x01a\x00b\x02TAGS\x01TagA\x02",
        b"p\x01ends in a zero\x00\x02",
        b"p\x01" + b"x" * 30 + bytes(19) + b"x\x02",
        b"UNIQ_KEY\x01k\x02myCRC32\x0177\x02",
        b"p\x01one\x02two\x02q\x01three\x02",
        b"UNIQ_KEY\x010123456789ABCDEF0123456789ABCDEF\x02p\x011234567890",
    ],
)
def test_unsealed_record_is_taken_whatever_its_properties_hold(block: bytes) -> None:
    """RocketMQ's clients let zeros and separators through in a value, and so does reading."""
    record = plain(block=block)
    found = check(memoryview(record), 0, len(record), 0)
    assert found is not None
    assert found.properties == block


@pytest.mark.parametrize("zeros", [(0, 20), (0, 5), (15, 20), (19, 20), (3, 9)])
def test_worn_sum_is_not_taken_for_a_property(zeros: tuple[int, int]) -> None:
    """Zeros in the place of a part of the sum: one of our own records, torn."""
    record = bytearray(plain(seal=True))
    start, end = (len(record) - CRC_BYTES + at for at in zeros)
    record[start:end] = bytes(end - start)
    assert check(memoryview(record), 0, len(record), 0) is None


def test_transaction_records_have_no_unit() -> None:
    """Prepared and rollback records stand in the log only; committed ones are indexed."""
    for sys_flag, indexed in ((0, True), (0x4, False), (0x8, True), (0xC, False)):
        record = plain(sys_flag=sys_flag, seal=True)
        found = check(memoryview(record), 0, len(record), 0)
        assert found is not None
        assert found.indexed is indexed


@given(st.binary(max_size=200))
def test_garbage_is_damage_and_nothing_else(garbage: bytes) -> None:
    """Bytes that are no record give DamagedRecord, or None from the check."""
    view = memoryview(garbage)
    if len(garbage) >= 91:
        assert check(view, 0, len(view), 0) is None
        assert not sum_matches(view)
        with pytest.raises(DamagedRecord):
            split(view)
