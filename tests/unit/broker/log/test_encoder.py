"""The encoder against the record's layout written out plainly."""

from __future__ import annotations

import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import MessageRefused
from broker.format.java import tags_code
from broker.format.properties import PROPERTIES_BYTES_MAX
from broker.format.record import (
    BATCH_MEMBERS_MAX,
    HEADER,
    HEADER_BORN_V6,
    MAGIC_V1,
    SYS_BORN_HOST_V6,
    crc_property,
)
from broker.format.unique_key import UniqueKeys
from broker.log.encoder import Encoder, Stamp
from broker.log.put import LogPosition, Put
from broker.options import StoreOptions
from broker.queues.consume_queue import UNIT_BYTES, ConsumeQueue
from broker.queues.topics import Topic, Topics
from pyddmq.testing import ManualClock, SimDisk

pytestmark = pytest.mark.usefixtures("each_accelerator_way")

OPTIONS = StoreOptions(segment_bytes=1 << 20, message_bytes_max=4096)


def make_topic(queues: int = 3) -> Topic:
    """A topic of its own."""
    disk = SimDisk()
    disk.make_folder("/store")
    return Topics("/store", disk=disk, clock=ManualClock(), queue_file_units=100).grow("permits", queues)


def encode(puts: list[Put], stamp: Stamp, *, atomic: bool) -> tuple[list[bytes], list[LogPosition]]:
    """Encode as an append at commit-log offset 1000 does; records and positions."""
    encoder = Encoder(OPTIONS, UniqueKeys(bytes(4), Random(1)))
    measured = encoder.measure(puts, stamp, atomic=atomic)
    physicals = [1000 + sum(measured.sizes[:place]) for place in range(len(puts))]
    touched: dict[ConsumeQueue, Topic] = {}
    buffers, positions, _ = encoder.encode(puts, measured, physicals, stamp, touched)
    assert set(touched) == {put.topic.queues[put.queue_id] for put in puts}
    joined = b"".join(buffers)
    records = [joined[at - 1000 : at - 1000 + size] for at, size in zip(physicals, measured.sizes, strict=True)]
    assert len(joined) == sum(measured.sizes)
    assert [position.physical for position in positions] == physicals
    return records, positions


def plain(put: Put, position: LogPosition, stamp: Stamp, mark: bytes) -> bytes:
    """The record, field by field."""
    if put.unique_key:
        block = put.properties if put.properties.endswith(b"\x02") else put.properties + b"\x02"
    else:
        block = put.properties + b"UNIQ_KEY\x01" + position.unique_key + b"\x02"
    rest = b"\x07permits" + (len(block + mark) + 20).to_bytes(2, "big") + block + mark
    v6 = len(stamp.born_host) == 20
    header = (HEADER_BORN_V6 if v6 else HEADER).pack(
        HEADER.size + 12 * v6 + len(put.body) + len(rest) + 20,
        MAGIC_V1,
        zlib.crc32(put.body) & 0x7FFFFFFF,
        put.queue_id,
        0,
        position.offset,
        position.physical,
        SYS_BORN_HOST_V6 if v6 else 0,
        stamp.born_ms,
        stamp.born_host,
        stamp.store_ms,
        OPTIONS.store_host,
        put.reconsume_times,
        put.prepared_offset,
        len(put.body),
    )
    record = header + bytes(put.body) + rest
    digits = f"{zlib.crc32(record) & 0x7FFFFFFF:010d}"[::-1]
    return record + f"__CRC32#\x01{digits}\x02".encode()


contents = st.tuples(
    st.integers(0, 2),
    st.binary(max_size=40) | st.just(b"large" * 800),
    st.sampled_from([b"", b"TAGS\x01a\x02", b"a\x01b\x02" * 70]),
    st.sampled_from([b"", b"a", b"paid"]),
    st.booleans(),
    st.sampled_from([0, 0, 77]),
    st.sampled_from([0, 0, 3]),
)


@given(
    st.lists(contents, min_size=1, max_size=5),
    st.sampled_from([8, 20]),
    st.booleans(),
    st.integers(-1, 1 << 41),
)
def test_records_have_the_layout_written_out(
    rows: list[tuple[int, bytes, bytes, bytes, bool, int, int]], host_bytes: int, atomic: bool, born_ms: int
) -> None:
    """Header, body, block, mark of a batch and sum, for both widths of hosts, new and moved messages in any mix."""
    topic = make_topic()
    stamp = Stamp(born_ms, bytes(range(host_bytes)), 1_700_000_000_000)
    puts = []
    for place, (queue_id, body, block, tags, moved, prepared, reconsumed) in enumerate(rows):
        key = b"KEY%05d" % place if moved else b""
        ending = b"UNIQ_KEY\x01%b" % key if moved else b""
        puts.append(Put(topic, queue_id, memoryview(body), block + ending, tags, key, prepared, reconsumed))
    records, positions = encode(puts, stamp, atomic=atomic)
    for place, (put, record, position) in enumerate(zip(puts, records, positions, strict=True)):
        mark = b"__PYDDMQ_BATCH\x01%05d/%05d\x02" % (place, len(puts)) if atomic else b""
        assert record == plain(put, position, stamp, mark)
        assert position.offset == sum(other.queue_id == put.queue_id for other in puts[:place])
    for queue in topic.queues:
        mine = [place for place, put in enumerate(puts) if put.queue_id == queue.queue_id]
        expected = b"".join(
            positions[place].physical.to_bytes(8, "big")
            + len(records[place]).to_bytes(4, "big")
            + tags_code(bytes(puts[place].tags)).to_bytes(8, "big", signed=True)
            for place in mine
        )
        assert queue.tail == expected
        assert len(expected) == len(mine) * UNIT_BYTES


