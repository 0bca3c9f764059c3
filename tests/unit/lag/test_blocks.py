"""Files of blocks: the head says whose they are, sums say what is whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lag.blocks import (
    EPOCH_MAX,
    PAYLOAD_BYTES_MAX,
    BlockReader,
    FileHead,
    FileKind,
    GapKind,
    encode_block,
    encode_head,
    salt_of,
)
from pyddmq.testing.sim_disk import SimDisk

HEAD = FileHead(kind=FileKind.RAW, cluster="c", node="n", epoch=7, sequence=0, first_ms=0, last_ms=9)


def file_of(data: bytes) -> SimDisk:
    """Return a disk with a file of these bytes."""
    disk = SimDisk()
    disk.open("/f", create=True).write(0, [data])
    return disk


def with_blocks(*payloads: bytes) -> bytes:
    """Return a file with these blocks."""
    data = head = encode_head(HEAD)
    for payload in payloads:
        data += encode_block(salt_of(head), len(data), payload) + payload
    return data


@given(
    st.builds(
        FileHead,
        kind=st.sampled_from(FileKind),
        cluster=st.text(),
        node=st.text(),
        epoch=st.integers(0, EPOCH_MAX),
        sequence=st.integers(0, 1 << 60),
        first_ms=st.integers(-(1 << 60), 1 << 60),
        last_ms=st.integers(1 << 60, 1 << 61),
        interval_ms=st.integers(0, 1 << 40),
        group=st.text(),
    )
)
def test_head_comes_back(head: FileHead) -> None:
    """Every field."""
    reader = BlockReader(file_of(encode_head(head)), "/f")
    assert reader.head == head
    assert list(reader) == []
    assert reader.damage is None


def test_blocks_come_back_in_order_and_positions_name_the_next() -> None:
    """Also such as are longer than what is read at a time."""
    payloads = [b"a", b"b" * 300_000, b"c" * 7]
    data = with_blocks(*payloads)
    reader = BlockReader(file_of(data), "/f")
    assert list(reader) == payloads
    assert reader.position == len(data)


def test_file_that_grows_is_read_to_where_it_was_whole() -> None:
    """Whoever reads on after a torn block opens it anew."""
    data = with_blocks(b"one", b"two")
    disk = file_of(data[:-1])
    reader = BlockReader(disk, "/f")
    assert list(reader) == [b"one"]
    assert reader.damage is not None
    assert reader.damage.kind is GapKind.TORN
    disk.open("/f").write(len(data) - 1, [data[-1:]])
    assert list(BlockReader(disk, "/f")) == [b"one", b"two"]


def test_blocks_that_changed_places_are_damage() -> None:
    """Each sum is of a place."""
    head = encode_head(HEAD)
    data = with_blocks(b"one", b"two")
    one, two = data[len(head) : len(head) + 11], data[len(head) + 11 :]
    reader = BlockReader(file_of(head + two + one), "/f")
    assert list(reader) == []
    assert reader.damage is not None
    assert reader.damage.kind is GapKind.DAMAGED
    assert reader.damage.position == len(head)


@pytest.mark.parametrize("size", [0, PAYLOAD_BYTES_MAX + 1, 0xFFFFFFFF])
def test_length_that_no_block_has_is_damage(size: int) -> None:
    """No memory is taken for it."""
    data = encode_head(HEAD) + size.to_bytes(4, "little") + b"sum." + b"rest"
    reader = BlockReader(file_of(data), "/f")
    assert list(reader) == []
    assert reader.damage is not None
    assert reader.damage.kind is GapKind.DAMAGED


def test_zeros_behind_the_last_block_are_named() -> None:
    """As a power loss leaves them."""
    reader = BlockReader(file_of(with_blocks(b"one") + bytes(100)), "/f")
    assert list(reader) == [b"one"]
    assert reader.damage is not None
    assert reader.damage.kind is GapKind.TORN


def test_file_that_is_not_there_is_unreadable() -> None:
    """Retention may have taken it since it was listed."""
    reader = BlockReader(SimDisk(), "/f")
    assert reader.head is None
    assert reader.damage is not None
    assert reader.damage.kind is GapKind.UNREADABLE


def test_bytes_of_another_program_are_foreign() -> None:
    """Known by its first four bytes."""
    reader = BlockReader(file_of(b"PAR1" + bytes(40)), "/f")
    assert reader.damage is not None
    assert reader.damage.kind is GapKind.FOREIGN


@pytest.mark.parametrize("data", [b"", b"\xa5P", encode_head(HEAD)[:10], encode_head(HEAD)[:-1]])
def test_head_that_is_cut_is_torn(data: bytes) -> None:
    """Its writer was stopped at once."""
    reader = BlockReader(file_of(data) if data else file_of(b""), "/f")
    assert reader.damage is not None
    assert reader.damage.kind is GapKind.TORN
