"""Messages scanned by their shape against the same messages scanned field by field."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.wire import COMPACT, ArgumentsError, SendMessage, scan_compact_send
from proxy.wire.call import encode_varint
from proxy.wire.shapes_compact import Head, Numbers, Shapes, Tail, find_tail
from proxy.wire.steps import Steps
from tests.wire_values import call

Outcome = list[SendMessage] | type[Exception]


@pytest.fixture(autouse=True)
def _own_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins without any shape; the leaf, which knows none, does not run."""
    monkeypatch.setattr(scan_compact_send, "_scan", scan_compact_send._by_shapes)
    monkeypatch.setattr(scan_compact_send, "_shapes", Shapes())


def frame_of(batch: list[dict[str, Any]]) -> tuple[bytes, int]:
    """Return a sendBatchSync frame as the reference encoder writes it, and where its list's first element is."""
    frame = call(COMPACT, "sendBatchSync", {"messages": batch})
    count = len(batch)
    return frame.frame, frame.pos + 2 + (len(encode_varint(count)) if count >= 15 else 0)


def by_shape(frame: bytes, pos: int, count: int) -> Outcome:
    """Scan with whatever shapes are known, and learn."""
    try:
        return scan_compact_send._messages(frame, pos, count, Steps())[0]
    except (IndexError, struct.error, UnicodeDecodeError, ArgumentsError):
        return ArgumentsError


def by_field(frame: bytes, pos: int, count: int) -> Outcome:
    """Scan without shapes."""
    view = memoryview(frame)
    messages = []
    try:
        for _ in range(count):
            message, pos = scan_compact_send._message(Steps(), frame, view, pos)
            messages.append(message)
    except (IndexError, struct.error, UnicodeDecodeError, ArgumentsError):
        return ArgumentsError
    return messages


texts = st.sampled_from(["", "k", "key-0001", "key-0002", "schlüssel", "n" * 127, "n" * 128, "n" * 1100])
messages = st.fixed_dictionaries(
    {"topic": st.sampled_from(["permits", "orders", "", "é", "t" * 130])},
    optional={
        "key": texts,
        "value": st.just("v"),
        "hashId": st.sampled_from([0, 1, -1, 63, 64, 65, -65, 1 << 40, (1 << 63) - 1, -(1 << 63)]),
        "tags": texts,
        "partitionId": st.sampled_from([-1, -2, 0, 5, 63, 64, (1 << 31) - 1, -(1 << 31)]),
        "body": st.sampled_from([b"", b"b", b"\xff" * 127, b"b" * 128, bytes(16_384)]),
        "version": st.sampled_from(["", "java-1", "é"]),
        "properties": st.dictionaries(st.sampled_from(["", "traceId", "origin", "ü"]), texts, max_size=3),
        "delayMs": st.just(5),
    },
)
USUAL = {
    "topic": "permits",
    "key": "key-0001",
    "hashId": 300,
    "tags": "created",
    "partitionId": -1,
    "body": b"\xff" * 200,
    "version": "java-1",
    "properties": {"traceId": "5f1c9a7b", "origin": "checkout"},
}


@given(st.lists(st.lists(messages, min_size=1, max_size=4), min_size=1, max_size=4))
@example([[USUAL, {**USUAL, "key": "key-0002"}, {**USUAL, "tags": "paid"}, USUAL]])
@example([[{**USUAL, "version": "v" * n}, {**USUAL, "properties": {"p": "v" * n}}, USUAL] for n in range(1, 30)])
def test_messages_of_any_layout_same_as_field_by_field(batches: list[list[dict[str, Any]]]) -> None:
    """Whatever shapes were learned before, the result is that of the general way; each batch comes three times."""
    for batch in batches:
        frame, pos = frame_of(batch)
        expected = by_field(frame, pos, len(batch))
        for _ in range(3):
            assert by_shape(frame, pos, len(batch)) == expected


def test_number_that_takes_the_next_header_for_its_last_byte_same_as_field_by_field() -> None:
    """A hashId one byte longer than its neighbours', in a message that is right only when it is read so."""
    frame, pos = frame_of([USUAL, USUAL])
    assert by_shape(frame, pos, 2) == by_field(frame, pos, 2)
    changed = bytearray(frame)
    # The tags' header becomes the number's end, their first letters a stop.
    changed[40], changed[44] = 0x80, 0x80
    assert by_field(bytes(changed), pos, 2) != ArgumentsError
    assert by_shape(bytes(changed), pos, 2) == by_field(bytes(changed), pos, 2)


@given(st.data())
def test_near_misses_of_a_known_shape_same_as_field_by_field(data: st.DataObject) -> None:
    """Any few bytes of a message changed: lengths, headers, names, numbers or texts that are no UTF-8 any more."""
    frame, pos = frame_of([USUAL, USUAL])
    assert by_shape(frame, pos, 2) == by_field(frame, pos, 2)
    changed = bytearray(frame)
    body = frame.index(b"\xff" * 200)
    places = [place for place in range(pos, len(frame)) if not body <= place < body + 200]
    for place in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
        changed[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from([0, 0x7F, 0x80, 0xFF])))
    assert by_shape(bytes(changed), pos, 2) == by_field(bytes(changed), pos, 2)
    assert by_shape(frame, pos, 2) == by_field(frame, pos, 2)


