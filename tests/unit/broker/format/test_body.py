"""Bodies as RocketMQ's producers packed them: unpacked in bounded memory, or refused with the reason."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from random import Random

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import BodyUnusable
from broker.format.body import (
    ZSTD_WINDOW_BYTES_MAX,
    BodyPacked,
    body_limit,
    locate_body,
    locate_unpacked,
    split_body,
    unpack,
)
from broker.format.record import HEADER, MAGIC_V1
from broker.format.record import split as split_raw


def zstd(body: bytes) -> bytes:
    """Compress as a stream, which does not say its length."""
    stream = zstandard.ZstdCompressor(level=5).compressobj()
    return stream.compress(body) + stream.flush()


PACKERS: dict[int, Callable[[bytes], bytes]] = {
    0x001: zlib.compress,
    0x101: lz4.frame.compress,
    0x201: zstd,
    0x301: zlib.compress,
}


FLAGS = sorted(PACKERS)
BOMB_BYTES = 200 << 20


def record(body: bytes, flags: int, block: bytes = b"KEYS\x01k\x02") -> memoryview:
    """A commit-log record with a sysFlag."""
    tail = b"\x01t" + len(block).to_bytes(2, "big") + block
    size = 88 + len(body) + len(tail)
    return memoryview(
        HEADER.pack(size, MAGIC_V1, 0, 0, 0, 7, 9, flags, 0, bytes(8), 0, bytes(8), 0, 0, len(body)) + body + tail
    )


@pytest.mark.parametrize("flags", FLAGS)
@given(body=st.one_of(st.binary(max_size=300), st.binary(max_size=9).map(lambda part: part * 5000)))
def test_packed_body_is_unpacked(flags: int, body: bytes) -> None:
    """Whatever was compressed comes back byte for byte, with the record's own properties behind it."""
    packed = record(PACKERS[flags](body), flags)
    view, body_at, body_end, block_at, end = locate_body(packed, 1 << 20)
    assert bytes(view[body_at:body_end]) == body
    assert bytes(view[block_at:end]) == b"KEYS\x01k\x02"
    assert [bytes(part) for part in split_body(packed, 1 << 20)] == [body, b"KEYS\x01k\x02"]


@pytest.mark.parametrize("flags", FLAGS)
@given(data=st.data())
def test_damaged_stream_is_never_handed_out(flags: int, data: st.DataObject) -> None:
    """A stream that is cut is refused; one with a flipped bit too, or it stays within the limit where it has no sum."""
    packed = PACKERS[flags](Random(1).randbytes(500) * 3)
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(BodyUnusable) as caught:
        unpack(packed[:cut], flags, 1 << 20)
    assert caught.value.reason == "damaged"
    at, bit = data.draw(st.integers(0, len(packed) - 1)), data.draw(st.integers(0, 7))
    flipped = bytearray(packed)
    flipped[at] ^= 1 << bit
    with suppress(BodyUnusable):
        assert len(unpack(flipped, flags, 5000)) <= 5000


@pytest.mark.parametrize("flags", FLAGS)
def test_body_at_the_limit_is_unpacked_and_above_it_refused(flags: int) -> None:
    """The limit is of the unpacked body, to the byte."""
    packed = PACKERS[flags](bytes(1000))
    assert unpack(packed, flags, 1000) == bytes(1000)
    with pytest.raises(BodyUnusable, match="more than 999 bytes") as caught:
        unpack(packed, flags, 999)
    assert caught.value.reason == "too_large"


@pytest.mark.parametrize("flags", FLAGS)
def test_bomb_takes_no_more_memory_than_the_limit(flags: int) -> None:
    """200 MiB of zeros in a few KiB are given up above the limit, in a process that has less memory than that."""
    program = (
        "import resource, sys\n"
        "from broker.format.body import unpack\n"
        "from broker.errors import BodyUnusable\n"
        "import lz4.frame, zstandard\n"
        "packed = sys.stdin.buffer.read()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"try: unpack(packed, {flags}, 1 << 20)\n"
        "except BodyUnusable as error: reason = error.reason\n"
        "print(reason, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    packed = PACKERS[flags](bytes(BOMB_BYTES))
    done = subprocess.run([sys.executable, "-c", program], input=packed, capture_output=True, check=True)
    reason, grown_kib = done.stdout.split()
    assert reason == b"too_large"
    assert int(grown_kib) < 32 << 10


def test_zstd_window_is_bounded() -> None:
    """A frame that asks for a window of 128 MiB is refused before memory is taken for it."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = stream.compress(bytes(1000)) + stream.flush()
    assert ZSTD_WINDOW_BYTES_MAX < 1 << 27
    with pytest.raises(BodyUnusable) as caught:
        unpack(packed, 0x201, 1 << 20)
    assert caught.value.reason == "damaged"


def test_frames_in_a_row_are_one_body() -> None:
    """As RocketMQ's own readers have it."""
    for flags in (0x101, 0x201):
        packed = PACKERS[flags]
        assert unpack(packed(b"one") + packed(b"two"), flags, 100) == b"onetwo"
        with pytest.raises(BodyUnusable):
            unpack(packed(b"one") + b"?", flags, 100)
        with pytest.raises(BodyUnusable) as caught:
            unpack(packed(b"one") + packed(b"two"), flags, 5)
        assert caught.value.reason == "too_large"


@pytest.mark.parametrize("flags", [0x401, 0x501, 0x601, 0x701])
def test_unknown_compression_is_told(flags: int) -> None:
    """A method that RocketMQ does not have is no guess."""
    with pytest.raises(BodyUnusable, match=f"unknown method, number {flags >> 8}") as caught:
        unpack(zlib.compress(b"x"), flags, 100)
    assert caught.value.reason == "unknown_compression"


@pytest.mark.parametrize("flags", [0x80, 0x40, 0xC1])
def test_inner_batch_is_told(flags: int) -> None:
    """A batch in one record is never handed out as one message."""
    with pytest.raises(BodyUnusable, match="inner batch") as caught:
        locate_body(record(b"members", flags), 100)
    assert caught.value.reason == "inner_batch"


@pytest.mark.parametrize(("flags", "module", "name"), [(0x101, "lz4", "LZ4"), (0x201, "zstandard", "ZSTD")])
def test_missing_library_is_told(flags: int, module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the package and the extra."""
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.frame", None)
    with pytest.raises(BodyUnusable, match=rf"{name}.*{module}.*pyddmq\[rocketmq\]") as caught:
        unpack(PACKERS[flags](b"x"), flags, 100)
    assert caught.value.reason == "no_library"


def test_plain_record_is_located_without_a_copy() -> None:
    """The way of nearly every record; compression bits without the bit that says compressed mean nothing."""
    plain = record(b"body", 0x300)
    assert locate_unpacked(plain)[0] is plain
    assert locate_body(plain, 1)[0] is plain
    assert bytes(split_raw(plain)[0]) == b"body"
    with pytest.raises(BodyPacked):
        locate_unpacked(record(b"body", 0x301))


def test_limit_is_rocketmqs_or_the_stores_whichever_is_larger() -> None:
    """A small node still serves what RocketMQ took."""
    assert [body_limit(size) for size in (1000, 4 << 20, 5 << 20)] == [4 << 20, 4 << 20, 5 << 20]
