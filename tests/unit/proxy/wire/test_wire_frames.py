"""FrameSplitter: every way to cut a stream gives the same frames, and what is no frame is refused before it costs."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.errors import FrameError
from proxy.wire.frames import FrameSplitter

LIMIT = 1_000


def framed(*payloads: bytes) -> bytes:
    """Put a length in front of each."""
    return b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)


def drain(splitter: FrameSplitter) -> list[bytes]:
    """Read out every complete frame."""
    frames = []
    while (frame := splitter.next()) is not None:
        frames.append(frame)
    return frames


def refusal(data: bytes, *, admin_hint: str = "") -> FrameError:
    """Feed bytes that are no frame and return the error."""
    splitter = FrameSplitter(LIMIT, admin_hint=admin_hint)
    splitter.feed(data)
    with pytest.raises(FrameError) as caught:
        splitter.next()
    return caught.value


def test_splitter_any_two_cuts_same_frames() -> None:
    """Wherever two cuts fall, also inside a length, the frames are the same."""
    payloads = [b"a", b"bc" * 9, b"d" * 5]
    stream = framed(*payloads)
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            splitter = FrameSplitter(LIMIT)
            frames: list[bytes] = []
            for piece in (stream[:first], stream[first:second], stream[second:]):
                splitter.feed(piece)
                frames += drain(splitter)
            assert frames == payloads
            assert splitter.buffered == 0
            assert not splitter.partial


@given(st.binary(max_size=12), st.one_of(st.binary(max_size=40), st.binary(min_size=1, max_size=20).map(framed)))
def test_splitter_whole_frame_is_what_feeding_gives(held: bytes, data: bytes) -> None:
    """Bytes that are said to be one frame are what `next` would have returned; what is held is never passed over."""
    splitter, other = FrameSplitter(LIMIT), FrameSplitter(LIMIT)
    for each in (splitter, other):
        each.feed(held)
        with contextlib.suppress(FrameError):
            drain(each)
    frame = splitter.whole(data)
    other.feed(data)
    if frame is not None:
        assert drain(other) == [frame]
    elif not held:
        assert data not in (framed(data[4:]), b"") or len(data) <= 4
    assert splitter.buffered == (0 if frame is not None else len(held) - _read(held))


def _read(held: bytes) -> int:
    """How many of the bytes belong to frames that were read out."""
    splitter = FrameSplitter(LIMIT)
    splitter.feed(held)
    with contextlib.suppress(FrameError):
        drain(splitter)
    return len(held) - splitter.buffered


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=40), st.data())
def test_splitter_any_pieces_same_frames(payloads: list[bytes], sizes: list[int], data: st.DataObject) -> None:
    """Pieces of any length, read out at once or later, give the frames in order."""
    stream = framed(*payloads)
    splitter = FrameSplitter(LIMIT)
    frames: list[bytes] = []
    for size in sizes:
        splitter.feed(stream[:size])
        stream = stream[size:]
        if data.draw(st.booleans()):
            assert splitter.ready == (len(frames) < len(payloads) and splitter.ready)
            ready = splitter.ready
            frame = splitter.next()
            assert (frame is not None) == ready
            frames += [] if frame is None else [frame]
    splitter.feed(stream)
    frames += drain(splitter)
    assert frames == payloads


def test_splitter_incomplete_frame_is_partial() -> None:
    """A begun frame shows as partial from its first byte until it is complete."""
    splitter = FrameSplitter(LIMIT)
    stream = framed(b"hello")
    for index in range(len(stream) - 1):
        splitter.feed(stream[index : index + 1])
        assert splitter.next() is None
        assert splitter.partial
    splitter.feed(stream[-1:])
    assert splitter.ready
    assert splitter.next() == b"hello"
    assert not splitter.partial


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"\x00\x00\x00\x00", "empty"),
        (b"\xff\xff\xff\xff", "negative"),
        (struct.pack(">I", LIMIT + 1) + b"no", "too_long"),
        (b"\x7f\xff\xff\xff", "too_long"),
        (b"\x80\x01\x00\x01", "unframed"),
        (b"\x82\x21\x01\x04", "unframed"),
        (b"\x16\x03\x01\x02", "tls"),
        (b"GET ", "http"),
        (b"POST", "http"),
        (b"PRI ", "http"),
    ],
)
def test_splitter_impossible_length_refused_from_four_bytes(head: bytes, reason: str) -> None:
    """Four bytes are enough to refuse what is no frame, with a reason to count and a sentence to read."""
    error = refusal(head)
    assert error.reason == reason
    assert error.closes
    assert len(str(error)) > 20


def test_splitter_longest_frame_passes() -> None:
    """The limit itself is allowed."""
    splitter = FrameSplitter(LIMIT)
    splitter.feed(framed(bytes(LIMIT)))
    assert splitter.next() == bytes(LIMIT)


def test_splitter_http_client_gets_an_answer_that_names_the_admin_port() -> None:
    """An HTTP client is told, in HTTP, where HTTP is served."""
    answer = refusal(b"GET / HTTP/1.1\r\n", admin_hint="http://127.0.0.1:9813/").answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"http://127.0.0.1:9813/" in body


def test_splitter_frames_before_garbage_come_first() -> None:
    """What arrived whole before a bad length takes effect; the error stays."""
    splitter = FrameSplitter(LIMIT)
    splitter.feed(framed(b"one", b"two") + bytes(4))
    assert [splitter.next(), splitter.next()] == [b"one", b"two"]
    for _ in range(2):
        assert splitter.ready
        with pytest.raises(FrameError):
            splitter.next()


def test_splitter_tiny_pieces_hold_little_more_than_the_frame() -> None:
    """A frame that arrives in pieces of two bytes costs a small multiple of its length, not an object per piece."""
    size = 100_000
    stream = framed(bytes(size))
    splitter = FrameSplitter(size)
    tracemalloc.start()
    try:
        for at in range(0, len(stream), 2):
            splitter.feed(stream[at : at + 2])
            assert splitter.next() is not None or at + 2 < len(stream)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * size