def test_every_byte_of_a_known_shape_changed_same_as_field_by_field() -> None:
    """One bit at a time, over a whole message."""
    frame, pos = frame_of([{**USUAL, "body": b"body"}])
    by_shape(frame, pos, 1)
    for place in range(pos, len(frame)):
        for bit in range(8):
            changed = bytearray(frame)
            changed[place] ^= 1 << bit
            assert by_shape(bytes(changed), pos, 1) == by_field(bytes(changed), pos, 1), (place, bit)


def test_cut_at_every_byte_refused() -> None:
    """A message of a known shape that ends early is an error wherever it ends."""
    frame, pos = frame_of([USUAL, USUAL])
    assert by_shape(frame, pos, 2) == by_field(frame, pos, 2)
    end = scan_compact_send._messages(frame, pos, 2, Steps())[1]
    for cut in range(pos, end):
        assert by_shape(frame[:cut], pos, 2) is ArgumentsError
    assert by_shape(frame[:end], pos, 2) == by_field(frame, pos, 2)


def test_body_of_a_known_shape_is_a_slice_of_the_frame() -> None:
    """No body is copied."""
    frame, pos = frame_of([USUAL, USUAL])
    scanned, _ = scan_compact_send._messages(frame, pos, 2, Steps())
    assert all(message.body is not None and message.body.obj is frame for message in scanned)


def test_shape_of_the_first_message_serves_the_others() -> None:
    """One batch of like messages leaves one head with one tail, learned from its first."""
    shapes = scan_compact_send._shapes
    batch = [{**USUAL, "key": f"key-{number:04}", "body": bytes(number)} for number in range(40)]
    frame, pos = frame_of(batch)
    assert by_shape(frame, pos, 40) == by_field(frame, pos, 40)
    [head] = shapes.heads(frame, pos)
    assert [tail.names for tail in head.tails] == [(b"traceId", b"origin")]


def test_shapes_without_end_stay_bounded() -> None:
    """Topics, lengths of tags and lengths of values that never come again do not pile up; those in use stay."""
    shapes = scan_compact_send._shapes
    usual, usual_pos = frame_of([USUAL])
    by_shape(usual, usual_pos, 1)
    for number in range(1, 700):
        by_shape(*frame_of([{**USUAL, "topic": "t" * (1 + number % 100), "tags": "g" * number}]), 1)
        by_shape(*frame_of([{**USUAL, "properties": {"p": "v" * number}}]), 1)
        by_shape(usual, usual_pos, 1)
    assert len(shapes._heads) <= 64
    assert max(len(heads) for heads in shapes._heads.values()) <= 4
    assert max(len(head.tails) for heads in shapes._heads.values() for head in heads) <= 8
    assert shapes.heads(usual, usual_pos)


def test_learn_head_with_an_unusual_layout_learns_nothing() -> None:
    """Fields out of their usual place, values of no bytes and very long values have no shape."""
    for odd in ({"value": "v"}, {"key": ""}, {"topic": "t" * 2000}, {"tags": "g" * 2000}):
        frame, pos = frame_of([{**USUAL, **odd}])
        assert Shapes().learn_head(frame, pos) is None


def test_find_tail_moves_what_it_found_to_the_front() -> None:
    """The tail that was used last is tried first."""
    shapes = Shapes()
    tails: list[Tail] = []
    ends = [b"\x00", b"\x18\x01v\x00", b"\x2b\x01\x88\x01n\x01v\x00"]
    for end in ends:
        shapes.learn_tail(tails, end, 0)
    assert [tail.version for tail in tails] == [None, b"v", None]
    found = find_tail(tails, ends[1], 0)
    assert found is not None
    assert tails[0] == found
    assert found.version == b"v"
    assert find_tail(tails, b"\x18\x01w\x00", 0) is None
    assert len(tails) == 3


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_only_exactly_one_varint(value: int) -> None:
    """A value is read whole; bytes left over, bytes missing and too many bits are refused."""
    raw = encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)
    small = Numbers(absent=-1, bits=32)
    for spoilt in (raw + b"\x00", raw[:-1] + bytes((raw[-1] | 128,))):
        with pytest.raises((IndexError, ArgumentsError)):
            small[spoilt]
    assert small[b""] == -1
    if -(1 << 31) < value < 1 << 31:
        assert small[raw] == value
    else:
        with pytest.raises((IndexError, ArgumentsError)):
            small[raw]


def test_numbers_without_end_stay_bounded() -> None:
    """What is remembered is dropped now and then, except what stands for an absent field."""
    numbers = Numbers(absent=7, bits=64)
    for value in range(10_000):
        assert numbers[encode_varint(value << 1)] == value
    assert len(numbers) <= 4096
    assert numbers[b""] == 7


def test_head_of_a_message_names_its_parts() -> None:
    """Absent fields have literals and values of no bytes; the topic belongs to the first literal."""
    frame, pos = frame_of([{"topic": "t", "tags": "g", "body": b"b"}])
    head = Shapes().learn_head(frame, pos)
    assert isinstance(head, Head)
    assert head.unpack(frame, pos) == (b"", b"", b"", b"", b"\x18\x01t\x48\x01", b"g", b"", b"", b"\x28")
    assert head.topic == b"t"