@pytest.mark.parametrize("count", [1, 32, 1024, 1025])
def test_batch_of_any_size_numbers_its_members(count: int) -> None:
    """Each member has its place and their count; asking again gives the same."""
    stamp = Stamp(1, bytes(8), 2)
    for _ in range(2):
        topic = make_topic()
        records, positions = encode([Put(topic, 0, b"", b"")] * count, stamp, atomic=True)
        assert len({position.unique_key for position in positions}) == count
        for place, record in enumerate(records):
            assert b"\x02__PYDDMQ_BATCH\x01%05d/%05d\x02__CRC32#" % (place, count) in record


def test_measure_what_can_never_be_stored_refused() -> None:
    """A body, block, queue, record or batch beyond the limits."""
    topic = make_topic()
    encoder = Encoder(OPTIONS, UniqueKeys(bytes(4), Random(1)))
    stamp = Stamp(1, bytes(8), 2)
    block = b"a\x01%b\x02" % (b"v" * PROPERTIES_BYTES_MAX)
    for put, text in (
        (Put(topic, 0, bytes(4097), b""), "the body has 4097 bytes"),
        (Put(topic, 0, b"", block), "key, tags and properties have"),
        (Put(topic, 3, b"", b""), "has no queue 3; its queues are 0 to 2"),
        (Put(topic, -1, b"", b""), "has no queue -1"),
    ):
        with pytest.raises(MessageRefused, match=text):
            encoder.measure([put], stamp, atomic=False)
    with pytest.raises(MessageRefused, match="the batch of 300 needs"):
        encoder.measure([Put(topic, 0, bytes(4096), b"")] * 300, stamp, atomic=True)
    with pytest.raises(MessageRefused, match="the limit is 99999 messages"):
        encoder.measure([Put(topic, 0, b"", b"")] * (BATCH_MEMBERS_MAX + 1), stamp, atomic=True)
    small = Encoder(StoreOptions(segment_bytes=4096, message_bytes_max=1 << 20), UniqueKeys(bytes(4), Random(1)))
    with pytest.raises(MessageRefused, match="does not fit into one log file"):
        small.measure([Put(topic, 0, bytes(5000), b"")], stamp, atomic=False)


@given(st.lists(st.integers(0, (1 << 31) - 1), max_size=5))
def test_sum_is_ten_digits_backwards(crcs: list[int]) -> None:
    """Ten digits each, least significant first."""
    expected = [b"__CRC32#\x01" + (b"%010d" % crc)[::-1] + b"\x02" for crc in crcs]
    assert [crc_property(crc) for crc in crcs] == expected


@pytest.mark.parametrize("body", [b"small", bytes(8192)])
def test_measured_for_other_messages_is_not_encoded(body: bytes) -> None:
    """A body that grew since, or a place too few: nothing is handed to the log that takes other bytes than reserved."""
    topic, stamp = make_topic(), Stamp(1, bytes(8), 2)
    encoder = Encoder(StoreOptions(segment_bytes=1 << 20), UniqueKeys(bytes(4), Random(1)))
    put = Put(topic, 0, body, b"")
    measured = encoder.measure([put], stamp, atomic=False)
    with pytest.raises(AssertionError):
        encoder.encode([put._replace(body=body + b"more")], measured, [1000], stamp, {})
    with pytest.raises(AssertionError, match="a place for each message"):
        encoder.encode([put], measured, [], stamp, {})


def test_flags_of_all_records_are_told_together() -> None:
    """The bits of sysFlag that any of them has, whatever the others have."""
    topic, stamp = make_topic(), Stamp(1, bytes(8), 2)
    encoder = Encoder(OPTIONS, UniqueKeys(bytes(4), Random(1)))
    puts = [Put(topic, 0, b"", b"", sys_flag=flag) for flag in (0, 1, 4)]
    _, _, flags = encoder.encode(puts, encoder.measure(puts, stamp, atomic=False), [0, 500, 1000], stamp, {})
    assert flags == 5
